"""Free time in off-peak hours: how much of each ledger row lies in hours of the week in which its pool does not need its GPUs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.capacity.off_peak import OffPeak, off_peak
from analytics.workloads.model import Context
from fallow.clock import HOUR_MS, from_ms

_WEEK_HOURS = 7 * 24
SHARE = "off_peak_share"
"""The column of a row's share of off-peak time."""


@dataclass(frozen=True)
class IdleHours:
    """The off-peak hours by pool, in a time zone."""

    windows: Mapping[str, Sequence[OffPeak]]
    zone: tzinfo

    @classmethod
    def of(cls, context: Context, zone: tzinfo) -> IdleHours:
        """Those of the weeks before the end of the window; none of pools seen for less than four."""
        pools = {gpu: context.inventory.pool(gpu) for gpu in context.whole.stretches["gpu"].unique()}
        found: dict[str, list[OffPeak]] = defaultdict(list)
        for each in off_peak(context.whole.stretches, pools, context.until_ms, zone):
            found[each.pool].append(each)
        return cls(found, zone)

    def shares(self, context: Context, stretches: pl.DataFrame) -> pl.DataFrame:
        """The ledger's rows with SHARE, from 0 to 1."""
        if not self.windows or stretches.is_empty():
            return stretches.with_columns(pl.lit(0.0).alias(SHARE))
        first, last = int(stretches["time"].min()) // HOUR_MS, int(stretches["end"].max()) // HOUR_MS + 1  # type: ignore[arg-type]  # not empty
        starts, ends = stretches["time"].to_numpy(), stretches["end"].to_numpy()
        pools = {gpu: context.inventory.pool(gpu) for gpu in stretches["gpu"].unique()}
        named = stretches["gpu"].replace_strict(pools, return_dtype=pl.String).to_numpy()
        shares = np.zeros(len(starts))
        for pool in self.windows:
            own = np.array([self._is_off_peak(pool, hour) for hour in range(first, last)])
            rows = named == pool
            inside = _passed(own, ends[rows] - first * HOUR_MS) - _passed(own, starts[rows] - first * HOUR_MS)
            shares[rows] = inside / (ends[rows] - starts[rows])
        return stretches.with_columns(pl.Series(SHARE, shares))

    def _is_off_peak(self, pool: str, hour: int) -> bool:
        """Whether the hour since the epoch is one of the pool's; it counts by its beginning."""
        local = from_ms(hour * HOUR_MS).astimezone(self.zone)
        of_week = local.weekday() * 24 + local.hour
        return any(
            (of_week - (each.weekday * 24 + each.from_hour)) % _WEEK_HOURS < each.until_hour - each.from_hour
            for each in self.windows[pool]
        )


def _passed(hours: NDArray[np.bool_], moments: NDArray[np.int64]) -> NDArray[np.float64]:
    """How many milliseconds of the marked hours have passed at each moment, counted from the first of the hours."""
    edges = np.arange(len(hours) + 1, dtype=np.float64) * HOUR_MS
    passed: NDArray[np.float64] = np.interp(moments, edges, np.concatenate([[0.0], np.cumsum(hours) * float(HOUR_MS)]))
    return passed
