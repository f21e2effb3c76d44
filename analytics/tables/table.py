"""A table: a question, its answer in one sentence, columns over rows, a chart as data, and notes.

A column says once what it is called, what kind of value it has and how the value is read from a row. The cells that people see
and the values that programs get follow from it; renderers format them and compute nothing. In every text here a plain `str` is
a name, which is shown as it is; sentences (`analytics.language.sentences`) are translated, quantities written by the language.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from functools import cached_property
from typing import Any, Literal, TypeAlias, TypedDict

from analytics.glossary import Term
from analytics.language.language import Language
from analytics.language.quantities import (
    Amount,
    Bytes,
    Date,
    Day,
    GpuHours,
    Minutes,
    Moment,
    Number,
    Quantity,
    Share,
    Span,
    rounded_span,
)
from analytics.language.sentences import tr
from analytics.tables.chart import Chart, Text, Values
from fallow.clock import HOUR_MS, SECOND_MS, format_ms

JsonType = Literal["string", "number", "integer", "boolean", "array", "object"]
Kind = Literal[
    "name",
    "pool",
    "gpu",
    "host",
    "holder",
    "team",
    "finding",
    "recommendation",  # names, which pages may link
    "state",
    "grade",
    "words",
    "sentence",
    "moment",
    "bar",
    "gpu_hours",
    "money",
    "share",
    "share_bar",
    "count",
    "number",
    "duration",
]
"""What the cells of a column are. `sentence` may be long, `bar` is a StateBar, and the last row of kinds are figures; pages draw a `share_bar` beside it."""

FIGURES: frozenset[Kind] = frozenset({"gpu_hours", "money", "share", "share_bar", "count", "number", "duration"})
"""Kinds that are set to the right."""


@dataclass(frozen=True)
class StateBar:
    """A bar in a cell: the states' shares of the cell's width, from the left.

    The bar has a ground `track` of the cell's width long, and a line at `mark`.
    """

    shares: Mapping[str, float]
    track: float = 1.0
    mark: float | None = None


@dataclass(frozen=True)
class LinkedCell(Quantity):
    """A text that pages link to what it is about: a `to` of gpu, host, holder, team, finding or recommendation, and its `key`.

    `aside` is said behind it, smaller.
    """

    text: str | Quantity
    to: Kind
    key: str
    aside: str = ""

    def shown(self, language: Language) -> str:
        """Its text alone."""
        return language.shown(self.text)


@dataclass(frozen=True)
class ToCopy(Quantity):
    """Commands to type, or addresses to follow, under a label; documents never break them."""

    label: str
    texts: tuple[str, ...]
    is_address: bool = False

    def shown(self, language: Language) -> str:
        """Return all of it on one line."""
        return language.translate(tr("{label}: {value}", label=self.label, value=" ".join(self.texts)))


Cell: TypeAlias = str | Quantity | StateBar | None
"""None is unknown; an empty string says that there is nothing to say."""


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        key: the name for programs, with its unit: `gpu_hours`, `median_s`, `share`.
        title: the heading for people; without one a document that lists rows as texts gives the cell lines of its own.
        kind: what the values are.
        read: the value of a row: a number in the unit of the kind (`UNITS`), a name, a sentence or a cell that is ready.
            None is unknown.
        machine: what programs read where the cell is not it, such as a list of names or a number behind a sentence.
        json_type: the JSON type of what `machine` returns; without it the kind decides.
        audience: `people` leaves the column out of JSON, CSV and Parquet, `programs` out of what people see.
        digits: how many decimals people see; None for those of the kind.
        columns: those of the records inside a value that is an array or an object. One whose key is empty stands for every
            other name.
        nullable: whether a value may be unknown.
    """

    key: str
    title: str
    kind: Kind
    read: Callable[[Any], object]
    machine: Callable[[Any], object] | None = None
    json_type: JsonType | None = None
    audience: Literal["all", "people", "programs"] = "all"
    digits: int | None = None
    columns: tuple[Column, ...] = ()
    nullable: bool = True

    @property
    def is_figure(self) -> bool:
        """True if the column is set to the right."""
        return self.kind in FIGURES

    @property
    def value_type(self) -> JsonType:
        """The JSON type of the column's values, null beside it."""
        if self.json_type is not None:
            return self.json_type
        if self.kind == "bar":
            return "object"
        return "integer" if self.kind == "count" else "number" if self.is_figure else "string"

    def cell(self, row: object) -> Cell:
        """Return what people see of a row. A number becomes the quantity of the column's kind, a date a `Date`."""
        value = self.read(row)
        if isinstance(value, date):
            return Date(value)
        if isinstance(value, float | int | Decimal) and not isinstance(value, bool):
            return UNITS[self.kind](value, *(() if self.digits is None else (self.digits,)))
        return value  # type: ignore[return-value]  # a cell that is ready

    def value(self, row: object) -> object:
        """Return what programs read of a row: in hours, seconds, ratios, amounts; None is unknown, or nothing to say."""
        if self.kind == "duration" and self.machine is None and isinstance(spent := self.read(row), int | float):
            return spent / SECOND_MS
        value = self.cell(row) if self.machine is None else self.machine(row)
        return None if value == "" else plain_value(value)


