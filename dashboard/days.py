"""The form for any range of days: two fields, which the browser makes its own date fields (assets/days.js)."""

from __future__ import annotations

from datetime import date, tzinfo
from typing import Any

from dash import dcc, html

from analytics.language.quantities import Date
from analytics.language.sentences import tr
from dashboard.view import View
from fallow.clock import Window, from_ms

NAMES = ("first", "last")
_LABELS = {"first": tr("from"), "last": tr("to")}


def day_fields(view: View, into: str, first: str, last: str) -> list[Any]:
    """The fields with the days that they begin with, which days there are, and the button.

    `into` is what of the address the days go into: `window`, or `against` for those to compare with.
    """
    known = days_of(view.report.known, view.zone)
    said = tr(
        "There are data from {first} to {last}; days are whole, in {zone}.",
        first=Date(known[0]),
        last=Date(known[1]),
        zone=str(view.zone),
    )
    wrong = view.translate(tr("The first day is after the last."))
    return [
        html.Div(
            [_field(view, into, name, value) for name, value in zip(NAMES, (first, last), strict=True)],
            className="days",
            **{"data-into": into, "data-min": str(known[0]), "data-max": str(known[1]), "data-wrong": wrong},
        ),
        html.P(view.translate(said), className="hint", id=f"{into}-days-hint"),
        html.Button(view.translate(tr("Show these days")), type="submit", className="button"),
    ]


def _field(view: View, into: str, name: str, value: str) -> html.Label:
    box = dcc.Input(
        id=f"{into}-{name}",
        name=name,
        type="text",
        value=value,
        placeholder="2026-11-20",
        autoComplete="off",
        debounce=True,
    )
    return html.Label([html.Span(view.translate(_LABELS[name])), box], htmlFor=f"{into}-{name}")


def days_of(window: Window, zone: tzinfo) -> tuple[date, date]:
    """The first and the last day on which some of a window with both ends lies."""
    first, last = (
        from_ms(moment or 0).astimezone(zone).date() for moment in (window.since_ms, (window.until_ms or 1) - 1)
    )
    return first, max(first, last)


def shown_days(view: View) -> tuple[date, date]:
    """The days of the window that is shown."""
    seen = view.report.seen
    return days_of(Window(seen.since_ms, seen.until_ms), view.zone)
