"""Sections of the report and the pages, one file each: a question, its answer, a typed table and a chart as data."""