UNITS: Mapping[Kind, Callable[..., Quantity]] = {
    "gpu_hours": GpuHours,  # milliseconds
    "share": Share,  # a ratio
    "share_bar": Share,
    "count": Number,
    "number": Number,
    "money": lambda value, digits=2: Number(value, digits),  # in a currency that the title names
    "duration": rounded_span,  # milliseconds, exact for programs
    "moment": Moment,  # milliseconds since the epoch
}
"""The quantity that a number of a column becomes. Money whose currency no title names is read as an `Amount`."""


_PLAIN: Mapping[type, Callable[[Any], object]] = {
    GpuHours: lambda cell: cell.milliseconds / HOUR_MS,
    Share: lambda cell: cell.ratio,
    Span: lambda cell: cell.milliseconds / SECOND_MS,
    Minutes: lambda cell: cell.milliseconds / SECOND_MS,
    Moment: lambda cell: format_ms(cell.moment_ms),
    Day: lambda cell: format_ms(cell.moment_ms),
    Date: lambda cell: cell.date.isoformat(),
    date: date.isoformat,
    Bytes: lambda cell: cell.size,
    Number: lambda cell: _number(cell.value),
    Amount: lambda cell: _number(cell.value),
    LinkedCell: lambda cell: cell.key,
    StateBar: lambda cell: dict(cell.shares),
}


def _number(value: float | Decimal | None) -> float | None:
    return float(value) if isinstance(value, Decimal) else value


def plain_value(cell: object) -> object:
    """Return a cell as programs read it.

    GPU time is in hours, other time in seconds, a share is a ratio, a moment RFC 3339, a sentence its English text. Lists and
    objects are for programs already.
    """
    if cell is None or isinstance(cell, bool | int | float | dict | list):
        return cell
    if isinstance(cell, tuple):
        return [plain_value(each) for each in cell]
    return _PLAIN.get(type(cell), str)(cell)


def column(  # one name for each attribute
    key: str,
    title: str,
    kind: Kind,
    read: str | Callable[[Any], object] | None = None,
    machine: str | Callable[[Any], object] | None = None,
    *,
    json_type: JsonType | None = None,
    audience: Literal["all", "people", "programs"] = "all",
    digits: int | None = None,
) -> Column:
    """Return a column that reads the attribute `key` of a row, the one at the path `read`, or what `read` returns.

    A path such as `today.jobs` leads through attributes; where one of them is None, so is the value. The empty path is the
    row itself.
    """
    other = _at(machine) if isinstance(machine, str) else machine
    return Column(key, title, kind, _reader(key, read), other, json_type, audience, digits)


def fact(
    key: str,
    kind: Kind,
    read: str | Callable[[Any], object] | None = None,
    json_type: JsonType | None = None,
    about: str = "",
    *,
    nullable: bool = True,
) -> Column:
    """Return a column for programs alone, which reads as `column` does; `about` describes it in the JSON Schema."""
    made = column(key, about, kind, read, json_type=json_type, audience="programs")
    return replace(made, nullable=nullable)


def flag(key: str, read: str | Callable[[Any], object] | None = None, about: str = "") -> Column:
    """Return a column for programs that is true or false."""
    return fact(key, "words", read, "boolean", about, nullable=False)


def _at(path: str) -> Callable[[Any], Any]:
    names = path.split(".") if path else ()

    def read(row: Any) -> object:
        for name in names:
            row = None if row is None else getattr(row, name)
        return row

    return read


def column_of(part: str | Callable[[Any], object], figure: Column, key: str = "") -> Column:
    """Return a figure that reads a part of the row: its attribute `part`, or what that returns; unknown without the part."""
    find = _at(part) if isinstance(part, str) else part

    def of_part(read: Callable[[Any], object]) -> Callable[[Any], object]:
        return lambda row: None if (found := find(row)) is None else read(found)

    machine = None if figure.machine is None else of_part(figure.machine)
    return replace(figure, key=key or figure.key, read=of_part(figure.read), machine=machine)


@dataclass(frozen=True)
class Fold:
    """What a document keeps behind its title until somebody opens it; `facts` have a label each, `command` is to type."""

    key: str
    title: str
    facts: tuple[tuple[str, Cell], ...]
    lines: tuple[str, ...]
    command: str


