"""What an import amounts to, in the figures that show a wrong unit, zone or interval at a glance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from analytics.importers.model import PROCESSES, Imported
from analytics.importers.processes import flat
from fallow.clock import HOUR_MS, format_duration
from fallow.units import format_bytes


@dataclass(frozen=True)
class ImportOverview:
    """Means are over the rows that have the value; None where none has."""

    gpus: int
    hosts: tuple[str, ...]
    rows: int
    gpu_hours: float
    """Rows times their interval."""

    span_hours: float
    mean_util_pct: float | None
    zero_ratio: float | None
    """Share of utilization values that are 0."""

    mean_mem_used_bytes: float | None
    mem_total_bytes: float | None
    """Mean over the GPUs whose card is known."""

    mean_power_w: float | None
    power_limit_w: float | None
    cadence_ms: float | None
    """Median step between samples of a GPU."""

    longest_gap_ms: int | None
    processes: int | None
    """Different process ids; None where no file lists processes."""

    users: int | None
    """Different users of the processes; 0 where the files name none."""


def overview_of(imported: Imported) -> ImportOverview:
    """The figures of everything that was read, before any of it is published."""
    frame = imported.gpu.with_columns(true_ms=_true_ms())
    util = _values(frame, "gpu_util_pct")
    steps = frame.select(pl.col("true_ms").sort().diff().over("gpu", mapping_strategy="explode")).to_series()
    steps = steps.filter(steps > 0)
    first, end = frame["true_ms"].min(), (frame["true_ms"] + frame["interval_ms"]).max()
    gap = steps.max()
    return ImportOverview(
        gpus=frame["gpu"].n_unique(),
        hosts=(imported.host,),
        rows=frame.height,
        gpu_hours=float(frame["interval_ms"].cast(pl.Int64).sum()) / HOUR_MS,
        span_hours=(_number(end) - _number(first)) / HOUR_MS,
        mean_util_pct=_mean(util),
        zero_ratio=_mean((util == 0).cast(pl.Float64)),
        mean_mem_used_bytes=_mean(_values(frame, "mem_used_bytes")),
        mem_total_bytes=_mean(_values(imported.device, "mem_total_bytes")),
        mean_power_w=_mean(_values(frame, "power_w")),
        power_limit_w=_mean(_values(imported.device, "power_limit_w")),
        cadence_ms=None if steps.is_empty() else _number(steps.median()),
        longest_gap_ms=None if gap is None else int(_number(gap)),
        **_listed(frame),
    )


def _listed(frame: pl.DataFrame) -> dict[str, int | None]:
    if PROCESSES not in frame.columns or frame[PROCESSES].null_count() == frame.height:
        return {"processes": None, "users": None}
    every = flat(frame, ())
    return {name: every[column].drop_nulls().n_unique() for name, column in (("processes", "pid"), ("users", "user"))}


def _true_ms() -> pl.Expr:
    return pl.col("time").dt.epoch("ms") + pl.col("offset_ms").fill_null(0)


def _values(frame: pl.DataFrame, name: str) -> pl.Series:
    return frame[name].drop_nulls() if name in frame.columns else pl.Series(name, [], dtype=pl.Float64)


def _mean(values: pl.Series) -> float | None:
    return None if values.is_empty() else _number(values.mean())


def _number(value: object) -> float:
    if not isinstance(value, int | float):
        raise TypeError(value)
    return float(value)


def overview_lines(overview: ImportOverview) -> Iterator[str]:
    """The figures for people; what the files do not hold is left out."""
    yield f"GPU-hours {overview.gpu_hours:,.2f} in a span of {overview.span_hours:,.2f} h"
    if overview.mean_util_pct is not None and overview.zero_ratio is not None:
        yield f"busy      {overview.mean_util_pct:.1f} % on average, {overview.zero_ratio:.1%} of the samples at 0"
    if overview.mean_mem_used_bytes is not None:
        of = "" if overview.mem_total_bytes is None else f" of the card's {format_bytes(overview.mem_total_bytes)}"
        yield f"memory    {format_bytes(overview.mean_mem_used_bytes)} used on average{of}"
    if overview.mean_power_w is not None:
        of = "" if overview.power_limit_w is None else f" of the limit of {overview.power_limit_w:,.0f} W"
        yield f"power     {overview.mean_power_w:,.0f} W on average{of}"
    if overview.cadence_ms is not None and overview.longest_gap_ms is not None:
        step, gap = format_duration(round(overview.cadence_ms)), format_duration(overview.longest_gap_ms)
        yield f"cadence   {step} between samples of a GPU (median), {gap} at the most"
    if overview.processes is not None:
        users = f"of {overview.users:,} users" if overview.users else "of users whom no file names"
        yield f"processes {overview.processes:,} {users if overview.processes else 'listed'}"
