"""Piecewise-constant functions of scenario time: the truth that the fake driver plays and the tests compare with."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MICROSECONDS = 1_000_000
_FAR_FUTURE_US = 1 << 62


@dataclass(frozen=True, slots=True)
class Steps:
    """A value that holds from each moment (seconds since the scenario's start) until the next one.

    The first value also holds before its moment, the last one for ever. Moments are exact to 1 ms and values to 1/1000
    of their unit, because the fake driver computes with the same integers.
    """

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        if not self.points:
            raise ValueError("steps need at least one point")
        moments = [at_ms for at_ms, _ in self.encoded()]
        if any(later <= earlier for earlier, later in pairwise(moments)):
            raise ValueError("steps must be at least 1 ms apart and in order of time")

    def encoded(self) -> tuple[tuple[int, int], ...]:
        """Moments in milliseconds and values in thousandths of the unit, as the fake driver reads them."""
        return tuple((round(at_s * 1000), round(value * 1000)) for at_s, value in self.points)

    def at(self, t: float) -> float:
        """The value at t seconds."""
        return self._milli_at(_us(t)) / 1000

    def mean(self, t0: float, t1: float) -> float:
        """The time-weighted mean from t0 to t1 seconds."""
        return self.integral_milli_us(_us(t0), _us(t1)) / (_us(t1) - _us(t0)) / 1000

    def max(self, t0: float, t1: float) -> float:
        """The largest value that held for any time between t0 and t1 seconds."""
        return max(milli for _, _, milli in self._pieces(_us(t0), _us(t1))) / 1000

    def zero_ratio(self, t0: float, t1: float) -> float:
        """The share of the time from t0 to t1 seconds in which the value was 0."""
        zero_us = sum(end - start for start, end, milli in self._pieces(_us(t0), _us(t1)) if milli == 0)
        return zero_us / (_us(t1) - _us(t0))

    def integral_milli_us(self, from_us: int, to_us: int) -> int:
        """The exact integral, in thousandths of the unit times microseconds."""
        return sum((end - start) * milli for start, end, milli in self._pieces(from_us, to_us))

    def _milli_at(self, t_us: int) -> int:
        return next(milli for _, _, milli in self._pieces(t_us, t_us + 1))

    def _pieces(self, from_us: int, to_us: int) -> Iterator[tuple[int, int, int]]:
        encoded = self.encoded()
        starts = [-_FAR_FUTURE_US, *(at_ms * 1000 for at_ms, _ in encoded[1:])]
        ends = [*starts[1:], _FAR_FUTURE_US]
        for start, end, (_, milli) in zip(starts, ends, encoded, strict=True):
            if start < to_us and from_us < end:
                yield max(start, from_us), min(end, to_us), milli


def constant(value: float) -> Steps:
    """One value for ever."""
    return Steps(((0, value),))


def _us(seconds: float) -> int:
    return round(seconds * MICROSECONDS)
