"""Data quality: faults and gaps in the data behind a figure, always reported and never silently dropped."""
