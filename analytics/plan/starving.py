"""Teams that wait for GPUs while others leave GPUs unused, compared at the same moments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.capacity.demand import hourly_most
from analytics.intervals import SPAN_MS, by_hour, clip, levels, merge
from analytics.money.priced_segments import NO_ACCOUNT, NO_TEAM, NOT_KNOWN
from analytics.states import IDLE_ALLOCATED
from fallow.clock import HOUR_MS

HoardKind = Literal["idle", "quota"]
"""Allocated and idle GPUs, or a quota of which less than half was needed."""

QUOTA_NEEDED_MAX = 0.5
_NEEDED_SHARE = 0.95


@dataclass(frozen=True)
class StarvingPair:
    """GPU time for which a team waited while another had GPUs unused in the same pool."""

    kind: HoardKind
    starves: str
    hoards: str
    pool: str
    """Empty for a quota."""
    gpu_ms: float
    """GPU time of this pair; it is in no other pair of the kind."""
    waited_ms: float
    """All GPU time for which the team waited."""
    unused_ms: float
    """All GPU time that the other left unused in the pool; for a quota, the unused part of it."""
    needed_share: float | None = None
    """For a quota: the share of it that was enough in 95 % of the hours."""


def starving_pairs(
    waits: pl.DataFrame, allocated: pl.DataFrame, quotas: Mapping[str, float], window: tuple[int, int], held_min_ms: int
) -> tuple[StarvingPair, ...]:
    """Return the pairs, the most GPU time first.

    A team starves while its jobs wait and it has no more than its quota. Without a team, the account or user counts. At
    each moment the waits in a pool are set against the unused GPUs of others there, in proportion. No GPU counts for
    two waiting teams, and no wait for two others.

    `waits` are those of `owner_waits`, `allocated` is `Accounts.allocated`, and `quotas` are by team. Held and reserved
    GPUs count as unused after `held_min_ms`.
    """
    wanting = _waits_under_quota(waits.filter(pl.col("begin") < pl.col("until")), allocated, quotas, window)
    given = allocated.with_columns(owner=_OWNER)
    idle = given.filter(pl.col("state").is_in(IDLE_ALLOCATED) & (pl.col("segment_ms") >= held_min_ms))
    pairs = _quota_pairs(wanting, given, quotas, window)
    for (pool,), waiting in wanting.drop_nulls("pool").group_by("pool"):
        pairs += _idle_pairs(str(pool), waiting, idle.filter(pl.col("pool") == pool))
    return tuple(sorted(pairs, key=lambda each: (-each.gpu_ms, each.starves, each.hoards, each.pool)))


_ACCOUNT = pl.when(pl.col("account") != NO_ACCOUNT).then("account")
_OWNER = pl.when(pl.col("team") != NO_TEAM).then("team").otherwise(pl.coalesce(_ACCOUNT, "user", pl.lit(NOT_KNOWN)))
"""The team, else the account, else the user, if any is known."""


def _waits_under_quota(
    waits: pl.DataFrame, allocated: pl.DataFrame, quotas: Mapping[str, float], window: tuple[int, int]
) -> pl.DataFrame:
    """Return the waits (owner, pool, time, end, gpus) without the time in which their team exceeded its quota."""
    rows = waits.select("team", "pool", "gpus", owner=_OWNER, time="begin", end="until")
    parts = [rows.filter(~pl.col("team").is_in(list(quotas)))]
    given = allocated.filter(pl.col("team").is_in(list(quotas))).partition_by("team", as_dict=True)
    for (team,), own in rows.filter(pl.col("team").is_in(list(quotas))).group_by("team"):
        within = _times_within(given.get((team,), allocated.clear()), quotas[str(team)], window)
        if within == [window]:
            parts.append(own)
        else:
            parts += [
                own.with_columns(
                    time=pl.col("time").clip(lower_bound=since_ms), end=pl.col("end").clip(upper_bound=until_ms)
                )
                for since_ms, until_ms in within
            ]
    return pl.concat(parts).filter(pl.col("time") < pl.col("end"))


def _times_within(allocated: pl.DataFrame, quota: float, window: tuple[int, int]) -> list[tuple[int, int]]:
    """Return the segments of the window in which the allocated GPUs did not exceed the quota."""
    since_ms, until_ms = window
    # a span without weight at the window's start: until the first allocation nothing is had
    start = pl.DataFrame({"time": [since_ms], "end": [since_ms], "gpu_share": [0.0]})
    spans = pl.concat([start, allocated.select("time", "end", pl.col("gpu_share").cast(pl.Float64))])
    counted = levels(spans, weight=pl.col("gpu_share")).filter(pl.col("time") < until_ms)
    fits = counted.filter(pl.col("level") <= quota + 1e-6)
    return merge(fits.with_columns(pl.col("end").fill_null(until_ms).clip(upper_bound=until_ms)), ()).rows()


def _idle_pairs(pool: str, waiting: pl.DataFrame, idle: pl.DataFrame) -> list[StarvingPair]:
    if idle.is_empty():
        return []
    moments = pl.concat([rows[name] for rows in (waiting, idle) for name in ("time", "end")]).unique().sort()
    lasts = np.diff(moments.to_numpy()).astype(np.float64)
    wanted, wanting = _grid(waiting, moments, pl.col("gpus"))
    unused, having = _grid(idle, moments, pl.col("gpu_share"))
    met = _paired_times(wanted, unused, lasts)
    waited_ms, unused_ms = lasts @ wanted, lasts @ unused
    return [
        StarvingPair("idle", starves, hoards, pool, met[row, column], waited_ms[row], unused_ms[column])
        for row, starves in enumerate(wanting)
        for column, hoards in enumerate(having)
        if starves != hoards and met[row, column] > 0
    ]


def _grid(spans: pl.DataFrame, moments: pl.Series, weight: pl.Expr) -> tuple[NDArray[np.float64], list[str]]:
    """Return the GPUs of each owner between each moment and the next, and the owners."""
    owners = spans["owner"].unique().sort().to_list()
    column = {name: place for place, name in enumerate(owners)}
    steps = np.zeros((len(moments), len(owners)))
    at = moments.to_numpy()
    places = np.array([column[name] for name in spans["owner"]], np.int64)
    weights = spans.select(weight.cast(pl.Float64)).to_series().to_numpy()
    np.add.at(steps, (np.searchsorted(at, spans["time"].to_numpy()), places), weights)
    np.add.at(steps, (np.searchsorted(at, spans["end"].to_numpy()), places), -weights)
    return np.clip(np.cumsum(steps, axis=0)[:-1], 0.0, None), owners


def _paired_times(
    wanted: NDArray[np.float64], unused: NDArray[np.float64], lasts: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return by waiting and having owner the GPU time of both at the same moments, in proportion."""
    most = np.maximum(wanted.sum(axis=1), unused.sum(axis=1))
    share = np.divide(lasts, most, out=np.zeros_like(lasts), where=most > 0)
    found: NDArray[np.float64] = (wanted * share[:, None]).T @ unused
    return found


