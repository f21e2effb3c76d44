"""Tables whose cells lead on: to a GPU, a host or a holder, with what the bar says going along."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import dcc, html

from analytics.language.plain_text import plain
from analytics.language.sentences import say
from analytics.names import JOINER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

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
