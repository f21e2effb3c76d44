"""The energy of GPU time hour by hour, and what moving deferrable work into cleaner hours, in which GPUs stood free, saves at most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import tzinfo
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.frames import with_mapped
from analytics.money.energy import MJ_PER_KWH
from analytics.money.owners import Owners
from analytics.plan.replay.replay_jobs import AWAITED
from analytics.small_tables import read_small
from analytics.solver import one_thread_solver
from analytics.workloads.cards import job_kind
from analytics.workloads.sharing import is_best_effort
from fallow import schema
from fallow.clock import HOUR_MS, from_ms
from fallow.lake import Lake

if TYPE_CHECKING:
    from highspy import HighsLp
from collections.abc import Sequence

from analytics.intervals import SPAN_MS, cut
from analytics.ledger.rollups import Rollups
from analytics.money.energy import Energy, GridIntensity
from analytics.money.priced_segments import NOBODY
from analytics.states import IDLE_ALLOCATED, IN_USE


@dataclass(frozen=True)
class CarbonSum:
    """The energy of some GPU time; of it `rated_mj` in hours of known intensity, which with PUE stand for `co2_g` grams.

    Everything is of what is known: `energy.known_share` and `rated_share` say how much that is.
    """

    energy: Energy
    rated_mj: float
    co2_g: float

    @property
    def kwh(self) -> float | None:
        """What the GPUs took, as far as it is known; None where nothing of it is."""
        return None if self.energy.total_ms and not self.energy.known_ms else self.energy.millijoules / MJ_PER_KWH

    @property
    def rated_share(self) -> float | None:
        """Share of the energy whose hours have a known intensity; None without any energy."""
        return min(self.rated_mj / self.energy.millijoules, 1.0) if self.energy.millijoules else None

    @property
    def co2_kg(self) -> float | None:
        """Carbon dioxide in kg, as far as it is known; None where nothing of it is."""
        return None if self.kwh is None or self.rated_share == 0 else self.co2_g / 1000

    def __add__(self, other: CarbonSum) -> CarbonSum:
        """Both together."""
        mine, its = self.energy, other.energy
        energy = Energy(mine.millijoules + its.millijoules, mine.known_ms + its.known_ms, mine.total_ms + its.total_ms)
        return CarbonSum(energy, self.rated_mj + other.rated_mj, self.co2_g + other.co2_g)


NOTHING = CarbonSum(Energy(0.0, 0.0, 0.0), 0.0, 0.0)
"""Of no time at all."""


def carbon_sums(rows: pl.DataFrame, keys: Sequence[str]) -> dict[tuple[str, ...], CarbonSum]:
    """The sums of rows of `analytics.plan.deferral` by these columns."""
    sums = rows.group_by(keys).agg(pl.col("energy_mj", "energy_known_ms", "gpu_ms", "rated_mj", "co2_g").sum())
    return {
        tuple(row[: len(keys)]): CarbonSum(Energy(*row[len(keys) : -2]), *row[-2:])
        for row in sums.sort(keys).iter_rows()
    }


USED, HELD, FREE, REST = PARTS = ("used", "held", "free", "rest")
"""What GPU time is to energy: computing; somebody's without computing; nobody's; and what nobody can tell: not observed, broken, or the
counter of a GPU that is split, which stands for all of its instances."""

_SUMS = ("gpu_ms", "energy_mj", "energy_known_ms")
_OF_PIECE = ("host", "gpu", "time", "end", "state", "instance", "gpu_share", "team", "pool", "model", "is_deferrable")
_COLUMNS = (*_OF_PIECE, *_SUMS)


def hourly_energy(pieces: pl.DataFrame, rollups: Rollups, intensity: GridIntensity, pue: float) -> pl.DataFrame:
    """One row per piece of `analytics.money.priced_segments` and hour, cut to it: those of _COLUMNS that the pieces have, and more.

    More are hour (its first millisecond), part (of PARTS), g_per_kwh (null where unknown), rated_mj (of `energy_mj`, what lies in
    hours of known intensity) and co2_g (grams for rated_mj, with PUE). What is REST is nobody's.

    A piece keeps its energy. Between its whole hours it is shared as the GPU's energy of these hours was, where that is known, else
    evenly; the hours that it does not fill have their time's share.
    """
    there = pieces.select(name for name in _COLUMNS if name in pieces.columns)
    own = pl.when(pl.col("part") == REST).then(pl.lit(NOBODY)).otherwise("team")
    parts = there.with_columns(pl.col(_SUMS).cast(pl.Float64), part=_part()).with_columns(team=own)
    rows = cut(parts.with_row_index("piece"), HOUR_MS, "hour", sums=_SUMS)
    rows = _by_counter(rows.with_columns(pl.col("hour") * HOUR_MS), rollups.hourly("energy_mj", "energy_ms"))
    rated = pl.when(pl.col("g_per_kwh").is_not_null()).then("energy_mj").otherwise(0.0)
    return intensity.beside(rows).with_columns(
        rated_mj=rated, co2_g=rated / MJ_PER_KWH * pue * pl.col("g_per_kwh").fill_null(0.0)
    )


_PART_OF = {**dict.fromkeys(IN_USE, USED), **dict.fromkeys(IDLE_ALLOCATED, HELD), "free": FREE}


def _part() -> pl.Expr:
    is_split = ~pl.col("instance") & (pl.col("gpu_share") < 1)
    return pl.when(is_split).then(pl.lit(REST)).otherwise(pl.col("state").replace_strict(_PART_OF, default=REST))


def _by_counter(rows: pl.DataFrame, hourly: pl.DataFrame) -> pl.DataFrame:
    """The rows, the energy of a piece's whole hours shared between them as the GPU's was, where all of it is known."""
    whole = SPAN_MS == HOUR_MS
    known = hourly.filter(pl.col("energy_ms") > 0).select(
        "host", "gpu", hour="time", of_gpu=pl.col("energy_mj") / pl.col("energy_ms")
    )
    parts, rest = rows.filter(whole), rows.filter(~whole)
    joined = parts.join(known, on=("host", "gpu", "hour"), how="left", maintain_order="left")
    own, of_gpu = pl.col("energy_mj").sum().over("piece"), pl.col("of_gpu").sum().over("piece")
    told = (pl.col("of_gpu").null_count().over("piece") == 0) & (of_gpu > 0)
    shared = joined.with_columns(energy_mj=pl.when(told).then(own * pl.col("of_gpu") / of_gpu).otherwise("energy_mj"))
    return pl.concat([shared.drop("of_gpu"), rest])


def job_names(lake: Lake) -> pl.DataFrame:
    """`job` (its id), `name`, `partition` and `qos` of what was given GPUs; raises LakeError and its kinds.

    Without all else that `analytics.plan.jobs` knows, which takes several times as long.
    """
    return read_small(lake, schema.CLAIM, ("claim_id", "name", "partition", "qos")).rename({"claim_id": "job"})


def with_deferrable(rows: pl.DataFrame, jobs: pl.DataFrame, owners: Owners) -> pl.DataFrame:
    """The rows with `is_deferrable`: whether they are of one Slurm job that nobody waits for by its names, or of best-effort work.

    A job's names are its own, its partition's and its QOS's. Best-effort is a priority class of the owners table. Pods, Ray jobs and
    processes without a job may serve somebody: they are deferrable only as best-effort work, as GPUs that several jobs share are.

    Args:
        rows: `job` as the ledger names it, `holder`, `account`.
        jobs: of `job_names`.
        owners: with their priority classes.
    """
    names = pl.concat_str("name", "partition", "qos", separator=" ", ignore_nulls=True)
    # by the id alone, for one job may be known from two sources
    awaited = frozenset(jobs.filter(names.str.contains(AWAITED))["job"].drop_nulls())

    def flag(job: str | None, holder: str | None, account: str | None) -> tuple[bool]:
        is_one_slurm_job = job is not None and "+" not in job and job_kind([job]) == "slurm"
        is_batch = is_one_slurm_job and str(job).partition(":")[2] not in awaited
        return (is_batch or is_best_effort(owners, holder, account),)

    return with_mapped(rows, ("job", "holder", "account"), {"is_deferrable": pl.Boolean()}, flag)


Floats = NDArray[np.float64]
_STAY = 1e-6
"""Of the mean cost, what an hour of delay costs: of two equal ways the one that moves less is taken."""


@dataclass(frozen=True)
class LaterWork:
    """Work by the hours in which it was (rows), and by how many hours later it runs (columns, from 0 on).

    `prices` are what a free GPU-hour more would be worth in each hour, in units of weight times rate: the duals of the program.
    """

    moved: Floats
    prices: Floats


def moved_work(work: Floats, weight: Floats, room: Floats, rate: Floats, most_hours: int) -> LaterWork:
    """How much of the work of each hour runs how much later, so that the rates paid are least.

    A transport problem, solved as a linear program by HiGHS: work may be parted at will and interrupted at every hour.

    Args:
        work: GPU-hours of each hour that may move.
        weight: what a GPU-hour of each hour counts.
        room: GPU-hours that are free in each hour, beside the work's own.
        rate: what a unit of weight costs in each hour; NaN is unknown: nothing leaves such an hour or comes into it.
        most_hours: how far it may move.
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
        values, duals = _solved(_program(cost, start[ways], target[ways], work, work + room))
        moved[start[ways], delay[ways]], prices = values, np.maximum(-duals[hours:], 0.0)
    return LaterWork(moved, prices)


