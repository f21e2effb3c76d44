"""The numbers that the two drawings of a chart carry, read back from the shapes of the SVG and the traces of plotly."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC
from html import escape
from itertools import count
from math import dist
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

from analytics.language.languages import language
from analytics.language.plain_text import plain
from analytics.render.html.charts import OUTLINES, drawing
from analytics.tables.chart import Band, Bars, Cells, Chart, Dots, GpuTimeline, Level, Line, Mark, Panel, corners
from analytics.tables.palette import LIGHT
from analytics.tables.table import Table
from dashboard.render.charts import chart_figure

if TYPE_CHECKING:
    from collections.abc import Iterator

ENGLISH = language("en")
NUMBER = r"(-?[\d.]+(?:e-?\d+)?)"
BOX = re.compile(rf"M{NUMBER} {NUMBER}h{NUMBER}v{NUMBER}")
POINT = re.compile(rf"{NUMBER} {NUMBER}")


class Reader:
    """As much of a view as a figure asks for."""

    language = ENGLISH
    zone = UTC

    def translate(self, text: str) -> str:
        return self.language.translate(text)


@dataclass(frozen=True)
class Scale:
    """Pixels of zero and of one."""

    zero: float
    one: float

    def value(self, pixel: float) -> float:
        return (pixel - self.zero) / self.one


def in_svg(table: Table) -> ET.Element:
    """The drawing of a table's chart, without its legend."""
    drawn = str(drawing(table, ENGLISH))
    return ET.fromstring(drawn[drawn.index("<svg") :])  # noqa: S314  # it is ours


def in_plotly(chart: Chart) -> Any:
    """The figure of a chart."""
    reader: Any = Reader()
    return chart_figure(reader, LIGHT, chart)[0]


def assert_drawn(table: Table) -> None:
    """Both drawings of the table's chart carry its numbers: each mark, each value, no more, and no gap as a zero."""
    chart = table.chart
    assert chart is not None
    figure = in_plotly(chart)
    traces = iter(figure.data)
    for number, panel in enumerate(chart.panels):
        levels = [each.value for each in panel.marks if isinstance(each, Level)]
        axis = "y" if number == 0 else f"y{number + 1}"
        assert [shape.y0 for shape in figure.layout.shapes if shape.yref == axis] == levels
        for mark in panel.marks:
            _assert_traces(panel, mark, traces)
    assert next(traces, None) is None
    if any(isinstance(mark, GpuTimeline) for panel in chart.panels for mark in panel.marks):
        assert '<img alt="' in drawing(table, ENGLISH)
        return
    svg = in_svg(table)
    groups = (each for each in svg.iter("g") if each.get("class") == "d")
    grids = (each for each in svg.iter("path") if each.get("class") == "g" and "H" in each.get("d", ""))
    for panel in chart.panels:
        scale = _scale(panel, grids)
        for mark in panel.marks:
            if _has_shapes(mark):
                _assert_shapes(panel, mark, next(groups), scale)
    assert next(groups, None) is None
    texts = " ".join("".join(each.itertext()) for each in svg.iter("text"))
    notes = " ".join(str(each.text) for each in figure.layout.annotations)
    for place in (each for panel in chart.panels if panel.lying for each in panel.places):
        for said in (place.figure, place.detail):
            assert plain(ENGLISH.number(None) if said is None else ENGLISH.shown(said), 60) in texts
            assert (
                said is None
                or chart.has_long_rows(ENGLISH)
                or escape(plain(ENGLISH.shown(said), 60), quote=False) in notes
            )


def _assert_traces(panel: Panel, mark: Mark, traces: Iterator[Any]) -> None:
    match mark:
        case Bars():
            trace = next(traces)
            lengths, at = (trace.x, trace.y) if panel.lying else (trace.y, range(len(trace.x)))
            bases = trace.base or [0.0] * len(at)
            found = zip(at, bases, lengths, strict=True)
            assert tuple(each for each in found if each[2] is not None) == mark.spans
        case Line():
            whole = [each.is_whole for each in panel.places] or [True] * len(mark.values)
            for is_whole in (own for own in (True, False) if own in whole):
                trace = next(traces)
                wanted = [each if own == is_whole else None for each, own in zip(mark.values, whole, strict=True)]
                assert list(trace.y) == wanted
                assert trace.connectgaps is False
                assert not mark.at or tuple(trace.x) == mark.at
        case Band():
            low, high = (corners(each) if mark.stepped else each for each in (mark.low, mark.high))
            assert list(next(traces).y) == [value for _, value in (*high, *reversed(low))]
        case Dots():
            trace = next(traces)
            drawn = (trace.y, trace.x) if panel.lying else (trace.x, trace.y)
            assert tuple(map(tuple, drawn)) == (mark.at, mark.values)
        case Cells():
            trace = next(traces)
            known = {
                (row, at): value for row, own in enumerate(trace.z) for at, value in enumerate(own) if value is not None
            }
            assert known == {(each.row, at): each.value for each in mark.cells for at in range(each.since, each.until)}
        case GpuTimeline():
            assert (next(traces).z == mark.film.codes).all()


