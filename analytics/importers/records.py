"""Records of text files: lines of tables that people write by hand, and JSON documents that stand one after another."""

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

from analytics.importers.source import InputLimits, open_source
from fallow.errors import InputError

_SHOWN = 5
_AT_ONCE = 20_000
"""Rows that are held as Python objects."""

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
    schema = {**dict.fromkeys(table.columns, pl.String()), "line": pl.Int64()}
    return frame_of((_row(path, line, fields, names) for line, fields in filled), schema)


def frame_of(rows: Iterator[Mapping[str, object]], schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """The rows as one frame, null where a row lacks a column; made in parts, for as Python objects they take ten times the space."""
    parts = [pl.DataFrame(schema=schema)]
    while some := list(islice(rows, _AT_ONCE)):
        parts.append(pl.DataFrame(some, schema=schema))
    return pl.concat(parts)


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


_Item = TypeVar("_Item")
CUT_OFF = "in a document that is cut off or damaged"


def read_documents(path: str, text: bytes, limits: InputLimits) -> Iterator[Any]:
    """The JSON values that stand one after another or in lists; None for each stretch between them that is none.

    One at a time: as Python objects a file takes ten times its size. Raises InputError for one that is too long, and for a
    file that is more damage than documents.
    """
    damaged, at = 0, 0
    while (at := _past(_BETWEEN, text, at)) < len(text):
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
    """The JSON value that begins there and where it ends; None where none does. Raises InputError for one that is too long."""
    size = _PIECE
    while True:
        piece = text[at : at + size].decode(errors="ignore")  # the end may part a character
        is_rest = at + size >= len(text)
        try:
            value, end = _DECODER.raw_decode(piece)
        except (ValueError, RecursionError) as error:  # not JSON, or a number of too many digits
            if is_rest or not _is_cut(error, piece):
                return None
        else:
            if end < len(piece) or is_rest:
                return value, at + len(piece[:end].encode())
        if size >= limits.max_record_bytes:
            raise limits.too_long(path)
        size = min(8 * size, limits.max_record_bytes)


def _is_cut(error: Exception, piece: str) -> bool:
    """Whether the text may be JSON that only goes on behind the piece."""
    if not isinstance(error, json.JSONDecodeError):
        return False
    return error.msg.startswith("Unterminated string") or error.pos >= len(piece) - _LONGEST_TOKEN


_DECODER = json.JSONDecoder()
_PIECE = 1 << 14
_LONGEST_TOKEN = 32
_MOST_DAMAGED = 10_000
_COMMA = re.compile(rb"\s*,?\s*")
_BETWEEN = re.compile(rb"[\s,\[\]]*")
"""What may stand between documents: the lists that hold them are not read as one value, but one by one."""


def _past(pattern: re.Pattern[bytes], text: bytes, at: int) -> int:
    """Where what the pattern matches there ends; the place itself where nothing does."""
    found = pattern.match(text, at)
    return at if found is None else found.end()


def listed_items(
    path: str, text: bytes, listed: tuple[str, str], limits: InputLimits, item_of: Callable[[Any], _Item]
) -> Generator[_Item, None, tuple[Any, bool]]:
    """The items of a document's list one by one, for a list may be larger than a document may be.

    Returns the document without them, and whether there were none. Raises ValueError where an item or what surrounds the list is not whole, what
    `item_of` raises, and InputError for what is too long.

    Args:
        path: what to call the text in messages.
        text: the document.
        listed: the key of the list, and what its items are.
        limits: how large an item, and what surrounds the list, may be.
        item_of: what is read of each item.
    """
    key, what = listed
    begin = re.search(rb'"%b"\s*:\s*\[\s*' % key.encode(), text)
    start = at = len(text) if begin is None else begin.end()
    while text.startswith(b"{", at):
        if (found := document_at(path, text, at, limits)) is None:
            raise ValueError(f"the {what} that begins at byte {at:,} is cut off or damaged")
        yield item_of(found[0])
        at = _past(_COMMA, text, found[1])
    if start + len(text) - at > limits.max_record_bytes:
        raise limits.too_long(path)
    return json.loads(text[:start] + text[at:]), at == start


def number(value: object) -> float | None:
    """The number that a JSON value is; None for what is none."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
