"""Tables whose rows have a bar: lengths are compared at a glance, and the figures stand beside them in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import dcc, html

from analytics.language.plain_text import plain
from analytics.states import ALLOCATED_USED_FIRST, IN_USE
from dashboard.charts.tables import columns, scrolling
from dashboard.charts.written import fill

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from analytics.workloads.model import Finding
    from dashboard.palette import Palette
    from dashboard.query import Query
    from dashboard.view import View

"""States of time that somebody was given, as a bar has them from the left: used first."""

NAME_MOST = 80


def bar(state_ms: Mapping[str, float], most_ms: float, colours: Palette) -> html.Div:
    """GPU time by state as lengths; the whole width is `most_ms`. The row has its figures in words."""
    parts = [
        html.Span(
            className=f"part {state}",
            style={"width": f"{100 * state_ms[state] / most_ms:.2f}%", "background": fill(colours, state)},
        )
        for state in ALLOCATED_USED_FIRST
        if state_ms[state] > 0 and most_ms > 0
    ]
    return html.Div(parts, className="lengths", **{"aria-hidden": "true"})


def used_ms(state_ms: Mapping[str, float]) -> float:
    """The time in which kernels ran."""
    return sum(state_ms[state] for state in IN_USE)


def name_link(name: str, path: str, query: Query) -> dcc.Link:
    """A name that leads to a page about it; it is somebody else's text and keeps its own direction."""
    return dcc.Link(html.Bdi(plain(name, NAME_MOST)), href=path + query.search)


def finding_link(view: View, finding: Finding, words: str | html.B) -> dcc.Link:
    """Words that lead to a finding, with its evidence and what to type."""
    return dcc.Link(words, href="/findings" + view.query.on_every_page.but(finding=finding.finding_id).search)


def table(
    header: Sequence[str], rows: Iterable[Sequence[Any]], labelled_by: str, *, words: Iterable[int] = (0,)
) -> html.Div:
    """A table that is always in sight; the first column names the row, `words` are the columns that are no figures."""
    right = set(range(len(header))).difference(words)
    return scrolling(columns(header, rows, right, "listed"), labelled_by)


def beside(*parts: Any) -> html.Div:
    """Parts side by side where there is room for them, else below one another."""
    cells = [html.Div(each, style={"flex": "1 1 420px", "minWidth": "0"}) for each in parts]
    return html.Div(cells, style={"display": "flex", "flexWrap": "wrap", "gap": "8px 28px", "alignItems": "center"})
