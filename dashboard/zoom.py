"""The part of the window that a chart is zoomed to: `start` and `end` of the address."""

from __future__ import annotations

from dash import dcc, html

from analytics.language.quantities import Moment
from analytics.language.sentences import tr
from dashboard.view import View
from fallow.clock import MINUTE_MS, Window, floor_ms, from_ms, parse_window
from fallow.errors import UsageError

_LEAST_MS = 10 * MINUTE_MS
"""The least of the time that can be in sight."""
_CLOSER, _WIDER, _EARLIER, _LATER = tr("closer"), tr("wider"), tr("earlier"), tr("later")


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


def zoom_note(view: View) -> html.Div:
    """What is in sight, and the ways from there for those who drag and double-click nothing."""
    start, end = visible(view)
    links = [
        dcc.Link(view.translate(name), href=view.query.but(start=_written(begins), end=_written(ends)).search)
        for name, (begins, ends) in _ways(view).items()
    ]
    if is_zoomed(view):
        said = tr("In sight: {since} to {until}.", since=Moment(start), until=Moment(end))
        whole = view.query.but(start="", end="").search or "?"
        links.append(dcc.Link(view.translate(tr("Show the whole window")), href=whole))
    else:
        said = tr("Drag along the time to see a part of it in more detail.")
    return html.Div([html.Span(view.translate(said)), *links], className="film-sorting hint zoom")


def _ways(view: View) -> dict[str, tuple[int, int]]:
    """What else could be in sight: half of it or twice as much, and the halves of it before and after."""
    start, end = visible(view)
    since_ms, until_ms = view.report.summary.since_ms, view.report.summary.until_ms
    quarter = floor_ms((end - start) // 4, MINUTE_MS)
    found: dict[str, tuple[int, int]] = {}
    if end - start >= 2 * _LEAST_MS:
        found[_CLOSER] = (start + quarter, end - quarter)
    if is_zoomed(view) and end - start < (until_ms - since_ms) // 2:
        found[_WIDER] = (max(since_ms, start - 2 * quarter), min(until_ms, end + 2 * quarter))
    if start > since_ms:
        by_ms = min(2 * quarter, start - since_ms)
        found[_EARLIER] = (start - by_ms, end - by_ms)
    if end < until_ms:
        by_ms = min(2 * quarter, until_ms - end)
        found[_LATER] = (start + by_ms, end + by_ms)
    return found


def _written(moment_ms: int) -> str:
    """A moment as the address has it."""
    return f"{from_ms(moment_ms):%Y-%m-%dT%H:%MZ}"


def _asked(view: View) -> Window:
    try:
        return parse_window(view.query.start or None, view.query.end or None)
    except UsageError:
        return Window()
