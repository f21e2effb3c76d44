"""The gang staircase: free GPUs that lie apart start no job that wants them together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go
from dash import html

from analytics.capacity.gangs import gangs
from analytics.language.quantities import Number, Share
from analytics.language.sentences import say, say_many
from analytics.money.priced_segments import placed
from dashboard.render.panel import capital, graph, layout, panel
from dashboard.render.tables import beside, listed_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analytics.capacity.gangs import Gang
    from analytics.sections.palette import Palette
    from dashboard.view import View

_HEIGHT_PX = 300
_MARKS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def gang_staircase(view: View, colours: Palette) -> html.Section:
    """The panel."""
    found = gangs_of(view)
    finding = view.say(_finding(found))
    header = ("GPUs per job", "jobs that could start now", "time with so many free", "time in which one could start")
    note = (
        "Now is the end of the window. A job wants GPUs of one model in one pool: as many as a host has lie on one host, "
        "more of them on whole free hosts. MIG instances do not count."
    )
    return panel(
        name="gangs",
        title=view.say(say("Which jobs could start?")),
        question=view.say(say("Free GPUs may be scattered: how often were there enough, and how often could a job have had them together?")),
        finding=finding,
        body=[
            _legend(view, colours),
            beside(
                graph("gangs-chart", _figure(view, found, colours), finding, _HEIGHT_PX),
                listed_table([view.say(say(each)) for each in header], [_row(view, each) for each in found], "gangs-title"),
            ),
            html.P(view.say(say(note)), className="note"),
        ],
        wide=True,
    )  # fmt: skip


def gangs_of(view: View) -> tuple[Gang, ...]:
    """The gangs of the view's GPUs in its window."""
    rows = placed(view.part.inside.stretches, view.whole.money.costs, view.whole.inventory)
    summary = view.report.summary
    return gangs(rows, summary.since_ms, summary.until_ms)


def _finding(found: Sequence[Gang]) -> str:
    startable = [each for each in found if each.now]
    if not startable:
        return say("No job could start at the end of the window: no GPU was free.")
    largest = startable[-1]
    now = say_many(
        "The largest job that could start now takes {number} GPU",
        "The largest job that could start now takes {number} GPUs",
        largest.size,
    )
    gap = max(found, key=lambda each: (each.free_share or 0.0) - (each.start_share or 0.0))
    if (gap.free_share or 0.0) - (gap.start_share or 0.0) < 0.01:
        return say("{now}; GPUs that were free could nearly always be had together.", now=now)
    return say(
        "{now}. For {size}, enough were free for {free} of the time, and could be had together for {start}.",
        now=now,
        size=Number(gap.size),
        free=Share(gap.free_share),
        start=Share(gap.start_share),
    )


def _figure(view: View, found: Sequence[Gang], colours: Palette) -> go.Figure:
    sizes = [str(each.size) for each in found]
    enough, start = view.say(say("enough free")), view.say(say("could start"))
    told = view.say(say("{label}: {value}", label="%{x} GPU", value="%{customdata}"))
    figure = go.Figure()
    figure.add_bar(
        x=sizes,
        y=[each.free_share for each in found],
        marker={"color": colours.state["free"], "pattern": {"shape": "/", "size": 6, "solidity": 0.2, "fgcolor": colours.muted}},
        customdata=[view.language.percent(each.free_share) for each in found],
        hovertemplate=f"{told}<extra>{enough}</extra>",
    )  # fmt: skip
    beyond = [(each.start_share_most or 0.0) - (each.start_share or 0.0) for each in found]
    figure.add_bar(
        x=sizes,
        y=[each.start_share for each in found],
        error_y={"type": "data", "array": beyond, "color": colours.state["unknown"], "visible": any(beyond)},
        marker={"color": colours.state["active"]},
        customdata=[view.language.percent(each.start_share) for each in found],
        hovertemplate=f"{told}<extra>{start}</extra>",
    )
    figure.update_layout(
        layout(
            colours,
            _HEIGHT_PX,
            barmode="group",
            xaxis={"type": "category", "title": {"text": capital(view.say(say("GPUs per job")))}, "showgrid": False},
            yaxis={
                "tickvals": _MARKS,
                "ticktext": [view.language.percent(each, 0) for each in _MARKS],
                "range": [0, 1.05],
                "title": {"text": capital(view.say(say("share of the time"))), "standoff": 10},
            },
        )
    )
    return figure


def _legend(view: View, colours: Palette) -> html.Ul:
    signs = (("▨", colours.muted, say("so many free in one pool and model")), ("■", colours.state["active"], say("such a job could start")))  # fmt: skip
    items = [
        html.Li([html.Span(sign, style={"color": colour}, **{"aria-hidden": "true"}), " ", capital(view.say(words))])
        for sign, colour, words in signs
    ]
    return html.Ul(items, className="legend", **{"aria-label": view.say(say("Bars"))})


def _row(view: View, each: Gang) -> tuple[str, ...]:
    speaks = view.language
    sure, most = speaks.percent(each.start_share), speaks.percent(each.start_share_most)
    return (
        speaks.number(each.size),
        speaks.number(each.now)
        if each.now == each.now_most
        else view.say(say("{least} to {most}", least=Number(each.now), most=Number(each.now_most))),
        speaks.percent(each.free_share),
        sure if sure == most else view.say(say("{least} to {most}", least=sure, most=most)),
    )
