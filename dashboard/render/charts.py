"""Charts on a page: the drawings of documents, in the widths of a page; assets/drawings.js shows the one that fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go
from dash import html

from analytics.language.sentences import SentenceList
from analytics.render.html.charts import picture
from analytics.tables.chart import Chart
from analytics.tables.palette import Palette
from analytics.tables.table import Table
from dashboard.view import View

WIDTHS = {"narrow": 340.0, "middle": 560.0, "wide": 1000.0}
"""The widths of drawings in their own units: for a phone, for half of a screen, and for a whole screen."""


def chart_drawings(view: View, section: Table, chart: Chart, *, wide: bool) -> html.Div:
    """Return the drawings of a section's chart, with their accessible name. Their room is reserved in advance.

    A chart that does not take the whole width has no drawing of that width.
    """
    names = [name for name in WIDTHS if wide or name != "wide"]
    pictures = {name: picture(section, chart, view.language, WIDTHS[name], on_page=True) for name in names}
    return html.Div(
        [
            html.Div(
                className=f"picture {name}",
                style={"aspectRatio": f"{drawn.width:g} / {drawn.height:g}"},
                **{"data-drawing": str(drawn.shapes)},
            )
            for name, drawn in pictures.items()
        ],
        id=f"{section.name}-chart",
        className="chart",
        role="img",
        **{"aria-label": SentenceList([section.title, section.headline], ": ")},
    )


def draw_annotations(figure: go.Figure, colours: Palette, places: Mapping[Any, str]) -> None:
    """Add a dotted line to the figure at every place of the x axis, with the numbers of its annotations at the foot."""
    for place, numbers in places.items():
        line = {"color": colours.text, "width": 1.5, "dash": "dot"}
        figure.add_shape(type="line", xref="x", yref="paper", x0=place, x1=place, y0=0, y1=1, line=line)
        at = {"x": place, "xref": "x", "y": 0, "yref": "paper", "yanchor": "bottom", "showarrow": False}
        box = {"bgcolor": colours.card, "bordercolor": colours.text, "borderpad": 2}
        figure.add_annotation(text=f"<b>{numbers}</b>", font={"size": 11, "color": colours.text}, **at, **box)
