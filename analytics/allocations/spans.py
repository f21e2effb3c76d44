"""Allocations as the ledger needs them: what is known of each allocation once, and spans that do not overlap on a GPU.

Frames hold times as integer milliseconds. Rows of the `claim` table say one allocation on one GPU (or, with `gpu` null, on so many
GPUs of one host); the same allocation may be there several times, as it began and as it ended.
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
    """`placed`: what lies on GPUs, with `gpu`; `unplaced`: what could be put on none, with UNPLACED_SCHEMA and its own count."""

    placed: pl.DataFrame
    unplaced: pl.DataFrame


def place(
    unplaced: pl.DataFrame, gpus_of_host: Mapping[str, Sequence[str]], process_jobs: pl.DataFrame | None = None
) -> AllocationSpans:
    """Places allocations on all GPUs of their host, or on those that their processes were seen on.

    Args:
        unplaced: allocations with the columns of `spans.UNPLACED_SCHEMA`.
        gpus_of_host: what a scheduler can give away of each host: whole GPUs that are not split, and MIG instances.
        process_jobs: times at which processes of a job were on a GPU, with PROCESS_JOBS_SCHEMA; `job` as in the ledger
            (`slurm:ID`, several joined by `+`). An allocation is never put on more GPUs than it counts: those with the most
            process time come first.
    """
    allocations = unplaced.with_row_index("row")
    found = pl.concat([_whole_hosts(allocations, gpus_of_host), _seen(allocations, process_jobs)]).unique(
        ("row", "gpu")
    )
    counts = found.group_by("row").agg(_placed=pl.len().cast(pl.Int64))
    rest = allocations.join(counts, on="row", how="left").with_columns(
        gpu_count_on_host=pl.col("gpu_count_on_host") - pl.col("_placed").fill_null(0)
    )
    # of an allocation of unknown size that was seen somewhere, nobody knows whether there is a rest
    left = pl.col("_placed").is_null() | (pl.col("gpu_count_on_host") > 0).fill_null(value=False)
    placed = allocations.join(found, on="row").sort("row", "gpu")
    return AllocationSpans(
        placed.drop("row", "gpu_count_on_host"), rest.filter(left).sort("row").select(unplaced.columns)
    )


def _whole_hosts(allocations: pl.DataFrame, gpus_of_host: Mapping[str, Sequence[str]]) -> pl.DataFrame:
    """(row, gpu) of allocations that have every GPU of their host."""
    known = pl.DataFrame(
        {"host": list(gpus_of_host), "gpu": [sorted(set(gpus)) for gpus in gpus_of_host.values()]},
        schema={"host": pl.String, "gpu": pl.List(pl.String)},
    )
    fitting = allocations.join(known, on="host").filter(pl.col("gpu").list.len() == pl.col("gpu_count_on_host"))
    return fitting.select("row", "gpu").explode("gpu")


def _seen(allocations: pl.DataFrame, process_jobs: pl.DataFrame | None) -> pl.DataFrame:
    """(row, gpu) of allocations whose processes were seen, at most as many as they count."""
    if process_jobs is None or process_jobs.is_empty():
        return pl.DataFrame(schema={"row": allocations["row"].dtype, "gpu": pl.String})
    work = process_jobs.drop_nulls("job").with_columns(pl.col("job").str.split("+")).explode("job")
    work = work.select("host", "gpu", "job", work_start="time", work_end="end")
    met = _with_job(allocations).join(work, on=["host", "job"])
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


ALLOCATION_COLUMNS = ("time", "gpu", "end", "claim_id", "scheduler", "user", "account", "host_gpu_count", "planned_end")
"""Columns of the `claim` table that spans are made of; `host` comes with them from the files' path."""

SPAN_SCHEMA = {
    "gpu": pl.String,
    "start": pl.Int64,
    "end": pl.Int64,
    "holder": pl.String,
    "account": pl.String,
    "claim_id": pl.String,
    "job": pl.String,
}
UNPLACED_SCHEMA = {
    "host": pl.String,
    "start": pl.Int64,
    "end": pl.Int64,
    "gpu_count_on_host": pl.Int64,
    "claim_id": pl.String,
    "user": pl.String,
    "account": pl.String,
    "scheduler": pl.String,
}

FOREVER_MS = 2**62
"""The end of an allocation that nothing ends."""

