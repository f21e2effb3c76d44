"""What moving deferrable work by hours would save at most: into hours of a cleaner grid in which GPUs stood free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import tzinfo

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.money.energy import MJ_PER_KWH
from analytics.plan.carbon_sum import NOTHING, CarbonSum, carbon_sums
from analytics.plan.hourly_energy import FREE, USED
from analytics.plan.later_hours import moved_work
from fallow.clock import HOUR_MS, from_ms

Floats = NDArray[np.float64]
_PLACE = ("pool", "model")


@dataclass(frozen=True)
class HourOfDay:
    """One hour of the day: the grid's mean intensity (None: never known), how many GPUs stood free on average, and deferrable energy.

    `mj` is as it was, `best_mj` as it would be with everything moved, both in millijoules at the GPUs.
    """

    hour: int
    g_per_kwh: float | None
    free_gpus: float
    mj: float
    best_mj: float


@dataclass(frozen=True)
class Deferral:
    """The most that moving deferrable work by up to `most_hours` would have saved, in grams, over all pools.

    `work` is all that is deferrable, `moved_mj` what of its energy moves. `without_floor` are models of which nobody knows what they
    draw when free: all of their energy counts as saved where it moves, and not only what is beyond that.
    """

    most_hours: int
    work: CarbonSum
    moved_mj: float
    saved_g: float
    hours: tuple[HourOfDay, ...]
    without_floor: tuple[str, ...]


@dataclass(frozen=True)
class _Place:
    """The work of one pool and model, hour by hour of the window: its GPU time, energy, and what of it is beyond free GPUs' (each in ms, mJ).

    `room_ms` is the time of GPUs that stood free.
    """

    gpu_ms: Floats
    mj: Floats
    beyond_mj: Floats
    room_ms: Floats

    def moved(self, rate: Floats, most_hours: int) -> tuple[Floats, float, float]:
        """Its energy by hour after the best moves, what of it moved, and millijoules times g/kWh that this saves."""
        mean, beyond = (np.divide(each, self.gpu_ms, out=np.zeros(len(rate)), where=self.gpu_ms > 0) for each in (self.mj, self.beyond_mj))  # fmt: skip
        spent = moved_work(self.gpu_ms / HOUR_MS, beyond, self.room_ms / HOUR_MS, rate, most_hours) * HOUR_MS
        start, delay = np.nonzero(spent)
        part = spent[start, delay]
        late = delay > 0
        gain = (part * beyond[start])[late] @ (rate[start] - rate[start + delay])[late]
        after = np.bincount(start + delay, part * mean[start], len(rate)).astype(np.float64)
        return after, float((part * mean[start])[late].sum()), float(gain)


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
        rows: of `analytics.plan.hourly_energy`, with `is_deferrable`.
        grid: the window's hours.
        floors: watts of each model's free GPUs.
        most_hours: how far work may be moved.
    """
    whole = rows.filter(~pl.col("instance"))
    work, idle = whole.filter("is_deferrable", pl.col("part") == USED), whole.filter(pl.col("part") == FREE)
    hours = grid.hours
    rate = hours["g_per_kwh"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    before, after, moved_mj, gain = np.zeros(len(rate)), np.zeros(len(rate)), 0.0, 0.0
    places = work.partition_by(*_PLACE, as_dict=True)
    for (pool, model), own in places.items():
        there = idle.filter(pl.col("pool") == pool, pl.col("model") == model)
        place = _place(own, there, hours, floors.get(str(model), 0.0))
        best, best_moved_mj, best_gain = place.moved(rate, most_hours)
        before, after, moved_mj, gain = before + place.mj, after + best, moved_mj + best_moved_mj, gain + best_gain
    return Deferral(
        most_hours=most_hours,
        work=carbon_sums(work.with_columns(all=pl.lit("")), ("all",)).get(("",), NOTHING),
        moved_mj=moved_mj,
        saved_g=gain / MJ_PER_KWH * grid.pue,
        hours=_hours_of_day(grid, _by_hour(idle, hours, "gpu_ms"), before, after),
        without_floor=tuple(sorted({str(model) for _, model in places} - floors.keys())),
    )


def _place(work: pl.DataFrame, idle: pl.DataFrame, hours: pl.DataFrame, floor_w: float) -> _Place:
    gpu_ms, mj, known_ms = (_by_hour(work, hours, name) for name in ("gpu_ms", "energy_mj", "energy_known_ms"))
    return _Place(gpu_ms, mj, np.maximum(mj - floor_w * known_ms, 0.0), _by_hour(idle, hours, "gpu_ms"))


def _by_hour(rows: pl.DataFrame, hours: pl.DataFrame, name: str) -> Floats:
    """The sums of a column in each hour of the window."""
    sums = rows.group_by("hour").agg(pl.col(name).sum())
    found = hours.join(sums, on="hour", how="left", maintain_order="left")[name]
    return found.cast(pl.Float64).fill_null(0.0).to_numpy()


def _hours_of_day(grid: GridHours, free_ms: Floats, before: Floats, after: Floats) -> tuple[HourOfDay, ...]:
    local = [from_ms(moment).astimezone(grid.zone).hour for moment in grid.hours["hour"]]
    table = grid.hours.with_columns(
        local=pl.Series(local), free=pl.Series(free_ms), before=pl.Series(before), after=pl.Series(after)
    )
    sums = table.group_by("local").agg(
        pl.col("g_per_kwh").mean(), pl.col("free").mean() / HOUR_MS, pl.col("before", "after").sum()
    )
    return tuple(HourOfDay(*row) for row in sums.sort("local").iter_rows())
