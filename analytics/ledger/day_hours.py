"""The hourly tables of some hosts' same UTC day: `hourly` with its histograms, `host_hourly` and `serving_hourly`.

The longer a row is, the more its mean hides bursts. The levels that its samples stay within do not: the percentiles of
the peaks are never below those of the samples themselves, whatever the length of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.decode import read_days
from analytics.frames import empty
from analytics.ledger.card_use import LIMITS, TENSOR_USED_FROM_PCT, peak_shares
from analytics.ledger.columns import Columns, Floats, Places, run_starts
from analytics.ledger.day_owners import Held
from analytics.ledger.day_rows import THROTTLED, DayRows, in_day
from analytics.ledger.day_segments import named
from analytics.ledger.rollups import BINS
from fallow import schema
from fallow.clock import DAY_MS, HOUR_MS, SECOND_MS
from fallow.lake import LakeFile
from fallow.quarantine import OnUnusable

PEAK_SHARE = 0.98
"""The share of a row's time for which its `gpu_util_p98_pct` holds."""

FINE_MS = 200
"""Rows up to this length are their own peak: as fine as the driver's samples, averages over a sixth of a second."""


@dataclass(frozen=True)
class RowPeaks:
    """For each row, the level of most of its time and of the rest, and the milliseconds at each and at no known level.

    NaN where nothing is known of a row's samples.
    """

    most_pct: Floats
    rest_pct: Floats
    most_ms: Floats
    rest_ms: Floats
    unseen_ms: Floats


def util_peaks(rows: DayRows, util: Floats, weight: Floats) -> RowPeaks:
    """Return the levels that utilization stays within.

    A row is at its 98th percentile for PEAK_SHARE of its time, and at its maximum for the rest. It is at its maximum
    throughout where the percentile is unknown, and at its mean where it is short. Time that the samples do not cover
    has no known level.
    """
    largest, fine = rows.floats["gpu_util_max_pct"], rows.interval <= FINE_MS
    if fine.any():
        largest = np.fmax(largest, np.where(fine, util, np.nan))
    most = np.fmin(rows.floats["gpu_util_p98_pct"], largest)
    stated = ~np.isnan(rows.floats["gpu_util_p98_pct"])
    seen_ms = weight * np.fmin(rows.floats["gpu_util_coverage_ratio"], 1.0)  # where it is unknown, all of it
    rest_ms = np.where(stated, (1 - PEAK_SHARE) * seen_ms, 0.0)
    known = ~np.isnan(util) & ~np.isnan(largest)
    return RowPeaks(
        np.where(known, most, np.nan), np.where(known, largest, np.nan), seen_ms - rest_ms, rest_ms, weight - seen_ms
    )


