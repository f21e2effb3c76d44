"""Users named on GPUs in a window, and the runs of pods and Slurm jobs, with the open runs of the window before.

A missing label shows that its user left only where the GPU was sampled since. A segment therefore continues over a gap
without samples, and ends where the GPU's next sample does not name the user.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from analytics.importers.model import TRUE_MS, Imported
from analytics.names import CLUSTER
from analytics.scraped.rows.scraped_rows import ENDED
from fallow.clock import DAY_MS, MINUTE_MS

SEGMENT_SCHEMA: dict[str, pl.DataType] = {
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
"""Columns of `Given.segments`, one row per GPU, user and unbroken segment.

`until_ms` is the last sample that named the user plus one interval of the GPU's, or the GPU's next sample where that
came sooner: if the user left, it left in that time. `next_ms` is the GPU's next sample after the segment, null where
the window has none.
"""

LOOKED_SCHEMA: dict[str, pl.DataType] = {"host": pl.String(), "gpu": pl.String(), "first_ms": pl.Int64()}

_NAMES = ("namespace", "pod", "slurm_job", "user")


@dataclass(frozen=True)
class Given:
    """`segments` has SEGMENT_SCHEMA; `looked`, each GPU's first sample in the window if it has any, LOOKED_SCHEMA."""

    segments: pl.DataFrame
    looked: pl.DataFrame

    @classmethod
    def of(cls, hosts: Sequence[Imported]) -> Given:
        """Return the users on the hosts of one window; host by host, because the samples of a fleet are many."""
        found = [_of_host(each) for each in hosts]
        return cls(
            pl.concat([pl.DataFrame(schema=SEGMENT_SCHEMA), *(segments for segments, _ in found)]),
            pl.concat([pl.DataFrame(schema=LOOKED_SCHEMA), *(looked for _, looked in found)]),
        )

    @classmethod
    def joined(cls, parts: Sequence[Given]) -> Given:
        """Return the parts of one window joined, by time for each GPU: the next part shows what follows a segment."""
        segments, looked = (
            pl.concat([frame.with_columns(part=pl.lit(number)) for number, frame in enumerate(frames)])
            for frames in ([each.segments for each in parts], [each.looked for each in parts])
        )
        reported = segments.join_asof(
            looked.rename({"first_ms": "later_ms"}),
            on="part",
            by=["host", "gpu"],
            strategy="forward",
            allow_exact_matches=False,
            check_sortedness=False,
        ).with_columns(next_ms=pl.coalesce("next_ms", "later_ms"))
        return cls(
            reported.select(*SEGMENT_SCHEMA).with_columns(until_ms=pl.min_horizontal("until_ms", "next_ms")),
            looked.group_by("host", "gpu", maintain_order=True).agg(pl.col("first_ms").min()),
        )


def _of_host(rows: Imported) -> tuple[pl.DataFrame, pl.DataFrame]:
    # the end of a series is not a sample of its GPU
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
    segments = met.with_columns(host=pl.lit(rows.host), until_ms=left).select(*SEGMENT_SCHEMA)
    return (
        segments.cast(SEGMENT_SCHEMA),  # type: ignore[arg-type]
        looked.with_columns(host=pl.lit(rows.host)).select(*LOOKED_SCHEMA),
    )


NEAR_MS = MINUTE_MS
"""A user that is away for less did not leave, and GPUs that arrive within this time arrived together: exporters are
scraped at different moments, and sometimes miss a user.
"""

_SILENT_MS = DAY_MS
"""A run on a GPU without samples for this long ended with its last sample, as in agents' rows for a silent kubelet,
where other GPUs still have samples: a server without any shows no end."""

RUN_KEY = ("scheduler", "allocation_id", "host", "gpu")
RUN_SCHEMA: dict[str, pl.DataType] = {
    **dict.fromkeys(RUN_KEY, pl.String()),
    "time": pl.Int64(),
    "until_ms": pl.Int64(),
    "reported": pl.Boolean(),
}
"""Columns of the runs that a window leaves open: `until_ms` is the end of their observation (null: not known),
`reported` whether kube-state-metrics has reported them.
"""

