"""When in the week GPUs go unused: a share for each of its 168 hours, and the nights and weekends that batch work could have."""

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
from analytics.states import IN_USE, UNUSED
from fallow.clock import MINUTE_MS, WEEK_MS, floor_ms, from_ms

WEEKS_MIN = 4
WEEKS_MOST = 8
QUANTILE = 0.9
HOURS_MIN = 2
RECENT_MS = 30 * MINUTE_MS
SHARE_MIN = 0.1
"""Of the pool, beyond what the median hour of the week leaves: fewer are no reason to wait for the night."""
HOURS = 7 * 24


@dataclass(frozen=True)
class OffPeak:
    """Hours of the week in a time zone in which `gpus` of a pool were not needed in nine weeks of ten.

    `weekday` is 0 for Monday, hours count from its midnight: `until_hour` may lie beyond 24. `weeks` is how many it rests on.
    """

    pool: str
    weekday: int
    from_hour: int
    until_hour: int
    gpus: int
    weeks: int


def off_peak(stretches: pl.DataFrame, pools: Mapping[str, str], until_ms: int, zone: tzinfo) -> tuple[OffPeak, ...]:
    """Windows of at least two hours in which N - Q90(D) of a pool is clearly more than in the median hour; by pool and hour.

    D is the most GPUs at once in each hour that worked within the last 30 minutes, N the most GPUs of the pool that were in
    the ledger. Of pools seen for less than four weeks there is nothing to say; hours in which more than a tenth was unknown
    do not count.

    Args:
        stretches: the ledger's rows up to `until_ms`.
        pools: the pool of each GPU.
        until_ms: the end of the weeks looked at.
        zone: in which the hours of the week are.
    """
    since_ms = until_ms - WEEKS_MOST * WEEK_MS
    named = pl.DataFrame(
        {"gpu": list(pools), "pool": list(pools.values())}, schema={"gpu": pl.String, "pool": pl.String}
    )
    rows = stretches.filter((pl.col("end") > since_ms) & (pl.col("time") < until_ms)).join(named, on="gpu")
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
            found += _windows(str(pool), unused, float(own["there"].max()), weeks)  # type: ignore[arg-type]  # never empty
    return tuple(sorted(found, key=lambda each: (each.pool, each.weekday, each.from_hour)))


def _hours(rows: pl.DataFrame, named: pl.DataFrame, since_ms: int, until_ms: int) -> pl.DataFrame:
    """Per pool and hour the most GPUs at once that were `there`, `needed` and `unknown`."""
    spans = {
        "there": rows,
        "needed": merge(rows.filter(pl.col("state").is_in(IN_USE)), tail_ms=RECENT_MS).join(named, on="gpu"),
        "unknown": rows.filter(pl.col("state") == "unknown"),
    }
    return hourly_levels(spans, ("pool",), since_ms, until_ms)


def _unused(hours: pl.DataFrame, zone: tzinfo) -> list[int] | None:
    """GPUs not needed in each of the week's 168 hours; None where an hour was never seen well."""
    known = hours.filter(pl.col("unknown") <= 0.1 * pl.col("there"))
    there = float(known["there"].max() or 0.0)  # type: ignore[arg-type]
    by_hour: dict[int, list[float]] = {}
    for moment_ms, needed in known.select("time", "needed").iter_rows():
        by_hour.setdefault(hour_of_week(moment_ms, zone), []).append(needed)
    if len(by_hour) < HOURS:
        return None
    # the least value that nine tenths do not exceed
    needed_by_hour = {
        hour: sorted(values)[max(0, math.ceil(round(QUANTILE * len(values), 6)) - 1)]
        for hour, values in by_hour.items()
    }
    return [max(0, math.floor(there - needed_by_hour[hour] + 1e-6)) for hour in range(HOURS)]


def _windows(pool: str, unused: Sequence[int], gpus: float, weeks: int) -> Iterator[OffPeak]:
    """Runs of hours with clearly more unused than in the median hour; one that reaches over Sunday's end begins there."""
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
"""Every zone's distance from UTC is whole quarters of an hour, so that none of them lies in two hours."""


@dataclass(frozen=True)
class HoursOfWeek:
    """GPU time by hour of the week, Monday's first hour first; in milliseconds, a MIG instance counting as its part.

    `since_ms` to `until_ms` is what was looked at: whole weeks, or less than one where no more is known.
    """

    since_ms: int
    until_ms: int
    unused_ms: tuple[float, ...]
    observed_ms: tuple[float, ...]
    total_ms: tuple[float, ...]

    @property
    def weeks(self) -> float:
        """How many weeks it rests on; not whole below one."""
        return (self.until_ms - self.since_ms) / WEEK_MS

    @property
    def shares(self) -> tuple[float | None, ...]:
        """Unused share of the observed time in each hour; None where nothing was observed."""
        pairs = zip(self.unused_ms, self.observed_ms, strict=True)
        return tuple(unused / observed if observed else None for unused, observed in pairs)

    @property
    def coverage(self) -> float | None:
        """Observed share of all GPU time; None where there is none."""
        return sum(self.observed_ms) / total if (total := sum(self.total_ms)) else None


def hours_of_week(stretches: pl.DataFrame, until_ms: int, zone: tzinfo) -> HoursOfWeek | None:
    """The last eight weeks before a moment, or as many whole ones as are known; None without any row before it.

    An hour that a change of clocks repeats or leaves out counts with the time that it really had.

    Args:
        stretches: the ledger's rows: `time`, `end`, `state` and `gpu_share`.
        until_ms: the end of the weeks looked at.
        zone: in which the hours of the week are.
    """
    rows = clip(stretches.select("time", "end", "state", "gpu_share"), until_ms - WEEKS_MOST * WEEK_MS, until_ms)
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
    """The hour of the week in a zone that a moment lies in; 0 is Monday's first."""
    local = from_ms(moment_ms).astimezone(zone)
    return local.weekday() * 24 + local.hour


def _between(rows: pl.DataFrame, edges: NDArray[np.int64]) -> NDArray[np.float64]:
    """GPU time between neighbouring edges: what all rows together had up to each edge, and the differences."""
    first = edges[0]
    start, end = (rows[name].to_numpy() - first for name in ("time", "end"))
    share = rows["gpu_share"].to_numpy()
    at = (edges - first).astype(np.float64)
    return np.diff(_until(at, start, share) - _until(at, end, share))


def _until(at: NDArray[np.float64], since: NDArray[np.int64], share: NDArray[np.float64]) -> NDArray[np.float64]:
    """Per moment, the time since each of `since` that lies before it, added up with its share."""
    order = np.argsort(since, kind="stable")
    weights = np.concatenate([[0.0], np.cumsum(share[order])])
    moments = np.concatenate([[0.0], np.cumsum(share[order] * since[order])])
    before = np.searchsorted(since[order], at, side="left")
    found: NDArray[np.float64] = at * weights[before] - moments[before]
    return found
