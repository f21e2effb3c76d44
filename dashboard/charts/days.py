"""Where the time went, day by day or, in a short window, hour by hour: GPU-hours by state, stacked."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from analytics.intervals import by_hour
from analytics.language.quantities import Share
from analytics.language.sentences import say
from analytics.ledger.summary import totals_by
from analytics.states import USED_FIRST
from analytics.workloads.confidence import COVERAGE_MIN
from dashboard.charts.panel import capital, graph, layout, numbers, panel
from dashboard.charts.written import legend, pattern, separators
from dashboard.palette import FAINT
from fallow.clock import DAY_MS, HOUR_MS, from_ms

if TYPE_CHECKING:
    from dash import html

    from analytics.ledger.summary import Totals
    from dashboard.palette import Palette
    from dashboard.view import View

_HEIGHT_PX = 340
_HOURLY_UP_TO_MS = 3 * DAY_MS
_MOST_TICKS = 7
_APART = 35
"""Up to so many bars there is room between them."""


@dataclass(frozen=True)
class _Bin:
    """A day or an hour: its whole name, which no other has, a short one in two lines for the axis, and its time by state."""

    name: str
    short: str
    totals: Totals


def days(view: View, colours: Palette) -> html.Section:
    """The panel."""
    hourly = view.report.summary.until_ms - view.report.summary.since_ms <= _HOURLY_UP_TO_MS
    bins = _hours(view) if hourly else _days(view)
    drawn = [each for each in bins if each.totals.total_ms >= HOUR_MS / 20] or bins
    finding = view.say(_finding(drawn))
    label = view.say(say("Stacked bars of GPU-hours by state. {finding}", finding=finding))
    step = say("hour") if hourly else say("day")
    states = [state for state in USED_FIRST if any(each.totals.state_ms[state] for each in drawn)]
    head = [view.say(step), *(view.say(state) for state in USED_FIRST), view.say(say("total"))]
    return panel(
        name="days",
        title=view.say(say("Every hour by state") if hourly else say("Every day by state")),
        question=view.say(say("Is it getting better? GPU-hours; the first and the last may be cut by the window.")),
        finding=finding,
        body=[
            legend(view, colours, states),
            graph("days-chart", _figure(view, colours, drawn), label, _HEIGHT_PX),
            numbers(view, head, ([each.name, *_cells(view, each.totals)] for each in bins)),
        ],
    )


def _cells(view: View, totals: Totals) -> list[str]:
    return [
        view.language.hours(milliseconds)
        for milliseconds in (*(totals.state_ms[state] for state in USED_FIRST), totals.total_ms)
    ]


def _days(view: View) -> list[_Bin]:
    groups = next(section.groups for section in view.report.sections if section.name == "day")
    found = []
    for name, totals in groups.items():
        day = date.fromisoformat(name)
        short = f"{view.language.weekday(day.weekday())}<br>{day.day}"
        found.append(_Bin(view.language.date(day), short, totals))
    return found


def _hours(view: View) -> list[_Bin]:
    groups = totals_by(by_hour(view.part.inside.stretches), "hour")
    found = []
    for start_ms, totals in sorted((int(name), totals) for name, totals in groups.items()):
        local = from_ms(start_ms).astimezone(view.zone)
        short = f"{view.language.weekday(local.weekday())} {local.day}<br>{local:%H:%M}"
        found.append(_Bin(view.language.moment(start_ms), short, totals))
    return found


def _finding(bins: list[_Bin]) -> str:
    """The best and the worst of those well observed; a first or last one may be short: shares, not hours."""
    shares = {
        each.name: share
        for each in bins
        if (share := each.totals.share("active")) is not None and (each.totals.coverage or 0) >= COVERAGE_MIN
    }
    if not shares:
        return say("None was observed for {least} of its time.", least=Share(COVERAGE_MIN, 0))
    best, worst = max(shares, key=lambda name: shares[name]), min(shares, key=lambda name: shares[name])
    if best == worst:
        return say("Active: {share} of the observed time on {day}.", share=Share(shares[best]), day=best)
    return say("Active: least on {worst}, {least} of the observed time; most on {best}, {most}.",
               least=Share(shares[worst]), worst=worst, most=Share(shares[best]), best=best)  # fmt: skip


def _figure(view: View, colours: Palette, bins: list[_Bin]) -> go.Figure:
    names = [each.name for each in bins]
    value = "%{y:,.1f} " + view.say(say("GPU-hours"))
    labels = {state: capital(view.say(state)) for state in USED_FIRST}
    figure = go.Figure(
        [
            go.Bar(
                name=labels[state],
                x=names,
                # what the chart shows; the table below has the numbers
                y=[round(each.totals.state_ms[state] / HOUR_MS, 3) for each in bins],
                marker={
                    "color": colours.state[state],
                    "line": {"width": int(state in FAINT and len(bins) <= _APART), "color": colours.edge},
                    "pattern": pattern(colours, [state] * len(bins)),
                },
                hovertemplate=view.say(say("{label}: {value}", label=labels[state], value=value)) + "<extra></extra>",
                meta=state,
            )
            for state in USED_FIRST
            if any(each.totals.state_ms[state] for each in bins)
        ]
    )  # fmt: skip
    every = -(-len(bins) // _MOST_TICKS)
    figure.update_layout(
        layout(
            colours,
            _HEIGHT_PX,
            barmode="stack",
            bargap=0.15 if len(bins) <= _APART else 0,
            separators=separators(view.language),
            xaxis={
                "type": "category",
                "showgrid": False,
                "tickmode": "array",
                "tickvals": names[::every],
                "ticktext": [each.short for each in bins][::every],
                "autotickangles": [0, 45, 90],
                "unifiedhovertitle": {"text": "<b>%{x}</b>"},
                "spikethickness": 1,
                "spikecolor": colours.muted,
            },
            yaxis={"title": {"text": view.say(say("GPU-hours")), "standoff": 8}, "tickformat": ",~f"},
            hovermode="x unified",
        )
    )
    return figure
