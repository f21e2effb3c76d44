"""Key figures as tiles: the figure large, its change beside it, and below it what it is made of."""

from __future__ import annotations

from typing import Any

from dash import html

from analytics.language.sentences import tr
from analytics.tables.key_figures import WINDOW_FIGURES, KeyFigure, compared_with, key_figures
from analytics.tables.palette import Palette
from dashboard.view import View


def tiles(view: View, colours: Palette) -> html.Section:
    """The tiles, and below them what their figures are over and what they are compared with."""
    return html.Section(
        [
            html.H2(tr("The window in figures"), className="for-readers"),
            html.Dl(
                [_card(view, colours, each) for each in key_figures(view.report, WINDOW_FIGURES)], className="tiles"
            ),
            html.P(compared_with(view.report.changes), className="note"),
        ]
    )


def _card(view: View, colours: Palette, tile: KeyFigure) -> html.Div:
    words, colour = view.language, colours.state.get(tile.state or tile.key)
    swatch = [html.Span(className=f"swatch {tile.key}", style={"background": colour})] if colour else []
    figure = "-" if tile.figure is None else words.shown(tile.figure)
    unit = [html.Span(tile.unit, className="of")] if tile.unit else []
    return html.Div(
        [
            html.Dt([*swatch, tile.label]),
            html.Dd([html.Span([figure, *unit], className="figure"), *_change(view, tile)]),
            html.Dd([html.Span(words.shown(line)) for line in tile.lines], className="unit"),
            *([html.Dd(tile.open_between, className="meaning")] if tile.open_between else []),
            html.Dd(tile.meaning, className="meaning"),
        ],
        className="tile",
    )


def _change(view: View, tile: KeyFigure) -> list[html.Span]:
    """An arrow says the direction, a colour beside it whether that is the better one."""
    said: Any = "" if tile.change is None else view.translate(tile.change.sentence)
    if not said:
        return []
    direction = (said[0] == "+") - (said[0] == "\N{MINUS SIGN}")
    kind = {0: "same", tile.good: "better", -tile.good: "worse"}[direction] if tile.good else "same"
    return [html.Span(f"{'▼ ▲'[direction + 1]} {said}".strip(), className=f"change {kind}")]
