"""How much of the time of each group was observed, as bars in a table: lengths and figures in one row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import dcc, html

from analytics.language.quantities import Number, Share
from analytics.language.sentences import say
from dashboard.render.panel import panel
from dashboard.render.tables import scrolling

if TYPE_CHECKING:
    from collections.abc import Mapping

    from analytics.ledger.summary import Totals
    from analytics.sections.palette import Palette
    from dashboard.view import View

_MOST = 60
_FULL = 0.9995
"""From here on a share is shown as 100.0 %."""

_FIRST = {"day": say("day"), "pool": say("pool"), "model": say("model"), "host": say("host")}


def coverage(
    view: View,
    colours: Palette,
    name: str,
    *,
    title: str,
    question: str,
    groups: Mapping[str, Totals],
    links: Mapping[str, dcc.Link] | None = None,
) -> html.Section:
    """The panel; `groups` in the order in which they are listed, of which the first are shown, with `links` in place of names."""
    shown = dict(list(groups.items())[:_MOST])
    heads = [_FIRST[name], say("observed"), say("GPUs"), say("GPU-hours"), say("unknown")]
    header = html.Tr([html.Th(view.say(head), scope="col") for head in heads])
    rows = [_row(view, colours, (links or {}).get(group, group), totals) for group, totals in shown.items()]
    table = html.Table([html.Thead(header), html.Tbody(rows)], className="numbers settings")
    body: list[Any] = [scrolling(table, f"coverage-{name}-title")]
    if len(groups) > len(shown):
        rest = say("and {number} more, all of them better observed", number=Number(len(groups) - len(shown)))
        body.append(html.P(view.say(rest), className="note"))
    finding = view.say(_finding(groups))
    return panel(name=f"coverage-{name}", title=title, question=question, finding=finding, body=body)


def _finding(groups: Mapping[str, Totals]) -> str:
    known = {name: totals.coverage for name, totals in groups.items() if totals.coverage is not None}
    if not known:
        return say("Nothing was there to be observed.")
    worst = min(known, key=lambda name: known[name] or 0.0)
    if (known[worst] or 0.0) >= _FULL:
        return say("All of it was observed.")
    return say("The least: {name}, {share} observed.", name=worst, share=Share(known[worst]))


def _row(view: View, colours: Palette, name: str | dcc.Link, totals: Totals) -> html.Tr:
    language = view.language
    bar = html.Span(
        html.Span(style={"width": f"{100 * (totals.coverage or 0.0):.2f}%", "background": colours.state["active"]}),
        className="share",
        **{"aria-hidden": "true"},
    )
    return html.Tr(
        [
            html.Th(name, scope="row"),
            html.Td([bar, html.Span(language.percent(totals.coverage))], className="right"),
            html.Td(language.number(totals.gpus), className="right"),
            html.Td(language.hours(totals.total_ms), className="right"),
            html.Td(language.hours(totals.state_ms["unknown"]), className="right"),
        ]
    )
