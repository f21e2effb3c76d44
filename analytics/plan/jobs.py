"""Jobs as the queue knows them: when each asked, began and ended, for how many GPUs and by which rank.

They come from the `claim` table, which has those that were given GPUs, and from `request`, which has those that were not.
"""

from __future__ import annotations

import polars as pl

from analytics.allocations.spans import FOREVER_MS, known_allocations
from analytics.frames import read_frame
from analytics.small_tables import read_small
from fallow import schema
from fallow.clock import MINUTE_MS, SECOND_MS
from fallow.lake import Lake

JOB_SCHEMA: dict[str, pl.DataType] = {
    "scheduler": pl.String(), "job": pl.String(), "name": pl.String(), "user": pl.String(), "account": pl.String(),
    "project": pl.String(), "partition": pl.String(), "qos": pl.String(), "priority": pl.Int64(), "state": pl.String(),
    "reason": pl.String(), "submitted": pl.Int64(), "eligible": pl.Int64(), "start": pl.Int64(), "end": pl.Int64(),
    "withdrawn": pl.Int64(), "as_of": pl.Int64(), "time_limit_ms": pl.Int64(), "planned_end": pl.Int64(),
    "gpus": pl.Int64(), "host_count": pl.Int64(), "hosts": pl.List(pl.String()), "gpu_model": pl.String(),
}  # fmt: skip
"""Columns of `load_jobs`, times in milliseconds.

`submitted` is when it asked, `eligible` from when on it could have begun (null: not known apart from `submitted`). `start` is
null where it never had a GPU; then `withdrawn` is when it gave up, null while it waits, and `as_of` when it was last seen to
wait. `end` is null while it runs, and where nobody stated it. `planned_end` is when its time limit ends it at the latest. `gpus` are those of the whole
job, null where unknown; `hosts` those that it ran on, empty before.
"""

_JOB = ("scheduler", "claim_id")
_RUN = (*_JOB, "start")
_TEXTS = ("name", "user", "account", "project", "partition", "qos", "state", "gpu_model")
LATE_MS = 5 * MINUTE_MS
"""Schedulers end jobs within minutes of their limit."""

_NUMBERS = ("priority", "submitted", "eligible", "planned_end", "time_limit_s", "host_count")


def load_jobs(lake: Lake) -> pl.DataFrame:
    """Every job of a lake, one row per run, with JOB_SCHEMA, by `submitted`; raises LakeError and its kinds."""
    claims = read_small(lake, schema.CLAIM, schema.CLAIM.names)
    requests = read_frame(lake.files(schema.REQUEST.name), schema.REQUEST, None, lake.left_out.leave_out)
    return jobs_of(claims, requests)


def ended_by_limit(jobs: pl.DataFrame, seen_ms: int) -> pl.DataFrame:
    """The same; a run of which nobody stated the end is over at its planned end where that has passed, nobody knows how.

    Args:
        jobs: with JOB_SCHEMA.
        seen_ms: up to when the lake was filled.
    """
    is_over = pl.col("start").is_not_null() & pl.col("end").is_null() & (pl.col("planned_end") < seen_ms - LATE_MS)
    return jobs.with_columns(
        end=pl.when(is_over).then("planned_end").otherwise("end"),
        state=pl.when(~is_over.fill_null(value=False)).then("state"),
    )


def jobs_of(claims: pl.DataFrame, requests: pl.DataFrame) -> pl.DataFrame:
    """The jobs in rows of both tables, with JOB_SCHEMA, by `submitted`.

    A job that was given GPUs since it was seen to wait is there once, as what it became.
    """
    started = _started(claims)
    waiting = _waiting(requests, started)
    parts = [_conform(started), _conform(waiting)]
    return pl.concat(parts).sort("submitted", "start", "scheduler", "job", nulls_last=True)


def _conform(jobs: pl.DataFrame) -> pl.DataFrame:
    return jobs.select(
        (pl.col(name) if name in jobs.columns else pl.lit(None)).cast(kind).alias(name)
        for name, kind in JOB_SCHEMA.items()
    )


def _started(claims: pl.DataFrame) -> pl.DataFrame:
    """One row per run that was given GPUs."""
    counted = pl.col("gpu").is_null()
    rows = known_allocations(claims)
    runs = rows.group_by(_RUN).agg(
        pl.col("end").max(),
        pl.col(*_TEXTS, *_NUMBERS).max(),
        total=pl.col("gpu_count").max(),
        hosts=pl.col("host").unique().sort(),
        named=pl.col("gpu").drop_nulls().n_unique().cast(pl.Int64),
        counted=pl.col("host_gpu_count").filter(counted).sum().cast(pl.Int64),
        is_uncounted=(counted & pl.col("host_gpu_count").is_null()).any(),
    )
    stated = claims.group_by("scheduler", "claim_id", start="time").agg(is_over=pl.col("end").is_not_null().any())
    runs = runs.join(stated, on=_RUN, how="left", nulls_equal=True)
    limit_ms = pl.coalesce(pl.col("time_limit_s") * SECOND_MS, pl.col("planned_end") - pl.col("start"))
    # a run that another one of the same job followed is over; one that its limit alone ends may still run
    is_over = pl.col("is_over") | (pl.col("end") < pl.col("planned_end").fill_null(FOREVER_MS))
    return runs.with_columns(
        job="claim_id",
        end=pl.when(is_over).then("end").otherwise(None),
        gpus=pl.when("is_uncounted").then("total").otherwise(pl.col("named") + pl.col("counted")),
        host_count=pl.coalesce("host_count", pl.col("hosts").list.len()),
        time_limit_ms=limit_ms,
        planned_end=pl.coalesce("planned_end", pl.col("start") + limit_ms),
    )


def _waiting(requests: pl.DataFrame, started: pl.DataFrame) -> pl.DataFrame:
    """One row per job without GPUs, as it was last seen; each task of an array is one."""
    newest = requests.sort("as_of", "time").unique((*_JOB, "time"), keep="last", maintain_order=True)
    is_last = pl.col("time").shift(-1).over(_JOB).is_null()  # a job waits once at a time
    newest = newest.filter(pl.col("withdrawn").is_not_null() | (pl.col("granted").is_null() & is_last))
    begun = started.group_by(_JOB).agg(last_start=pl.col("start").max())
    open_ones = newest.join(begun, on=_JOB, how="left", nulls_equal=True).filter(
        pl.col("last_start").is_null() | (pl.col("last_start") < pl.col("time"))
    )
    tasks = open_ones.with_columns(task=pl.int_ranges(pl.col("task_count").fill_null(1))).explode("task")
    return tasks.with_columns(
        job="claim_id",
        submitted="time",
        gpus="gpu_count",
        hosts=pl.lit([], pl.List(pl.String)),
        time_limit_ms=pl.col("time_limit_s") * SECOND_MS,
    )