_JOB_WORDS = {"slurm": "slurm", "kubernetes": "pod"}
_ONE_RUN_AT_A_TIME = ("slurm", "kubernetes")
"""Schedulers under which an allocation that begins again on a host has ended there before, whatever GPU it had."""

_RUN = ("scheduler", "claim_id", "host", "start")
_NAMES = {"holder": "user", "account": "account", "claim_id": "claim_id", "job": "job"}
_SPAN = [pl.col("gpu", "start", "end"), *(pl.col(old).alias(new) for new, old in _NAMES.items())]


def allocation_spans(
    allocations: pl.DataFrame,
    gpus_of_host: Mapping[str, Sequence[str]],
    process_jobs: pl.DataFrame | None = None,
    *,
    since_ms: int = 0,
    until_ms: int = FOREVER_MS,
) -> AllocationSpans:
    """All allocations of a time as spans per GPU (SPAN_SCHEMA), cut to [since_ms, until_ms), with those that only a count is known of placed.

    Args:
        allocations: rows of the `claim` table with ALLOCATION_COLUMNS and `host`, of any hosts; also those that began long before.
        gpus_of_host: what a scheduler can give away of each host: whole GPUs that are not split, and MIG instances.
        process_jobs: where work of named jobs was seen, see `place`.
        since_ms: start of the time.
        until_ms: its end.
    """
    rows = clip(known_allocations(allocations), since_ms, until_ms, start="start")
    found = place(_unplaced(rows), gpus_of_host, process_jobs)
    named = rows.filter(pl.col("gpu").is_not_null())
    return AllocationSpans(_spans(pl.concat([named, _with_job(found.placed)], how="diagonal_relaxed")), found.unplaced)


def flatten(allocations: pl.DataFrame) -> pl.DataFrame:
    """Spans with SPAN_SCHEMA, sorted, in which each moment of a GPU lies at most once.

    Where allocations overlap, holder, account, claim_id and job name all of them, sorted and joined by `+`. Allocations without a
    GPU are left out.

    Args:
        allocations: rows of the `claim` table with ALLOCATION_COLUMNS and `host`.
    """
    return _spans(known_allocations(allocations).filter(pl.col("gpu").is_not_null()))


def merged_spans(spans: pl.DataFrame, placed: pl.DataFrame) -> pl.DataFrame:
    """Spans with SPAN_SCHEMA together with allocations that `place` has put on a GPU since."""
    if placed.is_empty():
        return spans
    known = spans.rename({"holder": "user"})
    return _spans(pl.concat([known, _with_job(placed).select(known.columns)]))


def overlapping_allocations(allocations: pl.DataFrame) -> pl.DataFrame:
    """Times (gpu, host, time, end, allocations) at which several allocations name one GPU: it is shared, or a record is wrong."""
    pieces = _pieces(_overlapping(known_allocations(allocations).filter(pl.col("gpu").is_not_null())))
    found = pieces.group_by("gpu", "start", "end").agg(
        _joined("host"), claims=_joined("job"), count=pl.col("job").n_unique()
    )
    return (
        found.filter(pl.col("count") > 1)
        .select("gpu", "host", time="start", end="end", claims="claims")
        .sort("gpu", "time")
    )


def known_allocations(allocations: pl.DataFrame) -> pl.DataFrame:
    """What all rows together say: one row per allocation, host, GPU and start, with `start`, `end` and `job`.

    A row with an end beats one without. An allocation without any ends where the same allocation begins again on that host, and at
    `planned_end` at the latest; else it runs on. Allocations that end before they begin are left out.
    """
    rows = _once(allocations.with_columns(single_names("user", "account")).rename({"time": "start"}))
    rows = _with_job(_without_counted(_ended(rows)))
    return rows.filter(pl.col("start") < pl.col("end")).sort("gpu", "start", "job", "host", nulls_last=True)


def _once(rows: pl.DataFrame) -> pl.DataFrame:
    """One row per allocation, host, GPU and start, with the most that several rows say; those that stand alone cost no grouping."""
    key = (*_RUN, "gpu")
    alone = rows.select(key).is_unique()
    if alone.all():
        return rows
    several = rows.filter(~alone).group_by(key).agg(pl.all().max())
    return pl.concat([rows.filter(alone), several.select(rows.columns)])


