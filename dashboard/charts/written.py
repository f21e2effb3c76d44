"""How figures are written in a reader's language, and what tells states apart besides their colour."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import html

from analytics.language.sentences import say

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from analytics.language.languages import Language
    from dashboard.palette import Palette
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
