"""Lengths of spells, drawn from the log-normal mixtures of the calibration."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from analytics.simulation.calibration import IntervalLengths


def draw(spells: IntervalLengths, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """`count` lengths in seconds, before the hour's factor and the limits."""
    long = rng.random(count) < spells.long_ratio
    median = np.where(long, spells.long_median_s, spells.median_s)
    sigma = np.where(long, spells.long_sigma, spells.sigma)
    return median * np.exp(sigma * rng.standard_normal(count))


def draw_ms(spells: IntervalLengths, rng: np.random.Generator) -> int:
    """One length in milliseconds within the limits, without the hour's factor."""
    return round(1000 * float(np.clip(draw(spells, rng, 1)[0], spells.min_s, spells.max_s)))
