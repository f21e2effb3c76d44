"""The largest saving from moving deferrable work into cleaner hours with free GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import tzinfo

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.capacity.jobs import POOL_MODEL
from analytics.frames import with_mapped
from analytics.money.carbon import FREE, NOTHING, USED, CarbonSum, carbon_sums
from analytics.money.energy import MJ_PER_KWH
from analytics.money.owners import Owners
from analytics.plan.replay.replay_jobs import AWAITED
from analytics.small_tables import read_small
from analytics.solver import one_thread_solver, program_of_sums
from analytics.workloads.cards import job_kind
from analytics.workloads.sharing import is_best_effort
from fallow import schema
from fallow.clock import HOUR_MS, from_ms
from fallow.lake import Lake


def job_names(lake: Lake) -> pl.DataFrame:
    """Return `job` (its id), `name`, `partition` and `qos` of jobs that had GPUs; raises LakeError and its kinds.

    The function reads only these columns: `analytics.capacity.jobs` reads more and takes several times as long.
    """
    return read_small(lake, schema.ALLOCATION, ("allocation_id", "name", "partition", "qos")).rename(
        {"allocation_id": "job"}
    )


def with_deferrable(rows: pl.DataFrame, jobs: pl.DataFrame, owners: Owners) -> pl.DataFrame:
    """Return the rows with `is_deferrable`: a single Slurm job whose names say that it can wait, or best-effort work.

    The names of a job are its own, its partition's and its QOS's. Best-effort is a priority class of the owners table.
    Pods, Ray jobs and processes without a job may serve users, and several jobs may share GPUs: such rows are
    deferrable only as best-effort work.

    `rows` has `job` as in the ledger, `user` and `account`; `jobs` are those of `job_names`.
    """
    names = pl.concat_str("name", "partition", "qos", separator=" ", ignore_nulls=True)
    # by the id alone, for one job may be known from two sources
    awaited = frozenset(jobs.filter(names.str.contains(AWAITED))["job"].drop_nulls())

    def flag(job: str | None, user: str | None, account: str | None) -> tuple[bool]:
        is_one_slurm_job = job is not None and "+" not in job and job_kind([job]) == "slurm"
        is_batch = is_one_slurm_job and str(job).partition(":")[2] not in awaited
        return (is_batch or is_best_effort(owners, user, account),)

    return with_mapped(rows, ("job", "user", "account"), {"is_deferrable": pl.Boolean()}, flag)


Floats = NDArray[np.float64]
_STAY = 1e-6
"""Cost of an hour of delay, as a share of the mean cost. Of two equally good plans, the one that moves less wins."""


@dataclass(frozen=True)
class LaterWork:
    """Work by original hour (rows) and by hours of delay (columns, from 0)."""

    moved: Floats
    prices: Floats
    """Value of an additional free GPU-hour in each hour, in weight times rate: the duals of the linear program."""


def moved_work(work: Floats, weight: Floats, room: Floats, rate: Floats, most_hours: int) -> LaterWork:
    """Return how much work of each hour moves by how many hours, at the lowest total of weight times rate.

    A transport problem, solved as a linear program with HiGHS. Work can be divided freely and interrupted at every
    hour. By hour, `work` are GPU-hours that may move, `weight` is that of a GPU-hour, `room` are free GPU-hours beside
    the work's own, and `rate` is the cost of a unit of weight: NaN is unknown, and no work leaves or enters such an
    hour.
    """
    hours = len(work)
    start, delay = (each.ravel() for each in np.meshgrid(np.arange(hours), np.arange(most_hours + 1), indexing="ij"))
    known = np.isfinite(rate)
    inside = start + delay < hours
    target = np.where(inside, start + delay, 0)
    ways = np.flatnonzero(inside & (work[start] > 0) & known[start] & known[target])
    moved, prices = np.zeros((hours, most_hours + 1)), np.zeros(hours)
    moved[~known, 0] = work[~known]
    if len(ways):
        cost = weight[start[ways]] * rate[target[ways]]
        cost += _STAY * float(cost.mean()) * delay[ways]
        # a row for the work that leaves each hour, one for what each hour receives: all may stay, so there is a plan
        leaving = np.where(np.isin(np.arange(hours), start[ways]), work, 0.0)
        sums = np.concatenate((leaving, np.full(hours, -np.inf))), np.concatenate((leaving, work + room))
        rows = np.stack((start[ways], target[ways] + hours), axis=1).ravel()
        solver = one_thread_solver()
        solver.passModel(program_of_sums(cost, np.inf, sums, np.arange(0, len(rows) + 1, 2), rows))
        solver.run()
        found = solver.getSolution()
        values, duals = np.asarray(found.col_value, np.float64), np.asarray(found.row_dual, np.float64)
        moved[start[ways], delay[ways]], prices = values, np.maximum(-duals[hours:], 0.0)
    return LaterWork(moved, prices)


def least_rates(start: NDArray[np.int64], weight: Floats, rate: Floats, prices: Floats, most_hours: int) -> Floats:
    """Return the lowest cost of a GPU-hour of each item of work: its weight at an hour's rate, plus the hour's price.

    Summed over all work, minus the value of all room at these prices, the result never exceeds the cost of the best
    plan, for any prices of 0 or more (weak duality). Every item has its own weight here; `moved_work` has a single
    weight per hour. `start` is the index of each item's hour, whose rate is known.
    """
    ahead = np.full(most_hours, np.nan)
    rates, priced = np.concatenate((rate, ahead)), np.concatenate((prices, ahead))
    least = np.full(len(start), np.inf)
    for delay in range(most_hours + 1):
        least = np.fmin(least, weight * rates[start + delay] + priced[start + delay])
    return least


@dataclass(frozen=True)
class HourOfDay:
    """An hour of the day: the grid's mean intensity (None if never known), mean free GPUs, and deferrable energy."""

    hour: int
    g_per_kwh: float | None
    free_gpus: float
    mj: float
    """Energy at the GPUs as measured, in millijoules."""
    best_mj: float
    """Energy at the GPUs under the best plan, in millijoules."""


