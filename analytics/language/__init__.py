"""Sentences in the reader's language: English text in the code, and catalogues with translations."""
