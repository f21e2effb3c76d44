"""Tables that a reader sorts, filters and pages through: AG Grid with the site's colours and the reader's language.

Columns, cells and values are those of a `Table`. Cells are text and never markup. A figure or a moment has a value for
sorting and filtering, and a text to show. Both come from the server: the browser needs no rules of any language.

The address holds filters and order. `filter=user:farid,cost.above:100,since.after:2026-11-01` names a column, a
comparison and a value per condition. A row must meet all conditions between commas. Of conditions joined by `|`, which
are about one column, it must meet one. A backslash precedes a comma, a bar or a backslash that belongs to a value.
`sort=-cost,user` sorts by the highest cost, then by user. `show=all` also lists the rows that the table leaves out by
default. The browser writes and reads the filters (assets/filters.js); this module only checks them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date
from typing import Any

from dash import html
from dash_ag_grid import AgGrid  # type: ignore[import-untyped]

from analytics.language.sentences import Date, Day, Language, Moment, plain, tr
from analytics.tables.table import Column, Kind, Table
from dashboard.query import Query
from fallow.clock import from_ms, start_of_day_ms
from fallow.errors import UsageError

_WORDS = {
    "page": tr("Page"),
    "to": tr("to"),
    "of": tr("of"),
    "more": tr("more"),
    "firstPage": tr("First page"),
    "previousPage": tr("Previous page"),
    "nextPage": tr("Next page"),
    "lastPage": tr("Last page"),
    "pageSizeSelectorLabel": tr("Rows per page"),
    "ariaPageSizeSelectorLabel": tr("Rows per page"),
    "noRowsToShow": tr("Nothing to list."),
    "noMatchingRows": tr("No row fits the filters."),
    "loadingOoo": tr("Loading…"),
    "filterOoo": tr("Filter…"),
    "textFilter": tr("Text filter"),
    "numberFilter": tr("Number filter"),
    "dateFilter": tr("Date filter"),
    "empty": tr("Choose one"),
    "equals": tr("is"),
    "notEqual": tr("is not"),
    "lessThan": tr("is below"),
    "greaterThan": tr("is above"),
    "lessThanOrEqual": tr("is at most"),
    "greaterThanOrEqual": tr("is at least"),
    "inRange": tr("lies between"),
    "inRangeStart": tr("from"),
    "inRangeEnd": tr("up to"),
    "contains": tr("contains"),
    "notContains": tr("does not contain"),
    "startsWith": tr("begins with"),
    "endsWith": tr("ends with"),
    "blank": tr("is unknown"),
    "notBlank": tr("is known"),
    "before": tr("before"),
    "after": tr("after"),
    "andCondition": tr("and"),
    "orCondition": tr("or"),
    "dateFormatOoo": tr("yyyy-mm-dd"),
    "ariaChecked": tr("chosen"),
    "ariaUnchecked": tr("not chosen"),
    "ariaIndeterminate": tr("some chosen"),
    "ariaColumnFiltered": tr("column is filtered"),
    "ariaDateFilterInput": tr("Date filter"),
    "ariaFilterColumn": tr("Press Ctrl+Enter to open the filter"),
    "ariaFilterFromValue": tr("Filter: lowest value"),
    "ariaFilterToValue": tr("Filter: highest value"),
    "ariaFilterInput": tr("Filter"),
    "ariaFilterValue": tr("Filter: value"),
    "ariaFilterMenuOpen": tr("Open the filter"),
    "ariaFilteringOperator": tr("Filter: condition"),
    "ariaHeaderSelection": tr("Choose rows"),
    "ariaLabelColumnFilter": tr("Filter of the column"),
    "ariaLabelTooltip": tr("Hint"),
    "ariaRowSelectAll": tr("Press Space to choose all rows or none"),
    "ariaRowToggleSelection": tr("Press Space to choose the row or not"),
    "ariaRowSelect": tr("Press Space to choose this row"),
    "ariaRowDeselect": tr("Press Space not to choose this row"),
    "ariaRowSelectionDisabled": tr("This row cannot be chosen"),
    "ariaSortableColumn": tr("Press Enter to sort"),
    "ariaLabelSelectField": tr("Choose one"),
}
_SAMPLE = (1234.5, 1)
"""A number with both marks: the thousands separator after its first digit, the decimal mark before its last."""


def grid_words(language: Language) -> dict[str, str]:
    """Return the grid's own words in the language, and the language's number marks."""
    shown = language.number(*_SAMPLE)
    marks = {"thousandSeparator": shown[1], "decimalSeparator": shown[-2]}
    return {key: language.translate(words) for key, words in _WORDS.items()} | marks


TEXT, NUMBER, MOMENT, RANK = "text", "number", "moment", "rank"
"""Kinds of filters. A moment's value is milliseconds since the epoch, a rank's the place of its word in their order."""
_NO_BREAK = "\N{NO-BREAK SPACE}"

_ROW_PX, _HIGH_ROW_PX, _HEAD_PX, _FOOT_PX, _BAR_PX = 38, 52, 48, 46, 16
_ONE = {"mode": "singleRow", "checkboxes": False, "enableClickSelection": True}
_PAGE_ROWS = 10
_PAGES = (_PAGE_ROWS, 25, 50, 100)
"""Rows of a page: by default, and those to choose from."""
_SHOWN = {"function": "fallowShown(params)"}

_EMPTY_OPTIONS = ["blank", "notBlank"]
_TEXT_FILTER = {
    "filter": "agTextColumnFilter",
    "filterParams": {
        "filterOptions": ["contains", "notContains", "equals", "notEqual", "startsWith", "endsWith", *_EMPTY_OPTIONS]
    },
}
_NUMBER_FILTER = {
    "filter": "agNumberColumnFilter",
    "filterParams": {
        "filterOptions": [
            *("equals", "notEqual", "lessThan", "lessThanOrEqual", "greaterThan", "greaterThanOrEqual", "inRange"),
            *_EMPTY_OPTIONS,
        ],
        "inRangeInclusive": True,
    },
}
_DAY_FILTER = {
    "filter": "agDateColumnFilter",
    "filterValueGetter": {"function": "fallowDayOf(params)"},
    "filterParams": {
        "filterOptions": ["equals", "notEqual", "lessThan", "greaterThan", "inRange", *_EMPTY_OPTIONS],
        "comparator": {"function": "fallowDay"},
        "inRangeInclusive": True,
    },
}
"""The comparisons are those that an address has words for (`_OPERATORS`)."""

_KINDS: dict[str, dict[str, Any]] = {
    TEXT: _TEXT_FILTER,
    NUMBER: {**_NUMBER_FILTER, "valueFormatter": _SHOWN, "type": "rightAligned"},
    MOMENT: {
        **_DAY_FILTER,
        "valueFormatter": _SHOWN,
        "comparator": {"function": "fallowByNumber"},
        "sortingOrder": ["desc", "asc", None],
    },
    RANK: {**_TEXT_FILTER, "comparator": {"function": "fallowByRank"}},
}


_WIDTHS_PX: Mapping[Kind, int] = {
    "count": 75,
    "gpu_hours": 100,
    "money": 120,
    "moment": 185,
    "day": 110,
    "gpu": 150,
    "grade": 100,
}
"""Widths of columns by kind; all other kinds have `_WIDTH_PX`."""
_WIDTH_PX = 115


def _filter_kind(column: Column) -> str:
    """Return how a column is sorted and filtered: words with an integer value for programs are sorted by that value."""
    if column.kind in ("moment", "day"):
        return MOMENT
    return NUMBER if column.is_figure else RANK if column.value_type == "integer" else TEXT


@dataclass(frozen=True)
class GridOf:
    """A table with the additions that only a grid needs.

    Attributes:
        row_id: returns the id of a row.
        widths_px: the widths of columns by key, where they differ from the widths of their kinds.
        beside: texts of a row that are in no column, by field; `{key}_means` is the tooltip of the column's cells.
    """

    table: Table
    row_id: Callable[[Any], str]
    widths_px: Mapping[str, int] = field(default_factory=dict)
    beside: Mapping[str, Callable[[Any], str]] = field(default_factory=dict)

    def definitions(self, language: Language) -> list[dict[str, Any]]:
        return [self._definition(language, each) for each in self.table.heads]

    def _definition(self, language: Language, column: Column) -> dict[str, Any]:
        key, kind, heading = column.key, _filter_kind(column), language.translate(column.title)
        own = key if kind in (TEXT, RANK) else f"{key}_text"
        return {
            "field": key,
            "headerName": heading,
            "headerTooltip": heading,
            "width": self.widths_px.get(key, _WIDTHS_PX.get(column.kind, _WIDTH_PX)),
            "tooltipField": f"{key}_means" if f"{key}_means" in self.beside else own,
            **_KINDS[kind],
        }

    def rows(self, language: Language) -> list[dict[str, Any]]:
        """Return the rows as AG Grid takes them: texts in the language, and the values for sorting."""
        return [
            {"id": self.row_id(row)}
            | {name: language.shown(read(row)) for name, read in self.beside.items()}
            | {name: value for each in self.table.heads for name, value in _fields(language, each, row)}
            for row in self.table.rows
        ]


def _fields(language: Language, column: Column, row: object) -> Iterator[tuple[str, object]]:
    """Yield the fields of one cell. A moment also has its day in the reader's zone (`2026-11-01`), for filters."""
    key, kind, cell = column.key, _filter_kind(column), column.cell(row)
    text = "" if cell is None else language.shown(cell)
    if kind in (TEXT, RANK):
        yield key, text
        if kind == RANK:
            yield f"{key}_rank", column.value(row)
        return
    # a narrow cell breaks only before the range in brackets
    yield f"{key}_text", text.replace(" ", _NO_BREAK).replace(f"{_NO_BREAK}(", " (") if " (" in text else text
    if isinstance(cell, Date):
        yield key, start_of_day_ms(cell.date, UTC)
        yield f"{key}_day", cell.date.isoformat()
    elif isinstance(cell, Moment | Day):
        yield key, cell.moment_ms
        yield f"{key}_day", from_ms(cell.moment_ms).astimezone(language.zone).date().isoformat()
    else:
        yield key, column.value(row)


