"""Unused GPUs by hour of the week, and the nights and weekends in which batch work could use them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.capacity.demand import hourly_levels
from analytics.intervals import clip, merge
from analytics.proportions import whole_ceil
from analytics.states import IN_USE, UNUSED
from fallow.clock import MINUTE_MS, WEEK_MS, floor_ms, from_ms

WEEKS_MIN = 4
WEEKS_MOST = 8
QUANTILE = 0.9
HOURS_MIN = 2
RECENT_MS = 30 * MINUTE_MS
SHARE_MIN = 0.1
"""Share of the pool beyond the unused GPUs of the median hour. Fewer GPUs are no reason to wait for the night."""
HOURS = 7 * 24


@dataclass(frozen=True)
class OffPeak:
    """Hours of the week in a time zone in which `gpus` of a pool were not needed in nine of ten weeks."""

    pool: str
    weekday: int
    """0 is Monday."""
    from_hour: int
    """Hours from midnight of the weekday."""
    until_hour: int
    """May exceed 24."""
    gpus: int
    weeks: int
    """Number of weeks that the result rests on."""


def off_peak(segments: pl.DataFrame, pools: Mapping[str, str], until_ms: int, zone: tzinfo) -> tuple[OffPeak, ...]:
    """Return windows in which N - Q90(D) of a pool clearly exceeds that of the median hour, by pool and hour.

    D is the most GPUs at once in each hour that worked within the last 30 minutes. N is the most GPUs of the pool in
    the ledger. A window has at least two hours. Pools observed for less than four weeks are left out. Hours with more
    than a tenth unknown do not count.

    `segments` reach up to `until_ms`, the end of the weeks; their hours are those of `zone`.
    """
    since_ms = until_ms - WEEKS_MOST * WEEK_MS
    named = pl.DataFrame(
        {"gpu": list(pools), "pool": list(pools.values())}, schema={"gpu": pl.String, "pool": pl.String}
    )
    rows = segments.filter((pl.col("end") > since_ms) & (pl.col("time") < until_ms)).join(named, on="gpu")
    if rows.is_empty():
        return ()
    first_ms = max(since_ms, int(rows["time"].min()))  # type: ignore[arg-type]  # not empty
    weeks = (until_ms - first_ms) // WEEK_MS
    if weeks < WEEKS_MIN:
        return ()
    since_ms = until_ms - weeks * WEEK_MS
    hours = _hours(rows, named, since_ms, until_ms)
    found: list[OffPeak] = []
    for (pool,), own in hours.partition_by("pool", as_dict=True).items():
        unused = _unused(own, zone)
        if unused is not None:
            found += _windows(str(pool), unused, float(own["there"].max()), weeks)  # type: ignore[arg-type]  # has rows
    return tuple(sorted(found, key=lambda each: (each.pool, each.weekday, each.from_hour)))


def _hours(rows: pl.DataFrame, named: pl.DataFrame, since_ms: int, until_ms: int) -> pl.DataFrame:
    """Return by pool and hour the most GPUs at once that were `there`, `needed` and `unknown`."""
    spans = {
        "there": rows,
        "needed": merge(rows.filter(pl.col("state").is_in(IN_USE)), tail_ms=RECENT_MS).join(named, on="gpu"),
        "unknown": rows.filter(pl.col("state") == "unknown"),
    }
    return hourly_levels(spans, ("pool",), since_ms, until_ms)


def _unused(hours: pl.DataFrame, zone: tzinfo) -> list[int] | None:
    """Return the unneeded GPUs in each of the week's 168 hours; None if an hour was never observed well."""
    known = hours.filter(pl.col("unknown") <= 0.1 * pl.col("there"))
    there = float(known["there"].max() or 0.0)  # type: ignore[arg-type]
    by_hour: dict[int, list[float]] = {}
    for moment_ms, needed in known.select("time", "needed").iter_rows():
        by_hour.setdefault(hour_of_week(moment_ms, zone), []).append(needed)
    if len(by_hour) < HOURS:
        return None
    # the least value that nine tenths do not exceed
    needed_by_hour = {
        hour: sorted(values)[max(0, whole_ceil(QUANTILE * len(values)) - 1)] for hour, values in by_hour.items()
    }
    return [max(0, math.floor(there - needed_by_hour[hour] + 1e-6)) for hour in range(HOURS)]


