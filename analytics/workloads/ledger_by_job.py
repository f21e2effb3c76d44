"""The ledger by the work that its time was spent on: by job, by unbroken stay on a GPU, and by whole hour."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from analytics.intervals import clip
from analytics.states import ALLOCATED, OCCUPIED
from analytics.workloads.memo import once
from analytics.workloads.row_index import Places
from fallow.clock import HOUR_MS

if TYPE_CHECKING:
    from analytics.workloads.model import Context

SEVERAL = "+"
"""Joins the names of those who share a GPU."""

_JOB_NAMES = r"(^|\+)(?:slurm|pod|ray|claim):"
_NEXT_JOB = r"\+(slurm|pod|ray|claim):"
_SPLIT = "\x1f"


def by_job(stretches: pl.DataFrame) -> pl.DataFrame:
    """The rows that belong to jobs, once for each job of theirs, named in `work`."""
    names = pl.col("job").str.replace_all(_NEXT_JOB, f"{_SPLIT}${{1}}:").str.split(_SPLIT)
    named = stretches.filter(pl.col("job").is_not_null() & pl.col("state").is_in(ALLOCATED))
    return named.with_columns(work=names).explode("work")


def one_job() -> pl.Expr:
    """Whether a row belongs to exactly one job."""
    return (pl.col("job").str.count_matches(_JOB_NAMES) == 1).fill_null(value=False)


def stays(stretches: pl.DataFrame) -> pl.DataFrame:
    """One row per GPU and unbroken time with processes of the same holder, account and job: `time` to `end`."""
    names = ("host", "gpu", "holder", "account", "job")
    rows = stretches.filter(pl.col("state").is_in(OCCUPIED)).select(*names, "time", "end").sort("gpu", "host", "time")
    same = pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift(1)) for name in names)
    follows = (pl.col("time") == pl.col("end").shift(1)).fill_null(value=False)
    return (
        rows.with_columns(stay=(~(same & follows)).cum_sum())
        .group_by("stay", maintain_order=True)
        .agg(*(pl.col(name).first() for name in names), pl.col("time").min(), pl.col("end").max())
        .drop("stay")
    )


@once
def whole_hours(context: Context) -> pl.DataFrame:
    """Rows of `hourly` in the window, each wholly inside one stay, with its holder, account and job.

    Hours in which holders changed are left out, for nobody can say whose their means are.
    """
    inside = (pl.col("time") >= context.since_ms) & (pl.col("time") + HOUR_MS <= context.until_ms)
    # both come sorted by GPU, host and time
    hours = context.rollups.hourly().filter(inside & (pl.col("observed_ms") > 0))
    owned = stays(context.inside.stretches).select(pl.all().exclude("end"), stay_end="end")
    found = hours.join_asof(owned, on="time", by=("host", "gpu"), strategy="backward", check_sortedness=False)
    return found.filter(pl.col("time") + HOUR_MS <= pl.col("stay_end")).drop("stay_end")


@once
def _places(context: Context) -> Places:
    return Places(context.inside.stretches, "gpu")


def within_hours(context: Context, hours: pl.DataFrame) -> pl.DataFrame:
    """The parts of the window's ledger rows that lie in these hours (host, gpu, time, energy_mj, energy_ms of `hourly`).

    Energy is that of the hours themselves; other sums are shared by time.
    """
    wanted = hours.select(
        "host", "gpu", hour=pl.col("time") // HOUR_MS, hour_mj=pl.col("energy_mj"), hour_ms=pl.col("energy_ms")
    )
    rows = _places(context).of(hours["gpu"].to_list()).filter(pl.col("state").is_in(ALLOCATED))
    first, last = pl.col("time") // HOUR_MS, (pl.col("end") - 1) // HOUR_MS
    pieces = rows.with_columns(hour=pl.int_ranges(first, last + 1)).explode("hour").join(
        wanted, on=("host", "gpu", "hour")
    )  # fmt: skip
    hour_start = pl.col("hour") * HOUR_MS
    parts = clip(pieces, hour_start, hour_start + HOUR_MS)
    share = (pl.col("end") - pl.col("time")) / HOUR_MS
    return parts.with_columns(
        energy_mj=(pl.col("hour_mj") * share).fill_null(0.0),
        energy_ms=(pl.col("hour_ms") * share).fill_null(0).round().cast(pl.Int64),
    ).drop("hour", "hour_mj", "hour_ms")


def newest_source(stretches: pl.DataFrame) -> str | None:
    """How the newest of some ledger rows knows its holder; None where it does not."""
    newest = stretches.select("time", "gpu", "holder_source").filter(stretches["time"] == stretches["time"].max())
    source = newest.sort("gpu")["holder_source"][-1]
    return None if source is None else str(source)
