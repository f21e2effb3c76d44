"""How a table's filters and order stand in an address: short, readable, and of its own columns only.

`filter=holder:farid,cost.above:100,since.after:2026-11-01` names a column, how it is compared, and with what. Parts with a
comma between them hold all at once; of several with `|` between them, all about one column, one has to hold. A backslash goes
before a comma, a bar or a backslash that belongs to a value. `sort=-cost,holder` is the highest cost first, then the holders.
`show=all` lists also what the table leaves out by itself. The browser writes them and reads them back
(assets/filters.js); here they are only looked through.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date

from analytics.language.plain_text import plain
from dashboard.grid import MOMENT, NUMBER, RANK, TEXT, GridColumn
from dashboard.query import Query
from fallow.errors import UsageError

_MOST_PARTS = 2
"""Conditions on one column: so many fields has its filter."""

_WITHOUT_VALUE = ("unknown", "known")
_OF_TEXT = ("", "without", "is", "not", "begins", "ends", *_WITHOUT_VALUE)
_OPERATORS: Mapping[str, tuple[str, ...]] = {
    TEXT: _OF_TEXT,
    RANK: _OF_TEXT,
    NUMBER: ("", "not", "below", "above", "most", "least", "between", *_WITHOUT_VALUE),
    MOMENT: ("", "not", "before", "after", "between", *_WITHOUT_VALUE),
}
"""How a column of each kind can be compared; without a word it is `contains` for a text, `is` for all others."""

_PIECE = re.compile(r"(?:[^\\,|]|\\.)*", re.DOTALL)
_NUMBER = re.compile(r"-?\d{1,15}(\.\d{1,15})?", re.ASCII)


def check(query: Query, columns: Sequence[GridColumn]) -> None:
    """Raises UsageError for filters and an order that these columns cannot have, and for what cannot be shown."""
    kinds = {each.field: each.kind for each in columns}
    if query.show not in ("", "all"):
        raise UsageError(f"'{plain(query.show)}' is nothing to show", "take show=all for suppressed findings too")
    if query.filter:
        _check_filters(query.filter, kinds)
    fields = query.sort.split(",") if query.sort else []
    for each in fields:
        _kind(each.removeprefix("-"), kinds)
    if len({each.removeprefix("-") for each in fields}) < len(fields):
        raise UsageError("the order of the address names a column twice", "name each once, as in sort=-cost,holder")


def _check_filters(filters: str, kinds: Mapping[str, str]) -> None:
    of_column: dict[str, int] = {}
    for part in _split(filters):
        column = _column(part[0])
        if any(_column(each) != column for each in part):
            raise UsageError("a filter of the address joins two columns by '|'", "join what is about one column")
        for each in part:
            _check_piece(each, _kind(column, kinds))
        if len(part) > 1 and column in of_column:
            raise _too_much(column)
        of_column[column] = of_column.get(column, 0) + len(part)
        if of_column[column] > _MOST_PARTS:
            raise _too_much(column)


def _split(filters: str) -> list[list[str]]:
    """The parts that hold at once, each with its alternatives, without their backslashes."""
    parts: list[list[str]] = [[]]
    at = 0
    while True:
        found = _PIECE.match(filters, at)
        at = found.end() if found else at
        parts[-1].append(re.sub(r"\\(.)", r"\1", found[0] if found else "", flags=re.DOTALL))
        if at >= len(filters):
            return parts
        if filters[at] == "\\":
            raise UsageError("a filter of the address ends within a sign", "write \\\\ for one backslash")
        if filters[at] == ",":
            parts.append([])
        at += 1


def _column(piece: str) -> str:
    return piece.partition(":")[0].partition(".")[0]


def _kind(column: str, kinds: Mapping[str, str]) -> str:
    if column not in kinds:
        raise UsageError(f"the table has no column '{plain(column)}'", f"take one of {', '.join(kinds)}")
    return kinds[column]


def _check_piece(piece: str, kind: str) -> None:
    head, colon, value = piece.partition(":")
    column, _, operator = head.partition(".")
    if operator not in _OPERATORS[kind] or (head.endswith(".") and not operator):
        known = ", ".join(each for each in _OPERATORS[kind] if each)
        raise UsageError(f"'{plain(operator)}' does not compare the column '{column}'", f"take one of {known}, or none")
    if operator in _WITHOUT_VALUE:
        is_right = not colon
    elif operator == "between":
        is_right = _is_pair(value, _IS_VALUE[kind])
    else:
        is_right = _IS_VALUE[kind](value)
    if not is_right:
        raise UsageError(f"'{plain(piece)}' is no filter of the column '{column}'", "choose it anew in the table")


def _is_pair(value: str, is_value: Callable[[str], bool]) -> bool:
    first, dots, last = value.partition("..")
    return bool(dots) and is_value(first) and is_value(last)


def _is_number(value: str) -> bool:
    return bool(_NUMBER.fullmatch(value))


def _is_day(value: str) -> bool:
    try:
        return date.fromisoformat(value).isoformat() == value
    except ValueError:
        return False


_IS_VALUE: Mapping[str, Callable[[str], bool]] = {TEXT: bool, RANK: bool, NUMBER: _is_number, MOMENT: _is_day}


def _too_much(column: str) -> UsageError:
    return UsageError(
        f"the address has too many filters of the column '{plain(column)}'", f"stay at {_MOST_PARTS} on one column"
    )
