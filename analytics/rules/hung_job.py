"""All GPUs of a job report kernels and do no work: a collective waits for a rank that never comes.

The evidence names the GPU that left work first, for a stall or idle: its rank crashed, left the collective or waits for
something else.

Look-alikes that it leaves alone: checkpoints and barriers of a few minutes, hosts that write, memory-bound decoding,
FP64 solvers, tiny models that are bound by launch latency, actors that wait for the CPU, throttled cards, jobs of which
one rank works on, on its GPU or the CPU (`straggler`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from analytics.intervals import SPAN_MS
from analytics.language.sentences import Sentence, Span, plain, tr
from analytics.names import JOINER
from analytics.workloads import waste
from analytics.workloads.commands import dump_command, ends_work, log_command
from analytics.workloads.finding_parts import label
from analytics.workloads.ledger_rows import whole_number
from analytics.workloads.model import Context, Finding, Label, of_gpus
from analytics.workloads.rule import Candidate, HistoryNeed, Rule
from analytics.workloads.stall_witnesses import mean_over_time
from analytics.workloads.stalled_work import (
    BEFORE_MS,
    HUNG,
    STALLED_LABELS,
    STALLED_THRESHOLDS,
    StallEvidence,
    stack_command,
    stalled_candidates,
    working_rows,
)
from analytics.workloads.window_end import still_going
from fallow.clock import MINUTE_MS, SECOND_MS


def _first_words(known: Mapping[str, Any], _: Finding) -> list[Sentence]:
    if "first_gpu" not in known:
        return []
    lead = Span(round(float(known["first_by_s"]) * SECOND_MS))
    return [tr("{gpu} stopped first, {lead} before the next", gpu=plain(str(known["first_gpu"])), lead=lead)]


def hung_job_findings(context: Context) -> Iterator[Candidate]:
    """Yield a finding per job, program or GPU whose kernels only wait, while no other rank of it works."""
    for each in stalled_candidates(context, HUNG, lambda rows: _fall(context, rows)):
        yield replace(each, notes=(*each.notes, *_dump_note(each)))


HUNG_JOB = Rule(
    name="hung_job",
    category="reclaim",
    sentence=of_gpus("stalled: its kernels wait and do no work", "stalled: their kernels wait and do no work"),
    kinds=(waste.STALLED,),
    precedence=10,
    history=HistoryNeed(7 * MINUTE_MS),
    thresholds={
        **STALLED_THRESHOLDS,
        "fall": (
            f"confidence is lower unless a GPU of the job was in use within {BEFORE_MS // MINUTE_MS} min before; the"
            " first to leave is named if it led by a sample (ours)"
        ),
    },
    labels=(
        *STALLED_LABELS,
        Label(("first_gpu", "first_by_s"), _first_words),
        label("gpus_from_work", "{value} of its GPUs fell from work"),
        label("working_power_w", "{value} W while it worked"),
    ),
    find=hung_job_findings,
)


def _fall(context: Context, rows: pl.DataFrame) -> StallEvidence:
    """Return which GPU left work first in the newest episode, how many left work, and how to see where a rank waits."""
    newest = rows.filter(pl.col("episode") == pl.col("episode").max())
    fallen = newest.group_by("gpu", "host").agg(left_ms=pl.col("segment_start").min())
    working = working_rows(context).filter(pl.col("work").is_in(rows["work"].drop_nulls().implode()))
    before = fallen.join(working.select("gpu", "end"), on="gpu").filter(
        pl.col("end").is_between(pl.col("left_ms") - BEFORE_MS, pl.col("left_ms"))
    )
    fell = before["gpu"].n_unique()
    numbers = {
        "gpus_of_the_job": len({*rows["gpu"], *working["gpu"]}),
        "gpus_from_work": fell,
        "working_power_w": mean_over_time(working, "power_mean_w"),
    }
    # a rank that crashed leaves its GPU idle or free
    idle = working.join(fallen, on="gpu", how="anti").group_by("gpu", "host").agg(left_ms=pl.col("end").max())
    idle = idle.filter(pl.col("left_ms") >= whole_number(fallen, pl.col("left_ms").min()) - BEFORE_MS)
    (gpu, host, first_ms), *rest = pl.concat([fallen, idle]).sort("left_ms", "gpu").rows()
    first: list[tuple[str, str]] = []
    if rest and (lead_ms := rest[0][-1] - first_ms) >= _sample_ms(newest):
        first = [(gpu, host)]
        numbers |= {"first_gpu": gpu, "first_by_s": lead_ms / SECOND_MS}
    now = still_going(context, newest)
    notes = _notes(context, newest.filter(pl.col("gpu").is_in(now)), first) if now else []
    return StallEvidence(numbers, [] if fell else [tr("none of its GPUs was observed at work before")], notes)


def _sample_ms(rows: pl.DataFrame) -> int:
    """Return the length of a sample, at least 1: of the host with the longest."""
    shortest = rows.group_by("host").agg(sample_ms=(SPAN_MS // pl.col("sample_count").clip(lower_bound=1)).min())
    return max(1, whole_number(shortest, pl.col("sample_ms").max()))


def _notes(context: Context, rows: pl.DataFrame, first: Sequence[tuple[str, str]]) -> list[Sentence]:
    """Return where to look before the job is ended: the stack of the first rank, or of any, and the log."""
    user = rows["user"][0]
    notes: list[Sentence] = []
    there = [(gpu, host) for gpu, host in first if context.users.on([gpu])]
    for gpu, host in there:
        command = plain(stack_command(context, host, [gpu], user))
        notes.append(tr("where the first rank waits: {command}", command=command))
    if not there:
        gpu, host = rows.select("gpu", "host").row(0)
        command = plain(stack_command(context, host, [gpu], user))
        notes.append(tr("where a rank waits: {command}", command=command))
    if (log := log_command(_own_job(rows))) is not None:
        notes.append(tr("its log (StdOut and StdErr of a Slurm job): {command}", command=plain(log)))
    return notes


def _dump_note(found: Candidate) -> list[Sentence]:
    """Return how to end the job with its stacks, where the finding's command ends that job anyway."""
    dump = dump_command(_own_job(found.segments)) if ends_work(found.next_command) else None
    if dump is None:
        return []
    return [
        tr(
            "to end it with the stacks of all ranks in the log, where Python's faulthandler is on: {command}",
            command=plain(dump),
        )
    ]


def _own_job(rows: pl.DataFrame) -> str | None:
    """Return the job of these rows; None of several, of which no command means one."""
    job = rows["job"][0]
    return None if job is None or JOINER in job else str(job)