def sm_peaks(rows: DayRows, util: Floats, peaks: RowPeaks) -> RowPeaks:
    """Return the levels that SM activity stays within, assuming that the kernels of one row occupy equally many SMs.

    Only means are known. Divided by the row's share of time with a kernel, a mean gives the SMs that a kernel occupies.
    """
    active = rows.floats["sm_active_pct"]
    if active is rows.nothing:
        return replace(peaks, most_pct=rows.nothing, rest_pct=rows.nothing)
    ratio = np.ones(len(active))
    np.divide(active, util, out=ratio, where=util > 0)
    ratio = np.where(np.isnan(active), np.nan, np.minimum(ratio, 1.0))
    return replace(peaks, most_pct=peaks.most_pct * ratio, rest_pct=peaks.rest_pct * ratio)


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
    """Return the hours with the columns of `hourly`."""
    if not len(rows):
        return empty(schema.HOURLY)
    hour = rows.start // HOUR_MS
    groups = _Groups(run_starts(rows.gpu, hour), rows)
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
        **_card_use(groups, rows, held),
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
    """Sums over the rows of each GPU-hour; `number` is each row's group, `weight` and `span` are the rows' own.

    Both are floats, which hold milliseconds exactly: numpy multiplies floats by integers several times more slowly.
    """

    def __init__(self, starts: Places, rows: DayRows) -> None:
        self.starts = starts
        self.number = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(rows)))
        self.weight, self.span = rows.weight.astype(np.float64), rows.span.astype(np.float64)
        self._rows = rows
        self._first_bin = self.number * BINS
        self._span_ms = self.total(self.span)

    @property
    def nothing(self) -> Floats:
        return np.full(len(self.starts), np.nan)

    def total(self, values: Floats) -> Floats:
        return np.asarray(np.add.reduceat(values, self.starts), np.float64)

    def known_ms(self, values: Floats, weight: Floats) -> Floats:
        return self.total(np.where(np.isnan(values), 0.0, weight))

    def weighted(self, values: Floats, weight: Floats) -> tuple[Floats, Floats]:
        """Return sums of value times milliseconds, and of the milliseconds in which the value is known."""
        products = values * weight
        total, known_ms = self.total(products), self._span_ms if weight is self.span else self.total(weight)
        if np.isnan(total).any():
            unknown = np.flatnonzero(np.isnan(products))
            products[unknown] = 0.0
            total = self.total(products)
            known_ms = known_ms - np.bincount(self.number[unknown], weights=weight[unknown], minlength=len(known_ms))
        return total, known_ms

    def mean(self, values: Floats, weight: Floats) -> Floats:
        """Return the mean weighted by time; NaN where nothing is known."""
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
        """Return the milliseconds at each whole percent; null where nothing is known."""
        if values is self._rows.nothing:
            return pl.Series([None] * len(self.starts), dtype=pl.List(pl.Int32))
        known = ~np.isnan(values)
        first_bin, count = self._first_bin, len(self.starts)
        there = np.logical_or.reduceat(known, self.starts)
        if not known.all():
            first_bin, values, weight = first_bin[known], values[known], weight[known]
        bins = first_bin + np.minimum(values.astype(np.int64), BINS - 1)
        return _lists(np.bincount(bins, weight, count * BINS).reshape(count, BINS), there)

    def peak_histogram(self, peaks: RowPeaks) -> pl.Series:
        """Return the milliseconds at each whole percent of the levels, rounded up; unknown time counts as 100.

        Null in hours in which no row has a known level.
        """
        count = len(self.starts)
        if peaks.most_pct is self._rows.nothing:
            return pl.Series([None] * count, dtype=pl.List(pl.Int32))
        known = ~np.isnan(peaks.most_pct)
        times = np.zeros((count, BINS))
        for level, level_ms in ((peaks.most_pct, peaks.most_ms), (peaks.rest_pct, peaks.rest_ms)):
            if level_ms.any():
                within = np.where(known, np.ceil(np.round(level, 2)), BINS - 1).astype(np.int64)
                times += np.bincount(self._first_bin + within, level_ms, count * BINS).reshape(count, BINS)
        times[:, -1] += self.total(peaks.unseen_ms)
        return _lists(np.rint(times), np.logical_or.reduceat(known & (self.weight > 0), self.starts))


def _lists(times: NDArray[np.integer] | Floats, there: NDArray[np.bool_]) -> pl.Series:
    """Return histograms as lists, null where there was none."""
    series = pl.Series(times.astype(np.int32)).cast(pl.List(pl.Int32))
    return series if there.all() else pl.select(pl.when(pl.Series(there)).then(series)).to_series()


def _sum(rows: DayRows, first: str, second: str) -> Floats:
    """Return both directions together; unknown where one of them is."""
    if rows.nothing is rows.floats[first] or rows.nothing is rows.floats[second]:
        return rows.nothing
    return rows.floats[first] + rows.floats[second]


