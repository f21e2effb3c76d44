"""Who was named on which GPU in a window, and the runs of pods and of Slurm's jobs that this makes with what ran at the end of the window before.

That a label is gone says that its holder left only where the GPU was looked at since: a stretch goes on over a gap in which nobody
looked, and ends where the GPU's next sample does not name it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from analytics.importers.model import TRUE_MS, Imported
from analytics.scraped.rows.scraped_rows import ENDED
from fallow.clock import DAY_MS, MINUTE_MS

STRETCH_SCHEMA: dict[str, pl.DataType] = {
    "host": pl.String(),
    "gpu": pl.String(),
    "namespace": pl.String(),
    "pod": pl.String(),
    "slurm_job": pl.String(),
    "user": pl.String(),
    "start_ms": pl.Int64(),
    "until_ms": pl.Int64(),
    "next_ms": pl.Int64(),
}
"""Columns of `Given.stretches`, one row per GPU, holder and unbroken stretch.

`until_ms` is the last sample that named the holder plus one interval of the GPU's, or the GPU's next sample where that came
sooner: the holder left in that time, if it left. `next_ms` is the GPU's next sample after the stretch, null where the window has none.
"""

LOOKED_SCHEMA: dict[str, pl.DataType] = {"host": pl.String(), "gpu": pl.String(), "first_ms": pl.Int64()}

_NAMES = ("namespace", "pod", "slurm_job", "user")


@dataclass(frozen=True)
class Given:
    """`stretches` has STRETCH_SCHEMA; `looked` the first sample in the window of every GPU that has any, with LOOKED_SCHEMA."""

    stretches: pl.DataFrame
    looked: pl.DataFrame

    @classmethod
    def of(cls, hosts: Sequence[Imported]) -> Given:
        """Of the hosts of one window; host by host, for the samples of a fleet are many."""
        found = [_of_host(each) for each in hosts]
        return cls(
            pl.concat([pl.DataFrame(schema=STRETCH_SCHEMA), *(stretches for stretches, _ in found)]),
            pl.concat([pl.DataFrame(schema=LOOKED_SCHEMA), *(looked for _, looked in found)]),
        )

    @classmethod
    def joined(cls, parts: Sequence[Given]) -> Given:
        """Of the parts of one window, those of a GPU in order of time: what a part could not see after a stretch, the next one says."""
        stretches, looked = (
            pl.concat([frame.with_columns(part=pl.lit(number)) for number, frame in enumerate(frames)])
            for frames in ([each.stretches for each in parts], [each.looked for each in parts])
        )
        told = stretches.join_asof(
            looked.rename({"first_ms": "later_ms"}),
            on="part",
            by=["host", "gpu"],
            strategy="forward",
            allow_exact_matches=False,
            check_sortedness=False,
        ).with_columns(next_ms=pl.coalesce("next_ms", "later_ms"))
        return cls(
            told.select(*STRETCH_SCHEMA).with_columns(until_ms=pl.min_horizontal("until_ms", "next_ms")),
            looked.group_by("host", "gpu", maintain_order=True).agg(pl.col("first_ms").min()),
        )


def _of_host(rows: Imported) -> tuple[pl.DataFrame, pl.DataFrame]:
    # the end of a series is no look at its GPU
    looked_at = rows.gpu.filter(pl.col("health").ne_missing(ENDED))
    samples = looked_at.select(
        pl.col("gpu").cast(pl.String), next_ms=TRUE_MS, interval_ms=pl.col("interval_ms").cast(pl.Int64)
    ).sort("next_ms")
    looked = samples.group_by("gpu").agg(first_ms=pl.col("next_ms").min(), interval_ms=pl.col("interval_ms").last())
    given = rows.given.select(
        pl.col("gpu").cast(pl.String), pl.col("start_ms", "end_ms").cast(pl.Int64), pl.col(_NAMES).cast(pl.String)
    ).sort("end_ms")
    met = given.join_asof(
        samples.select("gpu", "next_ms"),
        left_on="end_ms",
        right_on="next_ms",
        by="gpu",
        strategy="forward",
        allow_exact_matches=False,
        check_sortedness=False,
    ).join(looked, on="gpu", how="left")
    left = pl.min_horizontal("next_ms", pl.col("end_ms") + pl.col("interval_ms").fill_null(0))
    stretches = met.with_columns(host=pl.lit(rows.host), until_ms=left).select(*STRETCH_SCHEMA)
    return stretches.cast(STRETCH_SCHEMA), looked.with_columns(host=pl.lit(rows.host)).select(*LOOKED_SCHEMA)  # type: ignore[arg-type]


NEAR_MS = MINUTE_MS
"""Who is away for so short a time did not leave, and GPUs that come so soon after one another came together: exporters are scraped at
different moments, and miss a holder now and then."""

_SILENT_MS = DAY_MS
"""What runs on a GPU that nobody sees for so long ended with its last sample, as an agent has it of a kubelet that is silent."""

RUN_KEY = ("scheduler", "claim_id", "host", "gpu")
RUN_SCHEMA: dict[str, pl.DataType] = {
    **dict.fromkeys(RUN_KEY, pl.String()),
    "time": pl.Int64(),
    "until_ms": pl.Int64(),
    "told": pl.Boolean(),
}
"""Columns of the runs that a window leaves open: `until_ms` is up to when they were seen (null: not known), `told` whether
kube-state-metrics has told of them."""

_EVER = 2**62
_NO_JOB = ("", "0")
"""How exporters write that there is none."""


@dataclass(frozen=True)
class LabelRuns:
    """`rows` has RUN_KEY, `time`, `first_ms`, `until_ms`, `end`, `user`, `told`, `is_new` and `is_begun`; `waiting` has RUN_SCHEMA.

    `first_ms` is when the window first names this GPU, an `end` of null runs on, `is_new` is whether no window before saw the run, and
    `is_begun` whether the window has an earlier sample of the GPU without it.
    `waiting` are open runs on whose GPUs this window has not looked.
    """

    rows: pl.DataFrame
    waiting: pl.DataFrame


def label_runs(given: Given, before: pl.DataFrame, as_of_ms: int) -> LabelRuns:
    """The runs that the window saw or that ended in it; `before` has RUN_SCHEMA, and `as_of_ms` is the end of the window."""
    seen = _gone_on(_runs(_pieces(named_holders(given.stretches))), given.looked, before)
    left = before.join(seen.filter(~pl.col("is_new")), on=RUN_KEY, how="anti").join(
        given.looked, on=["host", "gpu"], how="left"
    )
    # a fleet whose exporters name nobody says nothing of who is gone
    can_tell = pl.col("until_ms").is_not_null() | pl.col("scheduler").is_in(seen["scheduler"].unique().implode())
    is_gone = (pl.col("first_ms") > pl.col("time")).fill_null(value=False) & can_tell
    is_silent = (pl.col("first_ms").is_null() & (pl.col("until_ms") < as_of_ms - _SILENT_MS)).fill_null(value=False)
    ended = left.filter(is_gone | is_silent).with_columns(
        end=pl.min_horizontal("until_ms", "first_ms"),
        is_new=pl.lit(value=False),
        is_begun=pl.lit(value=False),
        user=pl.lit(None, pl.String),
    )
    again = seen.filter("is_new").select(*RUN_KEY, "time")
    waiting = left.filter(~is_gone & ~is_silent).join(again, on=[*RUN_KEY, "time"], how="anti")
    rows = _once(pl.concat([seen, ended.select(seen.columns)], how="vertical_relaxed"))
    return LabelRuns(rows, waiting.select(list(RUN_SCHEMA)))


def named_holders(stretches: pl.DataFrame) -> pl.DataFrame:
    """Adds scheduler and claim_id, and leaves out who cannot be named; inside a pod that runs Slurm's jobs the job is the holder."""
    job, pod, namespace = (pl.col(name).str.strip_chars() for name in ("slurm_job", "pod", "namespace"))
    named = stretches.with_columns(
        scheduler=pl.when(_is_job()).then(pl.lit("slurm")).when(_is_pod()).then(pl.lit("kubernetes")),
        claim_id=pl.when(_is_job()).then(job).otherwise(namespace + "/" + pod),
    )
    return named.drop_nulls("scheduler")


