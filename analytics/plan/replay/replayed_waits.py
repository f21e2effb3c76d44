"""How long jobs waited, observed and replayed, and whether a replay of today reproduces what was observed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import polars as pl

from analytics.intervals import SPAN_MS, clip
from analytics.plan.replay.engine import Replayed
from analytics.states import ALLOCATED, WITHOUT_EVIDENCE
from fallow.clock import HOUR_MS

JUDGED = ~pl.col("before_window") & pl.col("asked").is_not_null()
"""Whether a job (REPLAY_JOB_SCHEMA) has a wait: it did not run before the window, and its request time is known."""


@dataclass(frozen=True)
class WaitFigures:
    """Queue waits of jobs. Mean and quantiles (interpolated between the nearest two jobs) are None without jobs."""

    jobs: int
    """How many jobs have a wait."""
    open_jobs: int
    """The jobs that had not started by the end of the window."""
    mean_ms: float | None
    p50_ms: float | None
    p95_ms: float | None
    gpu_ms: float
    """The sum of each job's wait times its GPUs."""


def with_waits(jobs: pl.DataFrame, begin: pl.Expr, until_ms: int) -> pl.DataFrame:
    """Return the judged jobs with `wait_ms`, up to the end of the window at most, and `is_open`.

    `jobs` has REPLAY_JOB_SCHEMA; `begin` is null where a job never began.
    """
    stop = pl.min_horizontal(begin, pl.lit(until_ms))
    return jobs.filter(JUDGED).with_columns(
        wait_ms=(stop - pl.col("asked")).clip(lower_bound=0), is_open=begin.is_null() | (begin >= until_ms)
    )


def wait_figures(jobs: pl.DataFrame) -> WaitFigures:
    """Return the waits of jobs with `wait_ms`, `is_open` and `gpus`."""
    wait = pl.col("wait_ms")
    row = jobs.select(
        pl.len(),
        pl.col("is_open").sum(),
        wait.mean().alias("mean"),
        wait.quantile(0.5, "linear").alias("p50"),
        wait.quantile(0.95, "linear").alias("p95"),
        (wait * pl.col("gpus")).sum().alias("gpu_ms"),
    ).row(0)
    return WaitFigures(*row)


WHOSE = ("team", "pool")
"""Columns of the jobs that separate delays."""

Delays: TypeAlias = Mapping[tuple[str | None, str], Sequence[int]]

_GOLDEN = 0.6180339887498949
"""Multiples of it, less their whole parts, fill the numbers from 0 to 1 evenly from the first few on."""

LEARNT_JOBS_MIN = 10
"""Fewer jobs of a team in a pool say nothing of the others."""


def learnt_delays(jobs: pl.DataFrame, runs: pl.DataFrame, until_ms: int) -> Delays:
    """Return, by WHOSE, how much longer jobs waited than replayed, in ms, in order and at least 0.

    `jobs` has REPLAY_JOB_SCHEMA, and `runs` has `analytics.plan.replay.engine.RUN_SCHEMA`.
    """
    replayed = jobs.join(runs.select("number", "begin"), on="number")
    then = with_waits(replayed, pl.col("begin"), until_ms).select("number", then="wait_ms")
    both = with_waits(jobs, pl.col("started"), until_ms).join(then, on="number")
    longer = both.group_by(WHOSE).agg(delay=(pl.col("wait_ms") - pl.col("then")).clip(lower_bound=0).sort())
    return {(team, pool): own for team, pool, own in longer.iter_rows() if len(own) >= LEARNT_JOBS_MIN}


def with_delays(jobs: pl.DataFrame, delays: Delays) -> pl.DataFrame:
    """Return the jobs, each delayed by one of its team and pool's delays, in an order mixing long and short ones."""
    parts = []
    for (team, pool), own in (
        jobs.sort("asked", "number").partition_by(WHOSE, maintain_order=True, as_dict=True).items()
    ):
        known = delays.get((team, pool), ())
        turns = [known[int(turn * _GOLDEN % 1 * len(known))] if known else 0 for turn in range(own.height)]
        later = pl.col("asked") + pl.Series(turns, dtype=pl.Int64)
        parts.append(own.with_columns(asked=pl.when(JUDGED).then(later).otherwise("asked")))
    return pl.concat(parts).sort("number") if delays else jobs


WAIT_FLOOR_MS = HOUR_MS
"""Errors of shorter waits are shares of this: no plan depends on minutes."""

JOBS_MIN = 20
"""With fewer jobs the 95th percentile means nothing."""


@dataclass(frozen=True)
class CheckedWaits:
    """Waits, observed and replayed, of jobs that asked from `since_ms` on."""

    observed: WaitFigures
    replayed: WaitFigures

    @property
    def error(self) -> float | None:
        """Return the larger error of the median and of the 95th percentile; None with fewer than JOBS_MIN jobs."""
        if self.observed.jobs < JOBS_MIN:
            return None
        pairs = ((self.replayed.p50_ms, self.observed.p50_ms), (self.replayed.p95_ms, self.observed.p95_ms))
        return max(error for pair in pairs if (error := self.error_of(*pair)) is not None)

    @staticmethod
    def error_of(replayed_ms: float | None, observed_ms: float | None) -> float | None:
        """Return the error of a wait as a share of the observed wait, or of WAIT_FLOOR_MS if that is longer."""
        if replayed_ms is None or observed_ms is None:
            return None
        return abs(replayed_ms - observed_ms) / max(observed_ms, WAIT_FLOOR_MS)


