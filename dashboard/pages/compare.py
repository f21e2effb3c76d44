"""The window beside another one: the time just before, the same days a quarter of a year earlier, or any days."""

from __future__ import annotations

from dash import dcc, html

from analytics.language.sentences import tr
from analytics.report.compare import compare, days_against, window_against
from analytics.tables.compare import comparison, pool_comparison
from analytics.tables.palette import Palette
from dashboard.days import day_fields, days_of
from dashboard.pages.page import Page
from dashboard.render.panel import section_panel
from dashboard.view import View
from fallow.clock import Window

_CHOICES = {"before": tr("the time just before"), "13w": tr("the same days 13 weeks earlier")}


class ComparePage(Page):
    """`/compare`; what it is compared with stands in the address as `against`."""

    path = "/compare"
    name: str = tr("Compare")

    def content(self, view: View, colours: Palette) -> html.Div:
        """The choices, then both windows figure by figure and pool by pool."""
        seen = view.report.seen
        now = Window(seen.since_ms, seen.until_ms)
        other = window_against(now, view.query.against or "before", view.zone)
        found = compare(view.whole, view.report.scope, now, other)
        sections = [each for each in (comparison(found), pool_comparison(found)) if each is not None]
        panels = [section_panel(view, colours, each) for each in sections]
        return html.Div([_choices(view, other), html.Div(panels, className="panels")])


def _choices(view: View, other: Window) -> html.Div:
    """What there is to compare with; the chosen one is marked."""
    chosen = view.query.against or "before"
    return html.Div(
        [
            html.Span(view.translate(tr("Compare with")), className="hint"),
            *(_choice(view, name, words, is_chosen=name == chosen) for name, words in _CHOICES.items()),
            _any_days(view, other, is_chosen=days_against(chosen) is not None),
        ],
        className="against",
        role="group",
        **{"aria-label": view.translate(tr("Compare with"))},
    )


def _choice(view: View, name: str, words: str, *, is_chosen: bool) -> html.Span | dcc.Link:
    if is_chosen:
        return html.Span(view.translate(words), className="here", **{"aria-current": "true"})
    return dcc.Link(view.translate(words), href="/compare" + view.query.but(against=name).search)


def _any_days(view: View, other: Window, *, is_chosen: bool) -> html.Details:
    first, last = (str(day) for day in days_of(other, view.zone))
    words = f"{first} - {last}" if is_chosen else view.translate(tr("any days"))
    return html.Details(
        [
            html.Summary(words, className="here" if is_chosen else ""),
            html.Form(day_fields(view, "against", first, last), id="against-form"),
        ],
        className="any-days in-line",
    )
