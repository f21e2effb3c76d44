"""What an hour should cost within the house: dear where a pool is full, cheap where it is empty, and no dearer in all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Literal

import numpy as np
import polars as pl

from analytics.plan.need_curve import NeedCurve
from analytics.plan.pool_prices import PoolPrices

Priority = Literal["urgent", "normal", "deferrable"]

WEIGHTS: Mapping[Priority, float] = {"urgent": 1.5, "normal": 1.0, "deferrable": 0.5}
"""What an hour costs relative to normal work: a choice, not a measurement."""

_DAY_HOURS = 24
_EMPTY = 0.5
"""The price of an empty pool over that of a half full one; a full one is as far above."""


@dataclass(frozen=True)
class InternalPrices:
    """A day's schedule for a pool and model, in the site's time zone.

    `load` is the share of the GPUs that was needed in each hour of the day, on average, at most 1; None where no such hour was observed.
    `factors` are the price of a GPU-hour over the flat price `flat`, by priority and hour. `flat` is None where none is known.
    """

    pool: str
    model: str
    load: tuple[float | None, ...]
    factors: Mapping[Priority, tuple[float | None, ...]]
    flat: float | None

    @property
    def spread(self) -> float:
        """How far the fullest hour is above the emptiest."""
        known = [each for each in self.load if each is not None]
        return max(known) - min(known) if known else 0.0


def internal_prices(curve: NeedCurve, flat: float | None, zone: tzinfo) -> InternalPrices | None:
    """The schedule for a need; None where no hour of it was observed, or nothing was needed.

    price(hour, priority) = k x flat x (1/2 + load(hour)) x weight(priority), where k makes what the observed need pays the same as at the flat
    price: whoever changes nothing pays as much in all. Firm work counts as normal, work that may be interrupted as deferrable.

    Args:
        curve: the need.
        flat: the price of a GPU-hour now.
        zone: whose hours they are.
    """
    local = pl.from_epoch("time", "ms").dt.replace_time_zone("UTC").dt.convert_time_zone(str(zone)).dt.hour()
    by_hour = curve.hours.group_by(hour=local).agg(pl.col("need", "firm").mean(), hours=pl.len())
    if not by_hour["need"].sum():
        return None
    load, firm, other = (np.full(_DAY_HOURS, np.nan) for _ in range(3))
    at = by_hour["hour"].to_numpy()
    need = by_hour["need"].to_numpy()
    load[at] = np.minimum(need / curve.gpus, 1.0)
    firm[at] = by_hour["firm"].to_numpy() * by_hour["hours"].to_numpy()
    other[at] = (need - by_hour["firm"].to_numpy()) * by_hour["hours"].to_numpy()
    weighed = np.nansum((_EMPTY + load) * (firm * WEIGHTS["normal"] + other * WEIGHTS["deferrable"]))
    hourly = (_EMPTY + load) * np.nansum(firm + other) / weighed
    return InternalPrices(
        curve.pool, curve.model, _known(load), {name: _known(hourly * weight) for name, weight in WEIGHTS.items()}, flat
    )


def internal_prices_of(pools: Sequence[PoolPrices], zone: tzinfo) -> tuple[InternalPrices, ...]:
    """Of each pool, at the site's price in force, else at the cheapest one on demand."""
    schedules = (internal_prices(each.curve, each.flat_hourly, zone) for each in pools)
    return tuple(each for each in schedules if each is not None)


def _known(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[float | None, ...]:
    return tuple(None if np.isnan(each) else float(each) for each in values)
