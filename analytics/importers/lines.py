"""Tables that people write by hand, read line by line: every cell as text, and each mistake by the number of its line."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice

import polars as pl

from analytics.importers.limits import InputLimits
from analytics.importers.source import open_source
from fallow.errors import InputError

_SHOWN = 5
_AT_ONCE = 20_000
"""Rows that are held as Python objects, which take ten times the space of the column that they become."""

_QUOTING = "close it, and write a quote inside of quotes twice"


@dataclass(frozen=True)
class HandTable:
    """What a line is about (`an allocation`), the columns that there may be, and sets of them of which it needs one.

    `needs` says the latter in words.
    """

    what: str
    columns: Collection[str]
    required: tuple[frozenset[str], ...]
    needs: str


def read_lines(path: str, table: HandTable, limits: InputLimits) -> pl.DataFrame:
    """The file's lines as text columns (null where empty or left out) with `line`; raises InputError."""
    source = open_source(path, limits)
    if source.text is None or source.cut_off:
        raise InputError(
            f"{path} is {'cut off' if source.cut_off else 'not a CSV file'}", "give a CSV with a header line"
        )
    filled = _records(path, source.text)
    names = [name.strip().lower() for name in next(filled)[1]]
    check_header(path, names, table)
    schema = {**dict.fromkeys(table.columns, pl.String), "line": pl.Int64}
    rows = (_row(path, line, fields, names) for line, fields in filled)
    parts = []
    while records := list(islice(rows, _AT_ONCE)):
        parts.append(pl.DataFrame(records, schema=schema))
    return pl.concat(parts) if parts else pl.DataFrame(schema=schema)


def _row(path: str, line: int, fields: list[str], names: list[str]) -> dict[str, object]:
    if len(fields) != len(names):
        raise InputError(
            f"{path}, line {line}: {len(fields)} fields where the header names {len(names)}",
            "quote what holds a separator",
        )
    return {name: field.strip() or None for name, field in zip(names, fields, strict=True)} | {"line": line}


def _records(path: str, text: bytes) -> Iterator[tuple[int, list[str]]]:
    """The number of each record's last line and its fields, records without any text left out; raises InputError."""
    head = text.lstrip().partition(b"\n")[0].decode()
    lines = io.TextIOWrapper(io.BytesIO(text), encoding="utf-8", newline="")
    reader = csv.reader(lines, delimiter=max(",;\t", key=head.count), strict=True)
    begins = 1
    try:
        for fields in reader:
            if any(field.strip() for field in fields):
                yield reader.line_num, fields
            begins = reader.line_num + 1
    except csv.Error as error:
        ends = "behind it stands more text" if "expected after" in str(error) else "it has no closing one"
        raise InputError(f"{path}, line {begins}: a double quote opens a field, and {ends}", _QUOTING) from error


def check_header(path: str, names: list[str], table: HandTable) -> None:
    """Raises InputError for a column that the table does not have, one that is named twice, or one that is lacking."""
    for name in names:
        if name not in table.columns:
            near = get_close_matches(name, table.columns, n=1)
            guess = f"did you mean '{near[0]}'? " if near else ""
            noun = table.what.partition(" ")[2]
            raise InputError(
                f"{path} has a column '{name}', which no {noun} has", f"{guess}there are: {', '.join(table.columns)}"
            )
    if len(set(names)) != len(names):
        raise InputError(f"{path} names a column twice in its header line", "name each column once")
    if not any(each <= set(names) for each in table.required):
        raise InputError(f"{path} lacks the columns of {table.what}", f"it needs {table.needs}")


def named_lines(wrong: Collection[tuple[int, str]], line: str = "line") -> str:
    """`line 3: no start; line 5: ...; and 2 more`."""
    named = "; ".join(f"{line} {number}: {reason}" for number, reason in sorted(wrong)[:_SHOWN])
    more = f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    return named + more