def _windows(pool: str, unused: Sequence[int], gpus: float, weeks: int) -> Iterator[OffPeak]:
    """Yield runs of hours with clearly more unused GPUs than the median hour.

    A run over the end of Sunday is a single window that starts before it.
    """
    least = sorted(unused)[HOURS // 2] + max(1, math.ceil(SHARE_MIN * gpus))
    enough = [each >= least for each in unused]
    if all(enough) or not any(enough):
        return
    first = next(hour for hour in range(HOURS) if enough[hour] and not enough[hour - 1])
    start = None
    for hour in range(first, first + HOURS + 1):
        there = enough[hour % HOURS] and hour < first + HOURS
        if there and start is None:
            start = hour
        if not there and start is not None:
            if hour - start >= HOURS_MIN:
                gpus_unused = min(unused[each % HOURS] for each in range(start, hour))
                begin = start % HOURS
                yield OffPeak(pool, begin // 24, begin % 24, begin % 24 + hour - start, gpus_unused, weeks)
            start = None


_SLOT_MS = 15 * MINUTE_MS
"""Every zone's offset from UTC is a multiple of 15 minutes, so no slot lies in two hours."""


@dataclass(frozen=True)
class HoursOfWeek:
    """GPU time by hour of the week, Monday's first hour first, in milliseconds. A MIG instance counts its share.

    `since_ms` to `until_ms` is the observed time: whole weeks, or less than a week if no more is known.
    """

    since_ms: int
    until_ms: int
    unused_ms: tuple[float, ...]
    observed_ms: tuple[float, ...]
    total_ms: tuple[float, ...]

    @property
    def weeks(self) -> float:
        """Return the number of weeks that the result rests on; may be a fraction below one."""
        return (self.until_ms - self.since_ms) / WEEK_MS

    @property
    def shares(self) -> tuple[float | None, ...]:
        """Return the unused share of the observed time in each hour; None in hours without observation."""
        pairs = zip(self.unused_ms, self.observed_ms, strict=True)
        return tuple(unused / observed if observed else None for unused, observed in pairs)

    @property
    def coverage(self) -> float | None:
        """Return the observed share of all GPU time; None without any."""
        return sum(self.observed_ms) / total if (total := sum(self.total_ms)) else None


def hours_of_week(segments: pl.DataFrame, until_ms: int, zone: tzinfo) -> HoursOfWeek | None:
    """Return the last eight weeks before a moment, or as many whole weeks as are known; None without any row before it.

    An hour that a clock change repeats or skips counts with its real time.

    `segments` has `time`, `end`, `state` and `gpu_share`.
    """
    rows = clip(segments.select("time", "end", "state", "gpu_share"), until_ms - WEEKS_MOST * WEEK_MS, until_ms)
    if rows.is_empty():
        return None
    known_ms = until_ms - int(rows["time"].min())  # type: ignore[arg-type]  # not empty
    since_ms = until_ms - (known_ms // WEEK_MS * WEEK_MS or known_ms)
    rows = clip(rows, since_ms)
    inner = np.arange(floor_ms(since_ms, _SLOT_MS) + _SLOT_MS, until_ms, _SLOT_MS, dtype=np.int64)
    edges = np.concatenate([[since_ms], inner, [until_ms]])
    hours = np.array([hour_of_week(int(edge), zone) for edge in edges[:-1]])

    def by_hour(chosen: pl.DataFrame) -> tuple[float, ...]:
        return tuple(np.bincount(hours, _between(chosen, edges), HOURS).tolist())

    return HoursOfWeek(
        since_ms,
        until_ms,
        by_hour(rows.filter(pl.col("state").is_in(UNUSED))),
        by_hour(rows.filter(pl.col("state") != "unknown")),
        by_hour(rows),
    )


def hour_of_week(moment_ms: int, zone: tzinfo) -> int:
    """Return the hour of the week that contains a moment in a zone; 0 is Monday's first."""
    local = from_ms(moment_ms).astimezone(zone)
    return local.weekday() * 24 + local.hour


def _between(rows: pl.DataFrame, edges: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the GPU time between neighbouring edges: the differences of the total GPU time up to each edge."""
    first = edges[0]
    start, end = (rows[name].to_numpy() - first for name in ("time", "end"))
    share = rows["gpu_share"].to_numpy()
    at = (edges - first).astype(np.float64)
    return np.diff(_until(at, start, share) - _until(at, end, share))


def _until(at: NDArray[np.float64], since: NDArray[np.int64], share: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return for each moment the sum of the times since each earlier value of `since`, weighted by `share`."""
    order = np.argsort(since, kind="stable")
    weights = np.concatenate([[0.0], np.cumsum(share[order])])
    moments = np.concatenate([[0.0], np.cumsum(share[order] * since[order])])
    before = np.searchsorted(since[order], at, side="left")
    found: NDArray[np.float64] = at * weights[before] - moments[before]
    return found
