"""What the docs claim, measured: `make bench` runs everything and writes benchmarks/results.json."""
