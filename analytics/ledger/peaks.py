"""What each row leaves open about its short bursts: levels that its utilization and SM activity surely, or likely, stay within.

A mean hides bursts the better the longer its row is. What a row's samples stay within does not: the percentiles of these
levels are never below those of the samples themselves, whatever the length of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from analytics.ledger.columns import Floats
from analytics.ledger.day_rows import DayRows

PEAK_SHARE = 0.98
"""The share of a row's time for which its `gpu_util_p98_pct` holds."""

FINE_MS = 200
"""Rows up to this length are their own peak: they are as fine as the driver's samples, averages over a sixth of a second."""


@dataclass(frozen=True)
class RowPeaks:
    """For each row the level of most of its time and that of its rest, and the milliseconds at each and at no known level.

    NaN where nothing is known of a row's samples.
    """

    most_pct: Floats
    rest_pct: Floats
    most_ms: Floats
    rest_ms: Floats
    unseen_ms: Floats


def util_peaks(rows: DayRows, util: Floats, weight: Floats) -> RowPeaks:
    """The levels that utilization stays within: PEAK_SHARE of a row at its 98th percentile, the rest at its maximum.

    The whole row at its maximum where the percentile is unknown, and at its mean where the row is short. Time that the
    samples do not cover is at no known level.
    """
    largest = np.where(rows.interval <= FINE_MS, util, np.nan)
    largest = np.fmax(rows.floats["gpu_util_max_pct"], largest)
    most = np.fmin(rows.floats["gpu_util_p98_pct"], largest)
    stated = ~np.isnan(rows.floats["gpu_util_p98_pct"])
    covered = np.where(np.isnan(rows.floats["gpu_util_coverage_ratio"]), 1.0, rows.floats["gpu_util_coverage_ratio"])
    seen_ms = weight * np.minimum(covered, 1.0)
    rest_ms = np.where(stated, (1 - PEAK_SHARE) * seen_ms, 0.0)
    known = ~np.isnan(util) & ~np.isnan(largest)
    return RowPeaks(
        np.where(known, most, np.nan), np.where(known, largest, np.nan), seen_ms - rest_ms, rest_ms, weight - seen_ms
    )


def sm_peaks(rows: DayRows, util: Floats, peaks: RowPeaks) -> RowPeaks:
    """The levels that SM activity stays within if the kernels of one row take up equally many SMs.

    There are only means of it. Over the row's share of time with a kernel, a mean says how many SMs a kernel takes up.
    """
    active = rows.floats["sm_active_pct"]
    if active is rows.nothing:
        return replace(peaks, most_pct=rows.nothing, rest_pct=rows.nothing)
    ratio = np.ones(len(active))
    np.divide(active, util, out=ratio, where=util > 0)
    ratio = np.where(np.isnan(active), np.nan, np.minimum(ratio, 1.0))
    return replace(peaks, most_pct=peaks.most_pct * ratio, rest_pct=peaks.rest_pct * ratio)
