"""Charts that only pages have, as plotly figures: one function for each encoding, giving the figure and its height in pixels."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import plotly.graph_objects as go
from dash import html

from analytics.language.language import SentenceList
from analytics.language.sentences import tr
from analytics.tables.line_chart import LineChart
from analytics.tables.palette import Palette
from analytics.tables.table import (
    CardFit,
    CardMark,
    Chart,
    Curve,
    DurationCurves,
    GroupedShares,
    ShareBars,
    WeekShares,
)
from dashboard.render.layout import escaped, layout, line_across, separators
from dashboard.render.states import capital, sign_legend
from dashboard.view import View


def chart_legend(view: View, colours: Palette, chart: Chart) -> list[html.Ul]:
    """What the signs of a chart mean, where they are no states."""
    match chart:
        case DurationCurves():
            signs = [("╍╍" if each.dashed else "━━", colours.state[each.state], each.name) for each in chart.curves]
            if any(each.most for each in chart.curves):
                signs.append(("▨", colours.state["unknown"], tr("not known")))
            return [sign_legend(view, signs, tr("Lines"))]
        case GroupedShares():
            signs = [(_SIGNS[each.state], _bar_colour(colours, each.state), each.label) for each in chart.series]
            return [sign_legend(view, signs, tr("Bars"))]
        case LineChart():
            names: dict[str, dict[str, None]] = {}  # each once, in their order
            for each in (line for panel in chart.panels for line in panel.lines):
                names.setdefault(each.state, {})[each.name] = None
            signs = [
                ("━━" if state else "╍╍", colours.state.get(state, colours.muted), SentenceList(own, ", "))
                for state, own in names.items()
            ]
            bands = chart.panels[0].bands if chart.panels else ()
            signs += (
                [("▒", colours.state[bands[0].state], SentenceList((each.name for each in bands), ", "))]
                if bands
                else []
            )
            return [sign_legend(view, signs, tr("Lines"))]
        case CardFit():
            there = {mark.kind for mark in chart.marks}
            signs = [
                (sign, colours.state[state], chart.kinds[kind])
                for kind, (_, state, sign) in _MARKS.items()
                if kind in there
            ]
            return [sign_legend(view, signs, tr("Marks"))]
    return []


_DURATION_PX = 420


def duration_figure(view: View, colours: Palette, chart: DurationCurves) -> tuple[go.Figure, int]:
    figure = go.Figure()
    for each in chart.curves:
        for trace in _curve(view, colours, each):
            figure.add_trace(trace)
    whole = {"xref": "paper", "x": 1, "xanchor": "right", "y": chart.whole, "yanchor": "bottom", "showarrow": False}
    figure.update_layout(
        layout(
            colours,
            _DURATION_PX,
            separators=separators(view),
            margin={"r": 28},  # for the half of `100 %` that lies beyond the axis
            xaxis={"title": {"text": capital(view.translate(chart.across))}, "range": [0, 100], "ticksuffix": " %"},
            yaxis={"title": {"text": view.translate(chart.unit), "standoff": 10}, "range": [0, chart.whole * 1.12]},
            shapes=[line_across(colours, y=chart.whole, width=1.5, dash="dot")],
            annotations=[{**whole, "text": view.translate(chart.whole_label), "font": {"color": colours.muted}}],
        )
    )
    return figure, _DURATION_PX


def _curve(view: View, colours: Palette, curve: Curve) -> Iterator[go.Scatter]:
    look: dict[str, Any] = {}
    if curve.most:
        x, y = zip(*curve.most, strict=True)
        yield go.Scatter(x=x, y=y, mode="lines", line={"shape": "vh", "width": 0}, hoverinfo="skip")
        hatching = {"shape": "/", "fgcolor": colours.state["unknown"], "size": 6, "solidity": 0.3}
        look = {"fill": "tonexty", "fillpattern": hatching}
    x, y = zip(*curve.points, strict=True)
    # the axis adds its own sign for percent
    told = view.translate(tr("{label}: {value}", label="%{x}", value="%{y} GPU"))
    line = {
        "shape": "vh",
        "width": 2.5,
        "color": colours.state[curve.state],
        "dash": "dash" if curve.dashed else "solid",
    }
    yield go.Scatter(
        x=x, y=y, mode="lines", line=line, hovertemplate=f"{told}<extra>{view.translate(curve.name)}</extra>", **look
    )


_GROUPED_PX = 300
_SHARE_TICKS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
_SIGNS = {"free": "▨", "active": "■"}


def _bar_colour(colours: Palette, state: str) -> str:
    """Free is hatched, in a colour that can be seen on the card."""
    return colours.muted if state == "free" else colours.state[state]


def grouped_figure(view: View, colours: Palette, chart: GroupedShares) -> tuple[go.Figure, int]:
    figure = go.Figure([_share_bars(view, colours, chart.names, each) for each in chart.series])
    ticks = [view.language.percent(each, 0) for each in _SHARE_TICKS]
    figure.update_layout(
        layout(
            colours,
            _GROUPED_PX,
            barmode="group",
            xaxis={"type": "category", "title": {"text": capital(view.translate(chart.across))}, "showgrid": False},
            yaxis={
                "tickvals": _SHARE_TICKS,
                "ticktext": ticks,
                "range": [0, 1.05],
                "title": {"text": capital(view.translate(chart.unit)), "standoff": 10},
            },
        )
    )
    return figure, _GROUPED_PX


def _share_bars(view: View, colours: Palette, names: Sequence[str], bars: ShareBars) -> go.Bar:
    told = view.translate(tr("{label}: {value}", label="%{x} GPU", value="%{customdata}"))
    marker: dict[str, Any] = {"color": colours.state[bars.state]}
    if bars.state == "free":
        marker["pattern"] = {"shape": "/", "size": 6, "solidity": 0.2, "fgcolor": colours.muted}
    beyond = [
        0.0 if most is None or share is None else most - share
        for share, most in zip(bars.shares, bars.most or bars.shares, strict=True)
    ]
    return go.Bar(
        x=names,
        y=bars.shares,
        marker=marker,
        error_y={"type": "data", "array": beyond, "color": colours.state["unknown"], "visible": any(beyond)},
        customdata=[view.language.percent(each) for each in bars.shares],
        hovertemplate=f"{told}<extra>{view.translate(bars.name)}</extra>",
    )


_WEEK_PX = 290


def week_shares_figure(view: View, colours: Palette, chart: WeekShares) -> tuple[go.Figure, int]:
    rows = [chart.shares[24 * day : 24 * day + 24] for day in range(7)]
    figure = go.Figure(
        go.Heatmap(
            z=[[None if share is None else round(share, 4) for share in row] for row in rows],
            x=[f"{hour:02}" for hour in range(24)],
            y=[view.language.weekday(day) for day in range(7)],
            zmin=0,
            zmax=1,
            colorscale=[[0, colours.card], [1, colours.state["held"]]],
            showscale=False,
            text=[["" if share is None else f"{100 * share:.0f}" for share in row] for row in rows],
            texttemplate="%{text}",
            textfont={"size": 11},
            xgap=1,
            ygap=1,
            hovertemplate="%{y} %{x}:00: %{text} %<extra></extra>",
        )
    )
    axes = {
        "xaxis": {"type": "category", "showgrid": False, "side": "top"},
        "yaxis": {"type": "category", "autorange": "reversed", "showgrid": False},
    }
    figure.update_layout(layout(colours, _WEEK_PX, **axes, hovermode="closest"))
    return figure, _WEEK_PX


_FIT_PX = 480
_MARKS = {
    "keeps": ("circle", "active", "●"),
    "smaller": ("diamond", "held", "◆"),
    "mig": ("triangle-up", "held", "▲"),
    "either": ("star", "held", "★"),
    "reserved": ("square", "unknown", "■"),
}
"""Of each kind of `analytics.tables.card_fit` its mark, whose colour it has, and the mark as a character."""


def card_fit_figure(view: View, colours: Palette, chart: CardFit) -> tuple[go.Figure, int]:
    figure = go.Figure()
    largest = max((mark.weight for mark in chart.marks), default=1.0)
    for kind, is_hollow in itertools.product(_MARKS, (False, True)):
        marks = [mark for mark in chart.marks if (mark.kind, mark.is_hollow) == (kind, is_hollow)]
        if marks:
            figure.add_trace(_card_marks(view, colours, chart, marks, largest))
    highest = max((each for each, _ in chart.cards), default=1.0)
    highest = max([highest, *(mark.memory_gib for mark in chart.marks)])
    axes: dict[str, Any] = {
        "xaxis": {
            "title": {"text": capital(view.translate(tr("activity, 95th percentile")))},
            "range": [-2, 104],
            "ticksuffix": " %",
        },
        "yaxis": {"title": {"text": capital(view.translate(tr("peak memory (GiB)")))}, "range": [0, highest * 1.08]},
    }
    # without a ground of their own: on a narrow screen it would lie over marks
    labels = [
        {
            "xref": "paper",
            "x": 0.004,
            "xanchor": "left",
            "y": size,
            "yanchor": "bottom",
            "text": f"{name}: {size:.0f} GiB",
            "showarrow": False,
            "font": {"size": 11, "color": colours.muted},
        }
        for size, name in chart.cards
    ]
    figure.update_layout(
        layout(
            colours,
            _FIT_PX,
            margin={"t": 16, "r": 16},
            separators=separators(view),
            **axes,
            shapes=_card_regions(colours, chart),
            annotations=labels,
        )
    )
    return figure, _FIT_PX


def _card_regions(colours: Palette, chart: CardFit) -> list[dict[str, Any]]:
    """A line at each capacity, and every other region between them shaded."""
    edges = [0.0, *(size for size, _ in chart.cards)]
    shaded = [
        {"type": "rect", "xref": "paper", "x0": 0, "x1": 1, "y0": low, "y1": high, "fillcolor": colours.grid, "opacity": 0.35, "line": {"width": 0}, "layer": "below"}
        for place, (low, high) in enumerate(itertools.pairwise(edges)) if place % 2 == 0
    ]  # fmt: skip
    return [*shaded, *({**line_across(colours, y=size, dash="dot"), "layer": "below"} for size, _ in chart.cards)]


def _card_marks(view: View, colours: Palette, chart: CardFit, marks: Sequence[CardMark], largest: float) -> go.Scatter:
    first = marks[0]
    symbol, state, _ = _MARKS[first.kind]
    figures = ((tr("peak memory"), "%{y} GiB"), (tr("activity, 95th percentile"), "%{x}"))  # its axis adds the sign
    told = [view.translate(tr("{label}: {value}", label=label, value=value)) for label, value in figures]
    return go.Scatter(
        x=[mark.activity_pct for mark in marks],
        y=[round(mark.memory_gib, 1) for mark in marks],
        mode="markers",
        marker={
            "symbol": f"{symbol}-open" if first.is_hollow else symbol,
            "size": [round(7 + 13 * (mark.weight / largest) ** 0.5, 1) for mark in marks],
            "color": colours.state[state],
            "opacity": 0.8,
            "line": {"width": 2, "color": colours.state[state]}
            if first.is_hollow
            else {"width": 1, "color": colours.card},
        },
        text=["<br>".join(escaped(view, line, 80) for line in mark.lines) for mark in marks],
        hovertemplate="<br>".join(["%{text}", *told, view.translate(chart.kinds[first.kind])]) + "<extra></extra>",
    )