def without_id(stretches: pl.DataFrame) -> int:
    """GPUs whose labels name somebody, and neither a job nor a pod with its namespace: such a holder has no id to go by."""
    told = pl.any_horizontal((pl.col(name).str.strip_chars() != "").fill_null(value=False) for name in ("pod", "user"))
    return stretches.filter(told & ~_is_job() & ~_is_pod())["gpu"].n_unique()


def _is_job() -> pl.Expr:
    return (~pl.col("slurm_job").str.strip_chars().is_in(_NO_JOB)).fill_null(value=False)


def _is_pod() -> pl.Expr:
    named = (pl.col(name).str.strip_chars() != "" for name in ("pod", "namespace"))
    return pl.all_horizontal(named).fill_null(value=False)


def _pieces(holders: pl.DataFrame) -> pl.DataFrame:
    """One row per GPU, holder and time in which no sample of the GPU was without it."""
    ordered = holders.sort(*RUN_KEY, "start_ms")
    reach = pl.col("next_ms").fill_null(_EVER).cum_max().shift(1).over(RUN_KEY)
    starts = (pl.col("start_ms") > reach).fill_null(value=True)
    return (
        ordered.with_columns(piece=starts.cum_sum())
        .group_by(*RUN_KEY, "piece", maintain_order=True)
        .agg(
            first_ms=pl.col("start_ms").min(),
            until_ms=pl.col("until_ms").max(),
            runs=pl.col("next_ms").is_null().any(),
            user=pl.col("user").drop_nulls().last(),
        )
    )


