"""Frames and phrases that several rules share: work on GPUs, its end, its memory, and the confidence of findings."""
