"""Measurements of the docs' claims: `make bench` runs everything and writes benchmarks/results.json."""
