"""Charts as plotly figures: the marks of `analytics.tables.chart`, with what there is to say of each under the pointer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

import plotly.graph_objects as go

from analytics.language.language import Sentence
from analytics.language.sentences import tr
from analytics.tables.chart import (
    Band,
    Bars,
    Cells,
    Chart,
    Dots,
    GpuTimeline,
    Level,
    Line,
    Mark,
    Panel,
    Text,
    corners,
    lone,
    numbered,
)
from analytics.tables.palette import FAINT, Palette
from dashboard.render.layout import escaped, layout, separators
from dashboard.render.states import capital, pattern, state_scale
from dashboard.view import View
from fallow.schema import STATES

_TALL_PX, _FLAT_PX, _ROW_PX, _LONG_ROW_PX, _CELL_PX = 340, 150, 40, 54, 26
_HEAD_PX, _TITLE_PX, _FOOT_PX, _ACROSS_PX = 22, 16, 40, 22
_ROOM = 1.08
"""Above the highest level, for a mark on it."""
_NARROW_PX, _LETTER_PX = 240, 7.2
"""How wide bars and figures are together on a phone, and a letter: figures keep their room at the end of their rows."""
_APART = 35
"""Bars side by side that are wide enough for an edge."""
_TITLE_LETTERS = 40
_SYMBOLS = {"triangle": "triangle-up", "tick": "line-ns"}
_NOTE = {"xref": "paper", "x": 0, "xanchor": "left", "yanchor": "bottom", "showarrow": False, "align": "left"}


def chart_figure(view: View, colours: Palette, chart: Chart) -> tuple[go.Figure, int]:
    """The figure and its height in pixels."""
    is_lying = bool(chart.rows)
    drawn = [
        _Drawn(view, colours, chart, panel, "" if number == 1 else str(number))
        for number, panel in enumerate(chart.panels, start=1)
    ]
    foot_px = 8 if is_lying else _FOOT_PX + (_ACROSS_PX if chart.across else 0)
    inner_px = sum(each.head_px + each.body_px for each in drawn)
    is_unified = any(isinstance(mark, Line | Bars) for each in drawn for mark in each.panel.marks) and not is_lying
    base = layout(
        colours,
        inner_px + foot_px,
        separators=separators(view),
        margin={"l": 8, "r": 12 if chart.panels[0].places else 28, "t": 0, "b": foot_px},
        bargap=0 if len(chart.panels[0].places) > _APART else 0.3 if is_lying else 0.15,
        barmode="overlay",
        hovermode="x unified" if is_unified and chart.panels[0].places else "closest",
        annotations=[note for each in drawn for note in each.notes()],
        shapes=[level for each in drawn for level in each.levels()],
    )
    figure, at_px, look = go.Figure(), 0, base.pop("yaxis")
    for each in drawn:
        at_px += each.head_px
        top, bottom = (max(0.0, 1 - px / inner_px) for px in (at_px, at_px + each.body_px))
        at_px += each.body_px
        base[f"yaxis{each.number}"] = look | {"domain": [bottom, top], "anchor": each.x} | each.down()
        if is_lying:
            base[f"xaxis{each.number}"] = look | {"anchor": each.y} | each.bar_lengths()
        title = "<br>".join(f"<b>{line}</b>" for line in each.title)
        base["annotations"] += [{**_NOTE, "yref": "paper", "y": top, "yshift": 2, "text": title}] if title else []
        for mark in each.panel.marks:
            figure.add_traces([trace.update(yaxis=each.y, xaxis=each.x) for trace in each.traces(mark)])
    if not is_lying:
        across = {"text": capital(escaped(view, chart.across))}
        base["xaxis"] |= {"anchor": drawn[-1].y, "title": across} | drawn[-1].across()
    figure.update_layout(base)
    names = drawn[-1].names
    draw_annotations(figure, colours, {names[at]: numbers for at, numbers in numbered(chart.annotations).items()})
    return figure, inner_px + foot_px


@dataclass(frozen=True)
class _Drawn:
    """A panel on its axes; `number` is what plotly calls them by."""

    view: View
    colours: Palette
    chart: Chart
    panel: Panel
    number: str

    @property
    def y(self) -> str:
        return f"y{self.number}"

    @property
    def x(self) -> str:
        """Rows have bars of their own scale; other panels share the axis below the last of them."""
        return f"x{self.number}" if self.panel.lying else "x"

    @property
    def is_long(self) -> bool:
        return self.chart.has_long_rows(self.view.language)

    def words(self, text: Text, most: int = 60) -> str:
        return self.view.language.number(None) if text is None else escaped(self.view, text, most)

    def label(self, text: Text, most: int = 60) -> str:
        """A text that stands alone; names are as they are."""
        return capital(self.words(text, most)) if isinstance(text, Sentence) else self.words(text, most)

    @property
    def names(self) -> list[str]:
        return [self.words(each.name) for each in self.panel.places]

    @property
    def title(self) -> list[str]:
        return wrap(self.label(self.panel.title, 120), _TITLE_LETTERS)

    @property
    def head_px(self) -> int:
        return _HEAD_PX + _TITLE_PX * len(self.title)

    @property
    def body_px(self) -> int:
        panel = self.panel
        if panel.lying:
            return (_LONG_ROW_PX if self.is_long else _ROW_PX) * len(panel.places)
        return _CELL_PX * len(panel.grid.rows) if panel.grid else _TALL_PX if panel.is_tall else _FLAT_PX

    def down(self) -> dict[str, Any]:
        """The axis at the left: rows, or round levels from zero."""
        panel, rows = self.panel, self.panel.grid.rows if self.panel.grid else ()
        if self.chart.film:
            return {"autorange": "reversed", "showgrid": False, "showticklabels": False}
        if not panel.lying and not rows:
            ticks = {"tickvals": panel.ticks, "ticktext": panel.tick_words(self.view.language)}
            return {"range": [0, max(panel.ticks, default=1.0) * _ROOM], **ticks}
        labels = [self.label(each) for each in rows]
        if panel.lying and not self.is_long:
            labels = [
                "<br>".join(filter(None, (self.label(each.name), self.words(each.note)))) for each in panel.places
            ]
        named = {"tickvals": list(range(len(labels))), "ticktext": labels}
        first, last = -0.9 if self.is_long else -0.5, len(panel.places if panel.lying else rows) - 0.5
        return {"range": [last, first], "showgrid": False, "ticksuffix": "  ", **named}

    def bar_lengths(self) -> dict[str, Any]:
        """The axis below rows, which is not drawn: each row has its figure, and room for it beside the bars."""
        letters = max(len(self.words(words)) for each in self.chart.rows for words in (each.figure, each.detail))
        room = 0.0 if self.is_long else min(0.55, _LETTER_PX * letters / _NARROW_PX)
        return {"visible": False, "range": [0, (self.panel.highest or 1.0) / (1 - room)]}

    def across(self) -> dict[str, Any]:
        """The axis below all panels: places, percentages or time."""
        panel, names = self.panel, self.names
        if not panel.places:
            return {"type": "date", "showgrid": False} if self.chart.film else {"range": [0, 100], "ticksuffix": " %"}
        labels = {names[place]: self.words(panel.places[place].label) for place in panel.labelled}
        return {
            "type": "category",
            "categoryarray": names,
            "showgrid": False,
            "range": [-0.5, len(names) - 0.5],
            "tickvals": list(labels),
            "ticktext": [each.replace(" ", "<br>", 1) for each in labels.values()],
            "unifiedhovertitle": {"text": "<b>%{x}</b>"},
        }

    def notes(self) -> Iterator[dict[str, Any]]:
        """What stands beside marks: names of levels, and in rows the figures at the end."""
        small = {"size": 11, "color": self.colours.muted}
        for level in (each for each in self.panel.marks if isinstance(each, Level) and each.name):
            side = "bottom" if level.is_above else "top"
            note = {"x": 0.01, "y": level.value, "yanchor": side, "text": self.words(level.name), "font": small}
            yield {**_NOTE, "yref": self.y, **note}
        for row, each in enumerate(self.panel.places if self.panel.lying else ()):
            figure, detail = f"<b>{self.words(each.figure)}</b>", self.words(each.detail)
            if self.is_long:
                note = {"y": row - 0.22, "text": f"{self.words(each.name, 40)}  {figure}"}
            else:
                note = {"x": 1, "xanchor": "right", "align": "right", "yanchor": "middle", "y": row}
                note["text"] = f"{figure}<br>{detail}" if detail else figure
            yield {**_NOTE, "yref": self.y, **note}

    def levels(self) -> Iterator[dict[str, Any]]:
        for each in (own for own in self.panel.marks if isinstance(own, Level)):
            line = {"color": self.colours.colour(each.colour), "width": 1.5, "dash": "dot"}
            across = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "layer": "below", "line": line}
            yield {**across, "yref": self.y, "y0": each.value, "y1": each.value}

    def traces(self, mark: Mark) -> Iterator[go.Bar | go.Scatter | go.Heatmap]:
        match mark:
            case Bars():
                yield self._bars(mark)
            case Line():
                yield from self._line(mark)
            case Band():
                yield self._band(mark)
            case Dots():
                yield self._dots(mark)
            case Cells():
                yield self._cells(mark)
            case GpuTimeline():
                film, steps = mark.film, [self.colours.state[each] for each in STATES]
                look = {"zmin": -0.5, "zmax": len(steps) + 0.5, "showscale": False, "hoverinfo": "none"}
                scale = state_scale([*steps, self.colours.card])
                yield go.Heatmap(z=film.codes, x0=film.since_ms, dx=film.bin_ms, colorscale=scale, **look)

    def _pointed(self, mark: Bars | Line) -> dict[str, Any]:
        """What the pointer shows: the mark's name, and its value as words or as a number with its unit."""
        value = (
            "%{customdata}" if self.panel.places else "%{customdata} (%{x})"
        )  # the axis of percentages adds its own sign
        text = self.view.translate(tr("{label}: {value}", label=capital(self.words(mark.name)), value=value))
        # plotly's own value of a bar is where it ends
        words = [self.words(each) for each in mark.shown] or [self._value(each) for each in mark.values]
        return {"name": self.words(mark.name), "hovertemplate": f"{text}<extra></extra>", "customdata": words}

    def _value(self, value: float | None) -> str:
        """A value of the panel with its unit."""
        language, unit = self.view.language, self.words(self.panel.unit)
        if self.panel.kind == "share":
            return language.percent(value, 1)
        return " ".join(filter(None, (language.number(value, 1), unit)))

    def _bars(self, mark: Bars) -> go.Bar:
        is_apart = len(mark.values) <= _APART
        colours = [self.colours.colour(each) for each in mark.colours]
        marker: dict[str, Any] = {
            "color": colours if isinstance(mark.colour, tuple) else colours[0],
            "line": {"width": [int(each in FAINT and is_apart) for each in mark.colours], "color": self.colours.edge},
            "pattern": pattern(self.colours, mark.colours),
        }
        if not self.panel.lying:
            look: dict[str, Any] = {"marker": marker, "meta": mark.colour, "base": mark.bases or None}
            return go.Bar(x=self.names, y=mark.values, **look, **self._pointed(mark))
        rows, bases, lengths = zip(*mark.spans, strict=True) if mark.spans else ((), (), ())
        width = 0.36 if self.is_long else None
        texts = ["<br>".join(filter(None, self._row_words(row, length))) for row, _, length in mark.spans]
        look = {"marker": marker, "hovertext": texts, "hoverinfo": "text"}
        return go.Bar(x=lengths, y=rows, base=bases, orientation="h", width=width, **look)

    def _row_words(self, row: int, length: float) -> Iterator[str]:
        """What is said of a bar in a row."""
        place, unit = self.panel.places[row], self.words(self.panel.unit)
        yield f"<b>{self.label(place.name)}</b>"
        yield f"{self.view.language.number(length, 1)} {unit}" if unit else ""
        yield from (self.words(each) for each in (place.figure, place.detail))

    def _line(self, mark: Line) -> Iterator[go.Scatter]:
        """Whole places as a line, which gaps interrupt; the others as hollow marks."""
        colour = self.colours.colour(mark.colour)
        whole = [each.is_whole for each in self.panel.places] or [True] * len(mark.values)
        stroke = {"color": colour, "width": 2.2, "dash": "dash" if mark.dashed else "solid"}
        stroke["shape"] = "vh" if mark.stepped else "linear"
        dot = {"size": 7, "color": colour, "line": {"width": 1.6, "color": colour}}
        for is_whole in (each for each in (True, False) if each in whole):
            values = [value if own == is_whole else None for value, own in zip(mark.values, whole, strict=True)]
            look: dict[str, Any] = {"marker": dot | {"symbol": _symbol("circle", not is_whole)}}
            look["mode"] = "lines+markers" if is_whole else "markers"
            if is_whole and not self.panel.is_dotted:
                alone = lone(values)
                look["mode"] = "lines+markers" if alone else "lines"
                look["marker"]["size"] = [dot["size"] if each in alone else 0 for each in range(len(values))]
            at = mark.at or self.names
            yield go.Scatter(x=at, y=values, line=stroke, connectgaps=False, **look, **self._pointed(mark))

    def _band(self, mark: Band) -> go.Scatter:
        """What lies between two lines; the line in its middle says what it is."""
        low, high = (corners(each) if mark.stepped else each for each in (mark.low, mark.high))
        at, values = zip(*high, *reversed(low), strict=True)
        names = self.names
        look = {"fill": "toself", "fillcolor": self.colours.colour(mark.colour), "opacity": 0.2 if names else 0.35}
        x = [names[int(each)] for each in at] if names else at
        return go.Scatter(x=x, y=values, mode="lines", line={"width": 0}, hoverinfo="skip", **look)

    def _dots(self, mark: Dots) -> go.Scatter:
        colour, is_tick = self.colours.colour(mark.colour), mark.shape == "tick"
        largest = self.panel.heaviest
        is_outline = mark.is_hollow or is_tick
        marker = {
            "symbol": _symbol(mark.shape, is_outline),
            "size": [round(7 + 13 * (weight / largest) ** 0.5, 1) for weight in mark.weights] or 16,
            "color": colour,
            "opacity": 0.8 if mark.weights else 1,
            "line": {"width": 4 if is_tick else 1 + is_outline, "color": colour if is_outline else self.colours.card},
        }
        look = {"mode": "markers", "marker": marker, "cliponaxis": False}
        if self.panel.lying:
            said = [self.words(self.panel.places[int(row)].figure) for row in mark.at]
            return go.Scatter(x=mark.values, y=mark.at, hovertext=said, hoverinfo="text", **look)
        texts = ["<br>".join(self.words(line, 80) for line in lines) for lines in mark.details]
        lines = ["%{text}", f"%{{y}} {self.words(self.panel.unit)}", "%{x}", self.words(mark.name)]
        template = "<br>".join(lines) + "<extra></extra>"
        return go.Scatter(x=mark.at, y=mark.values, text=texts, hovertemplate=template, **look)

    def _cells(self, mark: Cells) -> go.Heatmap:
        """Each cell's number stands in its middle."""
        names, rows = self.names, [self.words(each) for each in mark.rows]
        values: list[list[float | None]] = [[None] * len(names) for _ in rows]
        words = [[""] * len(names) for _ in rows]
        for each in mark.cells:
            values[each.row][each.since : each.until] = [each.value] * (each.until - each.since)
            words[each.row][(each.since + each.until) // 2] = self.words(each.label)
        colour, is_shaded = self.colours.colour(mark.colour), mark.most is not None
        look: dict[str, Any] = {"showscale": False, "xgap": 1, "ygap": 1, "zmin": 0, "zmax": mark.most}
        look["colorscale"] = [[0, self.colours.card if is_shaded else colour], [1, colour]]
        look |= {"text": words, "texttemplate": "%{text}", "hoverongaps": False}
        # on shades plotly chooses what can be read
        look["textfont"] = {"size": 11} if is_shaded else {"size": 11, "color": self.colours.text}
        value = "%{text}" if is_shaded else "%{z}"
        template = f"%{{customdata}} %{{x}}: {value} {self.words(mark.unit)}<extra></extra>"
        named = [[row] * len(names) for row in rows]
        return go.Heatmap(z=values, x=names, y=list(range(len(rows))), customdata=named, hovertemplate=template, **look)


def _symbol(shape: str, is_hollow: bool) -> str:  # noqa: FBT001  # it is its second half
    name = _SYMBOLS.get(shape, shape)
    return f"{name}-open" if is_hollow else name


def draw_annotations(figure: go.Figure, colours: Palette, places: Mapping[Any, str]) -> None:
    """A dotted line across the figure at each place of the x axis, with the numbers of its annotations at the foot."""
    for place, numbers in places.items():
        line = {"color": colours.text, "width": 1.5, "dash": "dot"}
        figure.add_shape(type="line", xref="x", yref="paper", x0=place, x1=place, y0=0, y1=1, line=line)
        at = {"x": place, "xref": "x", "y": 0, "yref": "paper", "yanchor": "bottom", "showarrow": False}
        box = {"bgcolor": colours.card, "bordercolor": colours.text, "borderpad": 2}
        figure.add_annotation(text=f"<b>{numbers}</b>", font={"size": 11, "color": colours.text}, **at, **box)
