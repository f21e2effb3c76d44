"""The numbers that the drawing of a chart carries, read back from the shapes of the SVG."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import count
from math import dist
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

from analytics.language.languages import language
from analytics.language.sentences import plain
from analytics.render.html.charts import OUTLINES, drawing
from analytics.tables.chart import Band, Bars, Cells, Chart, Dots, GpuTimeline, Level, Line, Mark, Panel, corners
from analytics.tables.palette import SHADED
from analytics.tables.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

ENGLISH = language("en")
NUMBER = r"(-?[\d.]+(?:e-?\d+)?)"
BOX = re.compile(rf"M{NUMBER} {NUMBER}h{NUMBER}v{NUMBER}")
POINT = re.compile(rf"{NUMBER} {NUMBER}")


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


def assert_drawn(table: Table) -> None:
    """The drawing of the table's chart carries its numbers: each mark, each value, no more, and no gap as a zero."""
    chart = table.chart
    assert chart is not None
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
    for place in (each for panel in chart.panels if panel.lying for each in panel.places):
        for said in (place.figure, place.detail):
            assert plain(ENGLISH.number(None) if said is None else ENGLISH.shown(said), 60) in texts


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
            assert shades == [pytest.approx(SHADED * each.value / mark.most, abs=0.006) for each in mark.cells]
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
