"""How many GPUs of each pool could go: an interval, in blocks that a job could use, and whether last week's answer held."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go
from dash import html

from analytics.language.quantities import Number
from analytics.language.sentences import say, say_many
from analytics.ledger.text import plain
from analytics.report.wording import placed
from dashboard.charts.bars import NAME_MOST, table
from dashboard.charts.panel import graph, layout, panel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analytics.report.parts import BackTest, Reclaimable
    from dashboard.palette import Palette
    from dashboard.source import View

_ROW_PX, _DRAWN = 46, 12
_BLOCKS = (1, 2, 4, 8)


def reclaimable(view: View, colours: Palette) -> html.Section:
    """The panel: a row for each pool and model."""
    found = view.report.reclaimable
    finding = view.say(_finding(view, found))
    head = (
        "pool and model",
        "GPUs",
        "low",
        "point",
        "high",
        *(f"in blocks of {size}" for size in _BLOCKS),
        "back-test",
    )
    note = (
        "Low to high is the interval of the estimate; a block lies on one host. "
        "The back-test asks the estimate of a week earlier how it would have done."
    )
    drawn = found[:_DRAWN]
    body: list[Any] = [
        graph("reclaimable-chart", _figure(view, drawn, colours), finding, 70 + _ROW_PX * len(drawn)),
        table([view.say(say(each)) for each in head], [_row(view, each) for each in found], "reclaimable-title", words=(0, 9)),
        html.P([view.say(say("Bar: all GPUs of the pool. Mark: those that can go, with the interval.")), " ", view.say(say(note))], className="note"),
    ]  # fmt: skip
    return panel(
        name="reclaimable",
        title=view.say(say("Beyond what was needed at once")),
        question=view.say(say("How many GPUs could go? From up to four weeks before the end of the window.")),
        finding=finding,
        body=body if found else [],
        wide=True,
    )


def _finding(view: View, found: Sequence[Reclaimable]) -> str:
    """Of several the points are added, which can all go; their intervals are not one, and stand at each."""
    if not found:
        return say(
            "No pool is known to have GPUs to spare: all of them were needed at once, or the history is too short."
        )
    if not any(each.high for each in found):
        return say("No GPU can go with the reserve kept.")
    point, eight = sum(each.point for each in found), Number(sum(each.blocks.get(8, 0) for each in found))
    if len(found) > 1:
        return say_many(
            "{number} GPU can go with the reserve kept, counted over {groups} groups of pool and model, each with its own interval. In whole blocks of eight: {eight}.",
            "{number} GPUs can go with the reserve kept, counted over {groups} groups of pool and model, each with its own interval. In whole blocks of eight: {eight}.",
            point, groups=Number(len(found)), eight=eight,
        )  # fmt: skip
    [own] = found
    return say_many(
        "{number} GPU of {pool} can go with the reserve kept, by the interval {low} to {high}. In whole blocks of eight: {eight}.",
        "{number} GPUs of {pool} can go with the reserve kept, by the interval {low} to {high}. In whole blocks of eight: {eight}.",
        point, pool=plain(placed(own.pool, view.language), NAME_MOST), low=Number(own.low), high=Number(own.high), eight=eight,
    )  # fmt: skip


def _figure(view: View, found: Sequence[Reclaimable], colours: Palette) -> go.Figure:
    names = [_name(view, each, 44) for each in found]
    figure = go.Figure()
    figure.add_bar(
        x=[each.gpus for each in found],
        y=names,
        orientation="h",
        width=0.5,
        marker={"color": colours.state["free"]},
        hovertemplate="%{x} GPU<extra></extra>",
    )
    figure.add_scatter(
        x=[each.point for each in found],
        y=names,
        mode="markers",
        marker={"symbol": "diamond", "size": 12, "color": colours.state["active"], "line": {"width": 1, "color": colours.card}},
        error_x={
            "type": "data", "symmetric": False, "thickness": 4, "width": 7, "color": colours.state["active"],
            "array": [each.high - each.point for each in found], "arrayminus": [each.point - each.low for each in found],
        },
        text=[f"{each.point} [{each.low}, {each.high}]" for each in found],
        hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip
    height = 70 + _ROW_PX * len(found)
    words = {
        "xaxis": {"title": {"text": view.say(say("GPUs"))}, "rangemode": "tozero"},
        "yaxis": {"autorange": "reversed", "showgrid": False, "ticksuffix": "  "},
    }  # fmt: skip
    figure.update_layout(layout(colours, height, **words))
    return figure


def _name(view: View, each: Reclaimable, most: int) -> str:
    """Pool and model; as the name of an axis it is text, so that nothing of it is taken for markup."""
    text = f"{placed(each.pool, view.language)}, {placed(each.model, view.language)}"
    return plain(text, most).replace("&", "&amp;").replace("<", "&lt;")


def _row(view: View, each: Reclaimable) -> tuple[Any, ...]:
    speaks = view.language
    return (
        html.Bdi(plain(f"{placed(each.pool, speaks)}, {placed(each.model, speaks)}", NAME_MOST)),
        speaks.number(each.gpus),
        *(speaks.number(value) for value in (each.low, each.point, each.high)),
        *(speaks.number(each.blocks.get(size)) for size in _BLOCKS),
        html.Span(view.say(_tested(each.back_test)), className="words"),
    )


def _tested(test: BackTest | None) -> str:
    if test is None:
        return say("not enough history")
    return say_many(
        "would have left too few in {number} hour of {hours}",
        "would have left too few in {number} hours of {hours}",
        test.short_hours,
        hours=Number(test.hours),
    )
