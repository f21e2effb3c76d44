"""The lake and what is derived from it as views of DuckDB, for questions in SQL."""