def least_rates(start: NDArray[np.int64], weight: Floats, rate: Floats, prices: Floats, most_hours: int) -> Floats:
    """The least that a GPU-hour of each piece of work pays in any hour within its reach: its weight at the rate, and the hour's price.

    Summed over all work, less what all room is worth at these prices, this is never more than what the best plan pays, whatever
    the prices (weak duality): work is priced piece by piece, where `moved_work` knows one weight for each hour.

    Args:
        start: the place of each piece's hour, whose rate is known.
        weight: of a GPU-hour of each piece.
        rate: as in `moved_work`.
        prices: of a GPU-hour in each hour, from 0 up.
        most_hours: how far it may move.
    """
    ahead = np.full(most_hours, np.nan)
    rates, priced = np.concatenate((rate, ahead)), np.concatenate((prices, ahead))
    least = np.full(len(start), np.inf)
    for delay in range(most_hours + 1):
        least = np.fmin(least, weight * rates[start + delay] + priced[start + delay])
    return least


def _program(cost: Floats, start: NDArray[np.intp], target: NDArray[np.intp], work: Floats, most: Floats) -> HighsLp:
    """A column for each way, a row for what leaves each hour, and one for what each hour takes."""
    import highspy

    hours, columns = len(work), len(cost)
    leaves = np.isin(np.arange(hours), start)
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = columns, 2 * hours
    model.col_cost_, model.col_lower_, model.col_upper_ = cost, np.zeros(columns), np.full(columns, np.inf)
    model.row_lower_ = np.concatenate((np.where(leaves, work, 0.0), np.full(hours, -np.inf)))
    model.row_upper_ = np.concatenate((np.where(leaves, work, 0.0), most))
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = np.arange(0, 2 * columns + 1, 2, dtype=np.int32)
    model.a_matrix_.index_ = np.stack((start, target + hours), axis=1).ravel().astype(np.int32)
    model.a_matrix_.value_ = np.ones(2 * columns)
    return model


