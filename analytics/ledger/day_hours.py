"""`hourly` of some hosts' same day: per GPU and hour what stretches cannot keep, with histograms that merge by adding.

A row counts in the hour in which it starts.
"""

from __future__ import annotations

from functools import reduce

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.frames import empty
from analytics.ledger.columns import Floats
from analytics.ledger.day_owners import Held
from analytics.ledger.day_rows import THROTTLED, DayRows
from analytics.ledger.day_segments import named
from analytics.ledger.peaks import RowPeaks, sm_peaks, util_peaks
from analytics.ledger.rollups import BINS
from fallow import schema
from fallow.clock import HOUR_MS

_MEANS = {
    "dram_active_mean_pct": "dram_active_pct",
    "power_mean_w": "power_w",
    "sm_clock_mean_mhz": "sm_clock_mhz",
}
_TRAFFIC = {
    "pcie_mean_bytes_per_s": ("pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s"),
    "nvlink_mean_bytes_per_s": ("nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s"),
}


def hours_of(rows: DayRows, held: Held) -> pl.DataFrame:
    """The hours with the columns of `hourly`."""
    if not len(rows):
        return empty(schema.HOURLY)
    hour = rows.start // HOUR_MS
    new = (rows.gpu[1:] != rows.gpu[:-1]) | (hour[1:] != hour[:-1])
    groups = _Groups(np.flatnonzero(np.concatenate(([True], new))), np.concatenate(([0], np.cumsum(new))), rows)
    util = np.where(held.measured, rows.floats["gpu_util_pct"], np.nan)
    sm = rows.floats["sm_active_pct"]
    peaks = util_peaks(rows, util, groups.weight)
    table: dict[str, object] = {
        "time": hour[groups.starts] * HOUR_MS,
        "unit": rows.gpu[groups.starts],
        "observed_ms": groups.known_ms(util, groups.weight),
        "zero_ms": groups.total(np.where(held.zero, groups.weight, 0.0)),
        "gpu_util_mean_pct": groups.mean(util, groups.weight),
        "gpu_util_ms": groups.histogram(util, groups.weight),
        "gpu_util_peak_ms": groups.peak_histogram(peaks),
        "sm_active_mean_pct": groups.mean(sm, groups.weight),
        "sm_active_ms": groups.histogram(sm, groups.weight),
        "sm_active_peak_ms": groups.peak_histogram(sm_peaks(rows, util, peaks)),
        **{name: groups.mean(rows.floats[source], groups.span) for name, source in _MEANS.items()},
        **{name: groups.mean(_sum(rows, *sources), groups.span) for name, sources in _TRAFFIC.items()},
        **_memory(groups, rows),
        **_energy(groups, rows),
        **_throttled(groups, rows),
        "temperature_max_c": groups.largest(rows.floats["temperature_c"]),
    }
    frame = named(pl.DataFrame(table), rows)
    return frame.with_columns(
        pl.col(name).fill_nan(None) for name, kind in frame.schema.items() if kind in (pl.Float64, pl.Float32)
    )


