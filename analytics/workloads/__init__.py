"""Frames and phrases that several rules share: work on GPUs, its end, its memory, and how sure all of it is."""
