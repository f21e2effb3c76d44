"""Raw samples of some series in a window: what every way of reading a metrics server gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

Labels = Mapping[str, str]
"""The labels of one series, its name as `__name__`."""


def first_label(labels: Labels, names: tuple[str, ...]) -> str:
    """The value of the first of these labels that is there and not empty; empty where none is."""
    return next((labels[name] for name in names if labels.get(name)), "")


SAMPLE_SCHEMA: dict[str, pl.DataType] = {"series": pl.UInt32(), "time_ms": pl.Int64(), "value": pl.Float64()}


@dataclass(frozen=True)
class Samples:
    """`frame` has the columns of SAMPLE_SCHEMA, sorted by series and time; `series` is an index into `labels`.

    A value of null is a staleness marker: the series ended there. NaN is what the exporter said.
    """

    labels: tuple[Labels, ...]
    frame: pl.DataFrame
