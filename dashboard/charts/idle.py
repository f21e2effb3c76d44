"""How far the idle headline depends on the length from which a spell at zero counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from analytics.language.quantities import Share
from analytics.language.sentences import say
from analytics.ledger.summary import SPELLS, ratio
from dashboard.render.figures import separators
from dashboard.render.panel import graph, layout, numbers, panel

if TYPE_CHECKING:
    from dash import html

    from analytics.sections.palette import Palette
    from dashboard.view import View

_HEIGHT_PX = 260


def idle(view: View, colours: Palette) -> html.Section:
    """The panel."""
    found, observed_ms = view.report.summary.idle, view.report.summary.totals.observed_ms
    language = view.language
    spans = {view.say(say("any length")): found.zero_ms} | {
        f"≥{language.space}{language.minutes(SPELLS[name])}": spell_ms for name, spell_ms in found.spell_ms.items()
    }
    shares = {name: ratio(spell_ms, observed_ms) for name, spell_ms in spans.items()}
    half_hour, two_hours = (Share(ratio(found.spell_ms[name], observed_ms)) for name in ("30m", "120m"))
    finding = view.say(
        say("{half} of the observed time in spells of 30 min and more, {two} in spells of 120 min and more.",
            half=half_hour, two=two_hours)
    )  # fmt: skip
    label = view.say(say("Bars of the idle share by length of spell. {finding}", finding=finding))
    head = [view.say(each) for each in (say("in stretches of"), say("GPU-hours"), say("of observed"))]
    rows = ([name, language.hours(spans[name]), language.percent(share)] for name, share in shares.items())
    return panel(
        name="idle",
        title=view.say(say("At zero utilization, whoever holds the GPU")),
        question=view.say(
            say("How much of the idleness comes in pieces long enough to use? Share of the observed time, by the length of the spell.")
        ),
        finding=finding,
        body=[graph("idle-chart", _figure(view, shares, colours), label, _HEIGHT_PX), numbers(view, head, rows)],
    )  # fmt: skip


def _figure(view: View, shares: dict[str, float | None], colours: Palette) -> go.Figure:
    known = {name: share for name, share in shares.items() if share is not None}
    figure = go.Figure(
        go.Bar(
            x=list(known.values()),
            y=list(known),
            orientation="h",
            marker={"color": colours.muted, "line": {"width": 0}},
            text=[view.language.percent(share) for share in known.values()],
            textposition="outside",
            cliponaxis=False,
            hovertemplate="%{y}: %{text}<extra></extra>",
        )
    )
    figure.update_layout(
        layout(
            colours,
            _HEIGHT_PX,
            bargap=0.35,
            separators=separators(view.language),
            margin={"r": 56},
            xaxis={"tickformat": ".0%", "rangemode": "tozero", "nticks": 6},
            yaxis={"autorange": "reversed", "showgrid": False, "ticksuffix": "  "},
        )
    )
    return figure
