"""The waste report: one set of numbers, several formats."""