_EVER = 2**62
_NO_JOB = ("", "0", "-1")
"""Values by which exporters mark a missing job."""


@dataclass(frozen=True)
class LabelRuns:
    rows: pl.DataFrame
    """RUN_KEY, `time`, `first_ms`, `until_ms`, `end`, `user`, `reported`, `is_new` and `is_begun`.

    `first_ms` is when the window first names this GPU. A run with a null `end` continues. `is_new`: no earlier window
    has the run. `is_begun`: the window has an earlier sample of the GPU without it.
    """
    waiting: pl.DataFrame
    """Open runs on GPUs without a sample in this window, with RUN_SCHEMA."""


def label_runs(given: Given, before: pl.DataFrame, as_of_ms: int) -> LabelRuns:
    """Return the runs that the window, up to `as_of_ms`, observed or that ended in it; `before` has RUN_SCHEMA."""
    seen = _continued_runs(_runs(_user_segments(named_users(given.segments))), given.looked, before)
    left = before.join(seen.filter(~pl.col("is_new")), on=RUN_KEY, how="anti").join(
        given.looked, on=["host", "gpu"], how="left"
    )
    # a fleet whose exporters name no users does not show who has left
    can_tell = pl.col("until_ms").is_not_null() | pl.col("scheduler").is_in(seen["scheduler"].unique().implode())
    is_gone = (pl.col("first_ms") > pl.col("time")).fill_null(value=False) & can_tell
    silent_since_ms = as_of_ms - _SILENT_MS if given.looked.height else 0
    is_silent = (pl.col("first_ms").is_null() & (pl.col("until_ms") < silent_since_ms)).fill_null(value=False)
    ended = left.filter(is_gone | is_silent).with_columns(
        end=pl.min_horizontal("until_ms", "first_ms"),
        is_new=pl.lit(value=False),
        is_begun=pl.lit(value=False),
        user=pl.lit(None, pl.String),
    )
    again = seen.filter("is_new").select(*RUN_KEY, "time")
    waiting = left.filter(~is_gone & ~is_silent).join(again, on=[*RUN_KEY, "time"], how="anti")
    rows = _merged_runs(pl.concat([seen, ended.select(seen.columns)], how="vertical_relaxed"))
    return LabelRuns(rows, waiting.select(list(RUN_SCHEMA)))


def named_users(segments: pl.DataFrame) -> pl.DataFrame:
    """Return the named users, with scheduler and allocation_id; in a pod that runs Slurm jobs the job is the user.

    A job on HOST@CLUSTER is CLUSTER/ID, as in Slurm's accounting: other clusters have jobs of that number.
    """
    job, pod, namespace = (pl.col(name).str.strip_chars() for name in ("slurm_job", "pod", "namespace"))
    named = segments.with_columns(
        scheduler=pl.when(_is_job()).then(pl.lit("slurm")).when(_is_pod()).then(pl.lit("kubernetes")),
        allocation_id=pl.when(_is_job()).then(pl.coalesce(CLUSTER + "/" + job, job)).otherwise(namespace + "/" + pod),
    )
    return named.drop_nulls("scheduler")


def without_id(segments: pl.DataFrame) -> int:
    """Return the number of GPUs whose labels name a user without an id: no job, and no pod with its namespace."""
    reported = pl.any_horizontal(
        (pl.col(name).str.strip_chars() != "").fill_null(value=False) for name in ("pod", "user")
    )
    return segments.filter(reported & ~_is_job() & ~_is_pod())["gpu"].n_unique()


def _is_job() -> pl.Expr:
    return (~pl.col("slurm_job").str.strip_chars().is_in(_NO_JOB)).fill_null(value=False)


def _is_pod() -> pl.Expr:
    named = (pl.col(name).str.strip_chars() != "" for name in ("pod", "namespace"))
    return pl.all_horizontal(named).fill_null(value=False)