def _runs(pieces: pl.DataFrame) -> pl.DataFrame:
    """One row per run and GPU; all GPUs of a run have its start.

    A job may begin on its hosts one after another. A pod that comes soon after it left, on a GPU that it did not have, is another one of its name.
    """
    holder = ["scheduler", "claim_id"]
    ordered = pieces.sort(*holder, "first_ms")
    left = pl.when("runs").then(_EVER).otherwise("until_ms")
    reach, own_reach = (left.cum_max().shift(1).over(by) for by in (holder, list(RUN_KEY)))
    is_back = (pl.col("first_ms") <= own_reach + NEAR_MS).fill_null(value=False) | (pl.col("scheduler") == "slurm")
    starts = (pl.col("first_ms") > reach + pl.when(is_back).then(NEAR_MS).otherwise(0)).fill_null(value=True)
    numbered = ordered.with_columns(run=starts.cum_sum()).with_columns(time=pl.col("first_ms").min().over("run"))
    return numbered.group_by(*RUN_KEY, "run", "time", maintain_order=True).agg(
        pl.col("first_ms").min(),
        pl.col("until_ms").max(),
        end=pl.when(~pl.col("runs").any()).then(pl.col("until_ms").max()),
        user=pl.col("user").drop_nulls().last(),
    )


def _once(rows: pl.DataFrame) -> pl.DataFrame:
    """One row per run and GPU: what left a GPU between two windows may have come back to it while the run went on elsewhere."""
    found = rows.group_by(*RUN_KEY, "time", maintain_order=True).agg(
        pl.col("first_ms").min(),
        pl.col("until_ms").max(),
        end=pl.when(~pl.col("end").is_null().any()).then(pl.col("end").max()),
        user=pl.col("user").drop_nulls().last(),
        told=pl.col("told").any(),
        is_new=pl.col("is_new").all(),
        is_begun=pl.col("is_begun").all(),
    )
    return found.select(rows.columns)


def _gone_on(runs: pl.DataFrame, looked: pl.DataFrame, before: pl.DataFrame) -> pl.DataFrame:
    """The runs, those that the window before left open with their own start."""
    known = before.select(*RUN_KEY, "told", began="time", seen_ms="until_ms").sort("began").unique(RUN_KEY, keep="last")
    met = runs.join(looked.rename({"first_ms": "looked_ms"}), on=["host", "gpu"], how="left").join(
        known, on=RUN_KEY, how="left"
    )
    # no look at the GPU before it, or a window that overlaps the one before
    is_next = pl.any_horizontal(pl.col("first_ms") <= pl.col("looked_ms"), pl.col("first_ms") <= pl.col("seen_ms"))
    goes_on = is_next & (pl.col("began") <= pl.col("first_ms"))
    is_begun = (pl.col("first_ms") > pl.col("looked_ms")).fill_null(value=False)
    met = met.with_columns(is_new=~goes_on.fill_null(value=False), is_begun=is_begun)
    began = pl.col("began").filter(~pl.col("is_new")).min().over("run")
    return met.with_columns(
        time=pl.coalesce(began, "time"), told=(pl.col("told") & ~pl.col("is_new")).fill_null(value=False)
    ).select(*RUN_KEY, "time", "first_ms", "until_ms", "end", "user", "told", "is_new", "is_begun")
