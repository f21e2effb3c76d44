"""All GPUs of a job report kernels and do no work: a collective waits for a rank that never comes.

The evidence names the GPU that fell first: its rank crashed, left the collective or waits for something else.

Look-alikes that it leaves alone: checkpoints and barriers of a few minutes, hosts that write, memory-bound decoding, FP64
solvers, tiny models that are bound by launch latency, actors that wait for the CPU, throttled cards, jobs of which one rank
works on (`straggler`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from analytics.language.language import Sentence
from analytics.language.plain_text import plain
from analytics.language.quantities import Span
from analytics.language.sentences import tr
from analytics.names import JOINER
from analytics.workloads import waste
from analytics.workloads.commands import dump_command, log_command
from analytics.workloads.finding_parts import label
from analytics.workloads.model import Context, Finding, Label, of_gpus
from analytics.workloads.rule import Candidate, HistoryNeed, Rule
from analytics.workloads.stalled_work import (
    HUNG,
    STALLED_LABELS,
    STALLED_THRESHOLDS,
    StallEvidence,
    mean_over_time,
    stack_command,
    stalled_candidates,
    working_rows,
)
from analytics.workloads.window_end import still_going
from fallow.clock import MINUTE_MS, SECOND_MS

BEFORE_MS = 10 * MINUTE_MS
"""A GPU fell from work if it worked in the same job up to this time before."""


def _first_words(known: Mapping[str, Any], _: Finding) -> list[Sentence]:
    if "first_gpu" not in known:
        return []
    lead = Span(round(float(known["first_by_s"]) * SECOND_MS))
    return [tr("{gpu} stopped first, {lead} before the next", gpu=plain(str(known["first_gpu"])), lead=lead)]


def hung_job_findings(context: Context) -> Iterator[Candidate]:
    """Yield a finding per job, program or GPU whose kernels only wait, while no other GPU of it works."""
    return stalled_candidates(context, HUNG, lambda rows: _fall(context, rows))


HUNG_JOB = Rule(
    name="hung_job",
    category="reclaim",
    sentence=of_gpus("stalled: its kernels wait and do no work", "stalled: their kernels wait and do no work"),
    kinds=(waste.STALLED,),
    precedence=10,
    history=HistoryNeed(7 * MINUTE_MS),
    thresholds={
        **STALLED_THRESHOLDS,
        "fall": f"confidence is lower unless a GPU of the job was in use within {BEFORE_MS // MINUTE_MS} min before (ours)",
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
    """Return which GPU fell first in the newest stall, how many fell from work, and how to see where the first one waits."""
    starts = rows.group_by("host", "gpu").agg(pl.col("segment_start").max()).sort("segment_start", "gpu")
    (host, gpu, first_ms), rest = starts.row(0), starts["segment_start"][1:]
    working = working_rows(context).filter(pl.col("work").is_in(rows["work"].drop_nulls().implode()))
    before = starts.join(working.select("gpu", "end"), on="gpu").filter(
        pl.col("end").is_between(pl.col("segment_start") - BEFORE_MS, pl.col("segment_start"))
    )
    fell = before["gpu"].n_unique()
    numbers = {
        "gpus_of_the_job": len({*rows["gpu"], *working["gpu"]}),
        "gpus_from_work": fell,
        "working_power_w": mean_over_time(working, "power_mean_w"),
    }
    if len(rest) and rest[0] > first_ms:
        numbers |= {"first_gpu": gpu, "first_by_s": (rest[0] - first_ms) / SECOND_MS}
    notes = _notes(context, host, gpu, rows) if gpu in still_going(context, rows) else []
    return StallEvidence(numbers, [] if fell else [tr("none of its GPUs was observed at work before")], notes)


def _notes(context: Context, host: str, gpu: str, rows: pl.DataFrame) -> list[Sentence]:
    """Return where to look before the job is ended: the first rank's stack, the log, and the stacks of all ranks."""
    user, job = rows.row(0, named=True)["user"], rows.row(0, named=True)["job"]
    own = None if job is None or JOINER in job else job  # of several jobs no command means one
    notes: list[Sentence] = [
        tr("where the first rank waits: {command}", command=plain(stack_command(context, host, [gpu], user)))
    ]
    if (log := log_command(own)) is not None:
        notes.append(tr("its log (StdOut and StdErr of a Slurm job): {command}", command=plain(log)))
    if (dump := dump_command(own)) is not None:
        notes.append(
            tr(
                "to end it with the stacks of all ranks in the log, where Python's faulthandler is on: {command}",
                command=plain(dump),
            )
        )
    return notes
