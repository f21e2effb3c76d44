"""The lake and its derived data as views of DuckDB, for questions in SQL."""
