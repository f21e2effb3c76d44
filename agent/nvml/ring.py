"""Utilization over time from the driver's sample ring: pure arithmetic, no driver.

The driver keeps its last 72 samples, ten seconds in total, so a drain every few seconds misses none. A sample covers
the time since the sample before it. For an idle GPU the driver takes no samples. That time counts as zero, but was not
measured, and is stored separately as `unsampled` (docs/how-a-number-is-made.md).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

RING_US = 10_000_000
"""The ring wraps after ten seconds (nvml.h; after 14.2 s on an H200). Drains closer together lose no sample."""

PERIOD_US = RING_US // 72
"""72 samples in ten seconds. The gaps do not show the period: an idle GPU may omit samples, though an H200 does not."""

RATE_US = 166_667
"""A rate is an average over 1/6 s to 1 s (nvml.h on nvmlUtilization_t); a read surely covers the shortest time."""

SAME_CLOCK_US = 12_000_000
"""A newest sample within the ring's length shows that the driver uses the wall clock; other clocks are days off."""

PEAK_SHARE = 0.98
"""The remainder of ten seconds is 1.5 samples: a burst of 0.2 s changes the percentile, a single sample does not."""

_REGULAR_STEPS = 32  # after this number of equal steps, a longer period counts as the driver's own
_REMEMBERED_DRAINS = 16  # about a minute: it follows drifting clocks, and a stale sample has no effect


Segment = tuple[int, int, int, bool]
"""Start and end in us, percent, and whether the driver took a sample. A plain tuple, because every interval has
hundreds."""


@dataclass(frozen=True)
class Utilization:
    """The utilization of an interval; percentages and maximum are None where no time was covered.

    `p98_pct` is the value that utilization does not exceed for PEAK_SHARE of the covered time.
    """

    mean_pct: float | None
    max_pct: int | None
    p98_pct: int | None
    zero_ratio: float | None
    coverage_ratio: float
    unsampled_ratio: float


