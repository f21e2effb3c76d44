"""The state of each GPU over time, in bins."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.ledger.summary import Totals, totals_by
from analytics.states import UNUSED
from fallow.clock import HOUR_MS, MINUTE_MS
from fallow.schema import STATES

_BINS_MS = (10 * MINUTE_MS, 30 * MINUTE_MS, HOUR_MS, 2 * HOUR_MS, 3 * HOUR_MS, 6 * HOUR_MS, 24 * HOUR_MS)
BINS_MOST = 336
"""Most bins: a week of half hours."""


@dataclass(frozen=True)
class FleetTimeline:
    """The state of each GPU in most of each bin: `codes` has a row per GPU and a column per bin.

    A code is a position in `fallow.schema.STATES`, or NOT_THERE if the GPU was not in the ledger. Rows are sorted by
    waste, the most first. `totals` are those of each GPU over the window; the colours of the bins do not add up to
    them.
    """

    gpus: tuple[str, ...]
    hosts: tuple[str, ...]
    since_ms: int
    bin_ms: int
    codes: NDArray[np.uint8]
    totals: tuple[Totals, ...]


NOT_THERE = 255
"""Code of a bin without the GPU."""


def timeline(segments: pl.DataFrame, since_ms: int, until_ms: int) -> FleetTimeline:
    """Return the state of each GPU in most of each bin, with the shortest bin that gives at most 336 bins.

    Rows are sorted by waste (time free, reserved or held), the most first, then by host and GPU.
    """
    bin_ms = next((each for each in _BINS_MS if (until_ms - since_ms) / each <= BINS_MOST), None)
    if bin_ms is None:
        bin_ms = -(-(until_ms - since_ms) // (BINS_MOST * _BINS_MS[-1])) * _BINS_MS[-1]
    rows = _in_order(segments)
    bins = max(1, -(-(until_ms - since_ms) // bin_ms))
    edges_ms = since_ms + bin_ms * np.arange(bins + 1, dtype=np.int64)
    spans = segments.join(rows.select("gpu", "row"), on="gpu")
    state = spans["state"].replace_strict(list(STATES), list(range(len(STATES)))).to_numpy()
    codes = longest_in_bins(spans, state, len(rows), edges_ms, NOT_THERE).astype(np.uint8)
    totals = totals_by(segments, "gpu")
    return FleetTimeline(
        tuple(rows["gpu"]), tuple(rows["host"]), since_ms, bin_ms, codes, tuple(totals[gpu] for gpu in rows["gpu"])
    )


def longest_in_bins(
    spans: pl.DataFrame, values: NDArray[np.int64], rows: int, edges_ms: NDArray[np.int64], nothing: int
) -> NDArray[np.int64]:
    """Return per row and bin the value that took most of the bin, or `nothing` without a span in it.

    Of two equally long values the lower one is returned: of positions in STATES the less used state. `spans` has `row`,
    `time`, `end` and `gpu_share`. Bin i lasts from `edges_ms[i]` to `edges_ms[i + 1]`; time outside does not count.
    `values[i]` is the value of span i, at least 0.
    """
    bins = len(edges_ms) - 1
    found = np.full(rows * bins, nothing, np.int64)
    value_count = int(values.max(initial=0)) + 1
    key, spent = _pieces(spans, values, value_count, edges_ms)
    keys, place = np.unique(key, return_inverse=True)
    sums = np.bincount(place, spent, len(keys))
    # whole milliseconds: sums of shares differ in their last digits, and a tie is one of time
    order = np.lexsort((keys, -np.round(sums), keys // value_count))
    cells, where = np.unique(keys[order] // value_count, return_index=True)
    found[cells] = keys[order][where] % value_count
    return found.reshape(rows, bins)


def spent_in_bins(
    spans: pl.DataFrame, values: NDArray[np.int64], value_count: int, rows: int, edges_ms: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return `spent[row, bin, value]`: the GPU milliseconds of each bin that a row spent in each value.

    Arguments as above.
    """
    bins = len(edges_ms) - 1
    key, spent = _pieces(spans, values, value_count, edges_ms)
    found = np.bincount(key, spent, rows * bins * value_count).astype(np.float64)
    return found.reshape(rows, bins, value_count)


def _pieces(
    spans: pl.DataFrame, values: NDArray[np.int64], value_count: int, edges_ms: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the spans cut at the edges: place, `(row * bins + bin) * value_count + value`, and GPU milliseconds."""
    bins = len(edges_ms) - 1
    start = np.maximum(spans["time"].to_numpy(), edges_ms[0])
    end = np.minimum(spans["end"].to_numpy(), edges_ms[-1])
    first = np.searchsorted(edges_ms, start, "right") - 1
    pieces = np.where(start < end, np.searchsorted(edges_ms, end) - first, 0)
    span = np.repeat(np.arange(len(spans)), pieces)
    column = first[span] + np.arange(len(span)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    spent = np.minimum(end[span], edges_ms[column + 1]) - np.maximum(start[span], edges_ms[column])
    key = (spans["row"].to_numpy().astype(np.int64)[span] * bins + column) * value_count + values[span]
    return key, spent * spans["gpu_share"].to_numpy()[span]


def _in_order(segments: pl.DataFrame) -> pl.DataFrame:
    span = (pl.col("end") - pl.col("time")) * pl.col("gpu_share")
    return (
        segments.group_by("gpu")
        .agg(pl.col("host").last(), wasted=span.filter(pl.col("state").is_in(UNUSED)).sum())
        .sort("wasted", "host", "gpu", descending=[True, False, False])
        .with_row_index("row")
    )
