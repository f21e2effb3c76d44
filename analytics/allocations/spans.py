"""Allocations in the ledger's form: what is known of each allocation once, and intervals that do not overlap on a GPU.

Frames hold times as integer milliseconds. A row of the `allocation` table is one allocation on one GPU or, with `gpu`
null, on a number of GPUs of one host. An allocation may have several rows, for example at its start and at its end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from analytics.intervals import clip
from analytics.names import single_names

PROCESS_JOBS_SCHEMA = {"gpu": pl.String, "host": pl.String, "time": pl.Int64, "end": pl.Int64, "job": pl.String}


@dataclass(frozen=True)
class AllocationSpans:
    """Allocations by what is known of their GPUs."""

    placed: pl.DataFrame
    """Allocations on GPUs, with `gpu`."""
    unplaced: pl.DataFrame
    """Allocations on unknown GPUs, with UNPLACED_SCHEMA and their own count."""


def place(
    unplaced: pl.DataFrame, gpus_of_host: Mapping[str, Sequence[str]], process_jobs: pl.DataFrame | None = None
) -> AllocationSpans:
    """Return allocations (UNPLACED_SCHEMA) placed on all GPUs of their host, or on those with their observed processes.

    An allocation gets at most as many GPUs as it counts, those with the most process time first. `gpus_of_host` is what
    a scheduler can allocate: unsplit GPUs and MIG instances. `process_jobs` (PROCESS_JOBS_SCHEMA) are times at which
    processes of a job were on a GPU; `job` is as in the ledger (`slurm:ID`, several joined by `+`).
    """
    allocations = unplaced.with_row_index("row")
    found = pl.concat(
        [_gpus_of_whole_hosts(allocations, gpus_of_host), _observed_gpus(allocations, process_jobs)]
    ).unique(("row", "gpu"))
    counts = found.group_by("row").agg(_placed=pl.len().cast(pl.Int64))
    remaining = allocations.join(counts, on="row", how="left").with_columns(
        gpu_count_on_host=pl.col("gpu_count_on_host") - pl.col("_placed").fill_null(0)
    )
    # where the size of an observed allocation is unknown, it is also unknown whether GPUs remain to be placed
    left = pl.col("_placed").is_null() | (pl.col("gpu_count_on_host") > 0).fill_null(value=False)
    placed = allocations.join(found, on="row").sort("row", "gpu")
    return AllocationSpans(
        placed.drop("row", "gpu_count_on_host", "gpu_share_ratio"),
        remaining.filter(left).sort("row").select(unplaced.columns),
    )


def _gpus_of_whole_hosts(allocations: pl.DataFrame, gpus_of_host: Mapping[str, Sequence[str]]) -> pl.DataFrame:
    """Return (row, gpu) of allocations that have every GPU of their host."""
    known = pl.DataFrame(
        {"host": list(gpus_of_host), "gpu": [sorted(set(gpus)) for gpus in gpus_of_host.values()]},
        schema={"host": pl.String, "gpu": pl.List(pl.String)},
    )
    fitting = allocations.join(known, on="host").filter(pl.col("gpu").list.len() == pl.col("gpu_count_on_host"))
    return fitting.select("row", "gpu").explode("gpu")


def _observed_gpus(allocations: pl.DataFrame, process_jobs: pl.DataFrame | None) -> pl.DataFrame:
    """Return (row, gpu) of allocations whose processes were observed, at most as many as they count."""
    if process_jobs is None or process_jobs.is_empty():
        return pl.DataFrame(schema={"row": allocations["row"].dtype, "gpu": pl.String})
    work = process_jobs.drop_nulls("job").with_columns(pl.col("job").str.split("+")).explode("job")
    work = work.select("host", "gpu", "job", work_start="time", work_end="end")
    # an agent knows no cluster; its host distinguishes the jobs of several clusters
    own = _with_job(allocations).with_columns(pl.col("job").str.replace(r"^slurm:[^/]+/", "slurm:"))
    met = own.join(work, on=["host", "job"])
    by_gpu = (
        clip(met, "work_start", "work_end", start="start", sums=())
        .with_columns(shared=pl.col("end") - pl.col("start"))
        .group_by("row", "gpu")
        .agg(pl.col("shared").sum(), count=pl.col("gpu_count_on_host").first())
    )
    ranked = by_gpu.sort("row", "shared", "gpu", descending=[False, True, False]).with_columns(
        rank=pl.int_range(pl.len()).over("row")
    )
    return ranked.filter((pl.col("rank") < pl.col("count")).fill_null(value=True)).select("row", "gpu")


ALLOCATION_COLUMNS = (
    "time",
    "gpu",
    "end",
    "allocation_id",
    "scheduler",
    "user",
    "account",
    "host_gpu_count",
    "gpu_share_ratio",
    "planned_end",
)
"""Columns of the `allocation` table from which the intervals are made; the path of the file adds `host`."""

SPAN_SCHEMA = {
    "gpu": pl.String,
    "start": pl.Int64,
    "end": pl.Int64,
    "user": pl.String,
    "account": pl.String,
    "allocation_id": pl.String,
    "job": pl.String,
}
SHARE = pl.col("gpu_share_ratio").fill_null(1.0)
"""Part of each GPU that an allocation has."""

UNPLACED_SCHEMA = {
    "host": pl.String,
    "start": pl.Int64,
    "end": pl.Int64,
    "gpu_count_on_host": pl.Int64,
    "allocation_id": pl.String,
    "user": pl.String,
    "account": pl.String,
    "scheduler": pl.String,
    "gpu_share_ratio": pl.Float64,
}

FOREVER_MS = 2**62
"""The end of an allocation without an end."""

UNPLACED_MS = (pl.col("end") - pl.col("start")) * pl.col("gpu_count_on_host") * SHARE
"""GPU time of a row of UNPLACED_SCHEMA, null where the number of GPUs is unknown; a share counts by its size."""

_JOB_WORDS = {"slurm": "slurm", "kubernetes": "pod"}
_ONE_RUN_AT_A_TIME = ("slurm", "kubernetes")
"""Schedulers for which a new start on a host ends the earlier run of the same allocation there, whatever its GPU."""

_RUN = ("scheduler", "allocation_id", "host", "start")
_NAMES = ("user", "account", "allocation_id", "job")
_SPAN = ("gpu", "start", "end", *_NAMES)


def allocation_spans(
    allocations: pl.DataFrame,
    gpus_of_host: Mapping[str, Sequence[str]],
    process_jobs: pl.DataFrame | None = None,
    *,
    since_ms: int = 0,
    until_ms: int = FOREVER_MS,
) -> AllocationSpans:
    """Return allocations as intervals per GPU (SPAN_SCHEMA), cut to [since_ms, until_ms); counted ones are placed.

    `allocations` are rows of the `allocation` table with ALLOCATION_COLUMNS and `host`, however early they started.
    """
    rows = clip(known_allocations(allocations), since_ms, until_ms, start="start")
    found = place(_unplaced_rows(rows), gpus_of_host, process_jobs)
    named = rows.filter(pl.col("gpu").is_not_null())
    return AllocationSpans(_spans(pl.concat([named, _with_job(found.placed)], how="diagonal_relaxed")), found.unplaced)


def flatten(allocations: pl.DataFrame) -> pl.DataFrame:
    """Return allocations (ALLOCATION_COLUMNS and `host`) as sorted SPAN_SCHEMA intervals that never overlap on a GPU.

    Where allocations overlap, user, account, allocation_id and job name all of them, sorted and joined by `+`.
    Allocations without a GPU are left out.
    """
    return _spans(known_allocations(allocations).filter(pl.col("gpu").is_not_null()))


def merged_spans(spans: pl.DataFrame, placed: pl.DataFrame) -> pl.DataFrame:
    """Return intervals with SPAN_SCHEMA together with allocations that `place` has put on a GPU since."""
    if placed.is_empty():
        return spans
    return _spans(pl.concat([spans, _with_job(placed).select(spans.columns)]))


def overlapping_allocations(allocations: pl.DataFrame) -> pl.DataFrame:
    """Return when several allocations name a GPU (shared, or a wrong record): gpu, host, time, end, allocations."""
    segments = _segments(_overlapping_rows(known_allocations(allocations).filter(pl.col("gpu").is_not_null())))
    found = segments.group_by("gpu", "start", "end").agg(
        _joined_names("host"), allocations=_joined_names("job"), count=pl.col("job").n_unique()
    )
    return (
        found.filter(pl.col("count") > 1)
        .select("gpu", "host", time="start", end="end", allocations="allocations")
        .sort("gpu", "time")
    )


def known_allocations(allocations: pl.DataFrame) -> pl.DataFrame:
    """Return one row per allocation, host, GPU and start, from all its rows, with `start`, `end` and `job`.

    A row with an end beats one without. An allocation without any ends where the same allocation starts again on that
    host, and at `planned_end` at the latest; else it runs on. Allocations that end before they start are left out.
    """
    rows = _merged_rows(allocations.with_columns(single_names("user", "account")).rename({"time": "start"}))
    rows = _with_job(_without_counted(_with_ends(rows)))
    return rows.filter(pl.col("start") < pl.col("end")).sort("gpu", "start", "job", "host", nulls_last=True)


def _merged_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Return a row per allocation, host, GPU and start, with all its rows' values; only repeated rows are grouped."""
    key = (*_RUN, "gpu")
    alone = rows.select(key).is_unique()
    if alone.all():
        return rows
    several = rows.filter(~alone).group_by(key).agg(pl.all().max())
    return pl.concat([rows.filter(alone), several.select(rows.columns)])


