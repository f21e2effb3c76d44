"""Daily demand for GPUs in published traces: tables of jobs, and levels per minute, identified by their columns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from analytics.capacity.demand import hourly_most
from analytics.capacity.peak_demand import QUANTILE
from fallow.clock import HOUR_MS, SECOND_MS

if TYPE_CHECKING:
    from pathlib import Path

    from analytics.capacity.forecast_models import Days

HOURS_MIN = 22
"""The share of a day's hours that the day's demand covers, as in fallow."""


@dataclass(frozen=True)
class TraceKind:
    """Files with these columns: a level over `time`, or jobs with `start`, `end` and the GPUs that each had.

    For Venus only starts and ends are published. Its level is relative to its minimum, and no error depends on that.
    """

    name: str
    columns: tuple[str, ...]
    gpus: pl.Expr
    start: str = ""
    end: str = ""


KINDS = (
    TraceKind("Helios Earth, one virtual cluster", ("time", "running_gpu_num"), pl.col("running_gpu_num")),
    TraceKind("Philly, hosts in use", ("time", "active", "total"), pl.col("active")),
    TraceKind("Helios Venus", ("time", "start_gpu_num", "end_gpu_num"),
              (pl.col("start_gpu_num") - pl.col("end_gpu_num")).cum_sum()
              - (pl.col("start_gpu_num") - pl.col("end_gpu_num")).cum_sum().min()),
    TraceKind("Alibaba openb", ("num_gpu", "gpu_milli", "creation_time", "deletion_time"),
              pl.col("num_gpu") * pl.col("gpu_milli") / 1000, "creation_time", "deletion_time"),
    TraceKind("Alibaba DLRM", ("gpu_request", "creation_time", "deletion_time"),
              pl.col("gpu_request"), "creation_time", "deletion_time"),
    TraceKind("jobs with gpu_num", ("gpu_num", "start_time", "end_time"), pl.col("gpu_num"), "start_time", "end_time"),
)  # fmt: skip


def series_of(paths: list[Path]) -> dict[str, list[Days]]:
    """Return the daily series in the files by kind, with NaN on days without a recording.

    Where several files of a kind are at 0 on the same day, the recording had stopped.
    """
    return {name: _without_gaps([_days(each) for each in own]) for name, own in hours_of(paths).items()}


def hours_of(paths: list[Path]) -> dict[str, list[pl.DataFrame]]:
    """Return the files' hourly series by kind: `time` (start, ms) and `most`; raises ValueError for an unknown kind."""
    found: dict[str, list[pl.DataFrame]] = {}
    for path in paths:
        rows = pl.read_csv(path, infer_schema_length=100_000, try_parse_dates=True)
        kind = next((kind for kind in KINDS if set(kind.columns) <= set(rows.columns)), None)
        if kind is None:
            raise ValueError(f"{path} has no columns of a trace that is supported: {', '.join(rows.columns)}")
        found.setdefault(kind.name, []).append(_jobs(rows, kind) if kind.start else _levels(rows, kind))
    return found


def _levels(rows: pl.DataFrame, kind: TraceKind) -> pl.DataFrame:
    levels = rows.sort("time").select("time", gpus=kind.gpus)
    hours = levels.group_by(time=pl.col("time").dt.truncate("1h").dt.epoch("ms")).agg(most=pl.col("gpus").max())
    return hours.with_columns(pl.col("most").cast(pl.Float64)).sort("time")


def _jobs(rows: pl.DataFrame, kind: TraceKind) -> pl.DataFrame:
    """Return the most GPUs of jobs in each hour, from the first recorded end (earlier jobs are missing) to the last.

    A job without an end lasts until the last recorded end.
    """
    jobs = rows.select(time=_moment(rows, kind.start), end=_moment(rows, kind.end), gpus=kind.gpus, of=pl.lit(0))
    jobs = jobs.filter(pl.col("gpus") > 0)
    since_ms, until_ms = jobs.select(first=pl.col("end").min(), last=pl.col("end").max()).row(0)
    jobs = jobs.with_columns(pl.col("time").fill_null(0), pl.col("end").fill_null(until_ms))
    return hourly_most(jobs.filter(pl.col("end") > pl.col("time")), ("of",), since_ms, until_ms, weight="gpus")


def _moment(rows: pl.DataFrame, column: str) -> pl.Expr:
    if rows.schema[column].is_temporal():
        return pl.col(column).dt.epoch("ms")
    return (pl.col(column).cast(pl.Float64, strict=False) * SECOND_MS).cast(pl.Int64)


def _days(hours: pl.DataFrame) -> Days:
    """Return the GPUs that sufficed in 95 % of each day's hours, as in fallow, without the cut-off last day."""
    days = hours.group_by(day=pl.col("time") // (24 * HOUR_MS)).agg(
        need=pl.col("most").quantile(QUANTILE, "higher"), hours=pl.len()
    )
    known = dict(days.filter(pl.col("hours") >= HOURS_MIN).select("day", "need").iter_rows())
    return np.array([known.get(day, math.nan) for day in range(min(known), max(known))], np.float64)


def _without_gaps(series: list[Days]) -> list[Days]:
    if len(series) < 2:
        return series
    still = np.all([each == 0 for each in series], axis=0)
    return [np.where(still, np.nan, each) for each in series]
