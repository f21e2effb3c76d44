"""Keeps a lake up with a metrics server: window after window, late samples, outages and restarts included."""