@dataclass(frozen=True)
class Table:
    """One table, with its question and its answer.

    Attributes:
        name: the key; what addresses, ids, files and JSON are named by.
        question: what a reader wants to know.
        headline: the answer in one sentence.
        rows: what the columns read.
        shown: how many rows a document lists; None for all. Pages and programs get all.
        rest: what a document says of the others.
        lines: sentences as a list, where the table has some.
        folds: what is behind a title each, until somebody opens it; paper leaves it out.
        chart_note: what the chart leaves out; said where it is drawn.
        notes: what to know of the figures.
        terms: words of the table that a reader may not know.
        states: states that are drawn, for the legend.
        wide: whether it needs the whole width of a page.
        audience: `programs` keeps figures for JSON, CSV and Parquet that people read in another table's sentences.
    """

    name: str
    title: str
    question: str
    headline: str
    columns: tuple[Column, ...] = ()
    rows: tuple[Any, ...] = ()
    shown: int | None = None
    rest: str = ""
    lines: tuple[str, ...] = ()
    folds: tuple[Fold, ...] = ()
    chart: Chart | None = None
    chart_note: str = ""
    notes: tuple[str, ...] = ()
    terms: tuple[Term, ...] = ()
    states: tuple[str, ...] = ()
    wide: bool = False
    audience: Literal["all", "programs"] = "all"

    @property
    def heads(self) -> tuple[Column, ...]:
        """The columns that people see."""
        return tuple(each for each in self.columns if each.audience != "programs")

    @cached_property
    def cells(self) -> tuple[tuple[Cell, ...], ...]:
        """All rows as people see them, a cell for each of `heads`; none where all columns are for programs."""
        return tuple(tuple(each.cell(row) for each in self.heads) for row in self.rows) if self.heads else ()

    @property
    def listed(self) -> tuple[tuple[Cell, ...], ...]:
        """The rows that a document lists."""
        return self.cells[: self.shown]

    @property
    def left_out(self) -> str:
        """What a document says of what it does not list; empty where it lists all."""
        return self.rest if len(self.listed) < len(self.cells) else ""

    def records(self) -> list[dict[str, object]]:
        """All rows as programs read them, by the keys of the columns."""
        return records(self.columns, self.rows)

    def with_columns(self, keys: Collection[str]) -> Table:
        """Return the table with only the columns of these keys, in the order in which it has them."""
        return replace(self, columns=tuple(each for each in self.columns if each.key in keys))


class DrawnColumn(TypedDict):
    """Values with how each is written, as marks of a chart take them."""

    values: Values
    shown: tuple[Text, ...]


def drawn(column: Column, rows: Iterable[object]) -> DrawnColumn:
    """Return what a mark of a chart draws of a column of numbers."""
    listed = tuple(rows)
    values: Any = tuple(map(column.value, listed))
    shown: Any = tuple(map(column.cell, listed))
    return {"values": values, "shown": shown}


def record(columns: Iterable[Column], row: object) -> dict[str, object]:
    """Return one row as programs read it, by the keys of the columns."""
    return {each.key: each.value(row) for each in columns if each.audience != "people"}


def records(columns: Sequence[Column], rows: Iterable[object]) -> list[dict[str, object]]:
    """Return rows as programs read them."""
    return [record(columns, row) for row in rows]


def table_json(table: Table) -> dict[str, object]:
    """Return a table as JSON has it under its name: its answer in English, and its rows."""
    return ({"headline": str(table.headline)} if table.headline else {}) | {"rows": table.records()}


def rows_column(
    key: str, columns: Sequence[Column], rows: str | Callable[[Any], Any] | None = None, about: str = ""
) -> Column:
    """Return a column for programs whose value is a list of rows."""
    find = _reader(key, rows)
    return _nested(key, "array", columns, lambda row: records(columns, find(row)), about)


def record_column(
    key: str, columns: Sequence[Column], read: str | Callable[[Any], Any] | None = None, about: str = ""
) -> Column:
    """Return a column for programs whose value is one record; null where there is none."""
    find = _reader(key, read)

    def value(row: Any) -> object:
        return None if (part := find(row)) is None else record(columns, part)

    return replace(_nested(key, "object", columns, value, about), nullable=True)


def entries_column(
    key: str, entry: Column, read: str | Callable[[Any], Mapping[Any, Any]] | None = None, about: str = ""
) -> Column:
    """Return a column for programs whose value is an object of any names; `entry` reads what is behind each."""
    find = _reader(key, read)

    def value(row: Any) -> object:
        return {str(name): entry.value(each) for name, each in find(row).items()}

    return _nested(key, "object", (replace(entry, key=""),), value, about)


def _reader(key: str, read: str | Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    path = key if read is None else read
    return _at(path) if isinstance(path, str) else path


def _nested(
    key: str, json_type: JsonType, columns: Sequence[Column], value: Callable[[Any], object], about: str
) -> Column:
    return replace(fact(key, "words", value, json_type, about, nullable=False), columns=tuple(columns))


def single(name: str, columns: tuple[Column, ...], row: object) -> Table:
    """Return figures for programs: a table of one row that people read in the sentences of other tables."""
    return for_programs(name, columns, (row,))


def for_programs(name: str, columns: tuple[Column, ...], rows: Iterable[object]) -> Table:
    """Return a table for programs alone."""
    return Table(name, "", "", "", columns, tuple(rows), audience="programs")
