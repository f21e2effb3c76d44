"""What scraped samples can say: rows of the lake's tables that claim no more than the series saw."""
