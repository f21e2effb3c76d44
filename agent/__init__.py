"""Samples GPUs and processes on one host and publishes them to the lake."""
