"""The grid of a simulated site: sun at noon, a dirty evening, windy days and still ones, and three hours that nobody published."""

from __future__ import annotations

import numpy as np

from analytics.simulation.placement import SimulatedFleet
from fallow.clock import DAY_MS, HOUR_MS, format_ms

_MEAN_G, _LEAST_G = 290.0, 60.0
_NOON_G, _EVENING_G, _WEATHER_G = 110.0, 90.0, 45.0
_GAP = (2, 3, 4)
"""Hours of the fleet's last but one day."""


def intensity_csv(fleet: SimulatedFleet) -> str:
    """Grams of CO2 per kWh for every hour (UTC) of the fleet's days, as `plan.carbon` takes them; all of it is invented."""
    hours = np.arange(fleet.days * 24)
    weather = np.repeat(np.random.default_rng(fleet.seed).normal(0.0, _WEATHER_G, fleet.days), 24)
    grams = _MEAN_G + weather - _NOON_G * _bump(hours, 12, 4.0) + _EVENING_G * _bump(hours, 19, 2.0)
    first_ms = fleet.until_ms - fleet.days * DAY_MS
    gap = {(fleet.days - 2) * 24 + hour for hour in _GAP}
    lines = [
        f"{format_ms(first_ms + int(hour) * HOUR_MS)},{max(_LEAST_G, g):.0f}"
        for hour, g in zip(hours, grams, strict=True)
        if hour not in gap
    ]
    return "\n".join(["# a simulated grid: none of these figures is a real one", "time,intensity", *lines, ""])


def _bump(hours: np.ndarray, at: int, width: float) -> np.ndarray:
    return np.asarray(np.exp(-(((hours % 24 - at) / width) ** 2)))