def _user_segments(users: pl.DataFrame) -> pl.DataFrame:
    """Return one row per GPU, user and time in which every sample of the GPU names the user."""
    ordered = users.sort(*RUN_KEY, "start_ms")
    reach = pl.col("next_ms").fill_null(_EVER).cum_max().shift(1).over(RUN_KEY)
    starts = (pl.col("start_ms") > reach).fill_null(value=True)
    return (
        ordered.with_columns(segment=starts.cum_sum())
        .group_by(*RUN_KEY, "segment", maintain_order=True)
        .agg(
            first_ms=pl.col("start_ms").min(),
            until_ms=pl.col("until_ms").max(),
            runs=pl.col("next_ms").is_null().any(),
            user=pl.col("user").drop_nulls().last(),
        )
    )


def _runs(segments: pl.DataFrame) -> pl.DataFrame:
    """Return one row per run and GPU; all GPUs of a run have its start.

    A job may begin on its hosts one after another. A pod that follows soon after it left, on a GPU that it did not
    have, is another pod of that name.
    """
    user = ["scheduler", "allocation_id", "cluster"]
    ordered = segments.with_columns(cluster=CLUSTER).sort(*user, "first_ms", nulls_last=True)
    left = pl.when("runs").then(_EVER).otherwise("until_ms")
    reach, own_reach = (left.cum_max().shift(1).over(by) for by in (user, list(RUN_KEY)))
    is_back = (pl.col("first_ms") <= own_reach + NEAR_MS).fill_null(value=False) | (pl.col("scheduler") == "slurm")
    starts = (pl.col("first_ms") > reach + pl.when(is_back).then(NEAR_MS).otherwise(0)).fill_null(value=True)
    numbered = ordered.with_columns(run=starts.cum_sum()).with_columns(time=pl.col("first_ms").min().over("run"))
    return numbered.group_by(*RUN_KEY, "run", "time", maintain_order=True).agg(
        pl.col("first_ms").min(),
        pl.col("until_ms").max(),
        end=pl.when(~pl.col("runs").any()).then(pl.col("until_ms").max()),
        user=pl.col("user").drop_nulls().last(),
    )


def _merged_runs(rows: pl.DataFrame) -> pl.DataFrame:
    """Return one row per run and GPU.

    A user that left a GPU between two windows may have come back while the run continued elsewhere.
    """
    found = rows.group_by(*RUN_KEY, "time", maintain_order=True).agg(
        pl.col("first_ms").min(),
        pl.col("until_ms").max(),
        end=pl.when(~pl.col("end").is_null().any()).then(pl.col("end").max()),
        user=pl.col("user").drop_nulls().last(),
        reported=pl.col("reported").any(),
        is_new=pl.col("is_new").all(),
        is_begun=pl.col("is_begun").all(),
    )
    return found.select(rows.columns)


def _continued_runs(runs: pl.DataFrame, looked: pl.DataFrame, before: pl.DataFrame) -> pl.DataFrame:
    """Return the runs, those that the window before left open with their own start."""
    known = (
        before.select(*RUN_KEY, "reported", began="time", seen_ms="until_ms").sort("began").unique(RUN_KEY, keep="last")
    )
    met = runs.join(looked.rename({"first_ms": "looked_ms"}), on=["host", "gpu"], how="left").join(
        known, on=RUN_KEY, how="left"
    )
    # no sample of the GPU before it, or a window that overlaps the one before
    is_next = pl.any_horizontal(pl.col("first_ms") <= pl.col("looked_ms"), pl.col("first_ms") <= pl.col("seen_ms"))
    goes_on = is_next & (pl.col("began") <= pl.col("first_ms"))
    is_begun = (pl.col("first_ms") > pl.col("looked_ms")).fill_null(value=False)
    met = met.with_columns(is_new=~goes_on.fill_null(value=False), is_begun=is_begun)
    began = pl.col("began").filter(~pl.col("is_new")).min().over("run")
    return met.with_columns(
        time=pl.coalesce(began, "time"), reported=(pl.col("reported") & ~pl.col("is_new")).fill_null(value=False)
    ).select(*RUN_KEY, "time", "first_ms", "until_ms", "end", "user", "reported", "is_new", "is_begun")
