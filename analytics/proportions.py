"""The interval of a share that was counted in a sample."""

from __future__ import annotations

import math

Z_90, Z_95 = 1.6448536269514722, 1.959963984540054
"""Standard normal quantiles of two-sided intervals of 90 and 95 %."""


def wilson(share: float, number: float, z: float = Z_90) -> tuple[float, float]:
    """Wilson's score interval (1927) for a share of so many, at 90 % unless said; (0, 1) of nothing."""
    if number <= 0:
        return 0.0, 1.0
    spread = z**2 / number
    middle = (share + spread / 2) / (1 + spread)
    reach = z / (1 + spread) * math.sqrt(share * (1 - share) / number + spread / (4 * number))
    return max(0.0, min(middle - reach, share)), min(1.0, max(middle + reach, share))
