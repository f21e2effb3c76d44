"""Kinds of work, by what the queue says of a job, and which of it may be put off."""

from __future__ import annotations

import polars as pl

from analytics.workloads.workloads import RUN_MIN_MS
from fallow.clock import HOUR_MS

KINDS = ("batch", "test", "notebook", "serving")
"""What `work_kind` may say."""

NIGHT_MS = 12 * HOUR_MS
"""What runs no longer than this is done by the morning."""

_NOTEBOOK = r"(?i)jupyter|notebook|interactive|ipython|vscode"
_SERVING = r"(?i)serv(e|ing)|inference|endpoint|vllm|sglang|triton|prod"
_TEST = r"(?i)test|debug"
AWAITED = f"{_NOTEBOOK}|{_SERVING.removeprefix('(?i)')}|debug"
"""How the names of jobs, partitions and QOS read for whose result a person or a customer waits."""
_SAID_IN = ("name", "partition", "qos")


def work_kind() -> pl.Expr:
    """The kind of a job of `analytics.plan.jobs.JOB_SCHEMA` with `run_ms`: notebook, serving, test, batch, or null where nobody knows.

    By its name, partition and quality of service; a pod without a time limit serves, a job that ran for less than an hour is a test,
    whatever else has a time limit is batch.
    """
    said = pl.concat_str(*(pl.col(name).fill_null("") for name in _SAID_IN), separator=" ")
    has_limit = (pl.col("time_limit_ms") > 0).fill_null(value=False)
    was_short = (pl.col("end").is_not_null() & (pl.col("run_ms") < RUN_MIN_MS)).fill_null(value=False)
    return (
        pl.when(said.str.contains(_NOTEBOOK))
        .then(pl.lit("notebook"))
        .when(said.str.contains(_SERVING) | ((pl.col("scheduler") == "kubernetes") & ~has_limit).fill_null(value=False))
        .then(pl.lit("serving"))
        .when(said.str.contains(_TEST) | was_short)
        .then(pl.lit("test"))
        .when(has_limit)
        .then(pl.lit("batch"))
    )


def is_deferrable() -> pl.Expr:
    """Whether a job with `kind`, `run_ms` and `hosts` may wait for the night: batch work on one host that is done by the morning.

    Its owner does not sit before it, and it ends before anybody comes back. Whether he minds the wait nobody knows.
    """
    is_batch = (pl.col("kind") == "batch").fill_null(value=False)
    return is_batch & (pl.col("host_count") == 1) & (pl.col("run_ms") <= NIGHT_MS)
