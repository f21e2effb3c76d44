"""Sentences that are said in the reader's language: English text as it stands in the code, and catalogues beside it."""
