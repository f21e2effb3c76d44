"""Data quality: what is wrong or thin in the data behind a figure, said aloud and never silently dropped."""
