"""Tests of `fallow import`."""
