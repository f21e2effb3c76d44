"""Time of a scenario: when something is so, and how much of it there is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fallow.clock import DAY_MS, HOUR_MS, SECOND_MS

if TYPE_CHECKING:
    from tests.findings.scenarios.parts import Column, Level, Mask

T_END = 1_795_132_800_000
"""2026-11-20 00:00 UTC, the first moment of a Friday: the end of every scenario. The last day is a Thursday."""


class Grid:
    """Intervals of one length from some days before T_END up to it."""

    def __init__(self, days: float, interval_s: float) -> None:
        self.interval_ms = round(interval_s * SECOND_MS)
        self.rows = round(days * DAY_MS) // self.interval_ms
        self.start_ms = T_END - self.rows * self.interval_ms
        self.times_ms = self.start_ms + self.interval_ms * np.arange(self.rows, dtype=np.int64)
        self._rng = np.random.default_rng(20_261_120)

    # --- when -------------------------------------------------------------------------------------------------------

    @property
    def always(self) -> Mask:
        """Every interval."""
        return np.ones(self.rows, np.bool_)

    def moment(self, day: float | None) -> int:
        """A day of the grid in epoch ms: counted from the start, a negative one from the end; None is the end."""
        if day is None:
            return T_END
        return round((T_END if day < 0 else self.start_ms) + day * DAY_MS)

    def between(self, first_day: float, last_day: float | None = None) -> Mask:
        """From one day up to another, exclusive: with -4 alone the last 4 days, with 0 and 1 the first day."""
        return (self.times_ms >= self.moment(first_day)) & (self.times_ms < self.moment(last_day))

    def daily(self, first_hour: float, last_hour: float) -> Mask:
        """These hours (UTC) of every day; over midnight where the first is the later, such as 22 and 6."""
        hour = self.times_ms % DAY_MS / HOUR_MS
        if first_hour <= last_hour:
            return (hour >= first_hour) & (hour < last_hour)
        return (hour >= first_hour) | (hour < last_hour)

    @property
    def weekdays(self) -> Mask:
        """Monday to Friday (UTC)."""
        return (self.times_ms // DAY_MS + 3) % 7 < 5  # 1970-01-01 was a Thursday

    def every(self, period_h: float, on_h: float, offset_h: float = 0) -> Mask:
        """The first `on_h` hours of every `period_h`, beginning `offset_h` after the start of the fleet."""
        since = self.times_ms - self.start_ms - round(offset_h * HOUR_MS)
        return since % round(period_h * HOUR_MS) < round(on_h * HOUR_MS)

    # --- levels -----------------------------------------------------------------------------------------------------

    def wave(self, high: float, *, period_h: float, on_h: float, low: float = 0, offset_h: float = 0) -> Column:
        """`high` in the first `on_h` hours of every `period_h`, `low` otherwise."""
        return np.where(self.every(period_h, on_h, offset_h), float(high), float(low))

    def noise(self, mean: float, spread: float, low: float = 0, high: float = 100) -> Column:
        """A level that wanders around a mean, cut to [low, high]; the same at every run of the scenario."""
        return np.clip(self._rng.normal(mean, spread, self.rows), low, high)

    def level(self, level: Level) -> Column:
        """A number or an array as an array over the grid."""
        return np.broadcast_to(np.asarray(level, np.float64), (self.rows,))