def grid(
    language: Language,
    name: str,
    shown: GridOf,
    *,
    chosen: Sequence[str] | None = None,
    hides: bool = False,
    one: bool = False,
    high_rows: bool = False,
) -> html.Div:
    """Return the table in a frame of its final height; the table's title is the accessible name.

    Args:
        language: the reader's language.
        name: the id of the grid.
        shown: the table.
        chosen: the ids of the selected rows; with None, rows cannot be selected. `selectedRows` has the selection.
        hides: true where the page's own script decides which rows are listed.
        one: true where at most one row can be selected; rows then have no boxes.
        high_rows: true for rows of two lines, onto which long cells wrap.
    """
    data, label = shown.rows(language), language.translate(shown.table.title)
    place = next((place for place, row in enumerate(data) if row["id"] in (chosen or ())), 0)
    row_px = _HIGH_ROW_PX if high_rows else _ROW_PX
    height_px = _HEAD_PX + row_px * max(1, min(len(data), _PAGE_ROWS)) + _BAR_PX + _FOOT_PX
    table = AgGrid(
        id=name,
        columnDefs=shown.definitions(language),
        rowData=data,
        getRowId="params.data.id",
        defaultColDef={
            "sortable": True,
            "resizable": True,
            "suppressHeaderMenuButton": True,
            "suppressHeaderFilterButton": True,
            **({"wrapText": True, "wrapHeaderText": True} if high_rows else {}),
        },
        dashGridOptions=_options(language, label, choosing=chosen is not None, hides=hides)
        | ({"rowSelection": _ONE} if one else {})
        | {"rowHeight": row_px},
        selectedRows=[row for row in data if row["id"] in (chosen or ())],
        paginationGoTo=place // _PAGE_ROWS or None,  # None leaves the grid at its beginning
        style={"height": "100%", "width": "100%"},
        className="",
        dangerously_allow_code=False,
    )
    return html.Div(table, className="grid", style={"--rows": f"{height_px}px"})


