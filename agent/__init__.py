"""Samples GPUs and processes on one host and publishes them to the lake."""

import fallow  # noqa: F401  # it loads dataclasses without inspect, so it comes before all others
