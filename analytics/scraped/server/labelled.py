"""From series with their arrays to `Samples`: what all ways of reading have in common."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.scraped.samples import SAMPLE_SCHEMA, Labels, Samples
from fallow.errors import InputError
from fallow.outside_text import plain

STALE_BITS = np.int64(0x7FF0000000000002)
"""The NaN that Prometheus ends a series with (model/value in its source)."""

Stretch = tuple[Labels, NDArray[np.int64], NDArray[np.float64]]
"""Some samples of one series in order of time; its labels may come again."""


def samples_of(stretches: Iterable[Stretch], since_ms: int, until_ms: int) -> Samples:
    """Those of the window; series without any there are left out."""
    places: dict[frozenset[tuple[str, str]], int] = {}
    labels: list[Labels] = []
    indexes: list[NDArray[np.uint32]] = []
    times: list[NDArray[np.int64]] = []
    values: list[NDArray[np.float64]] = []
    for series, all_times, all_values in stretches:
        inside = (all_times >= since_ms) & (all_times < until_ms)
        if not inside.any():
            continue
        place = places.setdefault(frozenset(series.items()), len(places))
        if place == len(labels):
            labels.append(series)
        times.append(all_times[inside])
        values.append(all_values[inside])
        indexes.append(np.full(times[-1].size, place, dtype=np.uint32))
    if not labels:
        return Samples((), pl.DataFrame(schema=SAMPLE_SCHEMA))
    return Samples(tuple(labels), _frame(np.concatenate(indexes), np.concatenate(times), np.concatenate(values)))


def _frame(indexes: NDArray[np.uint32], times: NDArray[np.int64], values: NDArray[np.float64]) -> pl.DataFrame:
    stale = values.view(np.int64) == STALE_BITS
    column = pl.Series(values)
    if stale.any():
        column = column.zip_with(pl.Series(~stale), pl.Series([None], dtype=pl.Float64))
    frame = pl.DataFrame({"series": indexes, "time_ms": times, "value": column}, schema=SAMPLE_SCHEMA)
    ordered = (np.diff(indexes.astype(np.int64)) > 0) | ((np.diff(indexes) == 0) & (np.diff(times) >= 0))
    return frame if ordered.all() else frame.sort("series", "time_ms", maintain_order=True)


def checked_labels(labels: Labels, most: int) -> Labels:
    """Raises InputError for a series with more labels than that."""
    if len(labels) > most:
        name = plain(labels.get("__name__", "?"))
        raise InputError(
            f"a series of {name} has {len(labels):,} labels, and fallow reads at most {most:,} of one",
            "leave it out with --match, or drop those labels where it is scraped (metric_relabel_configs)",
        )
    return labels
