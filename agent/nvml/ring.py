"""Utilization over time from the driver's sample ring: pure arithmetic, no driver.

The driver keeps its last 72 samples, ten seconds in all. Drained every few seconds, nothing is missed: each sample
stands for the time since the one before it. A GPU without work takes no samples at all; that time is zero, but not
measured sample by sample, and is kept apart as `unsampled` (docs/how-a-number-is-made.md).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

RING_US = 10_000_000
"""The ring wraps after ten seconds (nvml.h; an H200's reaches back 14.2 s): a gap inside a shorter pause between two drains cannot be lost samples."""

PERIOD_US = RING_US // 72
"""72 samples in ten seconds. Learning it from the gaps would fail: an idle GPU may leave samples out, though an H200 does not."""

RATE_US = 166_667
"""A rate averages over 1/6 s to 1 s (nvml.h on nvmlUtilization_t); the shortest is what one read surely covers."""

SAME_CLOCK_US = 12_000_000
"""A newest sample no further away than the ring says that the driver stamps with the wall clock; others are days off."""

PEAK_SHARE = 0.98
"""Of ten seconds the rest is one sample and a half: a burst of 0.2 s shows in the percentile, a lone sample does not."""

_REGULAR_STEPS = 32  # so many steps of one length, and a longer period is the driver's own
_REMEMBERED_DRAINS = 16  # about a minute: drifting clocks are followed, a stale sample moves nothing


Segment = tuple[int, int, int, bool]
"""Start and end in us, percent, and whether the driver sampled it (false: it took no sample). A plain tuple, because
hundreds are made in every interval."""


@dataclass(frozen=True)
class Utilization:
    """What is known of an interval; percentages and maximum are None where none of it was covered.

    `p98_pct` is what utilization stays within for PEAK_SHARE of the covered time.
    """

    mean_pct: float | None
    max_pct: int | None
    p98_pct: int | None
    zero_ratio: float | None
    coverage_ratio: float
    unsampled_ratio: float


class Timeline:
    """The known past of one GPU's utilization, in wall-clock microseconds, from which intervals are taken in order."""

    def __init__(self) -> None:
        self._segments: list[Segment] = []
        self._known_until_us: int | None = None
        self._idle_edge = False  # whether the known past ends in time that the driver called idle
        self._doubted_us: int | None = None
        self._period_us = PERIOD_US
        self._period_confirmed = False
        self._slow_steps: list[int] = []
        self._distances: deque[int] = deque(maxlen=_REMEMBERED_DRAINS)
        self._wall_stamped = False  # whether the driver's newest sample was stamped with the wall clock
        self.last_seen_us = 0
        """The largest timestamp that the driver has returned, in its own clock: what to pass back to it."""

    def add_samples(self, samples: Iterable[tuple[int, int]], now_us: int, *, in_time: bool) -> bool:
        """Adds (driver timestamp in us, percent) pairs from one drain; whether they could be understood.

        `in_time` says that the ring cannot have wrapped since the drain before. An impossible percentage between good
        samples makes its span unknown; an impossible time stamp (0, one seen before, or one of the wall clock from
        before it was put back) is dropped.
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
        """Says that the ring holds nothing newer and that the driver's rate was 0: zero up to one period ago.

        `watched_us` is how long ago the drain before was: the answer reaches back to the sample that was under way then,
        and never further than the ring.
        """
        if self._known_until_us is not None:
            reach_us = min(watched_us + 2 * self._period_us, RING_US)
            self._known_until_us = max(self._known_until_us, now_us - reach_us)
        self._zero_until(now_us - self._period_us)
        self._idle_edge = True
        self._doubted_us = None

    def doubt(self, now_us: int) -> None:
        """Says that the ring is silent and the rate is not 0: once, a sample is under way; again, nobody knows."""
        if self._doubted_us is not None and self._known_until_us is not None:
            self._known_until_us = max(self._known_until_us, now_us)
            self._idle_edge = False
        self._doubted_us = now_us

    def add_rate(self, value: int, now_us: int) -> None:
        """Adds one read of the driver's own average, which surely covers its shortest period and nothing more."""
        self._append(now_us - RATE_US, now_us, value, sampled=True)

    def begin(self, now_us: int) -> None:
        """Marks the moment of the first drain, after its samples: nothing before is claimed unless one of them says so."""
        if self._known_until_us is None:
            self._known_until_us = now_us

    def step(self, by_us: int, now_us: int) -> None:
        """Says that the wall clock has been put forward (or back, below 0) by so much: what is known begins anew now.

        When the step was is not known, so nothing of the past can be told in the new time.
        """
        self._segments.clear()
        self._known_until_us, self._doubted_us, self._idle_edge = now_us, None, False
        for _ in range(len(self._distances)):
            self._distances.append(self._distances.popleft() + by_us)
        if self._wall_stamped:
            self.last_seen_us = max(0, self.last_seen_us + by_us)

    def behind(self, now_us: int) -> bool:
        """Whether a sample should have come by now: either the GPU is idle or something is wrong."""
        return self._known_until_us is None or now_us - self._known_until_us > 2 * self._period_us

    def take(self, start_us: int, end_us: int) -> Utilization:
        """The interval's utilization; forgets everything before its end."""
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
        """Whether the ring keeps the usual pace; a driver that is slower by a steady step is believed after a while."""
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
        """What to add to the driver's time stamps, given how far the newest lies behind the wall clock."""
        self._wall_stamped = abs(distance_us) < SAME_CLOCK_US
        if self._wall_stamped:
            self._distances.clear()
            return 0
        # another clock: a fresh sample is at most one period old, so the smallest distance of late is nearest to the truth
        self._distances.append(distance_us)
        return min(self._distances)

    def _add_all(self, good: list[tuple[int, int]], offset_us: int, noise_us: list[int], *, in_time: bool) -> None:
        """Adds samples in order. One after the other without a gap is the rule, and costs no call per sample."""
        segments, period_us, jitter_us = self._segments, self._period_us, self._period_us // 2
        began_us = known_us = value_now = -1  # the segment being made; none at first
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
        """Zero up to a moment, save for the periods that end in noise: a sample was taken there, and nobody knows it."""
        for end_us in noise_us:
            if self._known_until_us is not None and self._known_until_us < end_us <= until_us + self._period_us // 2:
                self._zero_until(end_us - self._period_us)
                self._known_until_us = max(self._known_until_us, min(end_us, until_us))
        self._zero_until(until_us)

    def _zero_until(self, end_us: int) -> None:
        if self._known_until_us is not None:
            self._append(self._known_until_us, end_us, 0, sampled=False)

    def _append(self, start_us: int, end_us: int, value: int, *, sampled: bool) -> None:
        """Appends what lies after the known past: no moment counts twice. Equal neighbours become one."""
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
    """The lowest percent that was not exceeded for PEAK_SHARE of the time."""
    above = 0
    for value in sorted(spans, reverse=True):
        above += spans[value]
        if above > (1 - PEAK_SHARE) * total:
            return value
    return 0