def _solved(model: HighsLp) -> tuple[Floats, Floats]:
    """The values of the columns, and the duals of the rows: leaving everything where it is, is always possible."""
    solver = one_thread_solver()
    solver.passModel(model)
    solver.run()
    found = solver.getSolution()
    return np.asarray(found.col_value, np.float64), np.asarray(found.row_dual, np.float64)


_PLACE = ("pool", "model")


@dataclass(frozen=True)
class HourOfDay:
    """One hour of the day: the grid's mean intensity (None: never known), how many GPUs stood free on average, and deferrable energy.

    `mj` is as it was, `best_mj` as it would be by the best plan, both in millijoules at the GPUs.
    """

    hour: int
    g_per_kwh: float | None
    free_gpus: float
    mj: float
    best_mj: float


@dataclass(frozen=True)
class Deferral:
    """What moving deferrable work by up to `most_hours` would have saved, in grams, over all pools.

    `saved_g` is by the best plan that moves all work of an hour in one pool and model alike, `most_saved_g` more than any plan saves.
    `work` is all that is deferrable, `moved_mj` what of its energy that plan moves. `without_floor` are models of which nobody knows what they
    draw when free: all of their energy counts as saved where it moves, and not only what is beyond that.
    """

    most_hours: int
    work: CarbonSum
    moved_mj: float
    saved_g: float
    most_saved_g: float
    hours: tuple[HourOfDay, ...]
    without_floor: tuple[str, ...]


