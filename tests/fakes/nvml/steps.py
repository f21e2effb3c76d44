"""Piecewise-constant functions of scenario time: the truth that the fake driver plays and the tests compare with."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class Steps:
    """A value that holds from each moment (seconds since the scenario's start) until the next one.

    The first value also holds before its moment, the last one for ever. Moments are exact to 1 ms and values to 1/1000
    of their unit, because the fake driver computes with the same integers.
    """

    points: tuple[tuple[float, float], ...]
    _starts_us: list[int] = field(init=False, repr=False, compare=False)
    _milli: list[int] = field(init=False, repr=False, compare=False)
    _before: list[int] = field(init=False, repr=False, compare=False)
    """Integral from the first moment to each moment, so that a long scenario is as quick to ask as a short one."""

    def __post_init__(self) -> None:
        if not self.points:
            raise ValueError("steps need at least one point")
        starts_us = [at_ms * 1000 for at_ms, _ in self.encoded()]
        milli = [value for _, value in self.encoded()]
        if any(later <= earlier for earlier, later in pairwise(starts_us)):
            raise ValueError("steps must be at least 1 ms apart and in order of time")
        pieces = ((end - start) * value for (start, end), value in zip(pairwise(starts_us), milli, strict=False))
        object.__setattr__(self, "_starts_us", starts_us)
        object.__setattr__(self, "_milli", milli)
        object.__setattr__(self, "_before", list(accumulate(pieces, initial=0)))

    def encoded(self) -> tuple[tuple[int, int], ...]:
        """Moments in milliseconds and values in thousandths of the unit, as the fake driver reads them."""
        return tuple((round(at_s * 1000), round(value * 1000)) for at_s, value in self.points)

    def at(self, t: float) -> float:
        """The value at t seconds."""
        return self._milli[self._piece(_us(t))] / 1000

    def mean(self, t0: float, t1: float) -> float:
        """The time-weighted mean from t0 to t1 seconds."""
        return self.integral_milli_us(_us(t0), _us(t1)) / (_us(t1) - _us(t0)) / 1000

    def integral_milli_us(self, from_us: int, to_us: int) -> int:
        """The exact integral, in thousandths of the unit times microseconds."""
        return self._until(to_us) - self._until(from_us)

    def map(self, of: Callable[[float], float]) -> Steps:
        """The same moments, each value replaced by `of` it."""
        return Steps(tuple((at_s, of(value)) for at_s, value in self.points))

    def _piece(self, t_us: int) -> int:
        return max(bisect_right(self._starts_us, t_us) - 1, 0)

    def _until(self, t_us: int) -> int:
        """The integral from the first moment on; negative before it, where the first value holds too."""
        piece = self._piece(t_us)
        return self._before[piece] + self._milli[piece] * (t_us - self._starts_us[piece])


def constant(value: float) -> Steps:
    """One value for ever."""
    return Steps(((0, value),))


def _us(seconds: float) -> int:
    return round(seconds * MICROSECONDS)