class Timeline:
    """The known utilization of one GPU, in wall-clock microseconds. Intervals are taken from it in order."""

    def __init__(self) -> None:
        self._segments: list[Segment] = []
        self._known_until_us: int | None = None
        self._idle_edge = False  # whether the known past ends in time that the driver reported as idle
        self._doubted_us: int | None = None
        self._period_us = PERIOD_US
        self._period_confirmed = False
        self._slow_steps: list[int] = []
        self._distances: deque[int] = deque(maxlen=_REMEMBERED_DRAINS)
        self._wall_stamped = False  # whether the driver's newest sample was stamped with the wall clock
        self.last_seen_us = 0
        """The largest time stamp that the driver has returned, in its own clock, for the next call."""

    def add_samples(self, samples: Iterable[tuple[int, int]], now_us: int, *, in_time: bool) -> bool:
        """Add (driver time stamp in us, percent) pairs of one drain. Return whether they are plausible.

        `in_time` is True where the ring cannot have wrapped since the last drain. An impossible percentage between good
        samples makes its time unknown. An impossible time stamp is dropped: 0, a repeated one, or one from before the
        wall clock was set back.
        """
        last_seen_us = self.last_seen_us
        fresh = [pair for pair in samples if pair[0] > last_seen_us]
        if self._wall_stamped:
            latest_us = now_us + self._period_us
            fresh = [pair for pair in fresh if pair[0] <= latest_us]
        fresh.sort()
        good = [pair for pair in fresh if pair[1] <= 100]  # the driver's percentages are unsigned
        if not good:
            return not fresh
        self._learn_period(good)
        offset_us = self._offset_us(now_us - good[-1][0])
        noise_us = [stamp + offset_us for stamp, value in fresh if value > 100] if len(good) < len(fresh) else []
        self._add_all(good, offset_us, noise_us, in_time=in_time)
        self.last_seen_us = good[-1][0]
        self._doubted_us = None
        return True

    def add_idle(self, now_us: int, *, watched_us: int) -> None:
        """Add idle time up to one period ago: the ring has no newer sample, and the driver's rate was 0.

        `watched_us` is the time since the last drain. The idle time reaches back to the unfinished sample of that
        drain, and never further than the ring.
        """
        if self._known_until_us is not None:
            reach_us = min(watched_us + 2 * self._period_us, RING_US)
            self._known_until_us = max(self._known_until_us, now_us - reach_us)
        self._zero_until(now_us - self._period_us)
        self._idle_edge = True
        self._doubted_us = None

    def doubt(self, now_us: int) -> None:
        """Note an empty ring with a rate above 0: first a sample is unfinished, the next time the state is unknown."""
        if self._doubted_us is not None and self._known_until_us is not None:
            self._known_until_us = max(self._known_until_us, now_us)
            self._idle_edge = False
        self._doubted_us = now_us

    def add_rate(self, value: int, now_us: int) -> None:
        """Add one read of the driver's own average, which surely covers only its shortest period."""
        self._append(now_us - RATE_US, now_us, value, sampled=True)

    def begin(self, now_us: int) -> None:
        """Mark the first drain's time, after its samples: time before it is unknown unless a sample covers it."""
        if self._known_until_us is None:
            self._known_until_us = now_us

    def step(self, by_us: int, now_us: int) -> None:
        """Note that the wall clock was set forward (or back, below 0) by this amount. The known past restarts now.

        The time of the step is unknown, so the past cannot be expressed in the new time.
        """
        self._segments.clear()
        self._known_until_us, self._doubted_us, self._idle_edge = now_us, None, False
        for _ in range(len(self._distances)):
            self._distances.append(self._distances.popleft() + by_us)
        if self._wall_stamped:
            self.last_seen_us = max(0, self.last_seen_us + by_us)

    def behind(self, now_us: int) -> bool:
        """Return whether a sample is overdue: the GPU is idle, or there is a fault."""
        return self._known_until_us is None or now_us - self._known_until_us > 2 * self._period_us

    def take(self, start_us: int, end_us: int) -> Utilization:
        """Return the interval's utilization, and forget the time before its end."""
        total = weighted = unsampled = 0
        spans: dict[int, int] = {}
        for segment_start_us, segment_end_us, value, sampled in self._segments:
            span = min(segment_end_us, end_us) - max(segment_start_us, start_us)
            if span <= 0:
                continue
            total += span
            weighted += span * value
            spans[value] = spans.get(value, 0) + span
            unsampled += 0 if sampled else span
        self._segments = [segment for segment in self._segments if segment[1] > end_us]
        length = end_us - start_us
        if total == 0:
            return Utilization(None, None, None, None, 0.0, 0.0)
        zero_ratio, p98_pct = spans.get(0, 0) / total, _stayed_within(spans, total)
        return Utilization(weighted / total, max(spans), p98_pct, zero_ratio, total / length, unsampled / length)

    def _learn_period(self, fresh: list[tuple[int, int]]) -> None:
        """Learn the period of the ring: the usual one, or a constant longer one after a while."""
        if self._period_confirmed and self._period_us == PERIOD_US:
            return
        steps = [late - early for (early, _), (late, _) in pairwise(fresh)]
        if any(step <= PERIOD_US * 5 // 4 for step in steps):
            self._period_us, self._period_confirmed = PERIOD_US, True
            self._slow_steps.clear()
        elif not self._period_confirmed:
            self._slow_steps = [*self._slow_steps, *steps][-_REGULAR_STEPS:]
            few = len(self._slow_steps) < _REGULAR_STEPS
            if not few and max(self._slow_steps) * 10 <= min(self._slow_steps) * 11:
                self._period_us, self._period_confirmed = sorted(self._slow_steps)[_REGULAR_STEPS // 2], True

    def _offset_us(self, distance_us: int) -> int:
        """Return the offset to add to the driver's time stamps, from the newest stamp's distance to the wall clock."""
        self._wall_stamped = abs(distance_us) < SAME_CLOCK_US
        if self._wall_stamped:
            self._distances.clear()
            return 0
        # another clock: a new sample is at most one period old, so the smallest recent distance is the most accurate
        self._distances.append(distance_us)
        return min(self._distances)

    def _add_all(self, good: list[tuple[int, int]], offset_us: int, noise_us: list[int], *, in_time: bool) -> None:
        """Add samples in order. The usual case, samples without a gap, costs no call per sample."""
        segments, period_us, jitter_us = self._segments, self._period_us, self._period_us // 2
        began_us = known_us = value_now = -1  # the current segment; none at first
        for stamp, value in good:
            end_us = stamp + offset_us
            if known_us >= 0 and end_us - period_us - known_us <= jitter_us:
                if known_us < end_us:
                    if value != value_now:
                        segments.append((began_us, known_us, value_now, True))
                        began_us, value_now = known_us, value
                    known_us = end_us
                continue
            if known_us >= 0:
                segments.append((began_us, known_us, value_now, True))
                self._known_until_us = known_us
            self._add_one(end_us, value, noise_us, in_time=in_time)
            known_us = -1
            if segments and segments[-1][1] == self._known_until_us and segments[-1][3]:
                began_us, known_us, value_now, _ = segments.pop()
        if known_us >= 0:
            segments.append((began_us, known_us, value_now, True))
            self._known_until_us = known_us

    def _add_one(self, end_us: int, value: int, noise_us: list[int], *, in_time: bool) -> None:
        known = self._known_until_us
        start_us = end_us - self._period_us
        if known is not None and known < start_us:
            if start_us - known <= self._period_us // 2 and not self._idle_edge:
                start_us = known  # jitter
            elif in_time and (self._period_confirmed or self._idle_edge):
                self._zero_gap(start_us, noise_us)
        self._append(start_us, end_us, value, sampled=True)

    def _zero_gap(self, until_us: int, noise_us: list[int]) -> None:
        """Add zero up to a time, except for periods that end in an impossible sample, whose value is unknown."""
        for end_us in noise_us:
            if self._known_until_us is not None and self._known_until_us < end_us <= until_us + self._period_us // 2:
                self._zero_until(end_us - self._period_us)
                self._known_until_us = max(self._known_until_us, min(end_us, until_us))
        self._zero_until(until_us)

    def _zero_until(self, end_us: int) -> None:
        if self._known_until_us is not None:
            self._append(self._known_until_us, end_us, 0, sampled=False)

    def _append(self, start_us: int, end_us: int, value: int, *, sampled: bool) -> None:
        """Append the part after the known past, so that no time counts twice. Merge equal neighbours."""
        if self._known_until_us is not None and start_us < self._known_until_us:
            start_us = self._known_until_us
        if start_us >= end_us:
            return
        self._idle_edge = not sampled
        if self._segments:
            before_start_us, before_end_us, before_value, before_sampled = self._segments[-1]
            if before_end_us == start_us and before_value == value and before_sampled == sampled:
                self._segments[-1] = (before_start_us, end_us, value, sampled)
                self._known_until_us = end_us
                return
        self._segments.append((start_us, end_us, value, sampled))
        self._known_until_us = end_us


def _stayed_within(spans: dict[int, int], total: int) -> int:
    """Return the lowest percentage that was not exceeded for PEAK_SHARE of the time."""
    above = 0
    for value in sorted(spans, reverse=True):
        above += spans[value]
        if above > (1 - PEAK_SHARE) * total:
            return value
    return 0
