"""Demand for GPUs by hour, and the GPUs that can be released."""
