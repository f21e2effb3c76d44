"""Charts of the report as plotly figures: one function for each encoding, giving the figure and its height in pixels."""

from __future__ import annotations

from textwrap import wrap
from typing import Any

import plotly.graph_objects as go

from analytics.language.sentences import tr
from analytics.tables.palette import FAINT, ORDER, Palette
from analytics.tables.table import (
    EstimateInterval,
    Intervals,
    RankedBars,
    StackedBars,
    Waterfall,
    WaterfallStep,
    WeekGrid,
)
from dashboard.render.layout import escaped, layout, line_across, separators
from dashboard.render.marks import draw_marks
from dashboard.render.states import capital, pattern
from dashboard.view import View


def waterfall_figure(view: View, colours: Palette, chart: Waterfall) -> tuple[go.Figure, int]:
    names = [capital(view.translate(step.label)) for step in chart.steps]
    figure = go.Figure(
        go.Bar(
            x=[step.length for step in chart.steps],
            y=names,
            base=[step.start for step in chart.steps],
            orientation="h",
            marker={
                "color": [colours.state.get(step.state, colours.muted) for step in chart.steps],
                "line": {"width": [int(step.state in FAINT) for step in chart.steps], "color": colours.edge},
                "pattern": pattern(colours, [step.state for step in chart.steps]),
            },
            hovertext=[_step_words(view, chart, step, "<br>") for step in chart.steps],
            hoverinfo="text",
        )
    )
    for name, step in zip(names, chart.steps, strict=True):
        beside = f"<b>{escaped(view, step.figure)}</b>  {escaped(view, step.detail)}"
        figure.add_annotation(
            x=step.start + step.length,
            y=name,
            text=beside,
            showarrow=False,
            xanchor="left",
            xshift=4,
            font={"size": 12},
        )
    height_px = 46 + 40 * len(chart.steps)
    figure.update_layout(
        layout(
            colours,
            height_px,
            bargap=0.3,
            separators=separators(view),
            xaxis={
                "tickformat": ",~f",
                "rangemode": "tozero",
                "nticks": 5,
                "title": {"text": view.translate(chart.unit)},
            },
            yaxis={"autorange": "reversed", "showgrid": False, "ticksuffix": "  "},
        )
    )
    return figure, height_px


def _step_words(view: View, chart: Waterfall, step: WaterfallStep, between: str) -> str:
    hours = f"{view.language.number(step.length, 1)} {view.translate(chart.unit)}"
    parts = [
        f"<b>{capital(view.translate(step.label))}</b>",
        hours,
        escaped(view, step.figure),
        escaped(view, step.detail),
    ]
    return between.join(part for part in parts if part)


_STACKED_PX, _MOST_TICKS, _APART = 340, 7, 35


