"""Evaluation of fallow's conclusions by labels from others."""
