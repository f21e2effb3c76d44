"""The common layout of all plotly figures: fonts, colours, margins, and the form of text."""

from __future__ import annotations

from typing import Any

from analytics.tables.palette import Palette
from dashboard.view import View

FONT = '-apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", Arial, system-ui, sans-serif'
"""The fonts of the style sheet. `system-ui` is last, since it is a wide font for print on many Linux systems."""


def layout(colours: Palette, height_px: int, **more: Any) -> dict[str, Any]:
    """Return the common layout of all figures; `more` adds to it or replaces parts of it."""
    axis = {
        "gridcolor": colours.line,
        "linecolor": colours.line,
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


def separators(view: View) -> str:
    """Return plotly's setting of separators: the decimal mark, then the thousands separator."""
    written = view.language.number(1234.5, 1)
    return f"{written[5]}{written[1]}"
