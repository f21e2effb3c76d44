"""Figures with bounds: the interval of a share that was counted in a sample, and estimates between bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass

Z_90, Z_95 = 1.6448536269514722, 1.959963984540054
"""Standard normal quantiles of two-sided intervals of 90 and 95 %."""


def wilson(share: float, number: float, z: float = Z_90) -> tuple[float, float]:
    """Return Wilson's score interval (1927) for a share of `number`, at 90 % by default; (0, 1) where `number` is 0."""
    if number <= 0:
        return 0.0, 1.0
    spread = z**2 / number
    middle = (share + spread / 2) / (1 + spread)
    reach = z / (1 + spread) * math.sqrt(share * (1 - share) / number + spread / (4 * number))
    return max(0.0, min(middle - reach, share)), min(1.0, max(middle + reach, share))


def whole_ceil(number: float) -> int:
    """Return the least integer that is not below a number; what floats add by rounding makes it no larger."""
    return math.ceil(round(number, 6))


_ROUNDING = 1e-9
"""The relative error that arithmetic with floats may cause."""


@dataclass(frozen=True)
class Estimate:
    """A figure and its bounds, in order: low <= point <= high.

    The mean of equal numbers may differ from its least or most in the last digit: the bound is then the point. Raises
    ValueError for bounds that are out of order by more.
    """

    low: float
    point: float
    high: float

    def __post_init__(self) -> None:
        off = max(self.low - self.point, self.point - self.high)
        if off > _ROUNDING * max(abs(self.point), 1.0):
            raise ValueError(f"{self.point} does not lie between {self.low} and {self.high}")
        object.__setattr__(self, "low", min(self.low, self.point))
        object.__setattr__(self, "high", max(self.high, self.point))

    def times(self, factor: float) -> Estimate:
        """Return the estimate with all three figures multiplied by a factor that is not negative."""
        return Estimate(self.low * factor, self.point * factor, self.high * factor)
