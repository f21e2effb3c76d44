"""A chart as data: panels with a few kinds of marks. Pages and documents have one drawer each, which draws every chart.

Colours are names of `analytics.tables.palette`: states, or roles such as `mark`. None is unknown and drawn as a gap,
never as zero.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, floor, log10
from typing import Any, Literal, TypeAlias

from analytics.language.sentences import Language, Quantity, SentenceList
from analytics.report.timeline import FleetTimeline

Text: TypeAlias = str | Quantity | None
Values: TypeAlias = tuple[float | None, ...]
Points: TypeAlias = tuple[tuple[float, float], ...]
Shape = Literal["circle", "diamond", "triangle", "star", "square", "tick"]

MOST_LABELS = 7
"""Most labels below an axis, so that they fit on a narrow screen."""
_MOST_DOTS = 60
"""Most points of a line with a mark per point: more marks would overlap."""
_LONG = 27
"""Most letters of a row's name or detail that leave room for a bar."""
_FEW_STEPS, _MORE_STEPS, _EXACT = 3, 5, 1e-9


@dataclass(frozen=True)
class ChartPlace:
    """A place at which marks are drawn.

    Attributes:
        name: the whole name, which is unique.
        short: the label below a mark; empty for the name.
        note: a text below the name of a row.
        figure: a figure at the end of a row.
        detail: a text beside or below the figure.
        is_whole: False if values are hollow marks without a line to them.
    """

    name: Text
    short: Text = ""
    note: Text = ""
    figure: Text = ""
    detail: Text = ""
    is_whole: bool = True

    @property
    def label(self) -> Text:
        return self.short or self.name


@dataclass(frozen=True)
class Bars:
    """A bar at each place, from its base or from zero.

    `colour` is one for all bars or one per bar. Later bars cover earlier bars.
    """

    name: Text
    colour: str | tuple[str, ...]
    values: Values
    bases: tuple[float, ...] = ()
    shown: tuple[Text, ...] = ()

    @property
    def colours(self) -> tuple[str, ...]:
        return (self.colour,) * len(self.values) if isinstance(self.colour, str) else self.colour

    @property
    def spans(self) -> tuple[tuple[int, float, float], ...]:
        """Return the bars that are known: place, base and length."""
        found = zip(range(len(self.values)), self.bases or (0.0,) * len(self.values), self.values, strict=True)
        return tuple((place, base, length) for place, base, length in found if length is not None)


@dataclass(frozen=True)
class Line:
    """A line over the places, or over the percentages `at`. If `stepped`, each level begins at its left end."""

    name: Text
    colour: str
    values: Values
    at: tuple[float, ...] = ()
    shown: tuple[Text, ...] = ()
    dashed: bool = False
    stepped: bool = False


@dataclass(frozen=True)
class Band:
    """The band between a low and a high line. Draw wider bands first."""

    name: Text
    colour: str
    low: Points
    high: Points
    stepped: bool = False


@dataclass(frozen=True)
class Level:
    """A line across the whole panel, with its name above or below it."""

    name: Text
    colour: str
    value: float
    is_above: bool = True


@dataclass(frozen=True)
class Dots:
    """A mark per value, at places or percentages. Heavier dots are larger; `details` describe the dots."""

    name: Text
    colour: str
    shape: Shape
    at: tuple[float, ...]
    values: tuple[float, ...]
    weights: tuple[float, ...] = ()
    details: tuple[tuple[Text, ...], ...] = ()
    is_hollow: bool = False


@dataclass(frozen=True)
class GridCell:
    """A row of a grid from one column to another, with a value and its text."""

    row: int
    since: int
    until: int
    value: float
    label: Text


@dataclass(frozen=True)
class Cells:
    """Cells of a grid of `rows` by the panel's places.

    `most` is the value of the darkest shade; without it cells have no shade.
    """

    colour: str
    rows: tuple[Text, ...]
    cells: tuple[GridCell, ...]
    unit: Text
    most: float | None = None


@dataclass(frozen=True)
class GpuTimeline:
    """Every GPU over time, coloured by state."""

    timeline: FleetTimeline


Mark: TypeAlias = Bars | Line | Band | Level | Dots | Cells | GpuTimeline


