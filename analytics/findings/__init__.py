"""Findings: GPUs that can be taken back, each with its evidence, how sure it is and what to type next."""
