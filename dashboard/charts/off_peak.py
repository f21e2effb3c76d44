"""Hours of the week in which a pool's GPUs were not needed: where batch work has room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go
from dash import html

from analytics.capacity.off_peak import WEEKS_MIN
from analytics.language.plain_text import plain
from analytics.language.quantities import Number
from analytics.language.sentences import Listed, say, say_many
from analytics.render.wording import placed
from dashboard.charts.bars import NAME_MOST
from dashboard.charts.panel import capital, graph, layout, numbers, panel
from fallow.clock import WEEK_MS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from analytics.capacity.off_peak import OffPeak
    from dashboard.palette import Palette
    from dashboard.view import View

_DAY_PX, _POOLS = 26, 4


def off_peak(view: View, colours: Palette) -> html.Section:
    """The panel: a week for each pool that has such hours."""
    found = view.report.off_peak
    finding = view.say(_finding(view, found))
    pools = list(dict.fromkeys(each.pool for each in found))[:_POOLS]
    head = ("pool", "from", "until", "GPUs", "weeks looked at")
    body: list[Any] = [
        graph("off-peak-chart", _figure(view, found, pools, colours), finding, _height(pools)),
        html.P(view.say(_note(view, found)), className="note"),
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


def _note(view: View, found: Sequence[OffPeak]) -> Listed:
    """What the numbers are, what it means that there is none, and what is not drawn."""
    rest = len({each.pool for each in found}) - _POOLS
    parts = [
        say("The number is how many GPUs were not needed in nine weeks of ten; hours are those of {zone}.", zone=str(view.zone)),
        say("Hours left blank have no more room than usual, or were not observed enough."),
        say_many("{number} more pool is in the table alone.", "{number} more pools are in the table alone.", rest) if rest > 0 else None,
    ]  # fmt: skip
    return Listed([each for each in parts if each is not None], " ")


def _height(pools: Sequence[str]) -> int:
    return 60 + 7 * _DAY_PX * len(pools)


def _finding(view: View, found: Sequence[OffPeak]) -> str:
    if not found and _weeks(view) < WEEKS_MIN:
        return say(
            "Not known: it takes {least} weeks, and the lake has {weeks} before the end of the window.",
            least=Number(WEEKS_MIN), weeks=Number(_weeks(view), 1),
        )  # fmt: skip
    if not found:
        return say("No hours of the week stand out: the GPUs are needed at all hours, or at none.")
    best = max(found, key=lambda each: (each.gpus * (each.until_hour - each.from_hour), each.pool))
    return say(
        "The widest window: {gpus} GPUs of {pool}, {since} to {until}.",
        gpus=Number(best.gpus),
        pool=plain(best.pool, NAME_MOST),
        since=_hour(view, best.weekday, best.from_hour),
        until=_hour(view, best.weekday, best.until_hour),
    )


def _weeks(view: View) -> float:
    """How many weeks before the end of the window the lake knows."""
    first_ms, until_ms = view.report.known.since_ms, view.report.summary.until_ms
    return 0.0 if first_ms is None else max(0, until_ms - first_ms) / WEEK_MS


def _figure(view: View, found: Sequence[OffPeak], pools: Sequence[str], colours: Palette) -> go.Figure:
    """Rows are days of pools, columns hours; the number stands in the middle of each day's part of a window."""
    rows: list[list[int | None]] = [[None] * 24 for _ in range(7 * len(pools))]
    words = [[""] * 24 for _ in rows]
    for each in (one for one in found if one.pool in pools):
        days: dict[int, list[int]] = {}
        for weekday, hour in _hours(each):
            days.setdefault(pools.index(each.pool) * 7 + weekday, []).append(hour)
        for row, hours in days.items():
            words[row][hours[len(hours) // 2]] = view.language.number(each.gpus)
            for hour in hours:
                rows[row][hour] = each.gpus
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
            text=words,
            texttemplate="%{text}",
            textfont={"color": colours.text},
            hovertemplate="%{x:02d}:00, %{z} GPU<extra></extra>",
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
            xaxis={"title": {"text": capital(view.say(say("hour of the day")))}, "dtick": 3, "range": [-0.5, 23.5], "showgrid": False},
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
