"""A chart as data: panels with marks of a few kinds. Pages and documents have one drawer each, which know marks and no charts.

Colours are names of `analytics.tables.palette`: states, or roles such as `mark`. None is unknown: a gap, never a zero.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, floor, log10
from typing import Any, Literal, TypeAlias

from analytics.language.language import Language, SentenceList
from analytics.language.quantities import Quantity
from analytics.report.film import Film

Text: TypeAlias = str | Quantity | None
"""None is written as unknown."""
Values: TypeAlias = tuple[float | None, ...]
Points: TypeAlias = tuple[tuple[float, float], ...]
Shape = Literal["circle", "diamond", "triangle", "star", "square", "tick"]

MOST_LABELS = 7
"""Below an axis, so that they fit on a narrow screen."""
_MOST_DOTS = 60
"""Points of a line that have a mark each: more would run into one another."""
_LONG = 27
"""Letters of a name, or of what is said beside a figure, that still leave room for a bar."""
_FEW_STEPS, _MORE_STEPS, _EXACT = 3, 5, 1e-9


@dataclass(frozen=True)
class ChartPlace:
    """A place at which marks stand.

    Attributes:
        name: whole, and different from all others.
        short: what fits below a mark; empty for the name.
        note: said below the name of a row.
        figure: said at the end of a row.
        detail: said beside or below the figure.
        is_whole: False where values are hollow marks, and no line leads to them.
    """

    name: Text
    short: Text = ""
    note: Text = ""
    figure: Text = ""
    detail: Text = ""
    is_whole: bool = True

    @property
    def label(self) -> Text:
        """What stands below a mark."""
        return self.short or self.name


@dataclass(frozen=True)
class Bars:
    """A bar at each place, from its base or zero; `colour` is that of all or has one for each. Later bars lie over earlier ones."""

    name: Text
    colour: str | tuple[str, ...]
    values: Values
    bases: tuple[float, ...] = ()
    shown: tuple[Text, ...] = ()

    @property
    def colours(self) -> tuple[str, ...]:
        """The colour of each bar."""
        return (self.colour,) * len(self.values) if isinstance(self.colour, str) else self.colour

    @property
    def spans(self) -> tuple[tuple[int, float, float], ...]:
        """The bars that are known: each place with the bar's base and length."""
        found = zip(range(len(self.values)), self.bases or (0.0,) * len(self.values), self.values, strict=True)
        return tuple((place, base, length) for place, base, length in found if length is not None)


@dataclass(frozen=True)
class Line:
    """A line over the places, or over percentages `at`. Where it is `stepped`, each level is reached from the left of it on."""

    name: Text
    colour: str
    values: Values
    at: tuple[float, ...] = ()
    shown: tuple[Text, ...] = ()
    dashed: bool = False
    stepped: bool = False


@dataclass(frozen=True)
class Band:
    """What lies between a low and a high line; wider bands come first."""

    name: Text
    colour: str
    low: Points
    high: Points
    stepped: bool = False


@dataclass(frozen=True)
class Level:
    """A line across the whole panel with its name above or below it."""

    name: Text
    colour: str
    value: float
    is_above: bool = True


@dataclass(frozen=True)
class Dots:
    """A mark for each value, at places or percentages; heavier ones are larger, `details` say what each stands for."""

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
    """A row of a grid from one column until another, with a value and how it is written there."""

    row: int
    since: int
    until: int
    value: float
    label: Text


@dataclass(frozen=True)
class Cells:
    """Cells of a grid of `rows` by the panel's places; shaded by their value where there is a `most`."""

    colour: str
    rows: tuple[Text, ...]
    cells: tuple[GridCell, ...]
    unit: Text
    most: float | None = None


@dataclass(frozen=True)
class GpuTimeline:
    """Every GPU over time, coloured by state."""

    film: Film


Mark: TypeAlias = Bars | Line | Band | Level | Dots | Cells | GpuTimeline


