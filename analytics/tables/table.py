"""A table: a question, its answer in one sentence, columns over rows, a chart as data, and notes.

A column defines once its title, the kind of its values and how to read a value from a row. Cells for people and values
for programs follow from this definition. Renderers format them and compute nothing. In every text here a plain `str` is
a name and is shown unchanged. Sentences (`analytics.language.sentences`) are translated, and the language formats
quantities.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from functools import cached_property
from typing import Any, Literal, TypeAlias, TypedDict

from analytics.glossary import Term
from analytics.language.sentences import (
    ENGLISH,
    Amount,
    Bytes,
    Date,
    Day,
    GpuHours,
    Language,
    Minutes,
    Moment,
    Number,
    Quantity,
    Share,
    Span,
    rounded_span,
    tr,
)
from analytics.tables.chart import Chart, Text, Values
from fallow.clock import HOUR_MS, SECOND_MS, format_ms

JsonType = Literal["string", "number", "integer", "boolean", "array", "object"]
Kind = Literal[
    "name",
    "pool",
    "gpu",
    "host",
    "user",
    "team",
    "finding",
    "recommendation",  # names, which pages may link
    "state",
    "grade",
    "words",
    "sentence",
    "moment",
    "day",
    "bar",
    "gpu_hours",
    "money",
    "share",
    "share_bar",
    "count",
    "number",
    "duration",
]
"""Kinds of cells.

