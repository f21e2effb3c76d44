"""Lines over weeks, one panel below the other on the same weeks: the encoding of a trend."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Literal

from analytics.language.quantities import Quantity

Unit = Literal["money", "share", "count"]

_MOST_STEPS, _EXACT = 3, 1e-9


@dataclass(frozen=True)
class Line:
    """A value for each week, None where it is unknown: a gap, never a zero.

    `state` names its colour, empty for a line that only stands beside; that one is dashed.
    """

    name: str
    state: str
    values: tuple[float | None, ...]
    shown: tuple[Quantity | str, ...]


@dataclass(frozen=True)
class GoalLine:
    """A level across the panel that the line of the colour `state` is to come down to; `is_reached` if its newest point has."""

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

    @property
    def ticks(self) -> tuple[float, ...]:
        """Round levels from zero to the first above every value and goal; none where there is nothing to draw."""
        values = [value for line in self.lines for value in line.values if value is not None]
        most = max([*values, *(goal.level for goal in self.goals)], default=0.0)
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

    The others are hollow, and no line leads to them. `marks` has for each annotation below the chart the week that it is in.
    """

    names: tuple[Quantity | str, ...]
    short: tuple[Quantity | str, ...]
    whole: tuple[bool, ...]
    panels: tuple[LinePanel, ...]
    marks: tuple[int, ...] = ()
