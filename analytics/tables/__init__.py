"""Tables of the report and the pages, one file each: a question, its answer, typed columns and a chart as data."""