@dataclass(frozen=True)
class Deferral:
    """The saving from moving deferrable work by up to `most_hours`, in grams, over all pools."""

    most_hours: int
    work: CarbonSum
    """All deferrable work."""
    moved_mj: float
    """Energy that the best plan moves."""
    saved_g: float
    """Saving of the best plan that moves all work of an hour in a pool and model alike."""
    most_saved_g: float
    """Upper bound: no plan saves more."""
    hours: tuple[HourOfDay, ...]
    without_floor: tuple[str, ...]
    """Models of unknown free power: all energy of their moved work counts as saved, not only that above free power."""


@dataclass(frozen=True)
class _Moves:
    """Moves of a pool and model or of several: energy by hour before and after, moved energy, and the gain."""

    before_mj: Floats
    after_mj: Floats
    moved_mj: float = 0.0
    gain: float = 0.0
    """The saving, in millijoules times g/kWh."""
    most_gain: float = 0.0
    """Upper bound of the gain over all plans."""

    def __add__(self, other: _Moves) -> _Moves:
        return _Moves(
            self.before_mj + other.before_mj,
            self.after_mj + other.after_mj,
            self.moved_mj + other.moved_mj,
            self.gain + other.gain,
            self.most_gain + other.most_gain,
        )


def _moves(work: pl.DataFrame, room_ms: Floats, rate: Floats, most_hours: int) -> _Moves:
    """Return the best plan that moves all work of an hour alike, and a bound for plans that choose among the work.

    `work` has `place` (index of its hour), `gpu_ms`, `energy_mj` and `beyond_mj`, its energy above that of a free GPU.
    """
    place = work["place"].to_numpy()
    gpu_ms, mj, beyond = (_by_hour(work, name, len(rate)) for name in ("gpu_ms", "energy_mj", "beyond_mj"))
    mean, weight = (np.divide(each, gpu_ms, out=np.zeros(len(rate)), where=gpu_ms > 0) for each in (mj, beyond))
    later = moved_work(gpu_ms / HOUR_MS, weight, room_ms / HOUR_MS, rate, most_hours)
    spent = later.moved * HOUR_MS
    start, delay = np.nonzero(spent)
    part, is_late = spent[start, delay], delay > 0
    gain = (part * weight[start])[is_late] @ (rate[start] - rate[start + delay])[is_late]
    own = work.filter(pl.col("gpu_ms") > 0, pl.Series(np.isfinite(rate)[place]))
    own_ms, at = own["gpu_ms"].to_numpy(), own["place"].to_numpy()
    own_weight = own["beyond_mj"].to_numpy() / own_ms
    least = least_rates(at, own_weight, rate, later.prices, most_hours)
    most_gain = own_ms @ (own_weight * rate[at] - least) + (gpu_ms + room_ms) @ later.prices
    after = np.bincount(start + delay, part * mean[start], len(rate)).astype(np.float64)
    return _Moves(mj, after, float((part * mean[start])[is_late].sum()), float(gain), float(most_gain))


