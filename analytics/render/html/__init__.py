"""The report as one self-contained page without any script, and as the body of a mail."""
