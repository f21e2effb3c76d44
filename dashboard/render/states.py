"""How states look on a page: colour and hatching, and their legend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dash import html

from analytics.glossary import STATES
from analytics.language.sentences import tr
from analytics.tables.palette import HATCHED, Palette
from dashboard.view import View


def mixed(colour: str, ground: str) -> str:
    """Return a colour half-way to its ground, both as `#rrggbb`."""
    pairs = zip(bytes.fromhex(colour[1:]), bytes.fromhex(ground[1:]), strict=True)
    return f"#{bytes((one + other) // 2 for one, other in pairs).hex()}"


def fill(colours: Palette, state: str) -> str:
    """Return the `background` of a state in tables and legends: its colour and hatching."""
    colour = colours.state[state]
    if state not in HATCHED:
        return colour
    line = f"color-mix(in srgb, {colours.card} 45%, transparent)"
    return f"repeating-linear-gradient({HATCHED[state]}deg, {line} 0 1px, transparent 1px 6px), {colour}"


def legend(colours: Palette, states: Iterable[str]) -> html.Ul:
    """Return the states' colours with their names; a tooltip explains every state."""
    items = [
        html.Li(
            [html.Span(className=f"swatch {state}", style={"background": fill(colours, state)}), STATES[state].title],
            title=STATES[state].meaning,
        )
        for state in states
    ]
    return html.Ul(items, className="legend", **{"aria-label": tr("Colours")})


def sign_legend(view: View, colours: Palette, signs: Iterable[tuple[str, str, str]]) -> html.Ul:
    """Return a legend of signs with their colours and words, for values that are not states."""
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
    """Return a plotly colour scale with one colour per integer, from 0."""
    return [[(index + edge) / len(steps), colour] for index, colour in enumerate(steps) for edge in (0, 1)]


def capital(text: str) -> str:
    """Return a word of the ledger as a label: `held` as `Held`. The style sheet does the same for headings."""
    return text[:1].upper() + text[1:]