def stacked_figure(view: View, colours: Palette, chart: StackedBars) -> tuple[go.Figure, int]:
    names = [escaped(view, name) for name in chart.names]
    short = [escaped(view, name).replace(" ", "<br>", 1) for name in chart.short]
    value = "%{y:,.1f} " + view.translate(chart.unit)
    labels = {state: capital(view.translate(tr(state))) for state in ORDER}
    is_apart = len(names) <= _APART
    figure = go.Figure(
        [
            go.Bar(
                name=labels[state],
                x=names,
                # what the chart shows; the table below has the numbers
                y=[round(each, 3) for each in chart.values[state]],
                marker={
                    "color": colours.state[state],
                    "line": {"width": int(state in FAINT and is_apart), "color": colours.edge},
                    "pattern": pattern(colours, [state] * len(names)),
                },
                hovertemplate=view.translate(tr("{label}: {value}", label=labels[state], value=value))
                + "<extra></extra>",
                meta=state,
            )
            for state in ORDER
            if any(chart.values[state])
        ]
    )
    every = -(-len(names) // _MOST_TICKS) or 1
    figure.update_layout(
        layout(
            colours,
            _STACKED_PX,
            barmode="stack",
            bargap=0.15 if is_apart else 0,
            separators=separators(view),
            xaxis={
                "type": "category",
                "showgrid": False,
                "tickmode": "array",
                "tickvals": names[::every],
                "ticktext": short[::every],
                "autotickangles": [0, 45, 90],
                "unifiedhovertitle": {"text": "<b>%{x}</b>"},
                "spikethickness": 1,
                "spikecolor": colours.muted,
            },
            yaxis={"title": {"text": view.translate(chart.unit), "standoff": 8}, "tickformat": ",~f"},
            hovermode="x unified",
        )
    )
    marked = ((number, names[place]) for number, place in enumerate(chart.marks, start=1) if place is not None)
    draw_marks(figure, colours, marked)
    return figure, _STACKED_PX


_RANKED_PX, _TITLE_LETTERS = 34, 36


def ranked_figure(view: View, colours: Palette, chart: RankedBars) -> tuple[go.Figure, int]:
    """Each group below its title: groups have scales of their own, so that there is no axis."""
    figure, names, at = go.Figure(), dict[int, str](), 0
    for title, state, bars in chart.groups:
        words = "<br>".join(wrap(escaped(view, title, 120), _TITLE_LETTERS))
        figure.add_annotation(
            xref="paper", x=0, y=at, xanchor="left", align="left", showarrow=False, text=f"<b>{words}</b>"
        )
        rows = {at + number: bar for number, bar in enumerate(bars, start=1)}
        names |= {row: escaped(view, bar.label) for row, bar in rows.items()}
        known = {row: bar for row, bar in rows.items() if bar.length is not None}
        figure.add_bar(
            x=[bar.length for bar in known.values()],
            y=list(known),
            orientation="h",
            marker={
                "color": colours.state.get(state, colours.muted),
                "line": {"width": int(state in FAINT), "color": colours.edge},
                "pattern": pattern(colours, [state] * len(known)),
            },
            text=[escaped(view, bar.figure) for bar in known.values()],
            textposition="outside",
            cliponaxis=False,
            customdata=[names[row] for row in known],
            hovertemplate="%{customdata}: %{text}<extra></extra>",
        )
        at += len(bars) + 1
    height_px = 20 + _RANKED_PX * at
    figure.update_layout(
        layout(
            colours,
            height_px,
            bargap=0.35,
            margin={"r": 64},
            xaxis={"visible": False, "rangemode": "tozero"},
            yaxis={
                "range": [at - 0.5, -0.5],
                "tickvals": list(names),
                "ticktext": list(names.values()),
                "showgrid": False,
                "ticksuffix": "  ",
            },
        )
    )
    return figure, height_px


_INTERVAL_PX, _INTERVAL_AXIS_PX = 54, 62


def intervals_figure(view: View, colours: Palette, chart: Intervals) -> tuple[go.Figure, int]:
    """Names and figures stand above their bars: beside them they would leave a narrow screen no room for the bars."""
    drawn = chart.rows
    rows = list(range(len(drawn)))
    height_px = _INTERVAL_AXIS_PX + _INTERVAL_PX * len(drawn)
    figure = go.Figure()
    figure.add_bar(
        x=[each.whole for each in drawn],
        y=rows,
        orientation="h",
        width=0.36,
        marker={"color": colours.whole},
        hovertemplate="%{x} GPU<extra></extra>",
    )
    figure.add_scatter(
        x=[each.point for each in drawn],
        y=rows,
        mode="markers",
        marker={"symbol": "diamond", "size": 12, "color": colours.mark, "line": {"width": 1, "color": colours.card}},
        error_x={
            "type": "data",
            "symmetric": False,
            "thickness": 4,
            "width": 7,
            "color": colours.mark,
            "array": [None if each.high is None else each.high - each.point for each in drawn],
            "arrayminus": [None if each.low is None else each.point - each.low for each in drawn],
        },
        text=[escaped(view, each.figure) for each in drawn],
        hovertemplate="%{text}<extra></extra>",
    )
    axes = {
        "xaxis": {"title": {"text": view.translate(chart.unit)}, "rangemode": "tozero", "nticks": 8},
        "yaxis": {"range": [len(drawn) - 0.5, -0.75], "showgrid": False, "showticklabels": False, "ticks": ""},
    }
    notes = [_interval_note(view, each, row) for row, each in zip(rows, drawn, strict=True)]
    figure.update_layout(layout(colours, height_px, **axes, annotations=notes))
    return figure, height_px


def _interval_note(view: View, each: EstimateInterval, row: int) -> dict[str, Any]:
    return {
        "xref": "paper",
        "x": 0,
        "xanchor": "left",
        "y": row - 0.2,
        "yanchor": "bottom",
        "showarrow": False,
        "align": "left",
        "text": f"{escaped(view, each.name, 40)}  <b>{escaped(view, each.figure)}</b>",
    }


_DAY_PX = 26


def week_grid_figure(view: View, colours: Palette, chart: WeekGrid) -> tuple[go.Figure, int]:
    """Rows are days, columns hours; the number stands in the middle of each span."""
    grids = chart.grids
    rows: list[list[int | None]] = [[None] * 24 for _ in range(7 * len(grids))]
    words = [[""] * 24 for _ in rows]
    for place, (_, spans) in enumerate(grids):
        for span in spans:
            row = place * 7 + span.weekday
            words[row][(span.from_hour + span.until_hour) // 2] = view.language.number(span.value)
            rows[row][span.from_hour : span.until_hour] = [span.value] * (span.until_hour - span.from_hour)
    names = [f"{escaped(view, name, 30)} {view.language.weekday(day)}" for name, _ in grids for day in range(7)]
    figure = go.Figure(
        go.Heatmap(
            z=rows,
            x=list(range(24)),
            y=list(range(len(rows))),
            zmin=0,
            showscale=False,
            xgap=1,
            ygap=2,
            colorscale=[[0, colours.soft], [1, colours.soft]],
            text=words,
            texttemplate="%{text}",
            textfont={"color": colours.text},
            hovertemplate="%{x:02d}:00, %{z} GPU<extra></extra>",
            hoverongaps=False,
        )
    )
    height_px = 60 + _DAY_PX * len(rows)
    edges = [7 * place - 0.5 for place in range(1, len(grids))]
    figure.update_layout(
        layout(
            colours,
            height_px,
            shapes=[line_across(colours, y=edge) for edge in edges],
            xaxis={"title": {"text": capital(view.translate(tr("hour of the day")))}, "dtick": 3, "range": [-0.5, 23.5], "showgrid": False},
            yaxis={"tickvals": list(range(len(rows))), "ticktext": names, "range": [len(rows) - 0.5, -0.5], "showgrid": False, "ticksuffix": "  "},
        )
    )  # fmt: skip
    return figure, height_px
