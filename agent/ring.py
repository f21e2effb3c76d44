"""Utilization over time from the driver's sample ring: pure arithmetic, no driver.

The driver keeps its last 72 samples, ten seconds in all. Drained every few seconds, nothing is missed: each sample
stands for the time since the one before it. A GPU without work takes no samples at all; that time is zero, but not
measured sample by sample, and is kept apart as `unsampled` (docs/how-a-number-is-made.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

RING_US = 10_000_000
"""The ring wraps after ten seconds: a gap inside a shorter pause between two drains cannot be lost samples."""

SHORTEST_PERIOD_US = 166_667
"""The driver averages over 1/6 s to 1 s (nvml.h on nvmlUtilization_t); the shortest is what one read surely covers."""

LONGEST_PERIOD_US = 1_000_000
SAME_CLOCK_US = 12_000_000
"""A newest sample no older than the ring says that the driver stamps with the wall clock; other clocks are days off."""


Segment = tuple[int, int, int, bool]
"""Start and end in us, percent, and whether the driver sampled it (false: it took no sample). A plain tuple, because
hundreds are made in every interval."""


@dataclass(frozen=True)
class Utilization:
    """What is known of an interval; percentages and maximum are None where none of it was covered."""

    mean_pct: float | None
    max_pct: int | None
    zero_ratio: float | None
    coverage_ratio: float
    unsampled_ratio: float


class Timeline:
    """The known past of one GPU's utilization, in wall-clock microseconds, from which intervals are taken in order."""

    def __init__(self) -> None:
        self._segments: list[Segment] = []
        self._known_until_us: int | None = None
        self._last_drain_us: int | None = None
        self._period_us = SHORTEST_PERIOD_US
        self._clock_offset_us: int | None = None
        self.last_seen_us = 0
        """The largest timestamp that the driver has returned, in its own clock: what to pass back to it."""

    def add_samples(self, samples: Iterable[tuple[int, int]], now_us: int) -> None:
        """Adds (driver timestamp in us, percent) pairs from one drain; impossible ones are dropped."""
        good = sorted((stamp, value) for stamp, value in samples if stamp > self.last_seen_us and 0 <= value <= 100)
        if good:
            self._learn(good, now_us)
            in_time = self._last_drain_us is not None and now_us - self._last_drain_us < RING_US
            for stamp, value in good:
                self._add_one(stamp + (self._clock_offset_us or 0), value, in_time=in_time)
            self.last_seen_us = good[-1][0]
            self._last_drain_us = now_us

    def add_idle(self, now_us: int) -> None:
        """Says that the ring holds nothing newer and that the driver's rate was 0: zero up to one period ago."""
        if self._known_until_us is not None and now_us - (self._last_drain_us or 0) >= RING_US:
            # drained too late: what the ring forgot in the meantime stays unknown
            self._known_until_us = max(self._known_until_us, now_us - RING_US)
        self._zero_until(now_us - self._period_us)
        self._last_drain_us = now_us

    def add_rate(self, value: int, now_us: int) -> None:
        """Adds one read of the driver's own average, which surely covers its shortest period and nothing more."""
        self._append(now_us - SHORTEST_PERIOD_US, now_us, value, sampled=True)
        self._last_drain_us = now_us

    def begin(self, now_us: int) -> None:
        """Marks the moment of the first drain: nothing before it is claimed unless a sample says so."""
        if self._known_until_us is None:
            self._known_until_us = self._last_drain_us = now_us

    def behind(self, now_us: int) -> bool:
        """Whether a sample should have come by now: either the GPU is idle or something is wrong."""
        return self._known_until_us is None or now_us - self._known_until_us > 2 * self._period_us

    def take(self, start_us: int, end_us: int) -> Utilization:
        """The interval's utilization; forgets everything before its end."""
        total = weighted = zero = unsampled = 0
        largest: int | None = None
        for segment_start_us, segment_end_us, value, sampled in self._segments:
            span = min(segment_end_us, end_us) - max(segment_start_us, start_us)
            if span <= 0:
                continue
            total += span
            weighted += span * value
            zero += span if value == 0 else 0
            unsampled += 0 if sampled else span
            largest = value if largest is None else max(largest, value)
        self._segments = [segment for segment in self._segments if segment[1] > end_us]
        length = end_us - start_us
        if total == 0:
            return Utilization(None, None, None, 0.0, 0.0)
        return Utilization(weighted / total, largest, zero / total, total / length, unsampled / length)

    def _learn(self, good: list[tuple[int, int]], now_us: int) -> None:
        """The driver's sample period and the distance of its clock from the wall clock."""
        steps = [late - early for (early, _), (late, _) in pairwise(good)]
        if steps:
            self._period_us = min(LONGEST_PERIOD_US, round(median(steps)))
        ahead = now_us - good[-1][0]
        if 0 <= ahead < SAME_CLOCK_US:
            self._clock_offset_us = 0
        elif self._clock_offset_us is None or not -SAME_CLOCK_US < ahead - self._clock_offset_us < RING_US:
            self._clock_offset_us = ahead
        else:
            # the newest sample is at most one period old: the smallest distance ever seen is the nearest to the truth
            self._clock_offset_us = min(self._clock_offset_us, ahead)

    def _add_one(self, end_us: int, value: int, *, in_time: bool) -> None:
        known = self._known_until_us
        start_us = end_us - self._period_us
        if known is not None and known < start_us:
            idle_before = bool(self._segments) and not self._segments[-1][3]
            if start_us - known <= self._period_us // 2 and not idle_before:
                start_us = known  # jitter
            elif in_time:
                self._zero_until(start_us)
        self._append(start_us, end_us, value, sampled=True)

    def _zero_until(self, end_us: int) -> None:
        if self._known_until_us is not None:
            self._append(self._known_until_us, end_us, 0, sampled=False)

    def _append(self, start_us: int, end_us: int, value: int, *, sampled: bool) -> None:
        """Appends what lies after the known past: no moment counts twice. Equal neighbours become one."""
        if self._known_until_us is not None and start_us < self._known_until_us:
            start_us = self._known_until_us
        if start_us >= end_us:
            return
        if self._segments:
            before_start_us, before_end_us, before_value, before_sampled = self._segments[-1]
            if before_end_us == start_us and before_value == value and before_sampled == sampled:
                self._segments[-1] = (before_start_us, end_us, value, sampled)
                self._known_until_us = end_us
                return
        self._segments.append((start_us, end_us, value, sampled))
        self._known_until_us = end_us
