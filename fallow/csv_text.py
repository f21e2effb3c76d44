"""Tables as CSV for commands and pages, without cells that a spreadsheet would run and without invisible characters."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

from fallow.outside_text import csv_cell


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]], line_end: str = "\n") -> str:
    """Return a header and the rows as CSV; None is an empty cell."""
    target = io.StringIO(newline="")
    writer = csv.writer(target, lineterminator=line_end)
    writer.writerow([csv_cell(each) for each in columns])
    writer.writerows([csv_cell(each) for each in row] for row in rows)
    return target.getvalue()


def csv_of(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """Return CSV of rows that are mappings; a missing column is empty, and other keys are left out."""
    return csv_text(columns, ([row.get(name) for name in columns] for row in rows))
