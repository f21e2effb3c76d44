"""The supervisor: it times the intervals, queries the worker, collects rows, and answers requests about the run."""