class _Groups:
    """Sums over the rows of each GPU-hour; `number` is each row's group, `weight` and `span` are the rows' own as floats.

    Milliseconds are exact as floats, and multiplying floats by integers takes numpy several times as long.
    """

    def __init__(self, starts: NDArray[np.intp], number: NDArray[np.intp], rows: DayRows) -> None:
        self.starts, self.number = starts, number
        self.weight, self.span = rows.weight.astype(np.float64), rows.span.astype(np.float64)
        self._rows = rows

    @property
    def nothing(self) -> Floats:
        return np.full(len(self.starts), np.nan)

    def total(self, values: Floats) -> Floats:
        return np.asarray(np.add.reduceat(values, self.starts), np.float64)

    def known_ms(self, values: Floats, weight: Floats) -> Floats:
        return self.total(np.where(np.isnan(values), 0.0, weight))

    def weighted(self, values: Floats, weight: Floats) -> tuple[Floats, Floats]:
        """Sums of value times milliseconds, and of the milliseconds in which the value is known."""
        products = values * weight
        known_ms = self.total(weight)
        unknown = np.flatnonzero(np.isnan(products))
        if len(unknown):
            products[unknown] = 0.0
            known_ms -= np.bincount(self.number[unknown], weights=weight[unknown], minlength=len(known_ms))
        return self.total(products), known_ms

    def mean(self, values: Floats, weight: Floats) -> Floats:
        """Weighted by time; NaN where nothing is known."""
        if values is self._rows.nothing:
            return self.nothing
        total, known_ms = self.weighted(values, weight)
        out = self.nothing
        np.divide(total, known_ms, out=out, where=known_ms > 0)
        return out

    def largest(self, values: Floats) -> Floats:
        if values is self._rows.nothing:
            return self.nothing
        return np.asarray(np.fmax.reduceat(values, self.starts), np.float64)

    def histogram(self, values: Floats, weight: Floats) -> pl.Series:
        """Milliseconds at each whole percent; null where nothing is known."""
        if values is self._rows.nothing:
            return pl.Series([None] * len(self.starts), dtype=pl.List(pl.Int32))
        known = np.flatnonzero(~np.isnan(values))
        count = len(self.starts)
        bins = self.number[known] * BINS + np.minimum(values[known].astype(np.int64), BINS - 1)
        times = np.bincount(bins, weights=weight[known], minlength=count * BINS).reshape(count, BINS)
        there = np.zeros(count, bool)
        there[self.number[known]] = True
        return _lists(times, there)

    def peak_histogram(self, peaks: RowPeaks) -> pl.Series:
        """Milliseconds at each whole percent, rounded up, of levels that are not exceeded; what is unknown counts as 100.

        Null in hours in which no row tells.
        """
        count = len(self.starts)
        if peaks.most_pct is self._rows.nothing:
            return pl.Series([None] * count, dtype=pl.List(pl.Int32))
        known = ~np.isnan(peaks.most_pct)
        times = np.zeros((count, BINS))
        for level, span in ((peaks.most_pct, peaks.most_ms), (peaks.rest_pct, peaks.rest_ms)):
            if span.any():
                within = np.where(known, np.ceil(np.round(level, 2)), BINS - 1).astype(np.int64)
                times += np.bincount(self.number * BINS + within, span, count * BINS).reshape(count, BINS)
        times[:, -1] += self.total(peaks.unseen_ms)
        there = np.zeros(count, bool)
        there[self.number[known & (self.weight > 0)]] = True
        return _lists(np.rint(times), there)


def _lists(times: NDArray[np.integer] | Floats, there: NDArray[np.bool_]) -> pl.Series:
    """Histograms as lists, null where nothing was there."""
    series = pl.Series(times.astype(np.int32)).cast(pl.List(pl.Int32))
    return series if there.all() else pl.select(pl.when(pl.Series(there)).then(series)).to_series()


def _sum(rows: DayRows, first: str, second: str) -> Floats:
    """Both directions together; unknown where one of them is."""
    if rows.nothing is rows.floats[first] or rows.nothing is rows.floats[second]:
        return rows.nothing
    return rows.floats[first] + rows.floats[second]


def _memory(groups: _Groups, rows: DayRows) -> dict[str, object]:
    used = rows.floats["mem_used_bytes"]
    square = used if used is rows.nothing else used * used
    mean, square_mean = groups.mean(used, groups.span), groups.mean(square, groups.span)
    return {
        "mem_used_mean_bytes": mean,
        "mem_used_std_bytes": np.sqrt(np.maximum(square_mean - mean * mean, 0.0)),
        "mem_used_max_bytes": groups.largest(used),
    }


def _energy(groups: _Groups, rows: DayRows) -> dict[str, object]:
    energy = rows.energy_mj(groups.span)
    known_ms = groups.known_ms(energy, groups.span)
    energy = groups.total(np.nan_to_num(energy))
    return {"energy_mj": np.where(known_ms > 0, energy, np.nan), "energy_ms": known_ms}


def _throttled(groups: _Groups, rows: DayRows) -> dict[str, object]:
    """Milliseconds of each kind of throttling; the counters of one kind add up, for they tell of causes apart."""
    found: dict[str, object] = {}
    followed = np.zeros(len(groups.starts))
    for kind, names in THROTTLED.items():
        rates = [rows.rates[name] for name in names if rows.rates[name] is not rows.nothing]
        if not rates:
            found[f"throttled_{kind}_ms"] = groups.nothing
            continue
        total, known_ms = groups.weighted(np.minimum(reduce(_added, rates), 1.0), groups.span)
        found[f"throttled_{kind}_ms"] = np.where(known_ms > 0, total, np.nan)
        followed = np.maximum(followed, known_ms)
    return found | {"throttled_known_ms": followed}


def _added(left: Floats, right: Floats) -> Floats:
    """The sum of what is known of both."""
    total = left + right
    unknown = np.flatnonzero(np.isnan(total))
    total[unknown] = np.fmax(left[unknown], right[unknown])
    return total
