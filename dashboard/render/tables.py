"""Tables of sections: cells in the reader's language, names that link on with the bar's filters, bars as lengths."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dash import dcc, html

from analytics.glossary import CONFIDENCE
from analytics.language.sentences import Number, Sentence, SentenceList, Share, plain, tr, tr_many
from analytics.names import JOINER
from analytics.tables.palette import Palette
from analytics.tables.table import Cell, Column, LinkedCell, StateBar, Table
from dashboard.render.states import fill
from dashboard.view import View

_PATHS = {
    "gpu": "/gpu",
    "host": "/host",
    "user": "/users",
    "team": "/users",
    "finding": "/findings",
    "recommendation": "/recommendations",
}
_LED_TO = {**_PATHS, "pool": "/timeline"}
"""The page that a LinkedCell opens; the names of pools in other tables are not links."""
_AS_BLOCKS = ("findings", "recommendations", "put_off", "to_look_at")
_WORDS = ("words", "sentence", "moment", "day", "state")
"""Kinds of columns whose texts are not names."""


def section_tables(
    view: View, colours: Palette, section: Table, look: str = "listed", first: int | None = None
) -> list[Any]:
    """Return all rows. Rows after the `first` ones and rows of nothing are folded: pages stay short on a phone."""
    empty = set(section.empty_rows)
    rows = [row for place, row in enumerate(section.cells) if place not in empty]
    nothing = [row for place, row in enumerate(section.cells) if place in empty]
    rest = [] if first is None else rows[first:]
    more = section.rest if section.shown == first and not empty else tr("and {number} more", number=Number(len(rest)))
    none = tr_many("{number} more with nothing", len(nothing))
    return [
        *([table(view, colours, section, rows[:first], look)] if rows else []),
        *(
            html.Details([html.Summary(words), table(view, colours, section, behind, look)], className="more")
            for words, behind in ((more, rest), (none, nothing))
            if behind
        ),
    ]


def table(
    view: View, colours: Palette, section: Table, rows: Iterable[Sequence[Cell]], look: str = "listed"
) -> html.Div:
    """Return rows of a section; the first column names the row.

    On narrow screens findings are blocks, with the head beside each cell.
    """
    heads = [view.translate(column.title) for column in section.heads]
    body = [_row(view, colours, section.heads, heads, row) for row in rows]
    header = [
        html.Th(head, scope="col", className="right" if number and column.is_figure else "")
        for number, (head, column) in enumerate(zip(heads, section.heads, strict=True))
    ]
    # explicit roles: rows that are shown as blocks lose the roles of their elements
    element = html.Table(
        [html.Thead(html.Tr(header, role="row"), role="rowgroup"), html.Tbody(body, role="rowgroup")],
        className="findings" if section.name in _AS_BLOCKS else look,
        role="table",
        **{"aria-labelledby": f"{section.name}-title"},
    )
    return scrolling(element, f"{section.name}-title")


def _row(view: View, colours: Palette, columns: Sequence[Column], heads: Sequence[str], row: Sequence[Cell]) -> html.Tr:
    cells = []
    for number, (column, head, cell) in enumerate(zip(columns, heads, row, strict=True)):
        look = f"of-{column.key} is-{column.kind}{' right' if number and column.is_figure else ''}"
        shown = cell_component(view, colours, column, cell)
        if number:
            cells.append(html.Td(shown, role="cell", className=look, **{"data-label": head}))
        else:
            cells.append(html.Th(shown, scope="row", className=look))
    return html.Tr(cells, role="row")


def facts_list(facts: Iterable[tuple[str, Any]]) -> html.Dl:
    """Return the facts about one subject: labels with a component or text beside each label."""
    return html.Dl([html.Div([html.Dt(label), html.Dd(fact)]) for label, fact in facts], className="facts")


def scrolling(table: html.Table, labelled_by: str) -> html.Div:
    """Return a table that scrolls sideways where needed, also by keyboard; `labelled_by` is the id of its heading."""
    return html.Div(table, className="scroll", tabIndex="0", role="group", **{"aria-labelledby": labelled_by})


def cell_component(view: View, colours: Palette, column: Column, cell: Cell) -> Any:
    if isinstance(cell, StateBar):
        return state_bar(colours, cell)
    if isinstance(cell, LinkedCell):
        link = dcc.Link(name_component(view, cell.text), href=address(view, cell.to, cell.key))
        return [link, html.Span(html.Bdi(plain(cell.aside)), className="id")] if cell.aside else link
    if column.kind == "share_bar" and isinstance(cell, Share):
        bar = html.Span(style={"width": f"{100 * (cell.ratio or 0):.2f}%", "background": colours.state["active"]})
        return [html.Span(bar, className="share", **{"aria-hidden": "true"}), html.Span(cell.shown(view.language))]
    if isinstance(cell, str):
        return _text(view, column, cell)
    return view.translate("unknown") if cell is None else cell.shown(view.language)


def _text(view: View, column: Column, text: str) -> Any:
    if column.kind == "grade":
        return html.Span(tr(text), className=f"grade {text}", title=CONFIDENCE[text].meaning)
    if isinstance(text, Sentence | SentenceList) or column.kind in _WORDS or not text:
        return view.language.shown(text)
    if column.kind in _PATHS:
        return name_links(view, column.kind, text)
    return html.Bdi(plain(text, NAME_MOST))


NAME_MOST = 80


def name_component(view: View, text: Any) -> Any:
    """Return a name's component with its own text direction, since names come from outside."""
    if isinstance(text, str) and not isinstance(text, Sentence | SentenceList):
        return html.Bdi(plain(text, NAME_MOST))
    return view.language.shown(text)


def name_links(view: View, kind: str, name: str) -> Any:
    """Return a link to the page of a GPU, a host or a team, or links to the pages of several users."""
    parts: list[Any] = []
    for each in name.split(JOINER) if kind == "user" else [name]:
        link = dcc.Link(html.Bdi(plain(each, NAME_MOST)), href=address(view, kind, each))
        parts += [", ", link] if parts else [link]
    return html.Span(parts) if len(parts) > 1 else parts[0]


def address(view: View, kind: str, key: str) -> str:
    """Return the address of the page about a key, with the window and the scope of this page."""
    return _LED_TO[kind] + view.query.on_every_page.but(**{kind: key}).search


def state_bar(colours: Palette, bar: StateBar) -> html.Div:
    """Return shares of the cell's width by state. The row has the figures in words."""
    parts = [
        html.Span(
            className=f"part {state}",
            style={"width": f"{100 * share / bar.track:.2f}%", "background": fill(colours, state)},
        )
        for state, share in bar.shares.items()
        if share > 0 and bar.track > 0
    ]
    if bar.mark is None and bar.track == 1:
        return html.Div(parts, className="lengths", **{"aria-hidden": "true"})
    track = html.Div(parts, className="lengths", style={"width": f"{100 * bar.track:.2f}%", "minWidth": "0"})
    place = {"left": f"calc({100 * (bar.mark or 0):.2f}% - 1px)", "background": colours.text}
    mark = [] if bar.mark is None else [html.Span(className="mark", style=place)]
    return html.Div([track, *mark], className="quota", **{"aria-hidden": "true"})