def _with_ends(rows: pl.DataFrame) -> pl.DataFrame:
    whatever_gpu = pl.col("scheduler").is_in(_ONE_RUN_AT_A_TIME).fill_null(value=False)
    keyed = rows.with_columns(_gpu=pl.when(~whatever_gpu).then("gpu"))
    same = ("scheduler", "allocation_id", "host", "_gpu")
    running = keyed.filter(pl.col("end").is_null())
    if running.is_empty():
        return rows
    starts = keyed.join(running.select(same).unique(), on=same, how="semi", nulls_equal=True)
    starts = starts.select(*same, "start").unique().sort("start")
    starts = starts.with_columns(_next=pl.col("start").shift(-1).over(same))
    running = running.join(starts, on=[*same, "start"], how="left", nulls_equal=True)
    ends = pl.min_horizontal(pl.lit(FOREVER_MS), "_next", "planned_end")
    running = running.with_columns(ends.alias("end"))
    return pl.concat([rows.filter(pl.col("end").is_not_null()), running.select(rows.columns)], how="vertical_relaxed")


def _without_counted(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows without counts of GPUs that rows of the same run name; a larger count keeps the remainder."""
    counted = pl.col("gpu").is_null()
    if not rows.select(counted.any()).item():
        return rows
    named = rows.filter(~counted).group_by(*_RUN).agg(_named=pl.len().cast(pl.Int64))
    remaining = rows.join(named, on=_RUN, how="left", nulls_equal=True).with_columns(
        host_gpu_count=pl.col("host_gpu_count").cast(pl.Int64) - pl.col("_named").fill_null(0)
    )
    wanted = ~counted | pl.col("_named").is_null() | (pl.col("host_gpu_count") > 0).fill_null(value=False)
    return remaining.filter(wanted).drop("_named")


def _with_job(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with `job`, in the ledger's form."""
    return rows.with_columns(job=ledger_job("allocation_id"))


def ledger_job(allocation_id: str) -> pl.Expr:
    """Return the ledger's name of a job, from `scheduler` and the column of its own id."""
    word = (
        pl.col("scheduler")
        .replace_strict(_JOB_WORDS, default="allocation", return_dtype=pl.String)
        .fill_null("allocation")
    )
    return word + ":" + pl.col(allocation_id)


def _unplaced_rows(rows: pl.DataFrame) -> pl.DataFrame:
    counted = rows.filter(pl.col("gpu").is_null()).rename({"host_gpu_count": "gpu_count_on_host"})
    return counted.select(pl.col(name).cast(kind) for name, kind in UNPLACED_SCHEMA.items()).sort(
        "host", "start", "allocation_id"
    )


def _spans(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows without an overlap as they are, and the others cut into segments, each with all names."""
    shared = _overlapping_rows(rows)
    segments = _segments(shared)
    once = pl.len().over("segment") == 1  # joining names takes most of the time
    together = segments.filter(~once).group_by("gpu", "start", "end")
    parts = [
        rows.join(shared.select("gpu", "start").unique(), on=["gpu", "start"], how="anti").select(_SPAN),
        segments.filter(once).select(_SPAN),
        together.agg(_joined_names(name).alias(name) for name in _NAMES),
    ]
    return pl.concat(part.select(pl.col(name).cast(kind) for name, kind in SPAN_SCHEMA.items()) for part in parts).sort(
        "gpu", "start"
    )


def _overlapping_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that overlap with another row on their GPU."""
    ordered = rows.sort("gpu", "start").with_columns(_reach=pl.col("end").cum_max().over("gpu"))
    before = (pl.col("start") < pl.col("_reach").shift(1).over("gpu")).fill_null(value=False)
    after = (pl.col("start").shift(-1).over("gpu") < pl.col("end")).fill_null(value=False)
    return ordered.filter(before | after).drop("_reach")


def _segments(rows: pl.DataFrame) -> pl.DataFrame:
    """Return each row once for every segment between two changes on its GPU that it covers."""
    moments = pl.concat([rows.select("gpu", at="start"), rows.select("gpu", at="end")]).unique().sort("gpu", "at")
    moments = moments.with_row_index("segment").with_columns(next=pl.col("at").shift(-1).over("gpu"))
    first = moments.select("gpu", start="at", first="segment")
    last = moments.select("gpu", end="at", last="segment")
    covered = rows.join(first, on=["gpu", "start"]).join(last, on=["gpu", "end"])
    covered = covered.with_columns(segment=pl.int_ranges("first", "last", dtype=pl.UInt32)).drop("start", "end")
    return covered.explode("segment").join(moments.select("segment", start="at", end="next"), on="segment")


def _joined_names(name: str) -> pl.Expr:
    """Return all names, each once, including names that are already joined."""
    names = pl.col(name).drop_nulls().str.split("+").explode().drop_nulls().unique().sort().str.join("+")
    return pl.when(names != "").then(names).alias(name)
