"""Records of text files: lines of tables that people write by hand, and JSON documents one after another."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from typing import Any, TypeVar

import polars as pl

from analytics.importers.source import InputLimits, open_source, table_text
from fallow.errors import InputError

_SHOWN = 5
_AT_ONCE = 20_000
"""Number of rows that are held as Python objects."""

_QUOTING = "close the quote, and double every quote inside quotes"


@dataclass(frozen=True)
class HandTable:
    """The noun for a line (`an allocation`), its possible columns, and the sets of columns of which it needs one.

    `needs` describes these sets in words.
    """

    what: str
    columns: Collection[str]
    required: tuple[frozenset[str], ...]
    needs: str


def read_lines(path: str, table: HandTable, limits: InputLimits) -> pl.DataFrame:
    """Return the file's lines as text columns (null where empty or absent) with `line`. Raises InputError."""
    source = open_source(path, limits)
    if source.text is None or source.cut_off:
        raise InputError(
            f"{path} is {'cut off' if source.cut_off else 'not a CSV file'}", "give a CSV with a header line"
        )
    filled = _records(path, table_text(source))
    names = [name.strip().lower() for name in next(filled)[1]]
    check_header(path, names, table)
    schema = {**dict.fromkeys(table.columns, pl.String()), "line": pl.Int64()}
    return frame_of((_row(path, line, fields, names) for line, fields in filled), schema)


_ABSENT = ("", "-", "n/a", "[n/a]", "null")


