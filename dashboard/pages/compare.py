"""The figures of the window beside those of another one, in all and by pool."""

from __future__ import annotations

from dash import dcc, html

from analytics.language.sentences import tr
from analytics.report.compare import compare, days_against, window_against
from analytics.tables.compare import comparison, pool_comparison
from analytics.tables.palette import Palette
from dashboard.pages.page import Page
from dashboard.render.panel import section_panel
from dashboard.times import day_fields, days_of
from dashboard.view import View
from fallow.clock import Window

_CHOICES = {"before": tr("the window before"), "13w": tr("the same days 13 weeks earlier")}


def _compare(view: View, colours: Palette) -> html.Div:
    """Return the choices, then both windows by figure and by pool; the address's `against` names the other window."""
    seen, chosen = view.report.ledger.seen, view.query.against or "before"
    now = Window(seen.since_ms, seen.until_ms)
    other = window_against(now, chosen, view.zone)
    found = compare(view.whole, view.report.scope, now, other)
    tables = [
        section_panel(view, colours, table, answers=place == 0)
        for place, table in enumerate((comparison(found), pool_comparison(found)))
        if table is not None
    ]
    return html.Div([_compared_with(view, chosen, other), html.Div(tables, className="panels")])


def _compared_with(view: View, chosen: str, other: Window) -> html.Div:
    """Return the windows to compare with and a form for any days; the chosen window is marked."""
    first, last = (str(day) for day in days_of(other, view.zone))
    are_days = days_against(chosen) is not None
    days_chosen = html.Summary(
        f"{first} - {last}" if are_days else tr("other days"), className="here" if are_days else ""
    )
    return html.Div(
        [
            html.Span(tr("Compare with"), className="hint"),
            *(
                html.Span(words, className="here", **{"aria-current": "true"})
                if name == chosen
                else dcc.Link(words, href="/compare" + view.query.but(against=name).search)
                for name, words in _CHOICES.items()
            ),
            html.Details(
                [days_chosen, html.Form(day_fields(view, "against", first, last), id="against-form")],
                className="any-days in-line",
            ),
        ],
        className="against",
        role="group",
        **{"aria-label": tr("Compare with")},
    )


COMPARE = Page("/compare", tr("Compare"), _compare, question=tr("What changed against an earlier time?"))