def filter_button(name: str) -> html.Button:
    """Return the button that shows or removes the fields by which the grid `name` is filtered (assets/filters.js)."""
    return html.Button(
        tr("Filter"),
        className="button switch",
        **{"aria-pressed": "false", "aria-controls": name, "data-filters": name},
    )


def _options(language: Language, label: str, *, choosing: bool, hides: bool) -> dict[str, Any]:
    options: dict[str, Any] = {
        "theme": "themeQuartz",
        "pagination": True,
        "paginationPageSize": _PAGE_ROWS,
        "paginationPageSizeSelector": list(_PAGES),
        "localeText": grid_words(language) | {"ariaGridName": label},
        # screen readers go through rows in the order of the elements
        "ensureDomOrder": True,
        "enableCellTextSelection": not choosing,
        "tooltipShowDelay": 400,
        "animateRows": False,
        # arrow keys move within the table: with Tab, a reader without a mouse would have to pass every cell
        "tabToNextCell": {"function": "fallowLeaves()"},
        "tabToNextHeader": {"function": "fallowLeaves()"},
    }
    if choosing:
        options["rowSelection"] = {
            "mode": "multiRow",
            "checkboxes": True,
            "headerCheckbox": True,
            "selectAll": "filtered",
            "enableClickSelection": True,
        }
    if hides:
        options["isExternalFilterPresent"] = {"function": "fallowHidesSome()"}
        options["doesExternalFilterPass"] = {"function": "fallowLists(params)"}
    return options


_MOST_CONDITIONS = 2
"""Conditions on one column: the number of fields of its filter."""