@dataclass(frozen=True)
class Panel:
    """Marks on one scale.

    Attributes:
        places: without any, marks stand at 0 to 100 percent.
        kind: how the values are written.
        unit: what the values are, behind a number.
        lying: whether places go down the page, as rows with a name, a bar and a figure.
        ceiling: where the scale ends at least, if not at the highest mark.
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
        """The value at which the highest mark ends, or the ceiling."""
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
        """Round levels from zero to the first that no mark exceeds; none where there is nothing to draw."""
        if self.highest <= 0:
            return ()
        step = round_step(self.highest, _MORE_STEPS if self.is_tall else _FEW_STEPS)
        return tuple(number * step for number in range(ceil(self.highest / step - _EXACT) + 1))

    def tick_words(self, language: Language) -> tuple[str, ...]:
        """The ticks with as many decimals as tell them apart."""
        factor = 100 if self.kind == "share" else 1
        step = self.ticks[1] * factor if self.ticks else 1.0
        digits = next((digits for digits in range(12) if abs(round(step, digits) - step) <= _EXACT * step), 12)
        written = language.percent if self.kind == "share" else language.number
        return tuple(written(each, digits) for each in self.ticks)

    @property
    def is_tall(self) -> bool:
        """False for lines over places: several panels of them stand below one another."""
        return not self.places or not any(isinstance(each, Line) for each in self.marks)

    @property
    def is_dotted(self) -> bool:
        """Whether each point of a line has its mark."""
        return 0 < len(self.places) <= _MOST_DOTS

    @property
    def labelled(self) -> tuple[int, ...]:
        """The places that are named below an axis: the last among them, of a grid the first."""
        last, every = len(self.places) - 1, -(-len(self.places) // MOST_LABELS) or 1
        return tuple(range(0 if self.grid else last % every, last + 1, every))

    @property
    def heaviest(self) -> float:
        """The largest weight of any dot, 0 without weights."""
        return max((weight for mark in self.marks if isinstance(mark, Dots) for weight in mark.weights), default=0.0)

    @property
    def grid(self) -> Cells | None:
        """The cells of a panel that is a grid."""
        return next((each for each in self.marks if isinstance(each, Cells)), None)


@dataclass(frozen=True)
class Chart:
    """Panels below one another; `across` says what places are, `annotations` has the place of each annotation, or None."""

    panels: tuple[Panel, ...]
    across: Text = ""
    annotations: tuple[int | None, ...] = ()

    @property
    def film(self) -> Film | None:
        """What is drawn of every GPU over time."""
        return next((mark.film for each in self.panels for mark in each.marks if isinstance(mark, GpuTimeline)), None)

    @property
    def rows(self) -> tuple[ChartPlace, ...]:
        """The places of all panels that lie, whose bars begin and end below one another."""
        return tuple(place for panel in self.panels if panel.lying for place in panel.places)

    def has_long_rows(self, language: Language) -> bool:
        """Whether the names and figures of rows stand above their bars, which have no room beside them."""
        texts = (words for each in self.rows for words in (each.name, each.detail) if words is not None)
        shown = (each.shown(language) if isinstance(each, Quantity) else language.shown(each) for each in texts)
        return any(len(each) > _LONG for each in shown)


def round_step(most: float, steps: int = _FEW_STEPS) -> float:
    """The round number of which at most so many reach `most`."""
    if most <= 0:
        return 1.0
    found = (factor * 10.0**power for power in range(floor(log10(most)) - 1, 20) for factor in (1, 2, 2.5, 5))
    return next(each for each in found if ceil(most / each - _EXACT) <= steps)


def lone(values: Sequence[float | None]) -> tuple[int, ...]:
    """The known values between two gaps, which no line leads to."""
    known = [False, *(each is not None for each in values), False]
    return tuple(at for at in range(len(values)) if known[at : at + 3] == [False, True, False])


def numbered(places: Iterable[int | None]) -> dict[int, str]:
    """The numbers of the annotations at each place, from 1 on."""
    found: dict[int, list[str]] = defaultdict(list)
    for number, place in enumerate(places, start=1):
        if place is not None:
            found[place].append(str(number))
    return {place: ", ".join(numbers) for place, numbers in found.items()}


def corners(points: Points) -> Points:
    """The corners of a line in steps, which goes down first and then right."""
    turns = (turn for (left, _), (right, level) in pairwise(points) for turn in ((left, level), (right, level)))
    return (*points[:1], *turns)


GLYPHS = {"circle": "●", "diamond": "◆", "triangle": "▲", "star": "★", "square": "■", "tick": "┃"}


def signs(chart: Chart, known: Collection[str] = ()) -> list[tuple[str, str, str]]:
    """What the marks mean: a character, its colour, and the names; without marks in the colours of `known` states."""
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
    """Bars on one another, without those that are all of no length; what is not known is as high as nothing."""
    found: list[Bars] = []
    tops: tuple[float, ...] = ()
    for each in bars:
        if any(each.values):
            tops = tops or (0.0,) * len(each.values)
            found.append(replace(each, bases=tops))
            tops = tuple(top + (value or 0.0) for top, value in zip(tops, each.values, strict=True))
    return tuple(found)
