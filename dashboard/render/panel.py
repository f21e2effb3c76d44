"""What every chart has: a title, the question that it answers, its finding in words, a name, and its numbers as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import dcc, html

from analytics.language.sentences import say
from dashboard.render.tables import columns, scrolling

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from analytics.sections.palette import Palette
    from dashboard.view import View

GRAPH_CONFIG = {
    # plotly's own menu would upload the chart to a cloud service
    "showSendToCloud": False,
    "plotlyServerURL": "",
    "displaylogo": False,
    "showTips": False,  # plotly says them in English only
    "displayModeBar": False,
    "responsive": True,
    "scrollZoom": False,
}

FONT = '-apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", Arial, system-ui, sans-serif'
"""As in the style sheet: `system-ui` comes last, since it is a wide face for print on many a Linux."""


def capital(text: str) -> str:
    """A word of the ledger as a label that stands alone: `held` as `Held`. The style sheet does the same for headings."""
    return text[:1].upper() + text[1:]


def panel(
    *, name: str, title: str, question: str, finding: str, body: Iterable[Any], wide: bool = False
) -> html.Section:
    """A card with a heading, the question and the answer in one line, and the body below."""
    return html.Section(
        [
            html.H2(title, id=f"{name}-title"),
            html.P(question, className="question"),
            html.P(finding, className="finding"),
            *body,
        ],
        className="panel wide" if wide else "panel",
        **{"aria-labelledby": f"{name}-title"},
    )


def graph(name: str, figure: Any, label: str, height_px: int) -> html.Div:
    """The chart with its accessible name; the height is reserved before it is drawn."""
    return html.Div(
        dcc.Graph(id=name, figure=figure, config=GRAPH_CONFIG, style={"height": f"{height_px}px"}, responsive=True),
        role="img",
        className="chart",
        style={"minHeight": f"{height_px}px"},
        **{"aria-label": label},
    )


def numbers(view: View, header: Sequence[str], rows: Iterable[Sequence[str]]) -> html.Details:
    """The chart's numbers as a table, folded away. The first column names the row."""
    return html.Details(
        [
            html.Summary(view.say(say("The figures as a table"))),
            scrolling(columns(header, rows, (), "numbers")),
        ]
    )


def layout(colours: Palette, height_px: int, **more: Any) -> dict[str, Any]:
    """What all figures share: fonts, colours, margins; `more` adds to it or replaces it."""
    axis = {
        "gridcolor": colours.grid,
        "linecolor": colours.grid,
        "zeroline": False,
        "automargin": True,
        "fixedrange": True,
    }
    base: dict[str, Any] = {
        "template": "none",
        "height": height_px,
        "margin": {"l": 8, "r": 12, "t": 8, "b": 8},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": 12, "color": colours.text},
        "hoverlabel": {
            "align": "left",
            "bgcolor": colours.card,
            "bordercolor": colours.muted,
            "font": {"family": FONT, "size": 13, "color": colours.text},
        },
        "xaxis": axis,
        "yaxis": axis,
        "showlegend": False,
        "dragmode": False,
    }
    for name, value in more.items():
        base[name] = base[name] | value if name in ("xaxis", "yaxis", "margin") else value
    return base
