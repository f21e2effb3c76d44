"""The report as one self-contained page without scripts, and as the body of a mail."""