A `sentence` may be long, a `day` is a calendar day without a time zone, a `bar` is a StateBar. The last row of kinds
are figures; pages draw a `share_bar` beside the figure.
"""

FIGURES: frozenset[Kind] = frozenset({"gpu_hours", "money", "share", "share_bar", "count", "number", "duration"})
"""Kinds that are aligned right."""


@dataclass(frozen=True)
class StateBar:
    """A bar in a cell: the states' shares of the cell's width, from the left.

    The background is `track` of the cell's width long. A line is drawn at `mark`.
    """

    shares: Mapping[str, float]
    track: float = 1.0
    mark: float | None = None


@dataclass(frozen=True)
class LinkedCell(Quantity):
    """A text that pages link to its subject.

    `to` is gpu, host, user, team, finding or recommendation, and `key` its key. `aside` follows the text in smaller
    letters.
    """

    text: str | Quantity
    to: Kind
    key: str
    aside: str = ""

    def shown(self, language: Language) -> str:
        """Return the text alone."""
        return language.shown(self.text)


@dataclass(frozen=True)
class ToCopy(Quantity):
    """Commands to run, or addresses to open, under a label. Documents never break them over lines."""

    label: str
    texts: tuple[str, ...]
    is_address: bool = False

    def shown(self, language: Language) -> str:
        """Return all of it on one line."""
        return language.translate(tr("{label}: {value}", label=self.label, value=" ".join(self.texts)))


Cell: TypeAlias = str | Quantity | StateBar | None
"""None is unknown; an empty string is an empty cell."""


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        key: the name for programs, with its unit: `gpu_hours`, `median_s`, `share`.
        title: the heading for people. Without a title, a document that lists rows as text puts the cell on lines of its
            own.
        kind: the kind of the values.
        read: returns the value of a row: a number in the unit of the kind (`UNITS`), a name, a sentence or a finished
            cell. None is unknown.
        machine: returns the value for programs where it differs from the cell, such as a list of names or a number
            behind a sentence.
        json_type: the JSON type of the value of `machine`; by default the type of the kind.
        audience: `people` leaves the column out of JSON, CSV and Parquet; `programs` leaves it out of what people see.
        digits: the decimals that people see; None for those of the kind.
        columns: the columns of records inside an array or object. A column with an empty key describes every other
            name.
        nullable: True if a value may be unknown.
        missing: the cell of an unknown value.
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
    missing: Cell = None

    @property
    def is_figure(self) -> bool:
        """Return True if the column is aligned right."""
        return self.kind in FIGURES

    @property
    def value_type(self) -> JsonType:
        """Return the JSON type of the column's values, with null where values may be unknown."""
        if self.json_type is not None:
            return self.json_type
        if self.kind == "bar":
            return "object"
        return "integer" if self.kind == "count" else "number" if self.is_figure else "string"

    def cell(self, row: object) -> Cell:
        """Return the cell that people see. A number becomes the quantity of the column's kind, a date a `Date`."""
        known = self._known(row)
        return self.missing if known is None else known

    def _known(self, row: object) -> Cell:
        value = self.read(row)
        if isinstance(value, date):
            return Date(value)
        if isinstance(value, float | int | Decimal) and not isinstance(value, bool):
            return UNITS[self.kind](value, *(() if self.digits is None else (self.digits,)))
        return value  # type: ignore[return-value]  # a cell that is ready

    def value(self, row: object) -> object:
        """Return the value for programs: hours, seconds, ratios or amounts. None is unknown or an empty cell."""
        if self.kind == "duration" and self.machine is None and isinstance(spent := self.read(row), int | float):
            return spent / SECOND_MS
        value = self._known(row) if self.machine is None else self.machine(row)
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
"""Quantity of a column's numbers. Money whose currency is not in the title is read as an `Amount`."""


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
    """Return a cell as a value for programs.

    GPU time is in hours, other time in seconds, a share is a ratio, a moment RFC 3339, a sentence its English text.
    Lists and objects are returned unchanged.
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
    nullable: bool = True,
    missing: Cell = None,
) -> Column:
    """Return a column that reads a value from a row.

    `read` is a function or a path; by default the path is `key`. A path such as `today.jobs` leads through attributes
    and the keys of mappings; if one of them is None, the value is None. The empty path is the row.
    """
    other = _at(machine) if isinstance(machine, str) else machine
    return Column(key, title, kind, _reader(key, read), other, json_type, audience, digits, (), nullable, missing)


def fact(
    key: str,
    kind: Kind,
    read: str | Callable[[Any], object] | None = None,
    json_type: JsonType | None = None,
    about: str = "",
    *,
    nullable: bool = True,
) -> Column:
    """Return a column for programs, which reads like `column`. `about` describes it in the JSON Schema."""
    return column(key, about, kind, read, json_type=json_type, audience="programs", nullable=nullable)


def flag(key: str, read: str | Callable[[Any], object] | None = None, about: str = "") -> Column:
    """Return a Boolean column for programs."""
    return fact(key, "words", read, "boolean", about, nullable=False)


def _at(path: str) -> Callable[[Any], Any]:
    names = path.split(".") if path else ()

    def read(row: Any) -> object:
        for name in names:
            row = None if row is None else row[name] if isinstance(row, Mapping) else getattr(row, name)
        return row

    return read


def column_of(part: str | Callable[[Any], object], figure: Column, key: str = "") -> Column:
    """Return the column `figure`, but read from a part of the row; the cell is unknown if that part is None.

    `part` is a path of attributes, or a function of the row. `key` replaces the key of the column.
    """
    find = _at(part) if isinstance(part, str) else part

    def of_part(read: Callable[[Any], object]) -> Callable[[Any], object]:
        return lambda row: None if (found := find(row)) is None else read(found)

    machine = None if figure.machine is None else of_part(figure.machine)
    return replace(figure, key=key or figure.key, read=of_part(figure.read), machine=machine)


@dataclass(frozen=True)
class Fold:
    """A text behind a title that documents show on request.

    Each of the `facts` has a label; `command` is the next command.
    """

    key: str
    title: str
    facts: tuple[tuple[str, Cell], ...]
    lines: tuple[str, ...]
    command: str


@dataclass(frozen=True)
class Table:
    """One table, with its question and its answer.

    Attributes:
        name: the key in addresses, ids, file names and JSON.
        question: the question of a reader.
        headline: the answer in one sentence.
        rows: the objects that the columns read.
        shown: the number of rows that a document lists; None for all. Pages and programs get all.
        rest: a sentence about the rows that a document leaves out.
        lines: sentences as a list.
        folds: texts behind a title each; paper leaves them out.
        chart_note: a sentence about marks that the chart leaves out, shown beside the chart.
        notes: sentences about the figures.
        terms: words of the table that need an explanation.
        states: the drawn states, for the legend.
        wide: True if the table needs the whole width of a page.
        ranked_by: the key of the figure that ranks the rows, if a page folds rows without it.
        audience: `programs` keeps figures for JSON, CSV and Parquet that people read in sentences of other tables.
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
    ranked_by: str = ""
    audience: Literal["all", "programs"] = "all"

    @property
    def heads(self) -> tuple[Column, ...]:
        """Return the columns that people see."""
        return tuple(each for each in self.columns if each.audience != "programs")

    @cached_property
    def cells(self) -> tuple[tuple[Cell, ...], ...]:
        """Return all rows as people see them, a cell per column of `heads`; empty if all columns are for programs."""
        return tuple(tuple(each.cell(row) for each in self.heads) for row in self.rows) if self.heads else ()

    @cached_property
    def listed(self) -> tuple[tuple[Cell, ...], ...]:
        """Return the rows that a document lists, as people see them."""
        return self.cells if self.shown is None else replace(self, rows=self.rows[: self.shown], shown=None).cells

    @property
    def row_count(self) -> int:
        """Return the number of rows that people see; 0 if all columns are for programs."""
        return len(self.rows) if self.heads else 0

    @cached_property
    def empty_rows(self) -> tuple[int, ...]:
        """The places of the rows whose ranking figure is shown as zero; an unknown figure is not zero."""
        ranking = next((column for column in self.heads if column.key == self.ranked_by), None)
        if ranking is None:
            return ()
        zero = _shown(UNITS[ranking.kind](0, *(() if ranking.digits is None else (ranking.digits,))))
        return tuple(place for place, row in enumerate(self.rows) if _shown(ranking.cell(row)) == zero)

    @property
    def left_out(self) -> str:
        """Return the sentence about the rows that a document leaves out; empty if it lists all."""
        return self.rest if self.shown is not None and self.shown < self.row_count else ""

    def records(self) -> list[dict[str, object]]:
        return records(self.columns, self.rows)

    def with_columns(self, keys: Collection[str]) -> Table:
        """Return the table with only the columns of these keys, in their present order."""
        return replace(self, columns=tuple(each for each in self.columns if each.key in keys))


