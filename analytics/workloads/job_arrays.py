"""Slurm jobs that `scancel` may end together with another: tasks of an array, components of a heterogeneous job.

The last task of an array has the array's own id, and the first component of a heterogeneous job has that of the whole:
`scancel` of it ends them all. Claims and processes know raw ids only, so that any other job of the same user may be one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from analytics.workloads.allocation_spans import claims
from analytics.workloads.ledger_by_job import by_job
from analytics.workloads.memo import once
from analytics.workloads.unseen_work import unseen_by_job
from analytics.workloads.window_end import newest_rows, now

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from analytics.workloads.model import Context

_SLURM = "slurm:"
_NUMBER = re.compile(r"\d+")
_COMPONENTS_MAX = 128
"""Slurm's own limit: ids of components follow one another, and a site may have any of them end all (`whole_hetjob`)."""


def tied_jobs(context: Context, jobs: Iterable[str]) -> tuple[str, ...]:
    """Slurm ids of other jobs at work that may end with these, which are named as in the ledger."""
    own = {job for job in jobs if job.startswith(_SLURM)}
    users = _users(context)
    return tuple(
        sorted(
            other.removeprefix(_SLURM)
            for other in _at_work(context) - own
            if any(_may_end(job, other) and _same(users.get(job), users.get(other)) for job in own)
        )
    )


@once
def _at_work(context: Context) -> frozenset[str]:
    """The Slurm jobs that work, that may do so unseen, or whose processes have not rested for long."""
    shortest_ms = context.settings.held_min_ms
    begun = (pl.col("state") == "held") & (pl.col("end") - pl.col("stretch_start") < shortest_ms)
    young = by_job(newest_rows(context).filter(begun))["work"]
    names = {*now(context).at_work, *unseen_by_job(context), *young}
    return frozenset(name for name in names if name.startswith(_SLURM))


@once
def _users(context: Context) -> Mapping[str, frozenset[str]]:
    """By Slurm job that is there now everybody who is named as its user, by a claim or a process."""
    found: dict[str, set[str]] = {}
    there = [*now(context).jobs_on.values(), unseen_by_job(context)]
    listed = [f"{_SLURM}{each.slurm_job_id}" for those in context.holders.lists.values() for each in those]
    names = pl.Series([*{job for jobs in there for job in jobs}, *listed], dtype=pl.String)
    claimed = claims(context).filter(pl.col("user").is_not_null() & pl.col("job").is_in(names.implode()))
    for job, user in claimed.select("job", "user").unique().iter_rows():
        found.setdefault(job, set()).add(user)
    for processes in context.holders.lists.values():
        for each in processes:
            if each.slurm_job_id and each.user:
                found.setdefault(f"{_SLURM}{each.slurm_job_id}", set()).add(each.user)
    return {job: frozenset(users) for job, users in found.items()}


def _same(users: frozenset[str] | None, others: frozenset[str] | None) -> bool:
    """Whether two jobs may be one user's."""
    return not users or not others or not users.isdisjoint(others)


def _may_end(job: str, other: str) -> bool:
    """Whether `scancel` of the one may end the other, by their ids alone."""
    if "_" in job:
        return False  # one task of an array, by the name that means it alone
    number, another = (_NUMBER.match(name.removeprefix(_SLURM)) for name in (job, other))
    # tasks get ids of their own as they start, later ones than the array's
    return number is None or another is None or int(another[0]) > int(number[0]) - _COMPONENTS_MAX