@dataclass(frozen=True)
class GridHours:
    """The hours of a window: `hour` and `g_per_kwh`."""

    hours: pl.DataFrame
    zone: tzinfo
    pue: float
    """Energy that the site uses per unit of energy at the GPUs."""


def find_deferral(rows: pl.DataFrame, grid: GridHours, floors: Mapping[str, float], most_hours: int) -> Deferral:
    """Return the best plan, found for each pool and model separately.

    A free GPU draws power too. Only the power of work above that of the same model's free GPUs moves.

    `rows` are those of `hourly_energy`, with `is_deferrable`; `floors` are watts of free GPUs by model. No work waits
    longer than `most_hours`.
    """
    hours = grid.hours.with_row_index("place")
    whole = rows.filter(~pl.col("instance")).with_columns(pl.col("energy_mj", "energy_known_ms").fill_null(0.0))
    whole = whole.join(hours.select("hour", "place"), on="hour", maintain_order="left")
    floor = pl.col("model").replace_strict(floors, default=0.0, return_dtype=pl.Float64)
    # unknown energy moves along and counts nothing
    beyond = (pl.col("energy_mj") - floor * pl.col("energy_known_ms")).clip(0.0)
    work = whole.filter("is_deferrable", pl.col("part") == USED).with_columns(beyond_mj=beyond)
    idle = whole.filter(pl.col("part") == FREE)
    rate = hours["g_per_kwh"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    found = _Moves(np.zeros(len(rate)), np.zeros(len(rate)))
    places = work.partition_by(POOL_MODEL, as_dict=True)
    for (pool, model), own in places.items():
        there = idle.filter(pool=pool, model=model)
        found += _moves(own, _by_hour(there, "gpu_ms", len(rate)), rate, most_hours)
    return Deferral(
        most_hours=most_hours,
        work=carbon_sums(work.with_columns(all=pl.lit("")), ("all",)).get(("",), NOTHING),
        moved_mj=found.moved_mj,
        saved_g=found.gain / MJ_PER_KWH * grid.pue,
        most_saved_g=found.most_gain / MJ_PER_KWH * grid.pue,
        hours=_hours_of_day(grid, _by_hour(idle, "gpu_ms", len(rate)), found),
        without_floor=tuple(sorted({str(model) for _, model in places} - floors.keys())),
    )


def _by_hour(rows: pl.DataFrame, name: str, hours: int) -> Floats:
    """Return the sums of a column by index of the hour."""
    return np.bincount(rows["place"].to_numpy(), rows[name].to_numpy(), hours).astype(np.float64)


def _hours_of_day(grid: GridHours, free_ms: Floats, found: _Moves) -> tuple[HourOfDay, ...]:
    local = [from_ms(moment).astimezone(grid.zone).hour for moment in grid.hours["hour"]]
    table = grid.hours.with_columns(
        local=pl.Series(local),
        free=pl.Series(free_ms),
        before=pl.Series(found.before_mj),
        after=pl.Series(found.after_mj),
    )
    sums = table.group_by("local").agg(
        pl.col("g_per_kwh").mean(), pl.col("free").mean() / HOUR_MS, pl.col("before", "after").sum()
    )
    return tuple(HourOfDay(*row) for row in sums.sort("local").iter_rows())