@dataclass(frozen=True)
class _Moves:
    """Of one pool and model or of several: energy by hour before and after, what moved, and millijoules times g/kWh that this saves.

    `most_gain` is what no plan goes beyond.
    """

    before_mj: Floats
    after_mj: Floats
    moved_mj: float = 0.0
    gain: float = 0.0
    most_gain: float = 0.0

    def __add__(self, other: _Moves) -> _Moves:
        return _Moves(
            self.before_mj + other.before_mj,
            self.after_mj + other.after_mj,
            self.moved_mj + other.moved_mj,
            self.gain + other.gain,
            self.most_gain + other.most_gain,
        )


def _moves(work: pl.DataFrame, room_ms: Floats, rate: Floats, most_hours: int) -> _Moves:
    """The best plan that moves all work of an hour alike, and a bound for those that choose among it.

    `work` has `place` (of its hour), `gpu_ms`, `energy_mj` and `beyond_mj`, what of it is beyond a free GPU's.
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
    """Every `hour` of a window with `g_per_kwh`, the time zone in which people read them, and what the site draws for a kilowatt-hour."""

    hours: pl.DataFrame
    zone: tzinfo
    pue: float


def find_deferral(rows: pl.DataFrame, grid: GridHours, floors: Mapping[str, float], most_hours: int) -> Deferral:
    """The best way for each pool and model by itself.

    A GPU draws power whether it works or not: what moves is what work takes beyond the same model's free GPUs.

    Args:
        rows: of `analytics.plan.deferral`, with `is_deferrable`.
        grid: the window's hours.
        floors: watts of each model's free GPUs.
        most_hours: how far work may be moved.
    """
    hours = grid.hours.with_row_index("place")
    whole = rows.filter(~pl.col("instance")).with_columns(pl.col("energy_mj", "energy_known_ms").fill_null(0.0))
    whole = whole.join(hours.select("hour", "place"), on="hour", maintain_order="left")
    floor = pl.col("model").replace_strict(floors, default=0.0, return_dtype=pl.Float64)
    beyond = (pl.col("energy_mj") - floor * pl.col("energy_known_ms")).clip(
        0.0
    )  # unknown energy moves along and counts nothing
    work = whole.filter("is_deferrable", pl.col("part") == USED).with_columns(beyond_mj=beyond)
    idle = whole.filter(pl.col("part") == FREE)
    rate = hours["g_per_kwh"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    found = _Moves(np.zeros(len(rate)), np.zeros(len(rate)))
    places = work.partition_by(*_PLACE, as_dict=True)
    for (pool, model), own in places.items():
        there = idle.filter(pl.col("pool") == pool, pl.col("model") == model)
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
    """The sums of a column by the place of the hour."""
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
