"""An allocation without a process on its GPUs.

Look-alikes that it leaves alone: a job that is starting, pauses of an interactive job, a reservation over a weekend,
processes that the agent cannot see.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import polars as pl

from analytics.language.sentences import tr
from analytics.ledger.day_owners import UNWATCHED_SOURCES
from analytics.states import OCCUPIED
from analytics.workloads import waste
from analytics.workloads.commands import Ties, array_command, operands, quote, ties, watch_command
from analytics.workloads.finding_parts import label
from analytics.workloads.ledger_rows import SEGMENT_MS, by_job, idle_numbers, joined
from analytics.workloads.model import Context, of_gpus
from analytics.workloads.row_sums import CANDIDATE, of_candidates, parts_of
from analytics.workloads.rule import Candidate, HistoryNeed, Rule
from analytics.workloads.window_end import still_going_each
from fallow.clock import DAY_MS, format_duration

STANDING_MIN_MS = 3 * DAY_MS
RECENT_MS = DAY_MS

_JOB = ("slurm:", "pod:")


def reserved_unused_findings(context: Context) -> Iterator[Candidate]:
    """Yield a finding per host and owner (per GPU without a known owner), for allocated time without a process."""
    # an unknown user of one GPU need not be the unknown user of the next
    whom = pl.coalesce("user", "job", "gpu")
    watched = ~pl.col("user_source").is_in(UNWATCHED_SOURCES).fill_null(value=False)
    reserved = context.inside.segments.filter((pl.col("state") == "reserved") & watched).with_columns(whom=whom)
    least_ms = pl.when(_of_a_job()).then(context.settings.held_min_ms).otherwise(STANDING_MIN_MS)
    is_long = least_ms <= SEGMENT_MS
    every = of_candidates(reserved, reserved.filter(is_long), ("host", "whom"))
    long = every.filter(is_long)
    going = still_going_each(context, long)
    number = long[CANDIDATE].n_unique()
    figures = idle_numbers("reserved", every, long, going, ["allocation"] * number)
    for place, rows in enumerate(parts_of(long, number)):
        first = rows.row(0, named=True)
        now = going.get(place, ())
        current = rows.filter(pl.col("gpu").is_in(now))
        bound = _bound(context, current)
        yield Candidate(
            rows.drop("whom"),
            subject=first["whom"],
            source="allocation",
            numbers=figures[place] | {"accounts": joined(rows, "account")},
            failed=[_used_lately(context, current), bound.failed],
            next_command=_reserved_unused_command(context, first["host"], current, bound),
            reclaimable_gpus=() if bound else now,
            user=first["user"],
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
        "standing": (
            f"any other allocation: without a process for at least {format_duration(STANDING_MIN_MS)} (longer than a"
            " weekend; ours)"
        ),
    },
    labels=(label("accounts", "accounts {value}"),),
    find=reserved_unused_findings,
)


def _of_a_job() -> pl.Expr:
    """Return True if the allocation belongs to a job, which ends with its work. Other allocations stay without work."""
    standing = pl.col("job").str.contains(r"(^|\+)allocation:")
    return (pl.col("job").str.starts_with(_JOB[0]) | pl.col("job").str.starts_with(_JOB[1])).fill_null(
        value=False
    ) & ~standing


def _bound(context: Context, current: pl.DataFrame) -> Ties:
    """Return what else ends with the allocation, such as other GPUs with processes of the same jobs or pods."""
    jobs, allocated = set(by_job(current)["work"]), set(current["gpu"])
    listed = (
        gpu
        for gpu, processes in context.users.lists.items()
        if gpu not in allocated
        and any(
            f"slurm:{each.slurm_job_id}" in jobs or f"pod:{each.namespace or 'default'}/{each.pod}" in jobs
            for each in processes
        )
    )
    known = ties(context, sorted(allocated))
    return replace(known, gpus=tuple(sorted({*listed, *known.gpus})))


def _used_lately(context: Context, current: pl.DataFrame) -> list[str]:
    """Return a failed condition if the same user used these GPUs in the last day and may return."""
    since_ms = context.until_ms - RECENT_MS
    used = context.whole.segments.filter(
        (pl.col("end") > since_ms)
        & pl.col("state").is_in(OCCUPIED)
        & pl.col("gpu").is_in(current["gpu"].unique().implode())
    )
    by_them = used.join(current.select("gpu", "whom").unique(), on="gpu").filter(
        pl.col("user").eq_missing(pl.col("whom")) | pl.col("user").is_null()
    )
    if by_them.is_empty():
        return []
    return [
        tr("the same user had processes on these GPUs in the last 24 h, so the allocation may be between two workloads")
    ]


def _reserved_unused_command(context: Context, host: str, current: pl.DataFrame, bound: Ties) -> str:
    if current.is_empty():
        return ""  # the allocation has ended, or its work has begun
    jobs = by_job(current)["work"].unique().sort().to_list()
    known = [job.partition(":") for job in jobs if job.startswith(_JOB)]
    # what a job allocated at the end of a past window may be at work by now
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
    allocations = sorted(
        job.removeprefix("allocation:") for job in by_job(current)["work"].unique() if job.startswith("allocation:")
    )
    return (
        [
            tr(
                "release the allocation {allocations} where it was created; fallow does not know the command",
                allocations=", ".join(allocations),
            )
        ]
        if allocations
        else []
    )
