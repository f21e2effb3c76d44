"""Reads raw samples from any metrics server of this family within limits, by the fastest way that it offers."""