def _card_use(groups: _Groups, rows: DayRows, held: Held) -> dict[str, object]:
    """Return the share of the card's peak and the tensor activity of the time with a kernel."""
    kernel_ms = np.where(held.measured & ~held.zero, groups.weight, 0.0)
    tensor, peak = rows.floats[LIMITS["tensor"]], peak_shares(rows.floats, rows.nothing)
    used_ms = groups.total(np.where(tensor >= TENSOR_USED_FROM_PCT, kernel_ms, 0.0))
    unused_ms = groups.total(np.where(tensor < TENSOR_USED_FROM_PCT, kernel_ms, 0.0))
    tensor_known = used_ms + unused_ms > 0
    reached = np.nan_to_num(peak.low_pct) * kernel_ms
    by_limit = np.bincount(groups.number * len(LIMITS) + peak.limit, reached, len(groups.starts) * len(LIMITS))
    by_limit = by_limit.reshape(-1, len(LIMITS))
    limits = pl.Series([*LIMITS, None], dtype=pl.String)
    return {
        "tensor_active_mean_pct": groups.mean(tensor, kernel_ms),
        "tensor_used_ms": np.where(tensor_known, used_ms, np.nan),
        "tensor_unused_ms": np.where(tensor_known, unused_ms, np.nan),
        "peak_share_low_pct": groups.mean(peak.low_pct, kernel_ms),
        "peak_share_high_pct": groups.mean(peak.high_pct, kernel_ms),
        "peak_share_ms": groups.known_ms(peak.low_pct, kernel_ms),
        "peak_share_by": limits.gather(np.where(by_limit.any(axis=1), by_limit.argmax(axis=1), len(LIMITS))),
    }


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
    """Return milliseconds of each kind of throttling. Counters of a kind add up: they count separate causes."""
    found: dict[str, object] = {}
    followed = np.zeros(len(groups.starts))
    for kind, names in THROTTLED.items():
        rates = [rows.rates[name] for name in names if rows.rates[name] is not rows.nothing]
        if not rates:
            found[f"throttled_{kind}_ms"] = groups.nothing
            continue
        total, known_ms = groups.weighted(np.minimum(reduce(_known_sum, rates), 1.0), groups.span)
        found[f"throttled_{kind}_ms"] = np.where(known_ms > 0, total, np.nan)
        followed = np.maximum(followed, known_ms)
    return found | {"throttled_known_ms": followed}


def _known_sum(left: Floats, right: Floats) -> Floats:
    """Return the sum of the known values of both."""
    total = left + right
    unknown = np.flatnonzero(np.isnan(total))
    total[unknown] = np.fmax(left[unknown], right[unknown])
    return total


