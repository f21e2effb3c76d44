"""Key figures as tiles: the figure large, its change beside it, and below it what it is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import html

from analytics.language.sentences import tr
from analytics.tables.key_figures import WINDOW_FIGURES, KeyFigure, compared_with, key_figures
from analytics.tables.palette import Palette
from dashboard.render.panel import method
from dashboard.render.states import fill
from dashboard.view import View


def tiles(view: View, colours: Palette) -> html.Section:
    """Return the tiles, and below them the time of their figures and of the comparison."""
    shown = key_figures(view.report, WINDOW_FIGURES)
    return html.Section(
        [
            html.H2(tr("The window in figures"), className="for-readers"),
            html.P(tr("States are shares of the observed time."), className="question"),
            html.Dl([_card(view, colours, tile) for tile in shown], className="tiles"),
            *_method(view, shown),
        ]
    )


def _method(view: View, shown: Sequence[KeyFigure]) -> list[html.Details]:
    """Return the method: the time of the figures, the time that they are compared with, and their definitions."""
    [counted] = method(tr("The window in figures"), [compared_with(view.report.changes)])
    meanings = [html.Div([html.Dt(tile.label), html.Dd(tile.meaning)]) for tile in shown if tile.meaning]
    counted.children.append(html.Dl(meanings, className="terms"))
    return [counted]


def _card(view: View, colours: Palette, tile: KeyFigure) -> html.Div:
    words, state = view.language, tile.state or tile.key
    is_state = state in colours.state
    swatch = [html.Span(className=f"swatch {state}", style={"background": fill(colours, state)})] if is_state else []
    figure = "-" if tile.figure is None else words.shown(tile.figure)
    unit = [html.Span(tile.unit, className="of")] if tile.unit else []
    return html.Div(
        [
            html.Dt([*swatch, tile.label]),
            html.Dd([html.Span([figure, *unit], className="figure"), *_change(view, tile)]),
            html.Dd([html.Span(words.shown(line)) for line in tile.lines], className="unit"),
            *([html.Dd(tile.open_between, className="meaning")] if tile.open_between else []),
        ],
        className="tile",
    )


def _change(view: View, tile: KeyFigure) -> list[html.Span]:
    """Return the change of a tile: an arrow for the direction, and a colour for better or worse."""
    text: Any = "" if tile.change is None else view.translate(tile.change.sentence)
    if not text:
        return []
    direction = (text[0] == "+") - (text[0] == "\N{MINUS SIGN}")
    kind = {0: "same", tile.good: "better", -tile.good: "worse"}[direction] if tile.good else "same"
    return [html.Span(f"{'▼ ▲'[direction + 1]} {text}".strip(), className=f"change {kind}")]
