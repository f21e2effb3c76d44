"""When in the week GPUs go unused: a share for each of its 168 hours, in the reader's time zone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import tzinfo

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.capacity.off_peak import WEEKS_MOST
from analytics.intervals import clip
from analytics.states import UNUSED
from fallow.clock import MINUTE_MS, WEEK_MS, floor_ms, from_ms

HOURS = 7 * 24
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
    hours = np.array([_hour(int(edge), zone) for edge in edges[:-1]])

    def by_hour(chosen: pl.DataFrame) -> tuple[float, ...]:
        return tuple(np.bincount(hours, _between(chosen, edges), HOURS).tolist())

    return HoursOfWeek(
        since_ms,
        until_ms,
        by_hour(rows.filter(pl.col("state").is_in(UNUSED))),
        by_hour(rows.filter(pl.col("state") != "unknown")),
        by_hour(rows),
    )


def _hour(moment_ms: int, zone: tzinfo) -> int:
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
