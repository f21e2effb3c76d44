"""Work that can wait, moved off peak: at which hours of the day it would have run, and what it would have paid at internal prices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import polars as pl

from analytics.intervals import by_hour, clip
from analytics.plan.internal_prices import InternalPrices
from analytics.plan.replay.engine import Replayed, replay
from analytics.plan.replay.policy import OffPeakHours
from analytics.plan.replay.replay_base import ReplayBase
from analytics.plan.replay.replayed_waits import WaitFigures, wait_figures, with_waits
from fallow.clock import HOUR_MS

_DAY_HOURS = 24


@dataclass(frozen=True)
class ShiftedWork:
    """The deferrable jobs of a window, as they would run today and with these off-peak hours.

    `by_hour` has their GPU milliseconds in each hour of the local day, today and then. `paid` is what a GPU-hour of theirs would cost at the internal prices of deferrable work, today
    and then, in the site's currency; None where not every pool that they ran in has a price, or they had no GPU. `waits` are theirs, None where the replay says nothing of waits.
    """

    off_peak: OffPeakHours
    jobs: int
    postponed: int
    by_hour: tuple[tuple[float, float], ...]
    paid: tuple[float, float] | None
    waits: tuple[WaitFigures, WaitFigures] | None

    def peak_ms(self) -> tuple[float, float]:
        """Their GPU time in the hours of the day that do not lie whole in the off-peak ones, today and then."""
        peak = [each for hour, each in enumerate(self.by_hour) if not self._is_off(hour)]
        return sum(today for today, _ in peak), sum(then for _, then in peak)

    def _is_off(self, hour: int) -> bool:
        since, until = self.off_peak.since_min, self.off_peak.until_min
        minutes = range(60 * hour, 60 * hour + 60)
        return all((since <= at < until) if since < until else (at >= since or at < until) for at in minutes)


def shifted_work(base: ReplayBase, off_peak: OffPeakHours, prices: Sequence[InternalPrices]) -> ShiftedWork:
    """What the hours would have made of the deferrable jobs; `prices` are the schedules of the pools."""
    then = replay(base.coming, base.fleet, replace(base.policy, off_peak=off_peak))
    jobs = base.rebuilt.jobs.filter(pl.col("is_deferrable"))
    moved = then.runs.join(base.today.runs.select("number", was="arrived"), on="number")
    moved = moved.filter(pl.col("number").is_in(jobs["number"].implode()), pl.col("arrived") > pl.col("was"))
    held = [_held(each, jobs, base.window, off_peak.zone) for each in (base.today, then)]
    hours = [dict(each.group_by("hour_of_day").agg(pl.col("gpu_ms").sum()).iter_rows()) for each in held]
    paid = [_paid(each, prices) for each in held]
    return ShiftedWork(
        off_peak=off_peak,
        jobs=jobs.height,
        postponed=moved.height,
        by_hour=tuple((hours[0].get(hour, 0.0), hours[1].get(hour, 0.0)) for hour in range(_DAY_HOURS)),
        paid=None if paid[0] is None or paid[1] is None else (paid[0], paid[1]),
        waits=(_waits(base, jobs, base.today), _waits(base, jobs, then)) if base.check.has_waits else None,
    )


def _held(replayed: Replayed, jobs: pl.DataFrame, window: tuple[int, int], zone: str) -> pl.DataFrame:
    """GPU time of the jobs in the window by `pool`, `model` and `hour_of_day`: `gpu_ms`."""
    own = replayed.holds.filter(pl.col("number").is_in(jobs["number"].implode())).rename({"begin": "time"})
    rows = by_hour(clip(own, *window, sums=()))
    local = pl.from_epoch("time", "ms").dt.replace_time_zone("UTC").dt.convert_time_zone(zone).dt.hour()
    spent = (pl.col("end") - pl.col("time")) * pl.col("gpus")
    return rows.group_by("pool", "model", local.alias("hour_of_day")).agg(gpu_ms=spent.sum())


def _paid(held: pl.DataFrame, prices: Sequence[InternalPrices]) -> float | None:
    by_place = {(each.pool, each.model): each for each in prices}
    """The mean price of a GPU-hour."""
    paid, hours = 0.0, 0.0
    for pool, model, hour, gpu_ms in held.iter_rows():
        own = by_place.get((pool, model))
        factor = None if own is None else own.factors["deferrable"][hour]
        if own is None or own.flat is None or factor is None:
            return None
        paid += gpu_ms / HOUR_MS * factor * own.flat
        hours += gpu_ms / HOUR_MS
    return paid / hours if hours else None


def _waits(base: ReplayBase, jobs: pl.DataFrame, replayed: Replayed) -> WaitFigures:
    found = jobs.join(replayed.runs.select("number", "begin"), on="number", how="left")
    return wait_figures(with_waits(found, pl.col("begin"), base.window[1]))
