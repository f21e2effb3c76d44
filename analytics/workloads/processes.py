"""Processes over the days of a window: those on GPUs at its end, and the programs of which they are a part."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from analytics.intervals import clip, islands
from analytics.ledger.day_processes import SERVER
from analytics.states import OCCUPIED
from analytics.workloads.ledger_rows import one_job
from analytics.workloads.model import Context, once_per_context
from analytics.workloads.process_lists import is_service
from analytics.workloads.window_end import last_rows
from fallow.clock import HOUR_MS, MINUTE_MS

_KEY = ("host", "gpu", "pid")


def held_by_work(context: Context, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the ledger rows except those with services only: a desktop or monitor does not hold a GPU for work."""
    processes = context.rollups.processes()
    serving = processes.filter(is_service()).select("host", "gpu").unique()
    asked = rows.with_row_index("_row")
    doubtful = asked.join(serving, on=("host", "gpu"), how="semi").filter(pl.col("user_source") == "process")
    if doubtful.is_empty():
        return rows
    work = processes.filter(~is_service()).select("host", "gpu", work_start="time", work_end="end")
    met = doubtful.join(work, on=("host", "gpu")).filter(
        (pl.col("work_start") < pl.col("end")) & (pl.col("work_end") > pl.col("time"))
    )
    alone = doubtful.join(met.select("_row").unique(), on="_row", how="anti")
    return asked.join(alone.select("_row"), on="_row", how="anti").drop("_row")


@once_per_context
def alive(context: Context) -> pl.DataFrame:
    """Return the newest `process_day` row of each process in the newest list of a GPU occupied at the window's end.

    Further columns: `first_seen` and `first_parent_pid`, its first list and the parent there; `state`, `user` and
    `segment_start`, those of the GPU's last ledger row.
    """
    now = last_rows(context).filter(pl.col("state").is_in(OCCUPIED))
    lists = context.users.lists
    named = [(each.host, gpu, each.pid) for gpu in now["gpu"] for each in lists.get(gpu, ())]
    listed = pl.DataFrame(named, schema={"host": pl.String, "gpu": pl.String, "pid": pl.Int32}, orient="row")
    days = context.rollups.processes().join(listed, on=_KEY, how="semi").sort("time")
    newest = days.unique(_KEY, keep="last", maintain_order=True).drop("first_parent_pid")
    first = days.group_by(*_KEY, "started").agg(
        first_seen=pl.col("time").first(), first_parent_pid=pl.col("first_parent_pid").first()
    )
    return (
        newest.join(first, on=[*_KEY, "started"], nulls_equal=True)
        .join(now.select("gpu", "state", "user", "user_source", "segment_start"), on="gpu")
        .sort(*_KEY)
    )


_TOGETHER_MS = MINUTE_MS
"""A launcher starts its workers within seconds; a person in a shell takes longer."""


def programs(processes: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of `process_day` without a job, with their `work`: a program of their host."""
    bare = processes.filter(pl.col("job").is_null() & ~is_service())
    single = (
        bare.sort("time")
        .group_by("host", "pid", "started", maintain_order=True)
        .agg(pl.col("user", "parent_pid").first())
        .sort("host", "user", "parent_pid", "started", "pid", nulls_last=True)
    )
    parents = single.select("host", parent_pid="pid", parent_started="started").unique(("host", "parent_pid"))
    grouped = (
        single.with_columns(burst=islands(("host", "user", "parent_pid"), _TOGETHER_MS, start="started", end="started"))
        .with_columns(siblings=pl.len().over("burst"), first=pl.col("started").min().over("burst"))
        .join(parents, on=("host", "parent_pid"), how="left")
    )
    has_parent = (pl.col("parent_pid") > 1).fill_null(value=False)
    child = has_parent & pl.col("parent_started").is_not_null()
    sibling = has_parent & (pl.col("siblings") > 1)
    leader = pl.when(child | sibling).then("parent_pid").otherwise("pid")
    began = pl.when(child).then("parent_started").when(sibling).then("first").otherwise("started")
    work = pl.format("{}:{}@{}", "host", leader, began.fill_null(0))
    return bare.join(
        grouped.select("host", "pid", "started", work=work), on=("host", "pid", "started"), nulls_equal=True
    )


@once_per_context
def program_runs(context: Context) -> pl.DataFrame:
    """Return programs without a job: host, gpu and work with the time on the GPU, and the number of their GPUs."""
    named = programs(context.rollups.processes()).group_by("host", "gpu", "work")
    runs = named.agg(began=pl.col("time").min(), ended=pl.col("end").max())
    return runs.with_columns(gpu_count=pl.col("gpu").n_unique().over("work"))


@once_per_context
def launched_together(context: Context) -> Mapping[str, frozenset[str]]:
    """Return by GPU all GPUs of the programs on it: when one worker ends, a launcher ends the others."""
    listed = [(each.host, gpu, each.pid) for gpu, those in context.users.lists.items() for each in those]
    processes = pl.DataFrame(listed, schema={"host": pl.String, "gpu": pl.String, "pid": pl.Int32}, orient="row")
    newest = context.rollups.processes().join(processes, on=processes.columns, how="semi")
    there = programs(newest).select("gpu", "work").unique()
    pairs = there.join(there, on="work", suffix="_other").group_by("gpu").agg(pl.col("gpu_other").unique())
    return {gpu: frozenset(others) for gpu, others in pairs.iter_rows()}


def program_segments(context: Context, segments: pl.DataFrame) -> pl.DataFrame:
    """Return the ledger's rows, cut to the time of each program on more than one GPU, with `work`."""
    runs = program_runs(context).filter(pl.col("gpu_count") > 1).drop("gpu_count")
    bare = segments.filter(pl.col("job").is_null() & pl.col("state").is_in(OCCUPIED))
    overlap = (pl.col("time") < pl.col("ended")) & (pl.col("end") > pl.col("began"))
    rows = bare.join(runs, on=("host", "gpu")).filter(overlap)
    return clip(rows, "began", "ended").drop("began", "ended")


def work_segments(context: Context, segments: pl.DataFrame) -> pl.DataFrame:
    """Return the ledger's occupied rows with `work`: their job, else their program, else the user on one GPU.

    Rows of several jobs are left out.
    """
    at_work = pl.col("state").is_in(OCCUPIED)
    jobs = segments.filter(one_job() & at_work).with_columns(work="job")
    bare = program_segments(context, segments)
    # work on a single GPU is distinguished by its user alone
    alone = segments.filter(pl.col("job").is_null() & at_work).join(
        bare.select("host", "gpu").unique(), on=("host", "gpu"), how="anti"
    )
    single = alone.with_columns(work=pl.format("{}/{}/{}", "host", pl.col("user").fill_null(""), "gpu"))
    return pl.concat([jobs, bare, single])


@once_per_context
def serving_gpus(context: Context) -> frozenset[str]:
    """Return the GPUs of inference servers that answered in the window: requests determine their load."""
    seen = context.rollups.serving(context.since_ms - HOUR_MS).filter(
        (pl.col("time") >= context.since_ms - HOUR_MS) & (pl.col("scrape_count") > 0)
    )
    served = frozenset(seen["gpu"].drop_nulls().unique())
    engines = pl.any_horizontal(
        pl.col(name).str.contains(SERVER).fill_null(value=False) for name in ("command", "arguments")
    )
    named = context.rollups.processes(context.since_ms).filter(engines & (pl.col("end") > context.since_ms))
    return served | frozenset(named["gpu"].unique())
