"""Where the money goes: from what was paid, state by state, down to what was useful."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from analytics.language.quantities import Amount, GpuHours, Share
from analytics.language.sentences import say
from analytics.ledger.summary import ratio
from analytics.render.html.amounts import cents
from analytics.states import UNUSED
from dashboard.charts.panel import capital, graph, layout, numbers, panel
from dashboard.charts.written import pattern, separators
from dashboard.palette import FAINT
from fallow.clock import HOUR_MS

if TYPE_CHECKING:
    from dash import html

    from analytics.report.figures import Step
    from dashboard.palette import Palette
    from dashboard.view import View

_HEIGHT_PX = 366


def waterfall(view: View, colours: Palette) -> html.Section:
    """The panel."""
    finding = view.say(_finding(view))
    title = view.say(say("From paid to useful"))
    label = view.say(say("Bars from all paid GPU-hours down to the useful ones. {finding}", finding=finding))
    return panel(
        name="waterfall",
        title=title,
        question=view.say(say("Where does the money go? GPU-hours, state by state, until the useful ones are left.")),
        finding=finding,
        body=[
            graph("waterfall-chart", _figure(view, colours), label, _HEIGHT_PX),
            numbers(
                view,
                [view.say(each) for each in (say("state"), say("GPU-hours"), say("of all"), say("cost"))],
                _rows(view),
            ),
        ],
    )


def _finding(view: View) -> str:
    steps = {step.state: step for step in view.report.steps}
    total_ms, currency = _total_ms(view), view.report.money.currency
    if not total_ms:
        return say("There was no GPU time in this window.")
    useful, worst = (
        steps["active"],
        max((steps[state] for state in UNUSED), key=lambda each: (each.cents or 0, each.gpu_ms)),
    )
    share = Share(ratio(useful.gpu_ms, total_ms))
    if worst.cents is None:
        return say("{share} of the GPU time was useful; the most was lost to {state} time: {hours} GPU-hours.",
                   share=share, state=say(worst.state), hours=GpuHours(worst.gpu_ms))  # fmt: skip
    return say("{share} of the GPU time was useful; the most was lost to {state} time: {hours} GPU-hours, {money}.",
               share=share, state=say(worst.state), hours=GpuHours(worst.gpu_ms),
               money=Amount(cents(worst.cents), currency))  # fmt: skip


def _total_ms(view: View) -> float:
    return view.report.summary.totals.total_ms


def _steps(view: View) -> list[Step]:
    """Without the states that an edition for people cannot have."""
    return [step for step in view.report.steps if step.gpu_ms or not view.report.scope.is_personal]


def _rows(view: View) -> list[list[str]]:
    language, total_ms = view.language, _total_ms(view)
    money = view.report.money
    first = [
        view.say("paid"),
        language.hours(total_ms),
        language.percent(ratio(total_ms, total_ms)),
        language.money(cents(money.accounts.total.paid_cents), money.currency),
    ]
    return [first] + [
        [
            view.say(step.state),
            language.hours(step.gpu_ms),
            language.percent(ratio(step.gpu_ms, total_ms)),
            language.money(cents(step.cents), money.currency),
        ]
        for step in _steps(view)
    ]


def _label(view: View, row: list[str]) -> str:
    """The share, and what it cost; where no price is known, the GPU-hours."""
    _, hours, share, cost = row
    known = view.report.money.accounts.total.paid_cents is not None
    return f"<b>{share}</b>  {cost if known else hours}"


def _hover(view: View, row: list[str]) -> str:
    name, hours, share, cost = row
    return "<br>".join([f"<b>{capital(name)}</b>", f"{hours} {view.say(say('GPU-hours'))}", share, cost])


def _figure(view: View, colours: Palette) -> go.Figure:
    """Each bar begins where the one above it ends, seen from the right; the useful rest begins at nothing."""
    steps = _steps(view)
    ends, left = [], _total_ms(view)
    for step in steps:
        ends.append(left)
        left -= step.gpu_ms
    names = [capital(view.say(each)) for each in (say("paid"), *(step.state for step in steps))]
    rows = _rows(view)
    lengths = [_total_ms(view) / HOUR_MS, *(step.gpu_ms / HOUR_MS for step in steps)]
    bases = [0.0, *((end - step.gpu_ms) / HOUR_MS for end, step in zip(ends, steps, strict=True))]
    figure = go.Figure(
        go.Bar(
            x=lengths,
            y=names,
            base=bases,
            orientation="h",
            marker={
                "color": [colours.muted, *(colours.state[step.state] for step in steps)],
                "line": {"width": [0, *(int(step.state in FAINT) for step in steps)], "color": colours.edge},
                "pattern": pattern(colours, ["", *(step.state for step in steps)]),
            },
            hovertext=[_hover(view, row) for row in rows],
            hoverinfo="text",
        )
    )
    for name, end, row in zip(names, [_total_ms(view) / HOUR_MS, *(end / HOUR_MS for end in ends)], rows, strict=True):
        figure.add_annotation(
            x=end, y=name, text=_label(view, row), showarrow=False, xanchor="left", xshift=4, font={"size": 12}
        )
    figure.update_layout(
        layout(
            colours,
            _HEIGHT_PX,
            bargap=0.3,
            separators=separators(view.language),
            xaxis={
                "tickformat": ",~f",
                "rangemode": "tozero",
                "nticks": 5,
                "title": {"text": view.say(say("GPU-hours"))},
            },
            yaxis={"autorange": "reversed", "showgrid": False, "ticksuffix": "  "},
        )
    )
    return figure
