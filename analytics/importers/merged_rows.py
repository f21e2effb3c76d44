"""Two sets of rows of one table as one: what makes two rows the same, and which values win."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from fallow.schema import DEVICE, GPU, LakeTable

_DEFAULTS: Mapping[str, Mapping[str, str]] = {
    "gpu": {"health": "ok", "util_source": "import"},
    "device": {"source": "import"},
    "process": {"attribution": "import"},
    "host": {},
    "event": {},
}
"""Filled in after merging, so that an importer that knows nothing of a column never hides what another one knew."""

_KEYS: Mapping[str, list[str]] = {
    "gpu": ["gpu", "true_ms"],
    "device": ["gpu"],
    "process": ["gpu", "time", "pid"],
    "host": ["time"],
    "event": ["time", "gpu", "kind", "detail"],
}
_LAST_KEYS: Mapping[str, list[str]] = {"gpu": ["offset_ms"], "process": ["pid"]}
"""What sorts rows of one GPU and time."""

TRUE_MS = (pl.col("time").dt.epoch("ms") + pl.col("offset_ms").fill_null(0)).alias("true_ms")


def merge(table: LakeTable, old: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """The rows of both, sorted; where both have a row, new values win unless they are null.

    Rows of `gpu` are the same if GPU and true time are (time + offset_ms: also when another interval was given);
    rows of `device` if the GPU is, on one date, and then the earlier time stays; rows of `process` if GPU, time and
    process are.
    """
    keys = keys_of(table)
    marked = keyed(table, new).with_columns(is_new=pl.lit(value=True))
    both = marked.join(keyed(table, old), on=keys, how="full", coalesce=True, suffix="_old")
    names = [name for name in table.names if name not in keys]
    columns = [
        pl.min_horizontal(name, f"{name}_old").alias(name)
        if table is DEVICE and name == "time"
        # processes are added to a list and never taken from it
        else pl.max_horizontal(name, f"{name}_old").alias(name)
        if name == "process_count"
        else pl.coalesce(name, f"{name}_old").alias(name)
        for name in names
    ]
    # only what an importer brings is filled in: a compacted file may hold an agent's rows too
    filled = both.with_columns(columns).with_columns(
        pl.when(pl.col("is_new") & _applies(table, name))
        .then(pl.col(name).fill_null(value))
        .otherwise(name)
        .alias(name)
        for name, value in _DEFAULTS[table.name].items()
    )
    order = [name for name in ("gpu", "time") if name in table.names]
    return filled.select(table.names).sort([*order, *_LAST_KEYS.get(table.name, [])])


def _applies(table: LakeTable, name: str) -> pl.Expr:
    """Health is `ok` only for rows with some value; for a row without any it is unknown."""
    if name != "health":
        return pl.lit(value=True)
    described = ("time", "gpu", "interval_ms", "offset_ms", "read_delay_ms", "health", "util_source")
    return pl.any_horizontal(pl.col(each).is_not_null() for each in table.names if each not in described)


def keys_of(table: LakeTable) -> list[str]:
    """The columns that tell two rows apart; `true_ms` is time + offset_ms."""
    return _KEYS[table.name]


def keyed(table: LakeTable, rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(TRUE_MS) if table is GPU else rows


def same_rows(old: pl.DataFrame, merged: pl.DataFrame) -> int:
    """How many rows of the lake stay as they are, to the last bit."""
    return merged.join(old, on=merged.columns, how="semi", nulls_equal=True).height