def _ended(rows: pl.DataFrame) -> pl.DataFrame:
    whatever_gpu = pl.col("scheduler").is_in(_ONE_RUN_AT_A_TIME).fill_null(value=False)
    keyed = rows.with_columns(_gpu=pl.when(~whatever_gpu).then("gpu"))
    same = ("scheduler", "claim_id", "host", "_gpu")
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
    """Leaves out counts of GPUs that other rows of the same run name; of a larger count the rest stays."""
    counted = pl.col("gpu").is_null()
    if not rows.select(counted.any()).item():
        return rows
    named = rows.filter(~counted).group_by(*_RUN).agg(_named=pl.len().cast(pl.Int64))
    rest = rows.join(named, on=_RUN, how="left", nulls_equal=True).with_columns(
        host_gpu_count=pl.col("host_gpu_count").cast(pl.Int64) - pl.col("_named").fill_null(0)
    )
    wanted = ~counted | pl.col("_named").is_null() | (pl.col("host_gpu_count") > 0).fill_null(value=False)
    return rest.filter(wanted).drop("_named")


def _with_job(rows: pl.DataFrame) -> pl.DataFrame:
    """Adds `job`, as the ledger calls it."""
    return rows.with_columns(job=ledger_job("claim_id"))


def ledger_job(claim_id: str) -> pl.Expr:
    """What the ledger calls a job, from the columns `scheduler` and that of its own id."""
    word = pl.col("scheduler").replace_strict(_JOB_WORDS, default="claim", return_dtype=pl.String).fill_null("claim")
    return word + ":" + pl.col(claim_id)


def _unplaced(rows: pl.DataFrame) -> pl.DataFrame:
    counted = rows.filter(pl.col("gpu").is_null()).rename({"host_gpu_count": "gpu_count_on_host"})
    return counted.select(pl.col(name).cast(kind) for name, kind in UNPLACED_SCHEMA.items()).sort(
        "host", "start", "claim_id"
    )


def _spans(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows that have their moments for themselves as they are; the others in pieces, each with everybody's names."""
    shared = _overlapping(rows)
    pieces = _pieces(shared)
    once = pl.len().over("piece") == 1  # joining names is what takes time
    together = pieces.filter(~once).group_by("gpu", "start", "end")
    parts = [
        rows.join(shared.select("gpu", "start").unique(), on=["gpu", "start"], how="anti").select(_SPAN),
        pieces.filter(once).select(_SPAN),
        together.agg(_joined(old).alias(new) for new, old in _NAMES.items()),
    ]
    return pl.concat(part.select(pl.col(name).cast(kind) for name, kind in SPAN_SCHEMA.items()) for part in parts).sort(
        "gpu", "start"
    )


def _overlapping(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows that share a moment of their GPU with another one."""
    ordered = rows.sort("gpu", "start").with_columns(_reach=pl.col("end").cum_max().over("gpu"))
    before = (pl.col("start") < pl.col("_reach").shift(1).over("gpu")).fill_null(value=False)
    after = (pl.col("start").shift(-1).over("gpu") < pl.col("end")).fill_null(value=False)
    return ordered.filter(before | after).drop("_reach")


def _pieces(rows: pl.DataFrame) -> pl.DataFrame:
    """Each row once for every piece of time between two changes on its GPU that it covers."""
    moments = pl.concat([rows.select("gpu", at="start"), rows.select("gpu", at="end")]).unique().sort("gpu", "at")
    moments = moments.with_row_index("piece").with_columns(next=pl.col("at").shift(-1).over("gpu"))
    first = moments.select("gpu", start="at", first="piece")
    last = moments.select("gpu", end="at", last="piece")
    covered = rows.join(first, on=["gpu", "start"]).join(last, on=["gpu", "end"])
    covered = covered.with_columns(piece=pl.int_ranges("first", "last", dtype=pl.UInt32)).drop("start", "end")
    return covered.explode("piece").join(moments.select("piece", start="at", end="next"), on="piece")


def _joined(name: str) -> pl.Expr:
    """All names, each once, also of those that are joined already."""
    names = pl.col(name).drop_nulls().str.split("+").explode().drop_nulls().unique().sort().str.join("+")
    return pl.when(names != "").then(names).alias(name)
