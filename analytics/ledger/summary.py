"""Sums over the ledger: GPU-hours by state, coverage, idle share and idle intervals, by window and group of GPUs.

Sums are integers of milliseconds; hours and shares are computed from them at the very end. A host whose clock is ahead
does not move the end of the data.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import polars as pl

from analytics.intervals import SPAN_MS, clip
from analytics.ledger.build import Ledger
from analytics.ledger.sampled import Basis, Bound, PointSamples, samples_of
from analytics.mig import MIG_PREFIX
from analytics.states import IN_USE, UNUSED
from fallow.clock import HOUR_MS, MINUTE_MS, Window
from fallow.gpu_names import STAND_IN
from fallow.schema import STATES

IDLE_INTERVALS = {"5m": 5 * MINUTE_MS, "30m": 30 * MINUTE_MS, "60m": 60 * MINUTE_MS, "120m": 120 * MINUTE_MS}
"""Thresholds beside every idle headline: the choice changes the headline fourfold on real serving traces."""

_LEFT_OPEN = ("sampled_ms", "perhaps_idle_ms", "perhaps_stalled_ms", "unconfirmed_ms", "likely_ms")
"""Time that the witnesses leave open, in the order of the sums; 0 for rows without a value."""

OPEN_FROM = 0.01
"""A smaller share of the observed time moves no figure by over a point; the header and data quality still state it."""

SILENT_AFTER_MS = HOUR_MS
"""A GPU that was not observed for this long is silent: its current state is unknown."""


@dataclass(frozen=True)
class Totals:
    """Integer milliseconds of GPU time by state, and the number of GPUs. A state without an entry has none."""

    gpus: int
    state_ms: dict[str, int]
    sampled_ms: int = 0
    """Time that point samples observed."""
    unconfirmed_ms: Mapping[str, int] = field(default_factory=dict)
    """By state, time that rests on samples at 0 alone."""
    perhaps_idle_ms: int = 0
    """Time that is not held but may have been (see `analytics.ledger.sampled`)."""
    likely_ms: Mapping[str, int] = field(default_factory=dict)
    """By state, time that rests on samples at 0 and on power readings."""
    perhaps_stalled_ms: int = 0
    """Time in use in which one witness alone shows that kernels do no work (see `analytics.ledger.day_stalls`)."""

    @property
    def total_ms(self) -> int:
        """Return all GPU time, unknown included."""
        return sum(self.state_ms.values())

    @property
    def observed_ms(self) -> int:
        """Return the GPU time with a known state."""
        return self.total_ms - self.state_ms["unknown"]

    def share(self, state: str) -> float | None:
        """Return the state's share of the observed time; None where nothing was observed."""
        return ratio(self.state_ms[state], self.observed_ms)

    @property
    def sampled(self) -> float | None:
        """Return the share of the observed time that point samples observed."""
        return ratio(self.sampled_ms, self.observed_ms)

    def unconfirmed(self, state: str) -> float:
        """Return the share of the state's time that rests on point samples alone."""
        return ratio(self.unconfirmed_ms.get(state, 0), self.state_ms[state]) or 0.0

    def basis(self, state: str) -> Basis | None:
        """Return the basis of the state's time; None without any."""
        likely = ratio(self.likely_ms.get(state, 0), self.state_ms[state])
        return None if likely is None else Basis.of(self.unconfirmed(state), likely)

    def bound(self, state: str) -> Bound:
        """Return the state's bounds: without unconfirmed time, and with all that may have been held or stalled."""
        spent_ms = self.state_ms[state]
        more_ms = {"held": self.perhaps_ms, "stalled": self.perhaps_stalled_ms}.get(state, 0)
        return Bound(spent_ms - min(self.unconfirmed_ms.get(state, 0), spent_ms), spent_ms + more_ms)

    @property
    def perhaps_ms(self) -> int:
        """Return the time in use that may have been held: beside samples at 0, and beside rows at 0."""
        return min(self.perhaps_idle_ms, sum(self.state_ms[each] for each in IN_USE))

    @property
    def active_bound(self) -> Bound:
        """Return the bounds of the active time."""
        active_ms = self.state_ms["active"]
        return Bound(max(0, active_ms - self.perhaps_ms - self.perhaps_stalled_ms), active_ms + self.open_ms)

    @property
    def unused_ms(self) -> int:
        """Return the time in which GPUs were observed, in order and not computing, by their states."""
        return sum(self.state_ms[state] for state in UNUSED)

    @property
    def unused_bound(self) -> Bound:
        """Return the bounds of the unused time."""
        bounds = [self.bound(state) for state in UNUSED]
        return Bound(sum(each.low_ms for each in bounds), min(sum(each.high_ms for each in bounds), self.observed_ms))

    @property
    def open_ms(self) -> int:
        """Return the unused time that rests on point samples alone."""
        return sum(min(self.unconfirmed_ms.get(state, 0), self.state_ms[state]) for state in UNUSED)

    @property
    def leaves_open(self) -> bool:
        """Return whether the open time, in either direction, is long enough for figures to state it separately."""
        more_ms = self.perhaps_ms if (self.sampled or 0.0) >= OPEN_FROM else 0
        return (ratio(self.open_ms + more_ms, self.observed_ms) or 0.0) >= OPEN_FROM

    @property
    def leaves_doubt(self) -> bool:
        """Return whether the busy time that one witness alone speaks against is long enough for figures to state it."""
        return (ratio(self.perhaps_stalled_ms, self.observed_ms) or 0.0) >= OPEN_FROM

    @property
    def wasted_ms(self) -> int:
        """Return the unused time that figures and their money state: without the time that they state separately."""
        return self.unused_ms - self.open_ms if self.leaves_open else self.unused_ms

    @property
    def coverage(self) -> float | None:
        """Return the observed share of all time; None where there is no time at all."""
        return ratio(self.observed_ms, self.total_ms)