def _quota_pairs(
    wanting: pl.DataFrame, allocated: pl.DataFrame, quotas: Mapping[str, float], window: tuple[int, int]
) -> list[StarvingPair]:
    """Return the pairs for quotas of which 95 % of the hours needed less than half, by hour."""
    hours = np.arange(-(-window[0] // HOUR_MS) * HOUR_MS, window[1] // HOUR_MS * HOUR_MS, HOUR_MS, dtype=np.int64)
    if not quotas or not len(hours) or wanting.is_empty():
        return []
    own = allocated.filter(pl.col("team").is_in(list(quotas)))
    most = {team: np.zeros(len(hours)) for team in quotas}
    for (team,), rows in hourly_most(own, ("team",), *window).group_by("team", maintain_order=True):
        most[str(team)] = rows["most"].to_numpy()
    needed = {
        team: float(np.quantile(level, _NEEDED_SHARE)) / quotas[team] for team, level in most.items() if quotas[team]
    }
    wide = sorted(team for team, share in needed.items() if share < QUOTA_NEEDED_MAX)
    if not wide:
        return []
    unused = np.stack([np.clip(quotas[team] - most[team], 0.0, None) for team in wide], axis=1)
    wanted, owners = _per_hour(wanting, hours)
    met = _paired_times(wanted, unused, np.full(len(hours), float(HOUR_MS)))
    waited_ms, unused_ms = wanted.sum(axis=0) * HOUR_MS, unused.sum(axis=0) * HOUR_MS
    return [
        StarvingPair("quota", starves, hoards, "", met[row, column], waited_ms[row], unused_ms[column], needed[hoards])
        for row, starves in enumerate(owners)
        for column, hoards in enumerate(wide)
        if starves != hoards and met[row, column] > 0
    ]


def _per_hour(wanting: pl.DataFrame, hours: NDArray[np.int64]) -> tuple[NDArray[np.float64], list[str]]:
    """Return the mean GPUs for which each owner waited in each hour, and the owners."""
    inside = by_hour(clip(wanting, int(hours[0]), int(hours[-1]) + HOUR_MS))
    owners = inside["owner"].unique().sort().to_list()
    sums = inside.group_by("owner", "hour").agg(gpus=(SPAN_MS * pl.col("gpus")).sum() / HOUR_MS)
    levels = np.zeros((len(hours), len(owners)))
    places = np.searchsorted(owners, sums["owner"].to_list())
    levels[np.searchsorted(hours, sums["hour"].to_numpy()), places] = sums["gpus"].to_numpy()
    return levels, owners