def _has_shapes(mark: Mark) -> bool:
    match mark:
        case Bars():
            return any(length > 0 for _, _, length in mark.spans)
        case Line():
            return any(each is not None for each in mark.values)
        case Dots():
            return bool(mark.values)
        case Cells():
            return bool(mark.cells)
    return True


def _scale(panel: Panel, grids: Iterator[ET.Element]) -> Scale | None:
    """The scale that a reader takes from the ticks; rows have none."""
    if panel.lying or any(isinstance(each, Cells) for each in panel.marks):
        return None
    levels = [float(y) for _, y in POINT.findall(next(grids).get("d", ""))]
    assert len(levels) == len(panel.ticks)
    return Scale(levels[0], (levels[-1] - levels[0]) / panel.ticks[-1])


def _assert_shapes(panel: Panel, mark: Mark, group: ET.Element, scale: Scale | None) -> None:
    paths = [each.get("d", "") for each in group.iter("path")]
    boxes = [tuple(map(float, each)) for path in paths for each in BOX.findall(path)]
    if isinstance(mark, Bars):
        _assert_bars(mark, boxes, scale)
    elif isinstance(mark, Cells):
        wide = max((box[2] + 1) / (each.until - each.since) for box, each in zip(boxes, mark.cells, strict=True))
        assert [round((box[2] + 1) / wide) for box in boxes] == [each.until - each.since for each in mark.cells]
        if mark.most is not None:
            shades = [float(each.get("fill-opacity", "")) for each in group.iter("path")]
            assert shades == [pytest.approx(each.value / mark.most, abs=0.006) for each in mark.cells]
    elif isinstance(mark, Dots):
        centres = [_centre(path, OUTLINES[mark.shape]) for path in paths[0].split("z") if path]
        assert len(centres) == len(mark.values)
        if scale is not None:
            found = [scale.value(y) for _, y in centres]
            assert found == [pytest.approx(each, abs=1 / abs(scale.one)) for each in mark.values]
    elif isinstance(mark, Line):
        assert scale is not None
        _assert_line(panel, mark, group, paths, scale)
    else:
        assert scale is not None
        drawn = [scale.value(float(y)) for path in paths for _, y in POINT.findall(path)]
        if isinstance(mark, Level):
            assert drawn == near(scale, [mark.value] * 2)
        elif isinstance(mark, Band):
            low, high = (corners(each) if mark.stepped else each for each in (mark.low, mark.high))
            assert drawn == near(scale, [value for _, value in (*high, *reversed(low))])


def _assert_bars(mark: Bars, boxes: list[tuple[float, ...]], scale: Scale | None) -> None:
    order = list(dict.fromkeys(mark.colours))
    spans = sorted(
        (each for each in mark.spans if each[2] > 0), key=lambda each: (order.index(mark.colours[each[0]]), each[0])
    )
    assert len(boxes) == len(spans)
    if scale is None:  # rows: the longest of them is the scale
        box, (_, base, length) = max(zip(boxes, spans, strict=True), key=lambda each: each[1][2])
        scale = Scale(box[0] - base * box[2] / length, box[2] / length)
        drawn = [(scale.value(box[0]), box[2] / scale.one) for box in boxes]
    else:
        drawn = [(scale.value(box[1] + box[3]), -box[3] / scale.one) for box in boxes]
    assert [base for base, _ in drawn] == near(scale, [base for _, base, _ in spans])
    assert [length for _, length in drawn] == near(scale, [length for _, _, length in spans])


def _assert_line(panel: Panel, mark: Line, group: ET.Element, paths: list[str], scale: Scale) -> None:
    whole = [not panel.places or panel.places[at].is_whole for at in range(len(mark.values))]
    known = [(each, own) for each, own in zip(mark.values, whole, strict=True) if each is not None]
    rings = [float(each.get("cy", "")) for each in group.iter("circle")]
    assert [scale.value(each) for each in rings] == near(scale, [each for each, own in known if not own])
    joined = [each for each, own in known if own]
    if panel.is_dotted:
        dots = [float(y) for path in paths for _, y in re.findall(rf"M{NUMBER} {NUMBER}h0", path)]
        assert [scale.value(each) for each in dots] == near(scale, joined)
    else:
        drawn = [scale.value(float(y)) for path in paths for _, y in POINT.findall(path)]
        points = corners(tuple(zip(mark.at or count(), joined, strict=False)))
        assert drawn == near(scale, [value for _, value in points] if mark.stepped else joined)


def near(scale: Scale, values: list[float]) -> list[Any]:
    """Values that may be off by as much as coordinates are rounded."""
    return [pytest.approx(each, abs=0.6 / abs(scale.one), rel=1e-6) for each in values]


def _centre(path: str, outline: tuple[tuple[float, float], ...]) -> tuple[float, float]:
    """Where a mark stands, by two of its corners."""
    points = [(float(x), float(y)) for x, y in POINT.findall(path)]
    size = dist(points[0], points[1]) / dist(outline[0], outline[1])
    return points[0][0] - outline[0][0] * size, points[0][1] - outline[0][1] * size


def as_table(chart: Chart) -> Table:
    """A table with just this chart."""
    return Table("drawn", "title", "question", "headline", chart=chart)
