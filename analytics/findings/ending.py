"""May what is on some GPUs be ended: only where a fresh list names it, all of it is the finding's own, and no other work ends."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from analytics.findings.alive import last_rows, serves_only
from analytics.findings.base import on_host_ahead
from analytics.findings.holders import look_command, release_command
from analytics.findings.once import once
from analytics.findings.work import by_job
from analytics.ledger.summary import SILENT_AFTER_MS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from analytics.findings.holders import Process
    from analytics.findings.model import Context

LIST_INTERVALS = 3
"""A process list is good for so many of its intervals, in the ledger as here."""

_AT_REST = ("free", "reserved", "held", "unavailable")
_WORKING = ("low", "active")
_STANDING = "claim:"
"""A reservation ends GPU by GPU, and no work with it; a job, pod or Ray job ends as a whole."""


@dataclass(frozen=True)
class _Now:
    """The last ledger row of each GPU that says anything, silent GPUs included, by GPU and by job.

    How it stands on a host whose clock is ahead nobody knows: there may be work there.
    """

    state: Mapping[str, str]
    jobs_on: Mapping[str, frozenset[str]]
    at_work: Mapping[str, frozenset[str]]
    """By job the GPUs that it works on, or may work on where nobody lists processes."""


def works_elsewhere(context: Context, gpus: Sequence[str]) -> tuple[str, ...]:
    """Other GPUs that lose work if what is on these is ended: of the same processes, or of the same Slurm job, pod or Ray job.

    By process lists, and by the ledger's own rows: of a GPU whose processes nobody lists, a claim may know the job.
    """
    now = _now(context)
    listed = (gpu for gpu in context.holders.beyond(gpus) if now.state.get(gpu) not in _AT_REST)
    jobs = {job for gpu in gpus for job in now.jobs_on.get(gpu, ())} | {
        job for process in context.holders.of(gpus) for job in _jobs_of(process)
    }
    by_ledger = (gpu for job in jobs for gpu in now.at_work.get(job, ()))
    return tuple(sorted({*listed, *by_ledger}.difference(gpus)))


def own_processes(context: Context, gpus: Sequence[str], holder: str | None) -> tuple[Process, ...]:
    """The processes on these GPUs, if they may be ended as the holder's; none if any of it is unsure.

    Every GPU must be known by processes at the end of the window, by a list that is still good, and every process must be
    that of a user whom the holder's name names. Display servers, MPS daemons and monitors are left alone.
    """
    if not context.latest or not set(gpus) <= listed_now(context):
        return ()  # what ran then may be somebody else's by now
    processes = tuple(each for each in context.holders.of(gpus) if not serves_only(each.command))
    return processes if all(_is_of(each.user, holder) for each in processes) else ()


def ending_command(context: Context, host: str, gpus: Sequence[str], holder: str | None) -> str:
    """What ends the holder's work on these GPUs; only a look where that is not sure to end nothing else."""
    processes = () if works_elsewhere(context, gpus) else own_processes(context, gpus, holder)
    return release_command(host, processes) if processes else look_command(host)


@once
def listed_now(context: Context) -> frozenset[str]:
    """The GPUs whose holder the ledger knows by processes at the end of the window, by a list that is still good.

    Beside the GPU's own last row, for hosts publish at different times; no list is good for longer than SILENT_AFTER_MS.
    """
    last = last_rows(context).filter(pl.col("holder_source") == "process").select("host", "gpu", seen="end")
    recent = context.rollups.processes().filter(pl.col("end") > context.until_ms - SILENT_AFTER_MS)
    lists = (
        recent.join(last, on=("host", "gpu"))
        .sort("end", "list_count")
        .group_by("gpu")
        .agg(pl.col("time", "end", "list_count", "seen").last())
        .with_columns(interval_ms=(pl.col("end") - pl.col("time")) / pl.col("list_count"))
    )
    listed_ms = pl.col("end") - pl.col("interval_ms")
    good = lists.filter(pl.col("seen") - listed_ms <= LIST_INTERVALS * pl.col("interval_ms"))
    return frozenset(good["gpu"])


@once
def _now(context: Context) -> _Now:
    rows = context.inside.stretches.filter(pl.col("state") != "unknown").sort("gpu", "end")
    last = rows.unique("gpu", keep="last", maintain_order=True)
    jobs = by_job(last).filter(~pl.col("work").str.starts_with(_STANDING))
    unlisted = (pl.col("state") != "reserved") & pl.col("holder_source").ne_missing("process")
    working = jobs.filter(pl.col("state").is_in(_WORKING) | unlisted | on_host_ahead(context))
    told = last.filter(~on_host_ahead(context))
    return _Now(
        dict(told.select("gpu", "state").iter_rows()), _sets(jobs, "gpu", "work"), _sets(working, "work", "gpu")
    )


def _sets(frame: pl.DataFrame, key: str, value: str) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for name, each in frame.select(key, value).iter_rows():
        found[name].add(each)
    return {name: frozenset(values) for name, values in found.items()}


def _jobs_of(process: Process) -> tuple[str, ...]:
    """The ledger's names for what a process belongs to."""
    slurm = (f"slurm:{process.slurm_job_id}",) if process.slurm_job_id else ()
    pod = (f"pod:{process.namespace or 'default'}/{process.pod}",) if process.pod else ()
    return (*slurm, *pod)


def _is_of(user: str | None, holder: str | None) -> bool:
    """Whether the user is the holder, or one of those who share a GPU as `ann+bob`."""
    return user is not None and holder is not None and (user == holder or user in holder.split("+"))
