"""The window in figures: one tile per state, which together are all the GPU time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dash import html

from analytics.ledger.text import MEANING, hours, percent
from dashboard.palette import ORDER, Palette

if TYPE_CHECKING:
    from dashboard.source import View


def tiles(view: View, colours: Palette) -> html.Section:
    """A tile per state and one for the total; figures are of the whole window, not of an instant."""
    totals = view.report.summary.totals
    cards = [_tile("in all", hours(totals.total_ms), "GPU-hours", f"{percent(totals.coverage)} of them observed", None)]
    for state in ORDER:
        spent = f"{hours(totals.state_ms[state])} GPU-hours"
        if state == "unknown":
            card = _tile(state, hours(totals.state_ms[state]), "GPU-hours", MEANING[state], colours.state[state])
        else:
            card = _tile(state, percent(totals.share(state)), spent, MEANING[state], colours.state[state])
        cards.append(card)
    return html.Section(
        [
            html.H2("The window in figures", className="for-readers"),
            html.Dl(cards, className="tiles"),
            html.P("Shares are of the observed time, over the whole window.", className="note"),
        ]
    )


def _tile(name: str, figure: str, unit: str, meaning: str, colour: str | None) -> html.Div:
    swatch = [html.Span(className=f"swatch {name}", style={"background": colour})] if colour else []
    return html.Div(
        [
            html.Dt([*swatch, name]),
            html.Dd([html.Span(figure, className="figure"), html.Span(unit, className="unit")]),
            html.Dd(meaning, className="meaning"),
        ],
        className="tile",
    )
