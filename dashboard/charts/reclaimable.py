"""How many GPUs of each pool could go: an interval, in blocks that a job could use, and whether last week's answer held."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go
from dash import html

from analytics.language.plain_text import plain
from analytics.language.sentences import say
from analytics.render import surplus as spare
from analytics.render.wording import placed
from dashboard.charts.bars import NAME_MOST, table
from dashboard.charts.panel import graph, layout, panel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analytics.report.figures import Reclaimable
    from dashboard.palette import Palette
    from dashboard.view import View

_ROW_PX, _AXIS_PX, _DRAWN = 54, 62, 12


def reclaimable(view: View, colours: Palette) -> html.Section:
    """The panel: a row for each pool and model."""
    found = view.report.reclaimable
    first = plain(placed(found[0].pool, view.language), NAME_MOST) if found else ""
    finding = view.say(spare.finding(found, first))
    drawn = found[:_DRAWN]
    words = (0, len(spare.HEAD) - 1)
    body: list[Any] = [
        graph("reclaimable-chart", _figure(view, drawn, colours), finding, _height_px(drawn)),
        table([view.say(each) for each in spare.HEAD], [_row(view, each) for each in found], "reclaimable-title", words=words),
        html.P([view.say(say("Bar: all GPUs of the pool. Mark: those that can go, with the interval.")), " ", view.say(spare.NOTE)], className="note"),
    ]  # fmt: skip
    return panel(
        name="reclaimable",
        title=view.say(say("Beyond what was needed at once")),
        question=view.say(say("How many GPUs could go? From up to four weeks before the end of the window.")),
        finding=finding,
        body=body if found else [],
        wide=True,
    )


def _height_px(found: Sequence[Reclaimable]) -> int:
    return _AXIS_PX + _ROW_PX * len(found)


def _figure(view: View, found: Sequence[Reclaimable], colours: Palette) -> go.Figure:
    """Names and figures stand above their bars: beside them they would leave a narrow screen no room for the bars."""
    rows = list(range(len(found)))
    figure = go.Figure()
    figure.add_bar(
        x=[each.gpus for each in found],
        y=rows,
        orientation="h",
        width=0.36,
        marker={"color": colours.state["free"]},
        hovertemplate="%{x} GPU<extra></extra>",
    )
    figure.add_scatter(
        x=[each.point for each in found],
        y=rows,
        mode="markers",
        marker={"symbol": "diamond", "size": 12, "color": colours.state["active"], "line": {"width": 1, "color": colours.card}},
        error_x={
            "type": "data", "symmetric": False, "thickness": 4, "width": 7, "color": colours.state["active"],
            "array": [each.high - each.point for each in found], "arrayminus": [each.point - each.low for each in found],
        },
        text=[spare.interval(each, view.language) for each in found],
        hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip
    height = _height_px(found)
    axes = {
        "xaxis": {"title": {"text": view.say(say("GPUs"))}, "rangemode": "tozero", "nticks": 8},
        "yaxis": {"range": [len(found) - 0.5, -0.75], "showgrid": False, "showticklabels": False, "ticks": ""},
    }
    notes = [_note(view, each, row) for row, each in zip(rows, found, strict=True)]
    figure.update_layout(layout(colours, height, **axes, annotations=notes))
    return figure


def _note(view: View, each: Reclaimable, row: int) -> dict[str, Any]:
    return {
        "xref": "paper", "x": 0, "xanchor": "left", "y": row - 0.2, "yanchor": "bottom", "showarrow": False, "align": "left",
        "text": f"{_name(view, each, 40)}  <b>{spare.interval(each, view.language)}</b>",
    }  # fmt: skip


def _name(view: View, each: Reclaimable, most: int) -> str:
    """Pool and model; beside marks it is text, so that nothing of it is taken for markup."""
    text = f"{placed(each.pool, view.language)}, {placed(each.model, view.language)}"
    return plain(text, most).replace("&", "&amp;").replace("<", "&lt;")


def _row(view: View, each: Reclaimable) -> tuple[Any, ...]:
    speaks = view.language
    return (
        html.Bdi(plain(f"{placed(each.pool, speaks)}, {placed(each.model, speaks)}", NAME_MOST)),
        *spare.figures(each, speaks),
        html.Div(view.say(spare.tested(each.back_test)), className="words"),
    )
