"""Lines over weeks as a plotly figure: panels below one another on the same weeks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import plotly.graph_objects as go

from analytics.language.sentences import tr
from analytics.tables.line_chart import Line, LineBand, LineChart, LinePanel
from analytics.tables.palette import Palette
from dashboard.render.layout import escaped, layout, separators
from dashboard.render.marks import draw_marks
from dashboard.render.states import capital
from dashboard.view import View

_PANEL_PX, _HEAD_PX, _FOOT_PX = 150, 34, 40
_ROOM = 1.08
"""Above the highest level, for a mark on it."""


def lines_figure(view: View, colours: Palette, chart: LineChart) -> tuple[go.Figure, int]:
    panels = len(chart.panels)
    height_px = (_PANEL_PX + _HEAD_PX) * panels + _FOOT_PX
    names = [escaped(view, name) for name in chart.names]
    figure, axes, notes, shapes = go.Figure(), dict[str, Any](), list[Any](), list[Any]()
    drawn_px = (_PANEL_PX + _HEAD_PX) * panels
    for number, panel in enumerate(chart.panels, start=1):
        top = 1 - ((_PANEL_PX + _HEAD_PX) * (number - 1) + _HEAD_PX) / drawn_px
        axis = "y" if number == 1 else f"y{number}"
        for band in panel.bands:
            figure.add_trace(_band(colours, names, band).update(yaxis=axis))
        for line in panel.lines:
            for trace in _traces(view, colours, chart, names, line):
                figure.add_trace(trace.update(yaxis=axis))
        axes[f"yaxis{'' if number == 1 else number}"] = _axis(view, colours, panel, top, top - _PANEL_PX / drawn_px)
        title = f"<b>{capital(escaped(view, panel.title))}</b>"
        notes.append({**_AT, "xref": "paper", "x": 0, "yref": "paper", "y": top, "text": title})
        for goal in panel.goals:
            colour = colours.state[goal.state]
            across = {
                "type": "line",
                "xref": "paper",
                "x0": 0,
                "x1": 1,
                "yref": axis,
                "y0": goal.level,
                "y1": goal.level,
            }
            shapes.append({**across, "line": {"color": colour, "width": 2, "dash": "dot"}})
            notes.append(
                {
                    **_AT,
                    "xref": "paper",
                    "x": 0.01,
                    "yref": axis,
                    "y": goal.level,
                    "yanchor": "bottom" if goal.is_reached else "top",
                    "text": escaped(view, goal.name),
                }
            )
    every = -(-len(names) // 7)
    shown = [place for place in range(len(names)) if (len(names) - 1 - place) % every == 0]
    base = layout(
        colours, height_px, hovermode="x unified", separators=separators(view), annotations=notes, shapes=shapes
    )
    look = {name: value for name, value in base["yaxis"].items() if name != "automargin"}
    across_all = {
        "type": "category", "categoryarray": names, "anchor": "y" if panels == 1 else f"y{panels}", "showgrid": False,
        "tickmode": "array", "tickvals": [names[place] for place in shown],
        "ticktext": [escaped(view, chart.short[place]) for place in shown],
        "unifiedhovertitle": {"text": "<b>%{x}</b>"}, "range": [-0.5, len(names) - 0.5],
    }  # fmt: skip
    base |= {name: look | {"automargin": True} | axis for name, axis in axes.items()}
    base["xaxis"] |= across_all
    base["margin"] = {"l": 8, "r": 12, "t": 0, "b": _FOOT_PX}
    figure.update_layout(base)
    draw_marks(figure, colours, ((number, names[place]) for number, place in enumerate(chart.marks, start=1)))
    return figure, height_px


_AT = {"xanchor": "left", "yanchor": "bottom", "showarrow": False, "align": "left", "font": {"size": 12}}


def _axis(view: View, colours: Palette, panel: LinePanel, top: float, bottom: float) -> dict[str, Any]:
    language, digits = view.language, panel.digits
    words = [language.percent(each, digits) if panel.unit == "share" else language.number(each, digits) for each in panel.ticks]  # fmt: skip
    return {"domain": [max(bottom, 0.0), top], "range": [0, panel.ticks[-1] * _ROOM], "tickvals": panel.ticks, "ticktext": words, "gridcolor": colours.grid}  # fmt: skip


def _traces(view: View, colours: Palette, chart: LineChart, names: list[str], line: Line) -> Iterator[go.Scatter]:
    """Whole weeks as a line with marks, which gaps interrupt; the others as hollow marks."""
    colour = colours.state[line.state] if line.state else colours.muted
    name = capital(view.translate(line.name))
    shown = [escaped(view, each) for each in line.shown]
    told = view.translate(tr("{label}: {value}", label=name, value="%{customdata}")) + "<extra></extra>"
    for is_whole in (True, False):
        if is_whole not in chart.whole:
            continue
        values = [value if own == is_whole else None for value, own in zip(line.values, chart.whole, strict=True)]
        stroke = {"color": colour, "width": 2.2, "dash": "solid" if line.state else "dash"}
        mark = {
            "size": 7,
            "symbol": "circle" if is_whole else "circle-open",
            "color": colour,
            "line": {"width": 1.6, "color": colour},
        }
        mode = "markers" if not is_whole else "lines+markers" if chart.is_dotted else "lines"
        yield go.Scatter(
            name=name, x=names, y=values, customdata=shown, mode=mode, line=stroke,
            marker=mark, connectgaps=False, hovertemplate=told,
        )  # fmt: skip


def _band(colours: Palette, names: list[str], band: LineBand) -> go.Scatter:
    """What lies between two lines; the line in its middle says what it is."""
    upper = [(names[place], high) for place, _, high in band.edges]
    lower = [(names[place], low) for place, low, _ in reversed(band.edges)]
    x, y = zip(*upper, *lower, strict=True)
    return go.Scatter(
        x=x, y=y, mode="lines", fill="toself", line={"width": 0}, fillcolor=colours.state[band.state], opacity=0.2, hoverinfo="skip",
    )  # fmt: skip
