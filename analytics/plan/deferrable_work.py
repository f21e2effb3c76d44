"""Which work could as well run some hours later: batch jobs, and what its owners call best-effort."""

from __future__ import annotations

import polars as pl

from analytics.money.owners import Owners
from analytics.plan.replay.work_kinds import AWAITED
from analytics.small_tables import read_small
from analytics.workloads.cards import job_kind
from analytics.workloads.sharing import is_best_effort
from fallow import schema
from fallow.lake import Lake

_WORK = ("job", "holder", "account")


def job_names(lake: Lake) -> pl.DataFrame:
    """`job` (its id), `name`, `partition` and `qos` of what was given GPUs; raises LakeError and its kinds.

    Without all else that `analytics.plan.jobs` knows, which takes several times as long.
    """
    return read_small(lake, schema.CLAIM, ("claim_id", "name", "partition", "qos")).rename({"claim_id": "job"})


def with_deferrable(rows: pl.DataFrame, jobs: pl.DataFrame, owners: Owners) -> pl.DataFrame:
    """The rows with `is_deferrable`: whether they are of one Slurm job that nobody waits for by its names, or of best-effort work.

    A job's names are its own, its partition's and its QOS's. Best-effort is a priority class of the owners table. Pods, Ray jobs and
    processes without a job may serve somebody: they are deferrable only as best-effort work, as GPUs that several jobs share are.

    Args:
        rows: `job` as the ledger names it, `holder`, `account`.
        jobs: of `job_names`.
        owners: with their priority classes.
    """
    awaited = _awaited_jobs(jobs)
    known = rows.select(_WORK).unique()
    flags = [
        _is_batch(job, awaited) or is_best_effort(owners, holder, account) for job, holder, account in known.iter_rows()
    ]
    marked = known.with_columns(is_deferrable=pl.Series(flags, dtype=pl.Boolean))
    return rows.join(marked, on=_WORK, how="left", nulls_equal=True, maintain_order="left")


def _is_batch(job: str | None, awaited: frozenset[str]) -> bool:
    return job is not None and "+" not in job and job_kind([job]) == "slurm" and job.partition(":")[2] not in awaited


def _awaited_jobs(jobs: pl.DataFrame) -> frozenset[str]:
    """The ids of jobs for which somebody waits; by the id alone, for one job may be known from two sources."""
    names = pl.concat_str("name", "partition", "qos", separator=" ", ignore_nulls=True)
    return frozenset(jobs.filter(names.str.contains(AWAITED))["job"].drop_nulls())
