"""What a section is: a question, its answer in one sentence, a typed table, a chart as data, and what to know beside.

Builders make sections from a report; renderers format them and compute nothing. In every text here a plain `str` is somebody's
name, which is shown as it is; sentences (`analytics.language.sentences`) are translated, quantities written by the language.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from analytics.glossary import Term
from analytics.language.language import Language
from analytics.language.quantities import Quantity
from analytics.report.figures import Film
from analytics.sections.line_chart import LineChart

Kind = Literal[
    "name", "pool", "gpu", "host", "holder", "team", "finding", "opportunity",  # names, which pages may link
    "state", "grade", "words", "sentence", "moment",
    "bar",
    "gpu_hours", "money", "share", "share_bar", "count", "number",
]  # fmt: skip
"""What the cells of a column are. `sentence` may be long, `bar` is a StateBar, and the last row of kinds are figures; pages draw a `share_bar` beside it."""

FIGURES: frozenset[Kind] = frozenset({"gpu_hours", "money", "share", "share_bar", "count", "number"})
"""Kinds that are set to the right."""


@dataclass(frozen=True)
class StateBar:
    """A bar in a cell: the states' shares of the cell's width, from the left.

    The bar has a ground `track` of the cell's width long, and a line at `mark`.
    """

    shares: Mapping[str, float]
    track: float = 1.0
    mark: float | None = None


@dataclass(frozen=True)
class LinkedCell(Quantity):
    """A text that pages link to what it is about: a `to` of gpu, host, holder, team, finding or opportunity, and its `key`.

    `aside` is said behind it, smaller.
    """

    text: str | Quantity
    to: Kind
    key: str
    aside: str = ""

    def shown(self, language: Language) -> str:
        """Its text alone."""
        return language.shown(self.text)


Cell: TypeAlias = str | Quantity | StateBar | None
"""None is unknown; an empty string says that there is nothing to say."""


@dataclass(frozen=True)
class SectionColumn:
    """One column of a table; `key` is its name for machines."""

    key: str
    title: str
    kind: Kind

    @property
    def is_figure(self) -> bool:
        """Whether it is set to the right."""
        return self.kind in FIGURES


@dataclass(frozen=True)
class WaterfallStep:
    """One bar between `start` and `start + length`, in GPU-hours; `state` is empty for the whole.

    `figure` and `detail` stand beside it; `remark` below its label.
    """

    label: str
    state: str
    start: float
    length: float
    figure: Cell
    detail: Cell = ""
    remark: str = ""


@dataclass(frozen=True)
class Waterfall:
    """Bars below one another, each beginning where the one above it ends."""

    unit: str
    steps: tuple[WaterfallStep, ...]


@dataclass(frozen=True)
class StackedBars:
    """Upright bars side by side, each of several states; `values` has a number per bar for each state, in palette.ORDER.

    `names` are whole and differ, `short` fit below a bar. `marks` has for each annotation below the chart the bar in whose time it
    is; None where that is none of them.
    """

    unit: str
    names: tuple[Cell, ...]
    short: tuple[Cell, ...]
    values: Mapping[str, tuple[float, ...]]
    marks: tuple[int | None, ...] = ()


@dataclass(frozen=True)
class Bar:
    """One bar: its share of the longest possible one, None where it is unknown, and its figure."""

    label: str
    length: float | None
    figure: Cell


@dataclass(frozen=True)
class RankedBars:
    """Bars below one another, in groups that have a title and the colour of a state each."""

    groups: tuple[tuple[str, str, tuple[Bar, ...]], ...]


@dataclass(frozen=True)
class EstimateInterval:
    """A whole, and in it an estimate between a low and a high one, if these are known; `figure` and `detail` say it in words."""

    name: str
    whole: float
    low: float | None
    point: float
    high: float | None
    figure: str
    detail: str


@dataclass(frozen=True)
class Intervals:
    """One interval below the other, on one scale."""

    unit: str
    rows: tuple[EstimateInterval, ...]


@dataclass(frozen=True)
class WeekSpan:
    """Hours of one day of the week, 0 being Monday, with a number."""

    weekday: int
    from_hour: int
    until_hour: int
    value: int


@dataclass(frozen=True)
class WeekGrid:
    """Days of the week by hours of the day, one grid per name."""

    grids: tuple[tuple[str, tuple[WeekSpan, ...]], ...]


@dataclass(frozen=True)
class FilmStrip:
    """Every GPU over time, coloured by state."""

    film: Film


@dataclass(frozen=True)
class Curve:
    """A line that falls: (percent of the time, level), each level reached from there on to the left; `most` where unknown time counts."""

    name: str
    state: str
    points: tuple[tuple[float, float], ...]
    most: tuple[tuple[float, float], ...] = ()
    dashed: bool = False


@dataclass(frozen=True)
class DurationCurves:
    """For how much of the time at least so many were needed; `whole` is how many there are."""

    unit: str
    across: str
    whole: float
    whole_label: str
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class ShareBars:
    """Bars of shares of one: `name` in a tooltip, `label` in the legend; `most` is how high each may be where that is unknown."""

    name: str
    label: str
    state: str
    shares: tuple[float | None, ...]
    most: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class GroupedShares:
    """Shares side by side for each of `names`."""

    unit: str
    across: str
    names: tuple[str, ...]
    series: tuple[ShareBars, ...]


@dataclass(frozen=True)
class WeekShares:
    """A share for each hour of the week from Monday 0:00 on, None where it is unknown."""

    shares: tuple[float | None, ...]


@dataclass(frozen=True)
class CardMark:
    """One workload: its activity in percent, its peak memory in GiB and its weight; `lines` are said of it.

    `is_hollow` where the activity is an upper bound.
    """

    kind: str
    activity_pct: float
    memory_gib: float
    weight: float
    lines: tuple[str | Quantity, ...]
    is_hollow: bool


@dataclass(frozen=True)
class CardFit:
    """Workloads against the memory of the cards: `kinds` has the words of each kind, `cards` (GiB, name)."""

    kinds: Mapping[str, str]
    marks: tuple[CardMark, ...]
    cards: tuple[tuple[float, str], ...]


PageChart: TypeAlias = DurationCurves | GroupedShares | WeekShares | CardFit
"""Charts that only pages have."""

Chart: TypeAlias = Waterfall | StackedBars | RankedBars | Intervals | WeekGrid | FilmStrip | LineChart | PageChart


@dataclass(frozen=True)
class Fold:
    """What a document keeps behind its title until somebody opens it; `facts` have a label each, `command` is to type."""

    key: str
    title: str
    facts: tuple[tuple[str, Cell], ...]
    lines: tuple[str, ...]
    command: str


@dataclass(frozen=True)
class Section:
    """One section.

    Attributes:
        name: the key; what addresses and ids are made of.
        question: what a reader wants to know.
        headline: the answer in one sentence.
        rows: all rows, a cell for each column.
        shown: how many of them a document lists; None for all. Pages list all.
        rest: what a document says of the others.
        lines: sentences as a list, where the section has some.
        folds: what is behind a title each, until somebody opens it; paper leaves it out.
        chart_note: what the chart leaves out; said where it is drawn.
        notes: what to know of the figures.
        terms: words of the section that a reader may not know.
        states: states that are drawn, for the legend.
        wide: whether it needs the whole width of a page.
    """

    name: str
    title: str
    question: str
    headline: str
    columns: tuple[SectionColumn, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()
    shown: int | None = None
    rest: str = ""
    lines: tuple[str, ...] = ()
    folds: tuple[Fold, ...] = ()
    chart: Chart | None = None
    chart_note: str = ""
    notes: tuple[str, ...] = ()
    terms: tuple[Term, ...] = ()
    states: tuple[str, ...] = ()
    wide: bool = False

    @property
    def listed(self) -> tuple[tuple[Cell, ...], ...]:
        """The rows that a document lists."""
        return self.rows[: self.shown]

    @property
    def left_out(self) -> str:
        """What a document says of what it does not list; empty where it lists all."""
        return self.rest if len(self.listed) < len(self.rows) else ""
