"""Hours of the week in which a pool's GPUs were not needed: where batch work has room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go
from dash import html

from analytics.language.quantities import Number
from analytics.language.sentences import say
from analytics.ledger.text import plain
from analytics.report.wording import placed
from dashboard.charts.bars import NAME_MOST
from dashboard.charts.panel import graph, layout, numbers, panel

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from analytics.capacity.off_peak import OffPeak
    from dashboard.palette import Palette
    from dashboard.source import View

_DAY_PX, _POOLS = 26, 4


def off_peak(view: View, colours: Palette) -> html.Section:
    """The panel: a week for each pool that has such hours."""
    found = view.report.off_peak
    finding = view.say(_finding(view, found))
    pools = list(dict.fromkeys(each.pool for each in found))[:_POOLS]
    head = ("pool", "from", "until", "GPUs", "weeks looked at")
    note = say("The number is how many GPUs were not needed in nine weeks of ten; hours are local time.")
    body: list[Any] = [
        graph("off-peak-chart", _figure(view, found, pools, colours), finding, _height(pools)),
        html.P(view.say(note), className="note"),
        numbers(view, [view.say(say(each)) for each in head], [_row(view, each) for each in found]),
    ]
    return panel(
        name="off-peak",
        title=view.say(say("Off-peak hours")),
        question=view.say(say("When is there room for work that can wait? From the last weeks, whatever the window.")),
        finding=finding,
        body=body if found else [],
        wide=True,
    )


def _height(pools: Sequence[str]) -> int:
    return 60 + 7 * _DAY_PX * len(pools)


def _finding(view: View, found: Sequence[OffPeak]) -> str:
    if not found:
        return say("No hours of the week stand out, or fewer than four weeks are known.")
    best = max(found, key=lambda each: (each.gpus * (each.until_hour - each.from_hour), each.pool))
    return say(
        "The widest window: {gpus} GPUs of {pool}, {since} to {until}.",
        gpus=Number(best.gpus),
        pool=plain(best.pool, NAME_MOST),
        since=_hour(view, best.weekday, best.from_hour),
        until=_hour(view, best.weekday, best.until_hour),
    )


def _figure(view: View, found: Sequence[OffPeak], pools: Sequence[str], colours: Palette) -> go.Figure:
    """Rows are days of pools, columns hours; only hours of a window have a number."""
    rows: list[list[int | None]] = [[None] * 24 for _ in range(7 * len(pools))]
    for each in (one for one in found if one.pool in pools):
        for weekday, hour in _hours(each):
            rows[pools.index(each.pool) * 7 + weekday][hour] = each.gpus
    names = [
        plain(f"{placed(pool, view.language)} {view.language.weekday(day)}", 30)
        .replace("&", "&amp;")
        .replace("<", "&lt;")
        for pool in pools
        for day in range(7)
    ]
    figure = go.Figure(
        go.Heatmap(
            z=rows,
            x=list(range(24)),
            y=list(range(len(rows))),
            colorscale=[[0, colours.state["low"]], [1, colours.state["low"]]],
            zmin=0,
            showscale=False,
            xgap=1,
            ygap=2,
            text=[["" if each is None else str(each) for each in row] for row in rows],
            texttemplate="%{text}",
            textfont={"color": colours.text},
            hovertemplate="%{x}:00, %{z} GPU<extra></extra>",
            hoverongaps=False,
        )
    )
    figure.update_layout(
        layout(
            colours,
            _height(pools),
            shapes=[
                {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 7 * place - 0.5, "y1": 7 * place - 0.5, "line": {"color": colours.muted, "width": 1}}
                for place in range(1, len(pools))
            ],
            xaxis={"title": {"text": view.say(say("hour of the day"))}, "dtick": 3, "range": [-0.5, 23.5], "showgrid": False},
            yaxis={"tickvals": list(range(len(rows))), "ticktext": names, "range": [len(rows) - 0.5, -0.5], "showgrid": False, "ticksuffix": "  "},
        )
    )  # fmt: skip
    return figure


def _hours(each: OffPeak) -> Iterator[tuple[int, int]]:
    """The weekday and hour of each hour of a window; after Sunday comes Monday."""
    for hour in range(each.from_hour, each.until_hour):
        yield (each.weekday + hour // 24) % 7, hour % 24


def _row(view: View, each: OffPeak) -> list[str]:
    speaks = view.language
    return [
        plain(placed(each.pool, speaks), NAME_MOST),
        _hour(view, each.weekday, each.from_hour),
        _hour(view, each.weekday, each.until_hour),
        speaks.number(each.gpus),
        speaks.number(each.weeks),
    ]


def _hour(view: View, weekday: int, hour: int) -> str:
    """`Sat 06:00`; an hour beyond 24 lies in the next days."""
    return f"{view.language.weekday((weekday + hour // 24) % 7)} {hour % 24:02}:00"