def frame_of(rows: Iterator[Mapping[str, object]], schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Return the rows as one frame, null for a lacking column; in parts, as Python objects take ten times the space."""
    parts = [pl.DataFrame(schema=schema)]
    while some := list(islice(rows, _AT_ONCE)):
        parts.append(pl.DataFrame(some, schema=schema))
    return pl.concat(parts)


def _row(path: str, line: int, fields: list[str], names: list[str]) -> dict[str, object]:
    if len(fields) != len(names):
        raise InputError(
            f"{path}, line {line}: {len(fields)} fields where the header names {len(names)}",
            "quote fields that contain a separator",
        )
    values = (None if field.strip().lower() in _ABSENT else field.strip() for field in fields)
    return dict(zip(names, values, strict=True)) | {"line": line}


def _records(path: str, text: bytes) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of each record's last line and its fields, without empty records. Raises InputError."""
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
        ends = "is followed by more text" if "expected after" in str(error) else "has no closing quote"
        raise InputError(f"{path}, line {begins}: a double quote opens a field, which {ends}", _QUOTING) from error


def check_header(path: str, names: list[str], table: HandTable) -> None:
    """Raise InputError for an unknown column, a column that is named twice, or a missing column."""
    for name in names:
        if name not in table.columns:
            near = get_close_matches(name, table.columns, n=1)
            guess = f"did you mean '{near[0]}'? " if near else ""
            noun = table.what.partition(" ")[2]
            raise InputError(
                f"{path} has a column '{name}', which no {noun} has",
                f"{guess}the columns are: {', '.join(table.columns)}",
            )
    if len(set(names)) != len(names):
        raise InputError(f"{path} names a column twice in its header line", "name each column once")
    if not any(each <= set(names) for each in table.required):
        raise InputError(f"{path} lacks the columns of {table.what}", f"it needs {table.needs}")


def named_lines(wrong: Collection[tuple[int, str]], line: str = "line") -> str:
    """Return `line 3: no start; line 5: ...; and 2 more`."""
    named = "; ".join(f"{line} {number}: {reason}" for number, reason in sorted(wrong)[:_SHOWN])
    more = f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    return named + more


_Item = TypeVar("_Item")
CUT_OFF = "in a document that is truncated or damaged"


def read_documents(path: str, text: bytes, limits: InputLimits) -> Iterator[Any]:
    """Yield the JSON values that follow one another or are in lists; None for each text between them that is not JSON.

    One at a time: as Python objects a file takes ten times its size. Raises InputError for a value that is too long,
    and for a file with more damage than documents.
    """
    damaged, at = 0, 0
    while (at := end_of(BETWEEN, text, at)) < len(text):
        found = document_at(path, text, at, limits)
        if found is None:
            damaged += 1
            if damaged > _MOST_DAMAGED:
                raise InputError(f"{path} is damaged in more than {_MOST_DAMAGED:,} places", "fetch or record it again")
            yield None
            again = text.find(b"\n{", at + 1)
            at = len(text) if again < 0 else again + 1
        else:
            value, at = found
            yield value


def document_at(path: str, text: bytes, at: int, limits: InputLimits) -> tuple[Any, int] | None:
    """Return the JSON value that begins there and its end; None without one. Raises InputError if it is too long."""
    size = _PIECE
    while True:
        part = text[at : at + size].decode(errors="ignore")  # the end may split a character
        is_rest = at + size >= len(text)
        try:
            value, end = _DECODER.raw_decode(part)
        except (ValueError, RecursionError) as error:  # not JSON, or a number of too many digits
            if is_rest or not _is_cut(error, part):
                return None
        else:
            if end < len(part) or is_rest:
                return value, at + len(part[:end].encode())
        if size >= limits.max_record_bytes:
            raise limits.too_long(path)
        size = min(8 * size, limits.max_record_bytes)


def _is_cut(error: Exception, part: str) -> bool:
    """Return whether the text may be JSON that continues after this part."""
    if not isinstance(error, json.JSONDecodeError):
        return False
    return error.msg.startswith("Unterminated string") or error.pos >= len(part) - _LONGEST_TOKEN


_DECODER = json.JSONDecoder()
_PIECE = 1 << 14
_LONGEST_TOKEN = 32
_MOST_DAMAGED = 10_000
_COMMA = re.compile(rb"\s*,?\s*")
BETWEEN = re.compile(rb"[\s,\[\]]*")
"""Separators between documents: lists of documents are not read as one value, but one by one."""


def end_of(pattern: re.Pattern[bytes], text: bytes, at: int) -> int:
    """Return the end of the pattern's match there; the place itself where nothing matches."""
    found = pattern.match(text, at)
    return at if found is None else found.end()


def listed_items(
    path: str, text: bytes, listed: tuple[str, str], limits: InputLimits, item_of: Callable[[Any], _Item]
) -> Generator[_Item, None, tuple[Any, bool]]:
    """Return a document without the items of its list, and whether there were none; the items are read one by one.

    A list may be larger than a document. `listed` is its key, and the noun for its items. Raises ValueError where an
    item or the text around the list is incomplete, InputError where either is too long, and the errors of `item_of`.
    """
    key, what = listed
    begin = re.search(rb'"%b"\s*:\s*\[\s*' % key.encode(), text)
    start = at = len(text) if begin is None else begin.end()
    while text.startswith(b"{", at):
        if (found := document_at(path, text, at, limits)) is None:
            raise ValueError(f"the {what} that begins at byte {at:,} is truncated or damaged")
        yield item_of(found[0])
        at = end_of(_COMMA, text, found[1])
    if start + len(text) - at > limits.max_record_bytes:
        raise limits.too_long(path)
    return json.loads(text[:start] + text[at:]), at == start


def fault_of(error: Exception) -> str:
    """Return what is wrong with a JSON document, by the error of its reader, without Python's own words."""
    if isinstance(error, json.JSONDecodeError):
        return f"it is no JSON from byte {error.pos:,} on"
    if isinstance(error, KeyError):
        return f"it lacks the field {error.args[0]!r}"
    own = type(error) is ValueError and "argument" not in str(error) and "literal" not in str(error)
    return str(error) if own else "a field has another type"


def number(value: object) -> float | None:
    """Return the number in a JSON value; None for other values."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
