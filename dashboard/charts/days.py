"""GPU-hours of each day by state, stacked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from analytics.findings.confidence import COVERAGE_MIN
from analytics.ledger.text import hours, percent
from dashboard.charts.panel import graph, layout, legend, numbers, panel
from dashboard.palette import ORDER, Palette
from fallow.clock import HOUR_MS

if TYPE_CHECKING:
    from dash import html

    from analytics.ledger.summary import Totals
    from dashboard.source import View

_HEIGHT_PX = 300
_PATTERN = {"unknown": "/"}
"""Hatched: what nobody saw is no state like the others."""


def days(view: View, colours: Palette) -> html.Section:
    """The panel."""
    groups = next(section.groups for section in view.report.sections if section.name == "day")
    # a last interval reaches some milliseconds into a day: in the table, and no bar
    drawn = {day: totals for day, totals in groups.items() if hours(totals.total_ms) != "0.0"} or groups
    finding = _finding(drawn)
    return panel(
        name="days",
        title="Where each day went",
        question="Is it getting better? GPU-hours per UTC day, by state.",
        finding=finding,
        body=[
            legend(colours, ORDER),
            graph("days-chart", _figure(drawn, colours), f"Stacked bars of GPU-hours per day. {finding}", _HEIGHT_PX),
            numbers(
                ["day", *ORDER, "total"],
                (
                    [day, *(hours(totals.state_ms[state]) for state in ORDER), hours(totals.total_ms)]
                    for day, totals in groups.items()
                ),
            ),
        ],
    )


def _finding(groups: dict[str, Totals]) -> str:
    """The best and the worst of the well observed days; a first or last day may be short: shares, not hours."""
    shares = {
        day: share
        for day, totals in groups.items()
        if (share := totals.share("active")) is not None and (totals.coverage or 0) >= COVERAGE_MIN
    }
    if not shares:
        return f"No day was observed for {percent(COVERAGE_MIN, 0)} of its time."
    best, worst = max(shares, key=lambda day: shares[day]), min(shares, key=lambda day: shares[day])
    if best == worst:
        return f"Active: {percent(shares[best])} of the observed time on {best}."
    return f"Active: {percent(shares[worst])} of the observed time on {worst}, {percent(shares[best])} on {best}."


def _figure(groups: dict[str, Totals], colours: Palette) -> go.Figure:
    figure = go.Figure(
        [
            go.Bar(
                name=state,
                x=list(groups),
                y=[totals.state_ms[state] / HOUR_MS for totals in groups.values()],
                marker={
                    "color": colours.state[state],
                    "line": {"width": 0},
                    "pattern": {
                        "shape": _PATTERN.get(state, ""),
                        "bgcolor": colours.state[state],
                        "fgcolor": colours.card,
                        "size": 6,
                        "solidity": 0.2,
                    },
                },
                hovertemplate="%{y:,.1f} GPU-hours",
            )
            for state in ORDER
        ]
    )
    figure.update_layout(
        layout(
            colours,
            _HEIGHT_PX,
            barmode="stack",
            bargap=0.15,
            xaxis={
                "type": "date",
                "tickformat": "%b %-d",
                "showgrid": False,
                "nticks": 7,
                "tickangle": 0,
                "hoverformat": "%a %Y-%m-%d",
            },
            yaxis={"title": {"text": "GPU-hours", "standoff": 8}, "tickformat": ",~f"},
            hovermode="x unified",
        )
    )
    return figure
