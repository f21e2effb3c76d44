"""Keeps time, asks the worker, gathers rows, and answers whoever asks about the run."""