def _shown(cell: Cell) -> str:
    return cell.shown(ENGLISH) if isinstance(cell, Quantity) else ""


class DrawnColumn(TypedDict):
    """Values with their texts, as marks of a chart take them."""

    values: Values
    shown: tuple[Text, ...]


def drawn(column: Column, rows: Iterable[object]) -> DrawnColumn:
    """Return the values and texts of a number column, for a mark of a chart."""
    listed = tuple(rows)
    values: Any = tuple(map(column.value, listed))
    shown: Any = tuple(map(column.cell, listed))
    return {"values": values, "shown": shown}


def record(columns: Iterable[Column], row: object) -> dict[str, object]:
    return {each.key: each.value(row) for each in columns if each.audience != "people"}


def records(columns: Sequence[Column], rows: Iterable[object]) -> list[dict[str, object]]:
    return [record(columns, row) for row in rows]


def table_json(table: Table) -> dict[str, object]:
    """Return the table for JSON: its name, its answer in English and its rows."""
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
    """Return a column for programs whose value is one record; null if there is none."""
    find = _reader(key, read)

    def value(row: Any) -> object:
        return None if (part := find(row)) is None else record(columns, part)

    return replace(_nested(key, "object", columns, value, about), nullable=True)


def entries_column(
    key: str, entry: Column, read: str | Callable[[Any], Mapping[Any, Any]] | None = None, about: str = ""
) -> Column:
    """Return a column for programs whose value is an object with any names; `entry` reads the value of a name."""
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
    """Return figures for programs: a one-row table that people read in the sentences of other tables."""
    return for_programs(name, columns, (row,))


def for_programs(name: str, columns: tuple[Column, ...], rows: Iterable[object]) -> Table:
    """Return a table for programs only."""
    return Table(name, "", "", "", columns, tuple(rows), audience="programs")
