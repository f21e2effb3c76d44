"""Tables as CSV, for commands and pages alike: no cell that a spreadsheet would run, none with something hidden in it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

from fallow.outside_text import csv_cell


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]], line_end: str = "\n") -> str:
    """A header and the rows; None is an empty cell."""
    target = io.StringIO(newline="")
    writer = csv.writer(target, lineterminator=line_end)
    writer.writerow([csv_cell(each) for each in columns])
    writer.writerows([csv_cell(each) for each in row] for row in rows)
    return target.getvalue()


def csv_of(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """The same of rows by column; a column that a row lacks is empty, and what else it has is left out."""
    return csv_text(columns, ([row.get(name) for name in columns] for row in rows))
