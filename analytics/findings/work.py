"""What ran on several GPUs as one piece of work, and the hours of which it is known what they were spent on.

A job (Slurm, pod, Ray, claim) is one piece of work wherever it runs. Of processes without a job only those of one program
belong together: one process on several GPUs, a process and its children, or what one parent started within a minute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from analytics.findings.alive import is_service
from analytics.findings.once import once
from fallow.clock import HOUR_MS, MINUTE_MS

if TYPE_CHECKING:
    from analytics.findings.model import Context

AT_WORK = ("held", "low", "active")
"""States in which processes hold a GPU."""

OWNED = ("reserved", *AT_WORK)
"""States in which a GPU is somebody's."""

SEVERAL = "+"
"""Joins the names of those who share a GPU."""

_JOB_NAMES = r"(^|\+)(?:slurm|pod|ray|claim):"
_NEXT_JOB = r"\+(slurm|pod|ray|claim):"
_SPLIT = "\x1f"
_TOGETHER_MS = MINUTE_MS
"""A launcher starts its workers within seconds; what a shell starts by hand comes later."""

_SUMS = ("zero_ms", "util_ms", "sample_count")


def by_job(stretches: pl.DataFrame) -> pl.DataFrame:
    """The rows that belong to jobs, once for each job of theirs, named in `work`."""
    names = pl.col("job").str.replace_all(_NEXT_JOB, f"{_SPLIT}${{1}}:").str.split(_SPLIT)
    named = stretches.filter(pl.col("job").is_not_null() & pl.col("state").is_in(OWNED))
    return named.with_columns(work=names).explode("work")


def one_job() -> pl.Expr:
    """Whether a row belongs to exactly one job."""
    return (pl.col("job").str.count_matches(_JOB_NAMES) == 1).fill_null(value=False)


def programs(processes: pl.DataFrame) -> pl.DataFrame:
    """Rows of `process_day` without a job, with the `work` that they belong to: a program of their host."""
    bare = processes.filter(pl.col("job").is_null() & ~is_service())
    single = (
        bare.sort("time")
        .group_by("host", "pid", "started", maintain_order=True)
        .agg(pl.col("user", "parent_pid").first())
        .sort("host", "user", "parent_pid", "started", "pid", nulls_last=True)
    )
    same = pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift(1)) for name in ("host", "user", "parent_pid"))
    close = (pl.col("started") - pl.col("started").shift(1) <= _TOGETHER_MS).fill_null(value=False)
    parents = single.select("host", parent_pid="pid", parent_started="started").unique(("host", "parent_pid"))
    grouped = (
        single.with_columns(burst=(~(same & close)).fill_null(value=True).cum_sum())
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


@once
def program_runs(context: Context) -> pl.DataFrame:
    """Programs without a job: host, gpu and work with the time that they were on the GPU, and on how many they were in all."""
    named = programs(context.rollups.processes()).group_by("host", "gpu", "work")
    runs = named.agg(began=pl.col("time").min(), ended=pl.col("end").max())
    return runs.with_columns(gpu_count=pl.col("gpu").n_unique().over("work"))


def program_stretches(context: Context, stretches: pl.DataFrame) -> pl.DataFrame:
    """The ledger's rows, cut to the time of each program on more than one GPU that ran in them, with `work`."""
    runs = program_runs(context).filter(pl.col("gpu_count") > 1).drop("gpu_count")
    bare = stretches.filter(pl.col("job").is_null() & pl.col("state").is_in(AT_WORK))
    overlap = (pl.col("time") < pl.col("ended")) & (pl.col("end") > pl.col("began"))
    rows = bare.join(runs, on=("host", "gpu")).filter(overlap)
    return cut(rows, pl.max_horizontal("time", "began"), pl.min_horizontal("end", "ended")).drop("began", "ended")


def cut(rows: pl.DataFrame, start: pl.Expr, end: pl.Expr) -> pl.DataFrame:
    """Ledger rows cut to shorter times; their sums are shared by time."""
    share = (end - start) / (pl.col("end") - pl.col("time"))
    shared = [(pl.col(name) * share).round().cast(pl.Int64) for name in _SUMS]
    energy = [pl.col("energy_mj") * share, (pl.col("energy_ms") * share).round().cast(pl.Int64)]
    return rows.with_columns(*shared, *energy, time=start, end=end)


def stays(stretches: pl.DataFrame) -> pl.DataFrame:
    """One row per GPU and unbroken time with processes of the same holder, account and job: `time` to `end`."""
    names = ("host", "gpu", "holder", "account", "job")
    rows = stretches.filter(pl.col("state").is_in(AT_WORK)).select(*names, "time", "end").sort("gpu", "host", "time")
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
    hours = context.rollups.hourly().filter(inside & (pl.col("observed_ms") > 0)).sort("host", "gpu", "time")
    owned = stays(context.inside.stretches).select(pl.all().exclude("end"), stay_end="end").sort("host", "gpu", "time")
    found = hours.join_asof(owned, on="time", by=("host", "gpu"), strategy="backward", check_sortedness=False)
    return found.filter(pl.col("time") + HOUR_MS <= pl.col("stay_end")).drop("stay_end")


def within_hours(stretches: pl.DataFrame, hours: pl.DataFrame) -> pl.DataFrame:
    """The parts of ledger rows that lie in these hours (host, gpu, time, energy_mj, energy_ms of `hourly`).

    Energy is that of the hours themselves; other sums are shared by time.
    """
    wanted = hours.select(
        "host", "gpu", hour=pl.col("time") // HOUR_MS, hour_mj=pl.col("energy_mj"), hour_ms=pl.col("energy_ms")
    )
    rows = stretches.filter(pl.col("state").is_in(OWNED)).join(wanted, on=("host", "gpu"), how="semi")
    first, last = pl.col("time") // HOUR_MS, (pl.col("end") - 1) // HOUR_MS
    pieces = rows.with_columns(hour=pl.int_ranges(first, last + 1)).explode("hour").join(
        wanted, on=("host", "gpu", "hour")
    )  # fmt: skip
    hour_start = pl.col("hour") * HOUR_MS
    parts = cut(pieces, pl.max_horizontal("time", hour_start), pl.min_horizontal("end", hour_start + HOUR_MS))
    share = (pl.col("end") - pl.col("time")) / HOUR_MS
    return parts.with_columns(
        energy_mj=(pl.col("hour_mj") * share).fill_null(0.0),
        energy_ms=(pl.col("hour_ms") * share).fill_null(0).round().cast(pl.Int64),
    ).drop("hour", "hour_mj", "hour_ms")


@once
def serving_gpus(context: Context) -> frozenset[str]:
    """GPUs on which an inference server answered in the window: their load is the requests', not the program's."""
    seen = context.rollups.serving().filter(
        (pl.col("time") >= context.since_ms - HOUR_MS) & (pl.col("scrape_count") > 0)
    )
    served = frozenset(seen["gpu"].drop_nulls().unique())
    engines = pl.col("command").str.contains(_ENGINES).fill_null(value=False)
    named = context.rollups.processes().filter(engines & (pl.col("end") > context.since_ms))
    return served | frozenset(named["gpu"].unique())


_ENGINES = r"(?i)^(vllm|sglang|tritonserver|text-generation|trtllm|ollama|llama-server)"
"""How the commands of inference servers begin."""
