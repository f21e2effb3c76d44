"""The marks of annotations in charts over time: a dotted line with a number, whose words stand below the chart."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import plotly.graph_objects as go

from analytics.tables.palette import Palette


def draw_marks(figure: go.Figure, colours: Palette, places: Iterable[tuple[int, Any]]) -> None:
    """A line across the chart at each place of the x axis, with its number at the foot."""
    by_place: dict[Any, list[str]] = {}
    for number, place in places:
        by_place.setdefault(place, []).append(str(number))
    for place, numbers in by_place.items():
        figure.add_shape(
            type="line",
            xref="x",
            yref="paper",
            x0=place,
            x1=place,
            y0=0,
            y1=1,
            line={"color": colours.text, "width": 1.5, "dash": "dot"},
        )
        figure.add_annotation(
            x=place,
            xref="x",
            y=0,
            yref="paper",
            yanchor="bottom",
            showarrow=False,
            text=f"<b>{', '.join(numbers)}</b>",
            bgcolor=colours.card,
            bordercolor=colours.text,
            borderpad=2,
            font={"size": 11, "color": colours.text},
        )
