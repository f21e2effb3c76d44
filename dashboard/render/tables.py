"""Tables whose cells lead on: to a GPU, a host or a holder, with what the bar says going along."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import dcc, html

from analytics.language.sentences import say
from analytics.money.accounts import USED
from analytics.names import JOINER
from analytics.render.ledger_text import plain
from dashboard.render.figures import fill

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from analytics.sections.palette import Palette
    from analytics.workloads.model import Finding
    from dashboard.query import Query
    from dashboard.view import View


def table(header: Sequence[str], rows: Iterable[Sequence[Any]], right: int = 0) -> html.Div:
    """A table of links; the first column names the row, the last `right` ones hold numbers."""
    first = len(header) - right
    return scrolling(columns(header, rows, set(range(first, len(header))), "linked"))


def columns(header: Sequence[str], rows: Iterable[Sequence[Any]], right: Collection[int], look: str) -> html.Table:
    """A table whose first column names the row; the columns of `right` hold numbers, `look` is its class."""
    sides = ["right" if column in right else "" for column in range(len(header))]
    head = [html.Th(each, scope="col", className=side) for each, side in zip(header, sides, strict=True)]
    body = [
        html.Tr(
            [
                html.Th(row[0], scope="row"),
                *(html.Td(cell, className=side) for cell, side in zip(row[1:], sides[1:], strict=True)),
            ]
        )
        for row in rows
    ]
    return html.Table([html.Thead(html.Tr(head)), html.Tbody(body)], className=look)


def scrolling(table: html.Table, labelled_by: str | None = None) -> html.Div:
    """A table that scrolls sideways where it must, with a keyboard too; `labelled_by` is the id of what names it."""
    named = {"role": "group", "aria-labelledby": labelled_by} if labelled_by else {}
    return html.Div(table, className="scroll", tabIndex="0", **named)


def gpu_link(view: View, gpu: str, label: str | None = None) -> dcc.Link:
    """To the page of a GPU."""
    return dcc.Link(label or plain(gpu), href="/gpu" + view.query.on_every_page.but(gpu=gpu).search)


def host_link(view: View, host: str) -> dcc.Link:
    """To the page of a host."""
    return dcc.Link(plain(host), href="/host" + view.query.on_every_page.but(host=host).search)


def holder_links(view: View, holder: str | None) -> Any:
    """To what a holder has; several are named one by one, and nobody is said so."""
    if holder is None:
        return view.say(say("(nobody)"))
    parts: list[Any] = []
    for name in holder.split(JOINER):
        link = dcc.Link(plain(name), href="/holders" + view.query.on_every_page.but(holder=name).search)
        parts += [", ", link] if parts else [link]
    return html.Span(parts)


GIVEN = ("active", "low", "held", "reserved")
"""States of time that somebody was given, as a bar has them from the left: used first."""

NAME_MOST = 80


def bar(state_ms: Mapping[str, float], most_ms: float, colours: Palette) -> html.Div:
    """GPU time by state as lengths; the whole width is `most_ms`. The row has its figures in words."""
    parts = [
        html.Span(
            className=f"part {state}",
            style={"width": f"{100 * state_ms[state] / most_ms:.2f}%", "background": fill(colours, state)},
        )
        for state in GIVEN
        if state_ms[state] > 0 and most_ms > 0
    ]
    return html.Div(parts, className="lengths", **{"aria-hidden": "true"})


def used_ms(state_ms: Mapping[str, float]) -> float:
    """The time in which kernels ran."""
    return sum(state_ms[state] for state in USED)


def name_link(name: str, path: str, query: Query) -> dcc.Link:
    """A name that leads to a page about it; it is somebody else's text and keeps its own direction."""
    return dcc.Link(html.Bdi(plain(name, NAME_MOST)), href=path + query.search)


def finding_link(view: View, finding: Finding, words: str | html.B) -> dcc.Link:
    """Words that lead to a finding, with its evidence and what to type."""
    return dcc.Link(words, href="/findings" + view.query.on_every_page.but(finding=finding.finding_id).search)


def listed_table(
    header: Sequence[str], rows: Iterable[Sequence[Any]], labelled_by: str, *, words: Iterable[int] = (0,)
) -> html.Div:
    """A table that is always in sight; the first column names the row, `words` are the columns that are no figures."""
    right = set(range(len(header))).difference(words)
    return scrolling(columns(header, rows, right, "listed"), labelled_by)


def beside(*parts: Any) -> html.Div:
    """Parts side by side where there is room for them, else below one another."""
    cells = [html.Div(each, style={"flex": "1 1 420px", "minWidth": "0"}) for each in parts]
    return html.Div(cells, style={"display": "flex", "flexWrap": "wrap", "gap": "8px 28px", "alignItems": "center"})