_HOST_MEANS = {
    "cpu_util_mean_pct": "cpu_util_pct",
    "cpu_pressure_mean_pct": "cpu_pressure_pct",
    "io_pressure_mean_pct": "io_pressure_pct",
    "disk_read_mean_bytes_per_s": "disk_read_bytes_per_s",
    "disk_write_mean_bytes_per_s": "disk_write_bytes_per_s",
    "net_receive_mean_bytes_per_s": "net_receive_bytes_per_s",
    "net_transmit_mean_bytes_per_s": "net_transmit_bytes_per_s",
}
_HOURS = np.int64(2**32)
"""More hours than there will ever be."""
_HOUR = (pl.col("time") // HOUR_MS * HOUR_MS).alias("time")


_COLUMNS = ("time", "cpu_count", *_HOST_MEANS.values())


def _possible_values(name: str) -> pl.Expr:
    """Return possible measurements only: NaN and negative values become unknown."""
    value = pl.col(name).cast(pl.Float64).fill_nan(None)
    return pl.when(value >= 0).then(value)


def host_hours(files: Sequence[LakeFile], day_ms: int, on_unusable: OnUnusable | None = None) -> pl.DataFrame:
    """Return the hours with the columns of `host_hourly`."""
    columns = Columns(files, schema.HOST, _COLUMNS, on_unusable=on_unusable)
    if not len(columns):
        return empty(schema.HOST_HOURLY)
    time = columns.ints("time")
    hour = time // HOUR_MS
    order = np.flatnonzero(in_day(time, day_ms))
    if (np.diff(columns.host.codes[order] * _HOURS + hour[order]) < 0).any():
        order = order[np.lexsort((hour[order], columns.host.codes[order]))]
    if not len(order):
        return empty(schema.HOST_HOURLY)
    host, hour = columns.host.codes[order], hour[order]
    starts = run_starts(host, hour)
    table: dict[str, object] = {
        name: _means(columns.floats(source)[order], starts) for name, source in _HOST_MEANS.items()
    }
    cpu_count = np.maximum.reduceat(columns.ints("cpu_count")[order], starts)
    frame = pl.DataFrame(
        {
            "time": hour[starts] * HOUR_MS,
            "host": [columns.host.names[code] for code in host[starts]],
            **table,
            "cpu_count": cpu_count,
            "sample_count": np.diff(np.append(starts, len(hour))),
        }
    )
    return frame.with_columns(
        pl.col(*_HOST_MEANS).fill_nan(None), cpu_count=pl.when(pl.col("cpu_count") > 0).then("cpu_count")
    )


def _means(values: Floats, starts: Places) -> Floats:
    """Return the mean of each group, NaN where nothing is known; values below 0, and NaN, are unknown."""
    known = np.isfinite(values) & (values >= 0)
    counts = np.add.reduceat(known, starts, dtype=np.float64)
    out = np.full(len(starts), np.nan)
    np.divide(np.add.reduceat(np.where(known, values, 0.0), starts), counts, out=out, where=counts > 0)
    return out


def serving_hours(files: Sequence[LakeFile], day_ms: int, on_unusable: OnUnusable | None = None) -> pl.DataFrame:
    """Return the hours with the columns of `serving_hourly`."""
    names = (
        "time",
        "host",
        "gpu",
        "endpoint",
        "model",
        "engine",
        "health",
        "kv_cache_used_ratio",
        "running_requests",
        "waiting_requests",
        "requests_per_s",
        "prompt_tokens_per_s",
        "generated_tokens_per_s",
        "time_to_first_token_s",
        "namespace",
        "pod",
        "interval_ms",
    )
    if not files:
        return empty(schema.SERVING_HOURLY)
    frame = read_days(files, schema.SERVING, names, on_unusable).unique(
        ("host", "time", "gpu", "endpoint", "model"), keep="first", maintain_order=True
    )
    frame = frame.filter(pl.col("time").is_between(day_ms, day_ms + DAY_MS, closed="left"))
    answered = (pl.col("health") == "ok").fill_null(value=False)
    key = ("host", "gpu", "endpoint", "model")
    hours = frame.group_by(*key, _HOUR).agg(
        pl.col("engine", "namespace", "pod").drop_nulls().last(),
        kv_cache_used_max_ratio=_possible_values("kv_cache_used_ratio").max(),
        running_requests_max=_possible_values("running_requests").max(),
        waiting_requests_max=_possible_values("waiting_requests").max(),
        requests=_counted("requests_per_s"),
        prompt_tokens=_counted("prompt_tokens_per_s"),
        generated_tokens=_counted("generated_tokens_per_s"),
        tokens_max_per_s=(_possible_values("prompt_tokens_per_s") + _possible_values("generated_tokens_per_s")).max(),
        time_to_first_token_max_s=_possible_values("time_to_first_token_s").max(),
        answered_ms=pl.col("interval_ms").cast(pl.Int64).filter(answered).sum(),
        scrape_count=answered.sum(),
    )
    return hours.sort(*key, "time")


def _counted(rate: str) -> pl.Expr:
    """Return what a counter counted; null where it never counted."""
    counts = _possible_values(rate) * pl.col("interval_ms") / SECOND_MS
    return pl.when(counts.count() > 0).then(counts.sum())
