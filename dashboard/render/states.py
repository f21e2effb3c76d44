"""How states look on a page: colour and hatching, in bars of plotly and in the style sheet's, and their legend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dash import html

from analytics.glossary import STATES
from analytics.language.sentences import tr
from analytics.tables.palette import HATCHED, Palette
from dashboard.view import View

_SHAPES = {"unknown": "/", "unavailable": "x", "held": "\\", "reserved": "-"}
"""The hatching of HATCHED in the signs of plotly."""


def pattern(colours: Palette, states: Sequence[str]) -> dict[str, Any]:
    """The hatching of plotly's bars, one per state, over the colour that the bar has."""
    return {
        "shape": [_SHAPES.get(state, "") for state in states],
        "fillmode": "overlay",
        "fgcolor": colours.card,
        "size": 6,
        "solidity": 0.15,
    }


def fill(colours: Palette, state: str) -> str:
    """The `background` of a state in tables and legends: its colour, hatched as `pattern` hatches bars."""
    colour = colours.state[state]
    if state not in HATCHED:
        return colour
    line = f"color-mix(in srgb, {colours.card} 45%, transparent)"
    return f"repeating-linear-gradient({HATCHED[state]}deg, {line} 0 1px, transparent 1px 6px), {colour}"


def legend(colours: Palette, states: Iterable[str]) -> html.Ul:
    """The states' colours with their names; each says on a tooltip what it means."""
    items = [
        html.Li(
            [html.Span(className=f"swatch {state}", style={"background": fill(colours, state)}), tr(state)],
            title=STATES[state].meaning,
        )
        for state in states
    ]
    return html.Ul(items, className="legend", **{"aria-label": tr("Colours")})


def sign_legend(view: View, colours: Palette, signs: Iterable[tuple[str, str, str]]) -> html.Ul:
    """Signs with their colours and words, for what is no state."""
    items = [
        html.Li(
            [
                html.Span(sign, style={"color": colours.colour(colour)}, **{"aria-hidden": "true"}),
                " ",
                capital(view.translate(words)),
            ]
        )
        for sign, colour, words in signs
    ]
    return html.Ul(items, className="legend", **{"aria-label": tr("Marks")})


def state_scale(steps: Sequence[str]) -> list[list[Any]]:
    """A scale of plotly with one colour for each whole number from 0 on."""
    return [[(index + edge) / len(steps), colour] for index, colour in enumerate(steps) for edge in (0, 1)]


def capital(text: str) -> str:
    """A word of the ledger as a label that stands alone: `held` as `Held`. The style sheet does the same for headings."""
    return text[:1].upper() + text[1:]