_WITHOUT_VALUE = ("unknown", "known")
_TEXT_OPERATORS = ("", "without", "is", "not", "begins", "ends", *_WITHOUT_VALUE)
_OPERATORS: Mapping[str, tuple[str, ...]] = {
    TEXT: _TEXT_OPERATORS,
    RANK: _TEXT_OPERATORS,
    NUMBER: ("", "not", "below", "above", "most", "least", "between", *_WITHOUT_VALUE),
    MOMENT: ("", "not", "before", "after", "between", *_WITHOUT_VALUE),
}
"""The comparisons for columns of each kind. The empty word is `contains` for a text, and `is` for all other kinds."""

_CONDITION = re.compile(r"(?:[^\\,|]|\\.)*", re.DOTALL)
_NUMBER = re.compile(r"-?\d{1,15}(\.\d{1,15})?", re.ASCII)


def check_address(query: Query, columns: Sequence[Column]) -> None:
    """Raise UsageError for a filter or an order that these columns cannot have, and for an invalid `show`."""
    kinds = {each.key: _filter_kind(each) for each in columns}
    if query.show not in ("", "all"):
        raise UsageError(
            f"'{plain(query.show)}' is not a value of show",
            "take show=all to add findings of low confidence and snoozed findings",
        )
    if query.filter:
        _check_filters(query.filter, kinds)
    fields = query.sort.split(",") if query.sort else []
    for each in fields:
        _kind(each.removeprefix("-"), kinds)
    if len({each.removeprefix("-") for each in fields}) < len(fields):
        raise UsageError("the order of the address names a column twice", "name a column once, as in sort=-cost,user")


def _check_filters(filters: str, kinds: Mapping[str, str]) -> None:
    counts: dict[str, int] = {}
    for alternatives in _conditions(filters):
        column = _column(alternatives[0])
        if any(_column(each) != column for each in alternatives):
            raise UsageError("a filter of the address joins two columns by '|'", "join conditions on one column only")
        for each in alternatives:
            _check_condition(each, _kind(column, kinds))
        if len(alternatives) > 1 and column in counts:
            raise _excess_error(column)
        counts[column] = counts.get(column, 0) + len(alternatives)
        if counts[column] > _MOST_CONDITIONS:
            raise _excess_error(column)


def _conditions(filters: str) -> list[list[str]]:
    """Return the conditions that a row must meet, as lists of alternatives without the escaping backslashes."""
    conditions: list[list[str]] = [[]]
    at = 0
    while True:
        found = _CONDITION.match(filters, at)
        at = found.end() if found else at
        conditions[-1].append(re.sub(r"\\(.)", r"\1", found[0] if found else "", flags=re.DOTALL))
        if at >= len(filters):
            return conditions
        if filters[at] == "\\":
            raise UsageError("a filter of the address ends with a single backslash", "write \\\\ for a backslash")
        if filters[at] == ",":
            conditions.append([])
        at += 1


def _column(condition: str) -> str:
    return condition.partition(":")[0].partition(".")[0]


def _kind(column: str, kinds: Mapping[str, str]) -> str:
    if column not in kinds:
        raise UsageError(f"the table has no column '{plain(column)}'", f"take one of {', '.join(kinds)}")
    return kinds[column]


def _check_condition(condition: str, kind: str) -> None:
    head, colon, value = condition.partition(":")
    column, _, operator = head.partition(".")
    if operator not in _OPERATORS[kind] or (head.endswith(".") and not operator):
        known = ", ".join(each for each in _OPERATORS[kind] if each)
        raise UsageError(f"'{plain(operator)}' does not compare the column '{column}'", f"take one of {known}, or none")
    if operator in _WITHOUT_VALUE:
        is_right = not colon
    elif operator == "between":
        first, dots, last = value.partition("..")
        is_right = bool(dots) and _IS_VALUE[kind](first) and _IS_VALUE[kind](last)
    else:
        is_right = _IS_VALUE[kind](value)
    if not is_right:
        raise UsageError(f"'{plain(condition)}' is not a filter of the column '{column}'", "set it again in the table")


def _is_day(value: str) -> bool:
    try:
        return date.fromisoformat(value).isoformat() == value
    except ValueError:
        return False


_IS_VALUE: Mapping[str, Callable[[str], bool]] = {
    TEXT: bool,
    RANK: bool,
    NUMBER: lambda value: bool(_NUMBER.fullmatch(value)),
    MOMENT: _is_day,
}


def _excess_error(column: str) -> UsageError:
    return UsageError(
        f"the address has too many filters of the column '{plain(column)}'",
        f"use at most {_MOST_CONDITIONS} on one column",
    )
