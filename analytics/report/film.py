"""The film strip: which state each GPU was in, bin by bin."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.report.figures import NOT_THERE, Film
from analytics.states import UNUSED
from fallow.clock import HOUR_MS, MINUTE_MS
from fallow.schema import STATES

_BINS_MS = (10 * MINUTE_MS, 30 * MINUTE_MS, HOUR_MS, 2 * HOUR_MS, 3 * HOUR_MS, 6 * HOUR_MS, 24 * HOUR_MS)
BINS_MOST = 336
"""A week of half hours."""


def film(stretches: pl.DataFrame, since_ms: int, until_ms: int) -> Film:
    """The state that each GPU spent most of each bin in, of the shortest bin that makes at most 336 of the window.

    Rows go by waste (time free, reserved or held), the most first, then by host and GPU.
    """
    bin_ms = next((each for each in _BINS_MS if (until_ms - since_ms) / each <= BINS_MOST), None)
    if bin_ms is None:
        bin_ms = -(-(until_ms - since_ms) // (BINS_MOST * _BINS_MS[-1])) * _BINS_MS[-1]
    rows = _in_order(stretches)
    bins = max(1, -(-(until_ms - since_ms) // bin_ms))
    spent = _time_in_bins(stretches.join(rows.select("gpu", "row"), on="gpu"), len(rows), bins, since_ms, bin_ms)
    codes = np.where(spent.sum(axis=0) >= 1, spent.argmax(axis=0), NOT_THERE).astype(np.uint8)
    return Film(tuple(rows["gpu"]), tuple(rows["host"]), since_ms, bin_ms, codes)


def _in_order(stretches: pl.DataFrame) -> pl.DataFrame:
    span = (pl.col("end") - pl.col("time")) * pl.col("gpu_share")
    return (
        stretches.group_by("gpu")
        .agg(pl.col("host").last(), wasted=span.filter(pl.col("state").is_in(UNUSED)).sum())
        .sort("wasted", "host", "gpu", descending=[True, False, False])
        .with_row_index("row")
    )


def _time_in_bins(rows: pl.DataFrame, gpus: int, bins: int, since_ms: int, bin_ms: int) -> NDArray[np.float32]:
    """Milliseconds by state, GPU and bin: whole bins by running sums of their edges, parts of bins one by one."""
    state = rows["state"].replace_strict(list(STATES), list(range(len(STATES)))).to_numpy().astype(np.int64)
    gpu = rows["row"].to_numpy().astype(np.int64)
    start, end = (rows[name].to_numpy() - since_ms for name in ("time", "end"))
    share = rows["gpu_share"].to_numpy()
    first, last = start // bin_ms, (end - 1) // bin_ms
    edges = np.zeros((len(STATES), gpus, bins + 1))
    spent = np.zeros((len(STATES), gpus, bins + 1))
    one = first == last
    np.add.at(spent, (state[one], gpu[one], first[one]), ((end - start) * share)[one])
    more = ~one
    where = (state[more], gpu[more])
    np.add.at(spent, (*where, first[more]), (((first + 1) * bin_ms - start) * share)[more])
    np.add.at(spent, (*where, last[more]), ((end - last * bin_ms) * share)[more])
    np.add.at(edges, (*where, first[more] + 1), (bin_ms * share)[more])
    np.add.at(edges, (*where, last[more]), (-bin_ms * share)[more])
    found: NDArray[np.float32] = (spent + np.cumsum(edges, axis=2))[:, :, :bins].astype(np.float32)
    return found
