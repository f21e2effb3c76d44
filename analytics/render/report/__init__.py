"""The report as documents, a format per file."""