@dataclass(frozen=True)
class CheckedUse:
    """What part of the GPU time was given out, observed and replayed; None where nothing was observed."""

    observed: float | None
    replayed: float | None

    @property
    def error(self) -> float | None:
        """Return the error as a share of the observed use, or of all where that is 0; None if nothing was observed."""
        if self.observed is None or self.replayed is None:
            return None
        return abs(self.replayed - self.observed) / (self.observed or 1.0)


@dataclass(frozen=True)
class CheckedPool:
    """What is checked of one pool; `pool` is None for all of them."""

    pool: str | None
    waits: CheckedWaits
    use: CheckedUse


@dataclass(frozen=True)
class ReplayCheck:
    """The replay of today against observation: waits and allocated GPU time of all jobs, and of each pool by name."""

    since_ms: int
    """Waits are judged by jobs submitted from here on, the middle of the window: earlier jobs determined the order."""
    waits: CheckedWaits
    use: CheckedUse
    pools: tuple[CheckedPool, ...]
    error_max: float
    """The replay gives no figures that are off by more."""

    @property
    def has_waits(self) -> bool:
        """Return whether the replay explains all jobs' queue waits to `error_max`; False with too few waits."""
        return self.waits.error is not None and self._is_near(self.waits.error)

    @property
    def pools_with_waits(self) -> tuple[str, ...]:
        """Return the pools whose queue waits the replay of today explains to `error_max`."""
        errors = {each.pool: each.waits.error for each in self.pools}
        return tuple(pool for pool, error in errors.items() if pool and error is not None and self._is_near(error))

    def _is_near(self, error: float) -> bool:
        return self.has_use and error <= self.error_max

    @property
    def has_use(self) -> bool:
        """Return whether the replay explains the allocated GPU time to `error_max`."""
        return self.use.error is not None and self.use.error <= self.error_max


def check_replay(
    jobs: pl.DataFrame,
    placed: pl.DataFrame,
    replayed: Replayed,
    window: tuple[int, int],
    *,
    judged_from_ms: int,
    error_max: float,
) -> ReplayCheck:
    """Return the comparison of a replay of today with what was observed.

    `jobs` has REPLAY_JOB_SCHEMA; `placed` are the ledger's rows of whole GPUs in the window, with `pool`. Jobs that
    asked before `judged_from_ms` are not judged. A replay with an error beyond `error_max` shows no figures.
    """
    late = jobs.filter(pl.col("asked") >= judged_from_ms)
    pools = sorted({group.pool for group in replayed.fleet.groups})
    held = clip(replayed.holds, *window, sums=()).group_by("pool").agg((SPAN_MS * pl.col("gpus")).sum())
    seen, given = _observed_use(placed), dict(held.iter_rows())
    there = {pool: sum(group.gpus for group in replayed.fleet.groups if group.pool == pool) for pool in pools}
    span = window[1] - window[0]
    uses = {pool: given.get(pool, 0.0) for pool in pools}
    observed, known = (sum(each[place] for each in seen.values()) for place in (0, 1))
    return ReplayCheck(
        since_ms=judged_from_ms,
        waits=checked_waits(late, replayed.runs, window[1]),
        use=CheckedUse(_share(observed, known), _share(sum(uses.values()), sum(there.values()) * span)),
        pools=tuple(
            CheckedPool(
                pool,
                checked_waits(late, replayed.runs, window[1], pool),
                CheckedUse(_share(*seen.get(pool, (0.0, 0.0))), _share(uses[pool], there[pool] * span)),
            )
            for pool in pools
        ),
        error_max=error_max,
    )


def checked_waits(jobs: pl.DataFrame, runs: pl.DataFrame, until_ms: int, pool: str | None = None) -> CheckedWaits:
    """Return the waits of jobs, of one pool or of all, as observed and as replayed."""
    own = jobs if pool is None else jobs.filter(pl.col("pool") == pool)
    found = own.join(runs.select("number", "begin"), on="number", how="left")
    return CheckedWaits(
        wait_figures(with_waits(found, pl.col("started"), until_ms)),
        wait_figures(with_waits(found, pl.col("begin"), until_ms)),
    )


def mean_error_ms(jobs: pl.DataFrame, runs: pl.DataFrame, until_ms: int) -> float:
    """Return the mean absolute difference between a job's replayed and observed wait; 0 if no job has a wait."""
    found = jobs.join(runs.select("number", "begin"), on="number", how="left")
    seen, then = (with_waits(found, pl.col(name), until_ms)["wait_ms"] for name in ("started", "begin"))
    return float((seen - then).abs().mean() or 0.0)  # type: ignore[arg-type]  # of integers


def mean_waiting(jobs: pl.DataFrame, runs: pl.DataFrame, since_ms: int, until_ms: int) -> float:
    """Return the mean number of simultaneously waiting jobs in a replay, from one moment to another."""
    found = jobs.join(runs.select("number", "begin"), on="number", how="left")
    return float(with_waits(found, pl.col("begin"), until_ms)["wait_ms"].sum()) / max(until_ms - since_ms, 1)


def _observed_use(placed: pl.DataFrame) -> Mapping[str, tuple[float, float]]:
    """Return, by pool, the allocated and the observed GPU time."""
    known = ~pl.col("state").is_in(WITHOUT_EVIDENCE)
    found = placed.group_by("pool").agg(
        given=SPAN_MS.filter(pl.col("state").is_in(ALLOCATED)).sum(), known=SPAN_MS.filter(known).sum()
    )
    return {pool: (given, seen) for pool, given, seen in found.iter_rows()}


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None
