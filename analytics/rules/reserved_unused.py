"""Somebody has an allocation and no process on its GPUs.

Look-alikes that it leaves alone: a job that is starting, pauses of an interactive job, a reservation over a weekend,
processes that the agent cannot see.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import polars as pl

from analytics.language.sentences import tr
from analytics.ledger.day_owners import NOBODY_LOOKED
from analytics.states import OCCUPIED
from analytics.workloads import waste
from analytics.workloads.commands import Ties, array_command, operands, quote, ties, watch_command
from analytics.workloads.finding_parts import finding_of, label
from analytics.workloads.ledger_rows import by_job, idle_numbers, joined
from analytics.workloads.model import Context, Finding, HistoryNeed, Rule, of_gpus
from analytics.workloads.window_end import still_going
from fallow.clock import DAY_MS, format_duration

STANDING_MIN_MS = 3 * DAY_MS
RECENT_MS = DAY_MS

_SPELL = pl.col("stretch_end") - pl.col("stretch_start")
_JOB = ("slurm:", "pod:")


def reserved_unused_findings(context: Context) -> Iterator[Finding]:
    """Allocated time without a process: one finding per host and owner (per GPU where none is known)."""
    # an unknown claimant of one GPU need not be the unknown claimant of the next
    whom = pl.coalesce("holder", "job", "gpu")
    watched = ~pl.col("holder_source").is_in(NOBODY_LOOKED).fill_null(value=False)
    reserved = context.inside.stretches.filter((pl.col("state") == "reserved") & watched).with_columns(whom=whom)
    least_ms = pl.when(_of_a_job()).then(context.settings.held_min_ms).otherwise(STANDING_MIN_MS)
    for _, rows in reserved.filter(least_ms <= _SPELL).group_by("host", "whom", maintain_order=True):
        every = reserved.join(rows.select("host", "whom").unique(), on=("host", "whom"), how="semi")
        first = rows.row(0, named=True)
        now = still_going(context, rows)
        current = rows.filter(pl.col("gpu").is_in(now))
        bound = _bound(context, current)
        yield finding_of(
            context,
            RESERVED_UNUSED,
            rows.drop("whom"),
            subject=first["whom"],
            source="claim",
            numbers=idle_numbers("reserved", every, rows, now, "claim") | {"accounts": joined(rows, "account")},
            failed=[_used_lately(context, current), bound.failed],
            next_command=_reserved_unused_command(context, first["host"], current, bound),
            reclaimable_gpus=() if bound else now,
            holder=first["holder"],
            notes=_reserved_unused_notes(current),
        )


RESERVED_UNUSED = Rule(
    name="reserved_unused",
    category="reclaim",
    sentence=of_gpus("allocated without a process on it", "allocated without a process on them"),
    kinds=(waste.ALLOCATED_IDLE,),
    precedence=10,
    per_host=True,
    history=HistoryNeed(setting="held_min_ms"),
    thresholds={
        "of a job": "allocated to a Slurm job or pod, without a process for at least findings.held_min (as `held`)",
        "standing": f"any other allocation: without a process for at least {format_duration(STANDING_MIN_MS)} (longer than a weekend; ours)",
    },
    labels=(label("accounts", "accounts {value}"),),
    find=reserved_unused_findings,
)


def _of_a_job() -> pl.Expr:
    """Whether the allocation is a job's, which ends with its work; others stand whether there is work or not."""
    standing = pl.col("job").str.contains(r"(^|\+)claim:")
    return (pl.col("job").str.starts_with(_JOB[0]) | pl.col("job").str.starts_with(_JOB[1])).fill_null(
        value=False
    ) & ~standing


def _bound(context: Context, current: pl.DataFrame) -> Ties:
    """What else would end with the allocation: GPUs on which the same jobs or pods have processes, or work among it."""
    jobs, claimed = set(by_job(current)["work"]), set(current["gpu"])
    listed = (
        gpu
        for gpu, processes in context.holders.lists.items()
        if gpu not in claimed
        and any(
            f"slurm:{each.slurm_job_id}" in jobs or f"pod:{each.namespace or 'default'}/{each.pod}" in jobs
            for each in processes
        )
    )
    known = ties(context, sorted(claimed))
    return replace(known, gpus=tuple(sorted({*listed, *known.gpus})))


def _used_lately(context: Context, current: pl.DataFrame) -> list[str]:
    """Fails where the same user worked there in the last day and may be back."""
    since_ms = context.until_ms - RECENT_MS
    used = context.whole.stretches.filter(
        (pl.col("end") > since_ms)
        & pl.col("state").is_in(OCCUPIED)
        & pl.col("gpu").is_in(current["gpu"].unique().implode())
    )
    by_them = used.join(current.select("gpu", "whom").unique(), on="gpu").filter(
        pl.col("holder").eq_missing(pl.col("whom")) | pl.col("holder").is_null()
    )
    if by_them.is_empty():
        return []
    return [tr("the same user had processes on them in the last 24 h: the allocation may be between two workloads")]


def _reserved_unused_command(context: Context, host: str, current: pl.DataFrame, bound: Ties) -> str:
    if current.is_empty():
        return ""  # the claim has ended, or its work has begun
    jobs = by_job(current)["work"].unique().sort().to_list()
    known = [job.partition(":") for job in jobs if job.startswith(_JOB)]
    # what a job claimed at the end of a past window may be at work by now
    if bound.tied and not bound.gpus:
        return array_command(bound.slurm)
    if not known or len(known) < len(jobs) or bound or not context.latest:
        return _reserved_unused_look(host, jobs)
    slurm = [name for kind, _, name in known if kind == "slurm"]
    pods = [name.partition("/") for kind, _, name in known if kind == "pod"]
    return " && ".join(
        [
            *([f"scancel {operands(slurm)}"] if slurm else []),
            *(f"kubectl delete pod -n {quote(space)} {operands([pod])}" for space, _, pod in pods),
        ]
    )


def _reserved_unused_look(host: str, jobs: Sequence[str]) -> str:
    slurm = [job.removeprefix("slurm:") for job in jobs if job.startswith("slurm:")]
    if slurm:
        return f"squeue --jobs={quote(','.join(slurm))} --long"
    pods = [job.removeprefix("pod:").partition("/") for job in jobs if job.startswith("pod:")]
    if pods:
        return " && ".join(f"kubectl get pod -n {quote(space)} {operands([pod])}" for space, _, pod in pods)
    return watch_command(host)


def _reserved_unused_notes(current: pl.DataFrame) -> list[str]:
    claims = sorted(job.removeprefix("claim:") for job in by_job(current)["work"].unique() if job.startswith("claim:"))
    return (
        [
            tr(
                "release the allocation {claims} where it was made; fallow does not know the command",
                claims=", ".join(claims),
            )
        ]
        if claims
        else []
    )
