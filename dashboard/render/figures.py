"""How figures are written in a reader's language, and what tells states apart besides their colour."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from dash import html

from analytics.language.sentences import say
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, from_ms, to_ms

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import tzinfo

    from analytics.language.languages import Language
    from analytics.sections.palette import Palette
    from dashboard.view import View

_SHAPES = {"unknown": "/", "unavailable": "x", "held": "\\", "reserved": "-"}
"""Hatched: states that a reader must not take for one another where hues look alike."""


def separators(language: Language) -> str:
    """What plotly is told: the decimal sign, then that between thousands."""
    written = language.number(1234.5, 1)
    return f"{written[5]}{written[1]}"


def pattern(colours: Palette, states: Sequence[str]) -> dict[str, Any]:
    """The hatching of bars, one per state, over the colour that the bar has."""
    return {
        "shape": [_SHAPES.get(state, "") for state in states],
        "fillmode": "overlay",
        "fgcolor": colours.card,
        "size": 6,
        "solidity": 0.15,
    }


_LINES = {"held": 45, "reserved": 0, "unknown": -45, "unavailable": 90}
"""The direction of the same hatching in degrees, where a style sheet draws it."""


def fill(colours: Palette, state: str) -> str:
    """The `background` of a state in tables and legends: its colour, hatched as `pattern` hatches bars."""
    colour = colours.state[state]
    if state not in _LINES:
        return colour
    line = f"color-mix(in srgb, {colours.card} 45%, transparent)"
    return f"repeating-linear-gradient({_LINES[state]}deg, {line} 0 1px, transparent 1px 6px), {colour}"


def legend(view: View, colours: Palette, states: Iterable[str]) -> html.Ul:
    """The states' colours with their names in the reader's language."""
    items = [
        html.Li([html.Span(className=f"swatch {state}", style={"background": fill(colours, state)}), view.say(state)])
        for state in states
    ]
    return html.Ul(items, className="legend", **{"aria-label": view.say(say("Colours"))})


_MOST_MARKS = 10
_STEPS_MS = (
    *(MINUTE_MS * minutes for minutes in (1, 2, 5, 10, 15, 30)),
    *(HOUR_MS * hours for hours in (1, 2, 3, 6, 12)),
    *(DAY_MS * days for days in (1, 2, 4, 7, 14, 28, 56, 112, 364)),
)


def time_axis(language: Language, colours: Palette, since_ms: int, until_ms: int, **more: Any) -> dict[str, Any]:
    """The x axis of a figure from one moment to another, for dragging a part out of it."""
    marks = marks_of(language, since_ms, until_ms)
    return {
        "type": "linear",
        "tickvals": [moment for moment, _ in marks],
        "ticktext": [label for _, label in marks],
        "showgrid": False,
        "ticks": "outside",
        "tickangle": 0,  # the style sheet leaves out every other one where they would be in each other's way
        "tickcolor": colours.grid,
        "fixedrange": False,
        **more,
    }


def marks_of(language: Language, since_ms: int, until_ms: int) -> list[tuple[int, str]]:
    """Moments on round local times and what to write there: `20 Nov` at midnight and where no day has been named, else `06:00`."""
    step_ms = next((step for step in _STEPS_MS if (until_ms - since_ms) / step <= _MOST_MARKS), _STEPS_MS[-1])
    found: list[tuple[int, str]] = []
    for moment_ms, local in _round_times(language.zone, since_ms, until_ms, step_ms):
        day = language.day(moment_ms).replace(str(local.year), "").strip()
        clock = f"{local:%H:%M}"
        within_day = clock if found else f"{clock}<br>{day}"
        found.append((moment_ms, day if step_ms >= DAY_MS or clock == "00:00" else within_day))
    return found


def _round_times(zone: tzinfo, since_ms: int, until_ms: int, step_ms: int) -> Iterator[tuple[int, datetime]]:
    first = from_ms(since_ms).astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    last_ms = -1
    for count in range((until_ms - since_ms + 2 * DAY_MS) // step_ms + 2):
        local = first + timedelta(milliseconds=count * step_ms)
        moment_ms = to_ms(local.replace(tzinfo=zone))
        # an hour that clocks leave out comes out as the next one, which has a mark of its own
        shown = from_ms(moment_ms).astimezone(zone)
        if since_ms <= moment_ms <= until_ms and moment_ms > last_ms and shown.replace(tzinfo=None) == local:
            last_ms = moment_ms
            yield moment_ms, shown
