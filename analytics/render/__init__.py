"""Text, Markdown, HTML, CSV and JSON: these modules format tables and compute nothing."""
