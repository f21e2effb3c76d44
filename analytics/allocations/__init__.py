"""Allocations: who was given which GPU for which time, from schedulers and from files."""