@dataclass(frozen=True)
class Idle:
    """Time at measured zero utilization, with or without a user: in all, and in idle intervals by least length."""

    zero_ms: int
    idle_interval_ms: dict[str, int]


@dataclass(frozen=True)
class Summary:
    """The ledger of a window in numbers."""

    since_ms: int
    until_ms: int
    totals: Totals
    idle: Idle
    samples: PointSamples
    """The time that point samples observed, and the bounds of its idle time."""
    stopped_gpus: int
    """GPUs that were last observed more than an hour before the end; their time after that is in no sum."""
    seen_share: float | None = None
    """Observed share of the whole window's GPU time, silent hosts included; see `analytics.report.coverage`."""
    outside_ms: float = 0.0
    """GPU time before a host's first row or after its last: not observed, and in no sum."""

    @property
    def coverage(self) -> float | None:
        """Return the observed share of the window; where that is not set, of the time in the sums."""
        return self.totals.coverage if self.seen_share is None else self.seen_share


def ratio(part: float, whole: float) -> float | None:
    """Return the share of a part in the whole; None where the whole is 0, so that unknown is never 0 or 100 %."""
    return part / whole if whole else None


def clip_ledger(ledger: Ledger, window: Window) -> Ledger:
    """Return the ledger inside a window, with segments and idle intervals cut at its ends. States do not change."""
    return replace(
        ledger,
        segments=clip(ledger.segments, window.since_ms, window.until_ms),
        idle_intervals=clip(ledger.idle_intervals, window.since_ms, window.until_ms),
        rollups=ledger.rollups.inside(window),
    )


def known_at(ledger: Ledger, window: Window) -> Ledger:
    """Return the ledger inside the window, with segments and idle intervals no longer than was known at its end."""
    known = clip_ledger(ledger, window)
    last = pl.lit(window.until_ms, pl.Int64)
    return replace(
        known,
        segments=known.segments.with_columns(pl.min_horizontal("segment_end", last)),
        idle_intervals=known.idle_intervals.with_columns(pl.min_horizontal("idle_interval_end", last)),
    )


def summarise(ledger: Ledger) -> Summary:
    """Return the numbers of a ledger that was clipped to a window.

    The summary's own window is its observed part, so that its coverage is never that of a longer time.
    """
    spans = ledger.segments
    since_ms, until_ms = _as_int(spans["time"].min()), _as_int(spans["end"].max())
    stopped = stopped_gpus(spans, until_ms)
    return Summary(since_ms, until_ms, totals_of(spans), _idle(ledger.idle_intervals), samples_of(spans), stopped)


def stopped_gpus(spans: pl.DataFrame, until_ms: int, of: pl.Series | None = None) -> int:
    """Return how many GPUs (of some) were last observed over an hour before the end; stand-ins do not count."""
    # a stand-in that ended has since got its UUID
    last = spans.filter(~pl.col("gpu").str.contains(STAND_IN)).group_by("gpu").agg(pl.col("end").max())
    if of is not None:
        last = last.filter(pl.col("gpu").is_in(of.unique().implode()))
    return last.filter(pl.col("end") < until_ms - SILENT_AFTER_MS).height


def totals_of(spans: pl.DataFrame) -> Totals:
    """Return the totals of all rows."""
    found = totals_by(spans.with_columns(_all=pl.lit("all")), "_all")
    return found.get("all", Totals(0, dict.fromkeys(STATES, 0)))


