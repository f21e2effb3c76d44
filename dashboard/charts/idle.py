"""How far the idle headline depends on the length from which a spell at zero counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from analytics.ledger.summary import ratio
from analytics.ledger.text import hours, percent
from dashboard.charts.panel import graph, layout, numbers, panel

if TYPE_CHECKING:
    from dash import html

    from dashboard.palette import Palette
    from dashboard.source import View

_HEIGHT_PX = 300


def idle(view: View, colours: Palette) -> html.Section:
    """The panel."""
    found, observed_ms = view.report.summary.idle, view.report.summary.totals.observed_ms
    spans = {"any length": found.zero_ms} | {
        f"{name.removesuffix('m')} min and longer": spell_ms for name, spell_ms in found.spell_ms.items()
    }
    shares = {name: ratio(spell_ms, observed_ms) for name, spell_ms in spans.items()}
    half_hour, two_hours = (percent(ratio(found.spell_ms[name], observed_ms)) for name in ("30m", "120m"))
    finding = f"{half_hour} of the observed time from 30 min on, {two_hours} from 120 min on: the threshold makes the headline."
    return panel(
        name="idle",
        title="At zero utilization, whoever holds the GPU",
        question="How much of the idleness comes in pieces long enough to use? Share of the observed time, by the length "
        "of the spell.",
        finding=finding,
        body=[
            graph(
                "idle-chart", _figure(shares, colours), f"Bars of idle share by length of spell. {finding}", _HEIGHT_PX
            ),
            numbers(
                ["spells of", "GPU-hours", "of observed"],
                ([name, hours(spans[name]), percent(share)] for name, share in shares.items()),
            ),
        ],
    )


def _figure(shares: dict[str, float | None], colours: Palette) -> go.Figure:
    known = {name: share for name, share in shares.items() if share is not None}
    figure = go.Figure(
        go.Bar(
            x=list(known.values()),
            y=list(known),
            orientation="h",
            marker={"color": colours.muted, "line": {"width": 0}},
            text=[percent(share) for share in known.values()],
            textposition="outside",
            cliponaxis=False,
            hovertemplate="%{y}: %{text} of the observed time<extra></extra>",
        )
    )
    figure.update_layout(
        layout(
            colours,
            _HEIGHT_PX,
            bargap=0.35,
            margin={"r": 56},
            xaxis={"tickformat": ".0%", "rangemode": "tozero", "nticks": 6},
            yaxis={"autorange": "reversed", "showgrid": False, "ticksuffix": "  "},
        )
    )
    return figure
