"""Lines over weeks or days, one panel below the other on the same ones: the encoding of a trend and of a forecast."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Literal

from analytics.language.quantities import Quantity

Unit = Literal["money", "share", "count"]

_MOST_STEPS, _EXACT = 3, 1e-9
_MOST_DOTS = 60


@dataclass(frozen=True)
class Line:
    """A value for each week or day, None where it is unknown: a gap, never a zero.

    `state` names its colour, empty for a line that only stands beside; that one is dashed.
    """

    name: str
    state: str
    values: tuple[float | None, ...]
    shown: tuple[Quantity | str, ...]


@dataclass(frozen=True)
class LineBand:
    """What lies between two values at each point, None where there is none, in the colour of `state`; wider bands come first."""

    name: str
    state: str
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]

    @property
    def edges(self) -> tuple[tuple[int, float, float], ...]:
        """The points that it has: each place with its low and its high."""
        pairs = enumerate(zip(self.low, self.high, strict=True))
        return tuple((place, low, high) for place, (low, high) in pairs if low is not None and high is not None)


@dataclass(frozen=True)
class GoalLine:
    """A level across the panel that the line of the colour `state` is to stay below; `is_reached` if its newest point does."""

    name: str
    state: str
    level: float
    is_reached: bool


@dataclass(frozen=True)
class LinePanel:
    """Lines of one unit, from zero upwards."""

    title: str
    unit: Unit
    lines: tuple[Line, ...]
    goals: tuple[GoalLine, ...] = ()
    bands: tuple[LineBand, ...] = ()

    @property
    def ticks(self) -> tuple[float, ...]:
        """Round levels from zero to the first above every value and goal; none where there is nothing to draw."""
        values = [value for line in self.lines for value in line.values if value is not None]
        highs = [high for band in self.bands for _, _, high in band.edges]
        most = max([*values, *highs, *(goal.level for goal in self.goals)], default=0.0)
        if most <= 0:
            return ()
        steps = (factor * 10.0**power for power in range(floor(log10(most)) - 1, 20) for factor in (1, 2, 2.5, 5))
        step = next(each for each in steps if ceil(most / each - _EXACT) <= _MOST_STEPS)
        return tuple(number * step for number in range(ceil(most / step - _EXACT) + 1))

    @property
    def digits(self) -> int:
        """Decimals that tell the ticks apart; of shares in percent."""
        step = self.ticks[1] * (100 if self.unit == "share" else 1) if self.ticks else 1.0
        return next((digits for digits in range(4) if abs(round(step, digits) - step) <= _EXACT), 4)


@dataclass(frozen=True)
class LineChart:
    """`names` are whole and differ, `short` fit below a point; `whole` are those that can be set beside one another.

    The others are hollow, and no line leads to them. `marks` has for each annotation below the chart the point that it is at.
    """

    names: tuple[Quantity | str, ...]
    short: tuple[Quantity | str, ...]
    whole: tuple[bool, ...]
    panels: tuple[LinePanel, ...]
    marks: tuple[int, ...] = ()

    @property
    def is_dotted(self) -> bool:
        """Whether each point has its mark; marks of many would run into one another."""
        return len(self.names) <= _MOST_DOTS
