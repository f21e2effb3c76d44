"""Shapes of tables for `fallow import series`: hosts and metrics in columns of their own, or a column for each GPU."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import polars as pl

from analytics.importers.model import Tally
from analytics.importers.source import ImportSource, InputLimits, read_columns
from fallow.errors import InputError, UsageError

_PLACES = ("host", "gpu", "metric")
_EVERY = "*"
"""The COLUMN of --column for a wide table whose columns are all of one metric."""


@dataclass(frozen=True)
class TableShape:
    """The flags that describe the columns of each file; None where the files have no such column."""

    time: str
    gpu: str | None
    host: str | None = None
    metric: str | None = None
    value: str | None = None
    wide: re.Pattern[str] | None = None
    """Matches the names of columns that hold values, with groups named as _PLACES."""

    @classmethod
    def of(cls, args: argparse.Namespace) -> TableShape:
        """Return the shape that the flags describe. Raises UsageError where they contradict each other."""
        wide = None if args.wide is None else _wide_pattern(args.wide)
        if (args.metric_column is None) != (args.value_column is None):
            raise UsageError("--metric-column and --value-column belong together", "give both, or neither")
        if wide is not None and args.metric_column is not None:
            raise UsageError("--wide and --metric-column contradict each other", "give one of them")
        if args.gpu is None and (wide is None or "gpu" not in wide.groupindex):
            raise UsageError(
                "no flag says where GPUs are named",
                "--gpu COLUMN, or --wide '{host} {gpu}' where each GPU has a column of its own",
            )
        return cls(args.time, args.gpu, args.host_column, args.metric_column, args.value_column, wide)

    @property
    def named(self) -> list[str]:
        """Return the columns that name a row."""
        return [name for name in (self.time, self.gpu, self.host) if name is not None]

    @property
    def names_hosts(self) -> bool:
        return self.host is not None or (self.wide is not None and "host" in self.wide.groupindex)


def _wide_pattern(text: str) -> re.Pattern[str]:
    places = re.findall(r"{(\w+)}", text)
    if not places or len(set(places)) < len(places) or not set(places) <= set(_PLACES):
        raise UsageError(f"--wide '{text}' is not a pattern", "use each of {host}, {gpu} and {metric} once at most")
    parts = re.split(r"{(\w+)}", text)
    return re.compile("".join(f"(?P<{part}>.+?)" if at % 2 else re.escape(part) for at, part in enumerate(parts)))


def read_table(
    path: str, keys: Sequence[str], shape: TableShape, limits: InputLimits, tally: Tally
) -> tuple[pl.DataFrame, ImportSource]:
    """Return `time`, `gpu`, `host` (null: unnamed) and a column for each of `keys`, as the file writes them.

    `keys` name columns, or metrics where the file has a column of metrics or of values by name. Raises InputError.
    """
    named = shape.named
    if shape.wide is not None:
        raw, source = _read_wide(path, shape, shape.wide, limits, tally)
    elif shape.metric is not None and shape.value is not None:
        raw, source = _whole_rows(*read_columns(path, [*named, shape.metric, shape.value], limits), tally)
        raw = raw.with_columns(_metric=pl.col(shape.metric).cast(pl.String).str.strip_chars(), _value=shape.value)
    else:
        raw, source = read_columns(path, [*named, *keys], limits)
        return _named(raw, shape, keys), source
    return _columns_of_metrics(path, _named(raw, shape, ("_metric", "_value")), keys, tally), source


def _whole_rows(raw: pl.DataFrame, source: ImportSource, tally: Tally) -> tuple[pl.DataFrame, ImportSource]:
    """Return the rows without the last one where its line has no end, so that its last value may lack digits."""
    if source.doubtful is None:
        return raw, source
    tally.drop("last line truncated", 1)
    return raw.head(-1), replace(source, doubtful=None)


def _named(raw: pl.DataFrame, shape: TableShape, kept: Sequence[str]) -> pl.DataFrame:
    """Return the rows with `time`, `gpu` and `host` under these names."""
    if shape.wide is None:
        host = pl.lit(None, pl.String) if shape.host is None else pl.col(shape.host).cast(pl.String)
        raw = raw.with_columns(_host=host, _gpu=pl.col(shape.gpu or "").cast(pl.String))
    return raw.select(pl.col(shape.time).alias("time"), gpu="_gpu", host="_host", **{f"={name}": name for name in kept})


def _read_wide(
    path: str, shape: TableShape, wide: re.Pattern[str], limits: InputLimits, tally: Tally
) -> tuple[pl.DataFrame, ImportSource]:
    """Return a row for each row and matching column, with `_host`, `_gpu`, `_metric` and `_value`."""
    named = shape.named

    def holds_values(name: str) -> bool:
        return name not in named and wide.fullmatch(name) is not None

    raw, source = _whole_rows(*read_columns(path, named, limits, holds_values), tally)
    values = [name for name in raw.columns if holds_values(name)]
    if not values:
        shown = ", ".join(read_columns(path, named, limits, lambda _: True)[0].columns[:6])
        raise InputError(f"no column of {path} matches --wide", f"it has: {shown}")
    matches = [match for name in values if (match := wide.fullmatch(name)) is not None]
    places = [
        {"_column": match[0], "_metric": _EVERY, **{f"_{place}": text for place, text in match.groupdict().items()}}
        for match in matches
    ]
    about = pl.DataFrame(places, schema=dict.fromkeys(("_column", "_metric", "_host", "_gpu"), pl.String))
    long = raw.unpivot(values, index=named, variable_name="_column", value_name="_value").join(about, on="_column")
    own = {"_host": shape.host, "_gpu": shape.gpu}
    return long.with_columns(pl.col(name).cast(pl.String).alias(place) for place, name in own.items() if name), source


def _columns_of_metrics(path: str, rows: pl.DataFrame, keys: Sequence[str], tally: Tally) -> pl.DataFrame:
    """Return one row for each time, GPU and host, with the value of each metric."""
    rows = rows.rename({"=_metric": "_metric", "=_value": "_value"})
    known = rows["_metric"].drop_nulls().unique().sort().to_list()
    for key in keys:
        if key not in known:
            there = ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")
            other = "--wide has no {metric}: write FILE:*" if known == [_EVERY] else f"it has: {there}"
            raise InputError(f"{path} has no metric '{key}'", other)
    index = ["time", "gpu", "host"]
    wanted = rows.filter(pl.col("_metric").is_in(keys) & pl.col("_value").is_not_null())
    of_key = {f"={key}": pl.col("_value").filter(pl.col("_metric") == key).first() for key in keys}
    again = wanted.height - wanted.select(*index, "_metric").n_unique()
    tally.drop("same GPU, time and metric again: first value kept", again)
    return wanted.group_by(index, maintain_order=True).agg(**of_key)
