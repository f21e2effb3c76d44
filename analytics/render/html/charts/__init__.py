"""The page's charts, one file each: a pure function from the report to a drawing, a finding in words and a table."""
