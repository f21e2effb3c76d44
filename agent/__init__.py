"""Samples GPUs and processes on one host and publishes them to the lake."""

import fallow  # noqa: F401  # prepares what every process of the agent loads
