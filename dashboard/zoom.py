"""The part of the window that a chart is zoomed to: `start` and `end` of the address."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dash import dcc, html

from analytics.language.quantities import Moment
from analytics.language.sentences import say
from fallow.clock import Window, parse_window
from fallow.errors import UsageError

if TYPE_CHECKING:
    from dashboard.source import View


def visible(view: View) -> tuple[int, int]:
    """Start and end in milliseconds: what the address names of the window, or all of it where that leaves nothing."""
    since_ms, until_ms = view.report.summary.since_ms, view.report.summary.until_ms
    asked = _asked(view)
    start = max(since_ms, asked.since_ms or since_ms)
    end = min(until_ms, asked.until_ms or until_ms)
    return (start, end) if start < end else (since_ms, until_ms)


def is_zoomed(view: View) -> bool:
    """Whether it is less than the window."""
    return visible(view) != (view.report.summary.since_ms, view.report.summary.until_ms)


def zoom_note(view: View) -> html.P:
    """What is in sight, and the way back for those who do not double-click."""
    start, end = visible(view)
    if not is_zoomed(view):
        return html.P(view.say(say("Drag along the time to see a part of it in more detail.")), className="hint zoom")
    return html.P(
        [
            view.say(say("In sight: {since} to {until}.", since=Moment(start), until=Moment(end))),
            " ",
            dcc.Link(view.say(say("Show the whole window")), href=view.query.but(start="", end="").search or "?"),
        ],
        className="hint zoom",
    )


def _asked(view: View) -> Window:
    try:
        return parse_window(view.query.start or None, view.query.end or None)
    except UsageError:
        return Window()
