"""Reads a metrics server's raw samples, politely: whatever answers, and by the fastest way that it offers."""
