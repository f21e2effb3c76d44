"""Charts as SVG, without scripts and small enough for a mailed page; every GPU over time as one palette image."""

from __future__ import annotations

import base64
import io
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import cos, pi, sin, sqrt

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from PIL import Image

from analytics.language.sentences import Language, Span, plain, tr
from analytics.render.html import svg
from analytics.report.timeline import FleetTimeline
from analytics.tables.chart import (
    Band,
    Bars,
    Cells,
    Chart,
    Dots,
    Level,
    Line,
    Mark,
    Panel,
    Points,
    Text,
    corners,
    lone,
    numbered,
    signs,
)
from analytics.tables.palette import LIGHT, SHADED
from analytics.tables.table import Table
from fallow.clock import DAY_MS
from fallow.schema import STATES

MOST_ROWS = 250
MOST_BYTES = 6_000
"""Of the image: a third more in the page, as base64."""


def timeline(timeline: FleetTimeline, name: str, language: Language) -> Markup:
    """The image above an axis of days, and what a row and a point of it are."""
    codes, gpus_a_row = _lowered(timeline.codes)
    image = png(codes)
    while len(image) > MOST_BYTES and len(codes) > 1:
        codes, gpus_a_row = _lowered(timeline.codes, -(-len(codes) * 3 // 4))
        image = png(codes)
    note = tr(
        "One row per GPU, the most wasted first. A point shows the main state in {span}."
        if gpus_a_row == 1
        else "One row per {gpus} GPUs, the most wasted first. A point shows their main state in {span}.",
        gpus=gpus_a_row,
        span=Span(timeline.bin_ms),
    )
    return Markup(
        '<div class="timeline"><img alt="{}" src="{}"><div class="axis">{}</div></div><p class="note">{}</p>'
    ).format(
        name,
        "data:image/png;base64," + base64.b64encode(image).decode(),
        Markup().join(Markup("<span>{}</span>").format(each) for each in _ticks(timeline, language)),
        language.translate(note),
    )


def png(codes: NDArray[np.uint8]) -> bytes:
    """The codes as an image with a pixel each: positions in STATES, anything else is transparent."""
    height, width = codes.shape
    image = Image.frombytes("P", (width, height), np.minimum(codes, len(STATES)).tobytes())
    image.putpalette([*(part for state in STATES for part in bytes.fromhex(LIGHT.state[state][1:])), 0, 0, 0])
    target = io.BytesIO()
    image.save(target, "PNG", optimize=True, bits=4, transparency=bytes([*(255 for _ in STATES), 0]))
    return target.getvalue()


def _lowered(codes: NDArray[np.uint8], most: int = MOST_ROWS) -> tuple[NDArray[np.uint8], int]:
    """At most so many rows, and how many GPUs each stands for: in each bin the state of most of them."""
    each = max(1, -(-len(codes) // most))
    if each == 1:
        return codes, 1
    padded = np.full((-(-len(codes) // each) * each, codes.shape[1]), len(STATES), np.uint8)
    padded[: len(codes)] = np.minimum(codes, len(STATES))
    groups = padded.reshape(-1, each, codes.shape[1])
    votes = np.stack([(groups == code).sum(axis=1) for code in range(len(STATES))])
    return np.where(votes.max(axis=0) > 0, votes.argmax(axis=0), len(STATES)).astype(np.uint8), each


def _ticks(timeline: FleetTimeline, language: Language) -> list[str]:
    """Seven days at most, evenly spread over the width."""
    until_ms = timeline.since_ms + timeline.codes.shape[1] * timeline.bin_ms
    days = max(1, round((until_ms - timeline.since_ms) / DAY_MS))
    shown = next((number for number in (7, 6, 5, 4, 3, 2) if days % number == 0), min(days, 7))
    step = (until_ms - timeline.since_ms) / shown
    return [language.day(round(timeline.since_ms + place * step)) for place in range(shown)]


_LETTER, _SMALL = 6.7, 5.9
"""How wide a letter is, in the mean: of a name, and of a muted text."""
_HEAD, _ROOM, _APART, _FOOT, _TITLE = 24.0, 12.0, 14.0, 22.0, 16.0
_TALL, _FLAT = 220.0, 78.0
_ROW, _THICK, _THIN = 19.0, 16.0, 10.0
_LEAST = 120.0
"""Of a bar that has its name beside it."""


@dataclass(frozen=True)
class PanelFrame:
    """Where the places and values of a panel lie."""

    panel: Panel
    left: float
    right: float
    top: float
    bottom: float
    pitch: float
    first: float
    most: float
    width: float

    @property
    def is_above(self) -> bool:
        """Return whether the texts of a row stand above its bar."""
        return self.first - self.top > _THICK

    def place(self, at: float) -> float:
        """The middle of a place, or a percentage."""
        if self.panel.places:
            return self.first + at * self.pitch
        return self.left + at / 100 * (self.right - self.left)

    def value(self, value: float) -> float:
        """A level: from the left, or from the bottom."""
        share = value / self.most if self.most else 0.0
        if self.panel.lying:
            return self.left + share * (self.right - self.left)
        return self.bottom - share * (self.bottom - self.top)

    def point(self, at: float, value: float) -> tuple[float, float]:
        across, level = self.place(at), self.value(value)
        return (level, across) if self.panel.lying else (across, level)

    def path(self, points: Points, *, stepped: bool) -> list[tuple[float, float]]:
        return [self.point(*each) for each in (corners(points) if stepped else points)]

    def box(self, at: float, base: float, length: float, thick: float) -> svg.Box:
        """A bar around a place: left, top, width and height."""
        start, first, last = self.place(at) - thick / 2, self.value(base), self.value(base + length)
        if self.panel.lying:
            return first, start, last - first, thick
        return start, last, thick, first - last


@dataclass(frozen=True)
class Picture:
    """A drawing, and how high it is where it is `width` wide."""

    shapes: Markup
    width: float
    height: float


def drawing(section: Table, language: Language) -> Markup:
    """The table's chart for a document, with its legend; nothing where it has no chart."""
    if section.chart is None:
        return Markup()
    if section.chart.timeline is not None:
        return timeline(section.chart.timeline, _name(section, language), language)
    return _legend(section.chart, section.states, language) + picture(section, section.chart, language).shapes


def picture(
    section: Table, chart: Chart, language: Language, width: float = svg.WIDTH, *, on_page: bool = False
) -> Picture:
    """The chart with the section's title and headline as its name.

    On a page what is around it has the name, and each place says something under the pointer.
    """
    parts, hints, top = list[Markup](), list[Markup](), 0.0
    key = f"{section.name}-{svg.number(width)}" if on_page else section.name
    bars = (mark for panel in chart.panels for mark in panel.marks if isinstance(mark, Bars))
    parts.append(svg.hatching(key, (colour for each in bars for colour in each.colours)))
    frame = None
    for panel in chart.panels:
        if frame is not None:
            top += _APART
        if panel.title:
            parts.append(svg.text(0, top + 10, _words(panel.title, language, int(width / _SMALL)), kind="m"))
        top += _HEAD if panel.title else _ROOM if not panel.lying else 0.0
        frame = _frame(chart, panel, top, width, language)
        ground = _rows if panel.lying else _grid if panel.grid else _levels
        parts += ground(panel, frame, language)
        parts += (svg.group(_shapes(mark, frame, key, language), {"class": "d"}) for mark in panel.marks)
        if on_page:
            hints += chart_hints(panel, frame, language)
        top = frame.bottom
    if frame is not None and not frame.panel.lying:
        parts += _foot(chart, frame, language)
        top += _FOOT + (_TITLE if chart.across else 0.0)
    name = "" if on_page else _name(section, language)
    return Picture(svg.drawing(width, top, [*parts, *hints], name), width, top)


def _name(section: Table, language: Language) -> str:
    return language.translate(tr("{label}: {value}", label=section.title, value=section.headline))


def _legend(chart: Chart, known: Collection[str], language: Language) -> Markup:
    """What the marks mean that are no states, which have a legend of their own."""
    items = (
        Markup('<li><i class="i-{}" aria-hidden="true">{}</i> {}</li>').format(colour, glyph, language.shown(words))
        for glyph, colour, words in signs(chart, known)
    )
    listed = Markup().join(items)
    return Markup('<ul class="legend signs">{}</ul>').format(listed) if listed else listed


def _words(text: Text, language: Language, most: int = 60) -> str:
    return language.number(None) if text is None else plain(language.shown(text), most)


def _longest(texts: Iterable[Text], language: Language) -> int:
    return max((len(_words(each, language)) for each in texts), default=0)


def _frame(chart: Chart, panel: Panel, top: float, width: float, language: Language) -> PanelFrame:
    """The panel's frame: rows are as high as their words, other panels as high as their number allows."""
    if panel.lying:
        return _rows_frame(chart, panel, top, width, language)
    letters = max(len(word) for each in chart.panels for word in (*each.tick_words(language), "100"))
    left, right = 12 + _SMALL * letters, width - (0.0 if panel.places else 14.0)
    pitch = (right - left) / max(1, len(panel.places))
    bottom = top + (
        _ROW * len(panel.grid.rows) if panel.grid else (_TALL if panel.is_tall else _FLAT) * sqrt(width / svg.WIDTH)
    )
    return PanelFrame(panel, left, right, top, bottom, pitch, left + pitch / 2, max(panel.ticks, default=0.0), width)


def _rows_frame(chart: Chart, panel: Panel, top: float, width: float, language: Language) -> PanelFrame:
    """Names and figures beside the bars, or above them where that would leave the bars no room."""
    has_second = any(each.note or each.detail for each in chart.rows)
    figures = _LETTER * _longest((each.figure for each in chart.rows), language)
    details = _SMALL * _longest((each.detail for each in chart.rows), language)
    left = 12 + _LETTER * _longest((each.name for each in chart.rows), language)
    right = width - 8 - max(figures, details)
    if chart.has_long_rows(language) or right - left < _LEAST:
        pitch = 54.0 if has_second else 38.0
        left, right, first = 4.0, width - 4.0, top + 25
    else:
        pitch = 37.0 if has_second else 25.0
        first = top + _THICK / 2
    return PanelFrame(panel, left, right, top, top + pitch * len(panel.places), pitch, first, panel.highest, width)


def _rows(panel: Panel, frame: PanelFrame, language: Language) -> Iterator[Markup]:
    """Yield the texts beside or above each bar."""
    for number, each in enumerate(panel.places):
        y, bold, figure = frame.top + number * frame.pitch, "b" if each.note else "", _words(each.figure, language)
        room = int((frame.width - _LETTER * len(figure)) / _LETTER) if frame.is_above else 60
        yield svg.text(0, y + 12, _words(each.name, language, room), kind=bold)
        yield svg.text(frame.width, y + 12, figure, anchor="end", kind="b" if frame.is_above else bold)
        if each.note:
            yield svg.text(0, y + 26, _words(each.note, language), kind="m")
        if each.detail:
            x, below, anchor = (4.0, 45, "start") if frame.is_above else (frame.width, 25, "end")
            yield svg.text(x, y + below, _words(each.detail, language), anchor=anchor, kind="m")


def _levels(panel: Panel, frame: PanelFrame, language: Language) -> Iterator[Markup]:
    ys = [frame.value(each) for each in panel.ticks]
    yield svg.levels(frame.left, frame.width, ys)
    words = panel.tick_words(language)
    yield svg.labels(((frame.left - 6, y + 4, each) for y, each in zip(ys, words, strict=True)), "end")


def _grid(panel: Panel, frame: PanelFrame, language: Language) -> Iterator[Markup]:
    rows = panel.grid.rows if panel.grid else ()
    ys = [frame.top + row * _ROW for row in range(len(rows))]
    boxes = ((frame.left, y + 1, frame.right - frame.left, _ROW - 2) for y in ys)
    yield svg.boxes(boxes, {"class": "e", "fill": LIGHT.line})
    yield svg.labels(((0.0, y + 13, _words(each, language)) for y, each in zip(ys, rows, strict=True)), "start")


def _shapes(mark: Mark, frame: PanelFrame, key: str, language: Language) -> Iterator[Markup]:
    """The shapes of one mark in the order of its values, and what is written upon them."""
    match mark:
        case Bars():
            yield from _bars(mark, frame, key)
        case Line():
            yield from _line(mark, frame)
        case Band():
            outline = (*frame.path(mark.high, stepped=mark.stepped), *frame.path(mark.low, stepped=mark.stepped)[::-1])
            yield svg.outlines([outline], svg.filled(mark.colour) | {"fill-opacity": ".2"})
        case Level():
            yield from _level(mark, frame, language)
        case Dots():
            yield _dots(mark, frame)
        case Cells():
            yield from _cells(mark, frame, language)


def _bars(mark: Bars, frame: PanelFrame, key: str) -> Iterator[Markup]:
    """A shape for each colour."""
    thick = min(frame.pitch * 0.82, 56.0)
    if frame.panel.lying:
        thick = _THIN if frame.is_above else _THICK
    for colour in dict.fromkeys(mark.colours):
        spans = (each for each in mark.spans if mark.colours[each[0]] == colour)
        yield svg.boxes((frame.box(*each, thick) for each in spans), svg.filled(colour, key))


def _line(mark: Line, frame: PanelFrame) -> Iterator[Markup]:
    """Runs of whole places joined; every known one has its dot, those that are not whole a ring."""
    places = frame.panel.places
    at = mark.at or tuple(map(float, range(len(mark.values))))
    whole = [value is not None and (not places or places[number].is_whole) for number, value in enumerate(mark.values)]
    points = [(place, value or 0.0) for place, value in zip(at, mark.values, strict=True)]
    shapes = []
    dash = {"stroke-width": "1.4", "stroke-dasharray": "5 3"} if mark.dashed else {"stroke-width": "1.8"}
    for joined, run in groupby(zip(points, whole, strict=True), lambda each: each[1]):
        if joined and len(own := tuple(point for point, _ in run)) > 1:
            shapes.append(svg.curve(frame.path(own, stepped=mark.stepped), dash))
    known = [value if is_whole else None for value, is_whole in zip(mark.values, whole, strict=True)]
    dotted = range(len(points)) if frame.panel.is_dotted else lone(known)
    if dots := [frame.point(*points[each]) for each in dotted if whole[each]]:
        shapes.append(svg.dots(dots))
    for point, value, is_whole in zip(points, mark.values, whole, strict=True):
        if value is not None and not is_whole:
            shapes.append(svg.ring(*frame.point(*point)))
    yield svg.group(shapes, svg.stroked(mark.colour))


OUTLINES = {
    "diamond": ((0, -1.2), (1.2, 0), (0, 1.2), (-1.2, 0)),
    "triangle": ((0, -1.2), (1.1, 0.8), (-1.1, 0.8)),
    "square": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    "tick": ((-0.4, -1.8), (0.4, -1.8), (0.4, 1.8), (-0.4, 1.8)),
    "star": tuple((r * sin(n * pi / 5), -r * cos(n * pi / 5)) for n in range(10) for r in ((1.4, 0.6)[n % 2],)),
    "circle": tuple((sin(n * pi / 8), -cos(n * pi / 8)) for n in range(16)),
}
"""Of each shape the corners, from the middle of a mark of size 1."""


def _dots(mark: Dots, frame: PanelFrame) -> Markup:
    largest = frame.panel.heaviest
    outlines = []
    for number, (at, value) in enumerate(zip(mark.at, mark.values, strict=True)):
        x, y = frame.point(at, value)
        size = 2.5 + 4 * sqrt(mark.weights[number] / largest) if mark.weights and largest else 5.0
        outlines.append([(x + size * across, y + size * down) for across, down in OUTLINES[mark.shape]])
    hollow = {"fill-opacity": "0"} | svg.stroked(mark.colour) if mark.is_hollow else svg.filled(mark.colour)
    return svg.outlines(outlines, hollow | {"opacity": ".8"} if largest else hollow)


def _level(mark: Level, frame: PanelFrame, language: Language) -> Iterator[Markup]:
    """A dotted line; every other one is named at the right, since names of close ones would collide."""
    y, levels = frame.value(mark.value), (each for each in frame.panel.marks if isinstance(each, Level))
    look = svg.stroked(mark.colour) | {"stroke-dasharray": "1 4", "stroke-width": "1.6"}
    yield svg.curve([(frame.left, y), (frame.width, y)], look)
    lower = sum(each.value < mark.value for each in levels)
    x, anchor = (frame.width, "end") if lower % 2 else (frame.left + 4, "start")
    yield svg.text(x, y + (-4 if mark.is_above else 11), _words(mark.name, language), anchor=anchor, kind="m")


def _cells(mark: Cells, frame: PanelFrame, language: Language) -> Iterator[Markup]:
    """Cells, and their numbers where these have room."""
    shapes, texts, most = list[Markup](), list[Markup](), mark.most
    for each in mark.cells:
        x, y = frame.place(each.since - 0.5), frame.top + each.row * _ROW
        width, label = (each.until - each.since) * frame.pitch, _words(each.label, language)
        shade = {} if not most else {"fill-opacity": f"{SHADED * each.value / most:.2g}"}
        shapes.append(svg.boxes([(x + 0.5, y + 1, width - 1, _ROW - 2)], shade))
        if width >= _LETTER * len(label):
            texts.append(svg.text(x + width / 2, y + 13.5, label, anchor="middle"))
    yield svg.group(shapes, svg.filled(mark.colour))
    yield from texts


def _foot(chart: Chart, frame: PanelFrame, language: Language) -> Iterator[Markup]:
    """Names of places or percentages, what they are, and the numbers of annotations."""
    panel, y = frame.panel, frame.bottom + 16
    named = [(each, language.percent(each / 100, 0)) for each in range(0, 101, 20)]
    if panel.places:
        named = [(place, _words(panel.places[place].label, language)) for place in panel.labelled]
    yield svg.labels(((frame.place(at), y, words) for at, words in named), "middle")
    if chart.across:
        middle = (frame.left + frame.right) / 2
        yield svg.text(middle, y + _TITLE, _words(chart.across, language), anchor="middle", kind="m")
    for place, numbers in numbered(chart.annotations).items():
        x = frame.place(place)
        yield svg.curve([(x, 8), (x, frame.bottom)], svg.stroked("muted") | {"stroke-dasharray": "2 3"})
        yield svg.text(x, 6, numbers, anchor="middle", kind="b")


_NEAR = 9.0
"""How far from a mark the pointer may be."""


def chart_hints(panel: Panel, frame: PanelFrame, language: Language) -> Iterator[Markup]:
    """What there is to say of each place of a panel, or of each mark that stands alone."""
    if panel.grid is not None:
        for cell in panel.grid.cells:
            place = f"{_words(panel.grid.rows[cell.row], language)} {_words(panel.places[cell.since].name, language)}"
            text = f"{place}: {_words(cell.label, language)} {_words(panel.grid.unit, language)}"
            x, y = frame.place(cell.since - 0.5), frame.top + cell.row * _ROW
            yield svg.hint((x, y, (cell.until - cell.since) * frame.pitch, _ROW), [text])
        return
    dots = [each for each in panel.marks if isinstance(each, Dots) and not panel.lying]
    lines = [each for each in panel.marks if isinstance(each, Line | Bars)]
    for number, each in enumerate(panel.places):
        if panel.lying:
            box = (0.0, frame.top + number * frame.pitch, frame.width, frame.pitch)
            yield svg.hint(box, (_words(words, language) for words in (each.name, each.figure, each.detail)))
        elif lines:
            box = (frame.place(number - 0.5), frame.top, frame.pitch, frame.bottom - frame.top)
            yield svg.hint(box, [_words(each.name, language), *_mark_texts(panel, lines, number, language)])
    if lines and not panel.places:
        edges = sorted({at for each in lines if isinstance(each, Line) for at in each.at})
        for since, until in pairwise([0.0, *edges]):
            own = [each for each in lines if isinstance(each, Line) and until in each.at]
            texts = [text for each in own for text in _mark_texts(panel, [each], each.at.index(until), language)]
            x = frame.place(since)
            box = (x, frame.top, frame.place(until) - x, frame.bottom - frame.top)
            yield svg.hint(box, [language.percent(until / 100, 1), *texts])
    for mark in dots:
        for number, (at, value) in enumerate(zip(mark.at, mark.values, strict=True)):
            x, y = frame.point(at, value)
            details = [_words(words, language, 80) for words in (mark.details[number] if mark.details else ())]
            where = "" if panel.places else language.percent(at / 100, 1)
            texts = [*details, _value(panel, value, language), where, _words(mark.name, language)]
            yield svg.hint((x - _NEAR, y - _NEAR, 2 * _NEAR, 2 * _NEAR), texts)


def _mark_texts(panel: Panel, marks: Iterable[Line | Bars], number: int, language: Language) -> Iterator[str]:
    """Yield a line of text for each mark that has a value at the place."""
    for each in marks:
        value = each.values[number] if number < len(each.values) else None
        words = _words(each.shown[number], language) if each.shown else _value(panel, value, language)
        if value is not None and each.name:
            yield language.translate(tr("{label}: {value}", label=each.name, value=words))


def _value(panel: Panel, value: float | None, language: Language) -> str:
    if panel.kind == "share":
        return language.percent(value, 1)
    return f"{language.number(value, 1)} {_words(panel.unit, language) if panel.unit else ''}".strip()
