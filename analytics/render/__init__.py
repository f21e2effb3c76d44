"""Text, Markdown, HTML, CSV and JSON: formats what it is given and computes nothing."""
