"""States over time and, below, measured series: one figure with one time axis, so that both zoom together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import plotly.graph_objects as go
from dash import html

from analytics.language.sentences import Moment, Number, SentenceList, Span, tr
from analytics.tables.chart import round_step
from analytics.tables.palette import Palette
from analytics.tables.table import Column, Table, column
from dashboard.render.layout import layout, separators
from dashboard.render.panel import graph
from dashboard.render.states import capital
from dashboard.render.strip import gpu_words, heatmap, hover, time_axis
from dashboard.render.tables import table
from dashboard.series import PageSeries, SeriesLine
from dashboard.timeline import PageTimeline
from dashboard.times import visible
from dashboard.view import View
from fallow.outside_text import chart_text

_ROW_PX = 22
_LINE_PX = 92
_GAP_PX = 26
_TOP_PX = 34
_BOTTOM_PX = 8
_LETTERS = 12
"""The letters of `GPU-1ae8e3d9`, with which the links beside the figure begin."""
_LEFT_PX = 96
"""Room for the names of several GPUs."""


def series_chart(view: View, colours: Palette, name: str, timeline: PageTimeline, series: PageSeries) -> list[Any]:
    """Return the graph, its tooltip, a note on missing series, and the numbers as a table."""
    height_px = _TOP_PX + _strip_px(timeline) + len(series.lines) * (_LINE_PX + _GAP_PX) + _BOTTOM_PX
    since_ms, until_ms = visible(view)
    label = tr(
        "States and {names} from {since} to {until}, a point every {width}.",
        names=SentenceList([line.name for line in series.lines], ", ") if series.lines else tr("no series"),
        since=Moment(since_ms),
        until=Moment(until_ms),
        width=Span(series.bin_ms),
    )
    figure = _figure(view, colours, timeline, series, height_px)
    words: list[dict[str, Any] | None] = [None]
    for line in series.lines:
        shown = {"name": view.translate(line.name), "unit": line.unit, "digits": line.digits}
        words += [shown] if series.is_raw else [None, shown]
    return [
        graph(name, figure, label, height_px),
        *hover(colours, gpu_words(view, timeline, lines=words)),
        html.P(_note(series), className="hint"),
        _numbers(view, colours, series),
    ]


def _note(series: PageSeries) -> str:
    parts = []
    if series.lines:
        width = Span(series.bin_ms)
        parts.append(
            tr("Every point is one row of the lake.")
            if series.is_raw
            else tr("Lines are the mean of every {width}, bars reach from its least to its most.", width=width)
        )
        parts.append(tr("A gap was not observed."))
    if series.missing:
        names = SentenceList([line.name for line in series.missing], ", ")
        parts.append(tr("Not measured here: {names}.", names=names))
    return SentenceList(parts, " ")


def _strip_px(timeline: PageTimeline) -> int:
    return max(2 * _ROW_PX, _ROW_PX * len(timeline.gpus))


def _figure(view: View, colours: Palette, timeline: PageTimeline, series: PageSeries, height_px: int) -> go.Figure:
    strip_px = _strip_px(timeline)
    inner_px = height_px - _TOP_PX - _BOTTOM_PX
    figure = go.Figure(heatmap(timeline, colours))
    axes: dict[str, Any] = {}
    notes = []
    at_px = strip_px
    for number, line in enumerate(series.lines, start=2):
        at_px += _GAP_PX
        domain = [1 - (at_px + _LINE_PX) / inner_px, 1 - at_px / inner_px]
        axes[f"yaxis{number}"] = _axis(colours, series, line, [max(0.0, domain[0]), domain[1]])
        text = capital(f"{view.translate(line.name)}, {line.unit}")
        notes.append(
            {
                "text": text,
                "xref": "paper",
                "yref": "paper",
                "x": 0,
                "y": domain[1],
                "xanchor": "left",
                "yanchor": "bottom",
                "showarrow": False,
                "font": {"color": colours.muted, "size": 12},
            }
        )
        figure.add_traces(list(_traces(colours, series, line, f"y{number}")))
        at_px += _LINE_PX
    names = [chart_text(gpu[:_LETTERS], _LETTERS) for gpu in timeline.gpus] if len(timeline.gpus) > 1 else [""]
    since_ms, until_ms = visible(view)
    figure.update_layout(
        layout(
            colours,
            height_px,
            separators=separators(view),
            margin={"t": _TOP_PX, "b": _BOTTOM_PX, "l": _LEFT_PX if len(timeline.gpus) > 1 else _LEFT_PX // 2},
            xaxis=time_axis(
                view.language,
                colours,
                since_ms,
                until_ms,
                side="top",
                anchor="free",
                position=1,
                automargin=False,
                # the lines' marks would widen the range
                autorangeoptions={"clipmin": since_ms, "clipmax": until_ms},
            ),
            yaxis={
                "autorange": "reversed",
                "showgrid": False,
                "ticks": "",
                "domain": [1 - strip_px / inner_px, 1],
                "tickvals": list(range(len(names))),
                "ticktext": names,
            },
            hovermode="x",
            dragmode="zoom",
            annotations=notes,
            bargap=0,
            **axes,
        )
    )
    return figure


def _axis(colours: Palette, series: PageSeries, line: SeriesLine, domain: list[float]) -> dict[str, Any]:
    most = line.top or max((value for value in _values(series, line, "max") if value is not None), default=0.0)
    step = round_step(most)
    top = step * max(1, math.ceil(most / step - 1e-9))
    return {
        "domain": domain,
        "gridcolor": colours.line,
        "zeroline": False,
        "fixedrange": True,
        "anchor": "x",
        "tick0": 0,
        "dtick": step,
        "range": [0, top * 1.02],
    }


def _traces(colours: Palette, series: PageSeries, line: SeriesLine, axis: str) -> Iterator[go.Bar | go.Scatter]:
    """Yield bars from the minimum to the maximum of every bin, with gaps for unknown values, and the line of means."""
    at = {"x0": int(series.frame["time"][0]) + series.bin_ms / 2, "dx": series.bin_ms, "yaxis": axis}
    least, mean, most = (_values(series, line, part) for part in ("min", "mean", "max"))
    if not series.is_raw:
        heights = [
            None if low is None or high is None else round(high - low, 3) for low, high in zip(least, most, strict=True)
        ]
        yield go.Bar(
            base=least,
            y=heights,
            width=series.bin_ms,
            marker={"color": colours.state["low"], "line": {"width": 0}},
            opacity=0.55,
            hoverinfo="skip",
            **at,
        )
    yield go.Scatter(
        y=mean,
        mode="lines+markers",
        connectgaps=False,
        hoverinfo="none",
        line={"color": colours.state["active"], "width": 1.3},
        marker={"size": 2, "color": colours.state["active"]},
        **at,
    )


def _values(series: PageSeries, line: SeriesLine, part: str) -> list[float | None]:
    values = series.frame[f"{line.column}_{part}"].to_list()
    return [None if value is None else round(value / line.scale, line.digits + 1) for value in values]


def _numbers(view: View, colours: Palette, series: PageSeries) -> html.Details:
    def line_column(line: SeriesLine) -> Column:
        def cell(row: dict[str, Any]) -> str:
            least, mean, most = (row[f"{line.column}_{part}"] for part in ("min", "mean", "max"))
            if mean is None:
                return tr("unknown")
            low, middle, high = (Number(value / line.scale, line.digits) for value in (least, mean, most))
            return tr("{middle} ({low} \N{EN DASH} {high})", middle=middle, low=low, high=high)

        def mean(row: dict[str, Any]) -> float | None:
            return None if (value := row[f"{line.column}_mean"]) is None else value / line.scale

        return column(line.column, SentenceList([line.name, line.unit], ", "), "number", cell, mean)

    columns = (column("from", tr("from"), "moment", "time"), *map(line_column, series.lines))
    listed = Table("states", "", "", "", columns, tuple(series.coarse.iter_rows(named=True)))
    summary = html.Summary(tr("The figures as a table: mean, least and most"))
    return html.Details([summary, table(view, colours, listed, listed.cells, "linked")])
