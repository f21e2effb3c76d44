"""Allocations: which user had which GPU at which time, from schedulers and from files."""
