"""Tables as the content of files: CSV and Parquet."""

from __future__ import annotations

import io
from datetime import datetime
from decimal import Decimal

import polars as pl

from fallow.clock import format_ms, to_ms
from fallow.csv_text import csv_text


def as_csv(table: pl.DataFrame) -> bytes:
    """UTF-8 with a header, values as in the commands' CSV: empty is unknown, moments are RFC 3339.

    A text that a spreadsheet would run begins with an apostrophe.
    """
    rows = ([_written(value) for value in row] for row in table.iter_rows())
    return csv_text(table.columns, rows, "\r\n").encode()  # lines end as in RFC 4180


def _written(value: object) -> object:
    if isinstance(value, datetime):
        return format_ms(to_ms(value))
    return f"{value:f}" if isinstance(value, Decimal) else value


def as_parquet(table: pl.DataFrame, metadata: dict[str, str] | None = None) -> bytes:
    """The table as it is."""
    target = io.BytesIO()
    table.write_parquet(target, metadata=metadata)
    return target.getvalue()