@dataclass(frozen=True)
class Panel:
    """Marks on one scale.

    Attributes:
        places: the places of the marks; empty if marks lie at 0 to 100 percent.
        kind: how values are written.
        unit: the unit behind a number.
        lying: True if places are rows with a name, a bar and a figure.
        ceiling: the least end of the scale; None for the highest mark.
    """

    title: Text
    marks: tuple[Mark, ...]
    places: tuple[ChartPlace, ...] = ()
    kind: Literal["number", "share"] = "number"
    unit: Text = ""
    lying: bool = False
    ceiling: float = 0.0

    @property
    def highest(self) -> float:
        """Return the end of the highest mark, or the ceiling."""
        ends = [self.ceiling]
        for mark in self.marks:
            match mark:
                case Bars():
                    ends += (base + length for _, base, length in mark.spans)
                case Line() | Dots():
                    ends += (each for each in mark.values if each is not None)
                case Band():
                    ends += (value for _, value in mark.high)
                case Level():
                    ends.append(mark.value)
        return max(ends)

    @property
    def ticks(self) -> tuple[float, ...]:
        """Return round levels from zero up to the highest mark; empty if there is nothing to draw."""
        if self.highest <= 0:
            return ()
        step = round_step(self.highest, _MORE_STEPS if self.is_tall else _FEW_STEPS)
        return tuple(number * step for number in range(ceil(self.highest / step - _EXACT) + 1))

    def tick_words(self, language: Language) -> tuple[str, ...]:
        """Return the ticks with enough decimals to differ."""
        factor = 100 if self.kind == "share" else 1
        step = self.ticks[1] * factor if self.ticks else 1.0
        digits = next((digits for digits in range(12) if abs(round(step, digits) - step) <= _EXACT * step), 12)
        written = language.percent if self.kind == "share" else language.number
        return tuple(written(each, digits) for each in self.ticks)

    @property
    def is_tall(self) -> bool:
        """Return False for lines over places: several such panels are drawn below one another."""
        return not self.places or not any(isinstance(each, Line) for each in self.marks)

    @property
    def is_dotted(self) -> bool:
        """Return True if each point of a line has its mark."""
        return 0 < len(self.places) <= _MOST_DOTS

    @property
    def labelled(self) -> tuple[int, ...]:
        """Return the places with a label below the axis: always the last place; for a grid always the first."""
        last, every = len(self.places) - 1, -(-len(self.places) // MOST_LABELS) or 1
        return tuple(range(0 if self.grid else last % every, last + 1, every))

    @property
    def heaviest(self) -> float:
        """Return the largest weight of any dot; 0 without weights."""
        return max((weight for mark in self.marks if isinstance(mark, Dots) for weight in mark.weights), default=0.0)

    @property
    def grid(self) -> Cells | None:
        return next((each for each in self.marks if isinstance(each, Cells)), None)


@dataclass(frozen=True)
class Chart:
    """Panels below one another.

    `across` describes the places; `annotations` has the place of each annotation, or None.
    """

    panels: tuple[Panel, ...]
    across: Text = ""
    annotations: tuple[int | None, ...] = ()

    @property
    def timeline(self) -> FleetTimeline | None:
        """Return the timeline of all GPUs, if the chart has one."""
        return next(
            (mark.timeline for each in self.panels for mark in each.marks if isinstance(mark, GpuTimeline)), None
        )

    @property
    def rows(self) -> tuple[ChartPlace, ...]:
        """Return the places of all panels with rows; their bars share one axis."""
        return tuple(place for panel in self.panels if panel.lying for place in panel.places)

    def has_long_rows(self, language: Language) -> bool:
        """Return True if names and figures of rows need a line of their own above the bars."""
        texts = (words for each in self.rows for words in (each.name, each.detail) if words is not None)
        shown = (each.shown(language) if isinstance(each, Quantity) else language.shown(each) for each in texts)
        return any(len(each) > _LONG for each in shown)


def round_step(most: float, steps: int = _FEW_STEPS) -> float:
    """Return the round step with which at most this many steps reach `most`."""
    if most <= 0:
        return 1.0
    found = (factor * 10.0**power for power in range(floor(log10(most)) - 1, 20) for factor in (1, 2, 2.5, 5))
    return next(each for each in found if ceil(most / each - _EXACT) <= steps)


def lone(values: Sequence[float | None]) -> tuple[int, ...]:
    """Return the known values between two gaps, which no line reaches."""
    known = [False, *(each is not None for each in values), False]
    return tuple(at for at in range(len(values)) if known[at : at + 3] == [False, True, False])


def numbered(places: Iterable[int | None]) -> dict[int, str]:
    """Return the numbers of the annotations at each place, from 1."""
    found: dict[int, list[str]] = defaultdict(list)
    for number, place in enumerate(places, start=1):
        if place is not None:
            found[place].append(str(number))
    return {place: ", ".join(numbers) for place, numbers in found.items()}


def corners(points: Points) -> Points:
    """Return the corners of a stepped line, which goes down first and then right."""
    turns = (turn for (left, _), (right, level) in pairwise(points) for turn in ((left, level), (right, level)))
    return (*points[:1], *turns)


GLYPHS = {"circle": "●", "diamond": "◆", "triangle": "▲", "star": "★", "square": "■", "tick": "┃"}


def signs(chart: Chart, known: Collection[str] = ()) -> list[tuple[str, str, str]]:
    """Return the legend: a character, its colour and its names. Without marks, the colours of `known` states."""
    names: dict[tuple[str, str], dict[Any, None]] = defaultdict(dict)  # each once, in their order
    for mark in (each for panel in chart.panels for each in panel.marks):
        match mark:
            case Line():
                names["╍╍" if mark.dashed else "━━", mark.colour][mark.name] = None
            case Dots():
                names[GLYPHS[mark.shape], mark.colour][mark.name] = None
            case Band():
                names["▒", mark.colour][mark.name] = None
            case Bars(colour=str(colour)):
                names["■", colour][mark.name] = None
    listed = ((sign, [each for each in own if each]) for sign, own in names.items() if sign[1] not in known)
    return [(glyph, colour, SentenceList(own, ", ")) for (glyph, colour), own in listed if own]


def stacked(bars: Iterable[Bars]) -> tuple[Bars, ...]:
    """Return the bars stacked on one another, without bars of zero length. Unknown values count as zero height."""
    found: list[Bars] = []
    tops: tuple[float, ...] = ()
    for each in bars:
        if any(each.values):
            tops = tops or (0.0,) * len(each.values)
            found.append(replace(each, bases=tops))
            tops = tuple(top + (value or 0.0) for top, value in zip(tops, each.values, strict=True))
    return tuple(found)