def totals_by(spans: pl.DataFrame, column: str) -> dict[str, Totals]:
    """Return totals per value of one of the ledger's columns (host, gpu, user, ...) as text, sorted by the value.

    A MIG instance counts its share of the time, and its GPU is counted once where the group has both.
    """
    named = spans.with_columns(grouped=pl.col(column).cast(pl.String), state=pl.col("state").cast(pl.String))
    whole = pl.col("gpu").filter(~pl.col("gpu").str.starts_with(MIG_PREFIX)).n_unique()
    gpus = named.group_by("grouped").agg(pl.when(whole > 0).then(whole).otherwise(pl.col("gpu").n_unique()))
    sums = named.group_by("grouped", "state").agg(
        _share_of(SPAN_MS).alias("state_ms"),
        *((_share_of(pl.col(name)) if name in spans.columns else pl.lit(0)).alias(name) for name in _LEFT_OPEN),
    )
    found = {
        name: Totals(count, dict.fromkeys(STATES, 0))
        for name, count in gpus.sort("grouped", nulls_last=True).iter_rows()
    }
    for name, state, state_ms, sampled_ms, perhaps_ms, stalled_ms, unconfirmed_ms, likely_ms in sums.sort(
        "grouped", "state"
    ).iter_rows():
        before = found[name]
        found[name] = Totals(
            before.gpus,
            before.state_ms | {state: state_ms},
            before.sampled_ms + sampled_ms,
            {**before.unconfirmed_ms, state: unconfirmed_ms} if unconfirmed_ms else before.unconfirmed_ms,
            before.perhaps_idle_ms + perhaps_ms,
            {**before.likely_ms, state: likely_ms} if likely_ms else before.likely_ms,
            before.perhaps_stalled_ms + stalled_ms,
        )
    return found


def _share_of(time_ms: pl.Expr) -> pl.Expr:
    """Return the sum of times weighted by each row's part of a GPU, in whole milliseconds."""
    return (time_ms * pl.col("gpu_share")).sum().round(mode="half_away_from_zero").cast(pl.Int64)


def _idle(idle_intervals: pl.DataFrame) -> Idle:
    """Return clipped time in idle intervals, by the length of the whole idle interval."""
    length = pl.col("idle_interval_end") - pl.col("idle_interval_start")
    by_length = {name: SPAN_MS.filter(length >= least).sum() for name, least in IDLE_INTERVALS.items()}
    found = idle_intervals.select(zero_ms=SPAN_MS.sum(), **by_length).row(0, named=True)
    return Idle(found.pop("zero_ms"), found)


def _as_int(value: object) -> int:
    return value if isinstance(value, int) else 0


TOLERANCE_MS = 5 * MINUTE_MS
"""The largest normal difference between clocks; hosts that ask a time server are milliseconds apart."""
ZONE_MAX_MS = 14 * HOUR_MS
"""No time zone is further ahead of UTC: a larger lead is not a local time that was taken for UTC."""

WALL_CLOCK, OTHER_HOSTS = "the time on this machine", "the newest rows of the other hosts"


def hosts_ahead(ends: Mapping[str, int], now_ms: int) -> tuple[Mapping[str, int], str]:
    """Return the ends of hosts whose clock is ahead, and the reference; `now_ms` is the wall clock's time.

    Rows in the future are those of a clock that is ahead, unless most hosts have some: then the wall clock is behind.
    While no host writes into the lake, the wall clock shows nothing, and the hosts are compared with each other.
    """
    ahead = {host: end for host, end in ends.items() if end > now_ms + TOLERANCE_MS}
    if 2 * len(ahead) > len(ends):
        return {}, WALL_CLOCK
    if not ahead and max(ends.values()) < now_ms - SILENT_AFTER_MS:
        return _hosts_after_most(ends), OTHER_HOSTS
    return ahead, WALL_CLOCK


def data_end_ms(ends: Mapping[str, int], now_ms: int) -> int:
    """Return the end of the newest row of the hosts whose clock is not ahead."""
    ahead, _ = hosts_ahead(ends, now_ms)
    return max(end for host, end in ends.items() if host not in ahead)


def newest_row_ms(segments: pl.DataFrame, ahead: Collection[str]) -> int | None:
    """Return the end of the newest row that observed anything; None where there is no such row.

    Rows of hosts whose clock is ahead count only where there are no others: their real time is unknown.
    """
    ends = segments.filter(pl.col("state") != "unknown").group_by("host").agg(pl.col("end").max())
    by_host = dict(ends.select("host", "end").iter_rows())
    return max((end for host, end in by_host.items() if host not in ahead), default=max(by_host.values(), default=None))


def _hosts_after_most(ends: Mapping[str, int]) -> dict[str, int]:
    """Return hosts that continued, by at most a time zone, after more than half of all had ended within one hour."""
    newest = sorted(ends.values(), reverse=True)
    half = len(newest) // 2
    # the latest moment before which more than half of the hosts ended, within the limit for silence
    together = (last for last, oldest in zip(newest, newest[half:], strict=False) if last - oldest < SILENT_AFTER_MS)
    last = next(together, newest[0])
    if newest[0] - last > ZONE_MAX_MS:
        return {}
    return {host: end for host, end in ends.items() if end > last}
