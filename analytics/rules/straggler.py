"""One rank of a job works, on its GPU or on the CPU, while the kernels of its other GPUs wait for it.

Look-alikes that it leaves alone: jobs of which no rank works (`hung_job`), uneven work in every step (`imbalance`),
ranks that wait without a kernel (`held`, `partial_use`), barriers of a few minutes.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from analytics.language.sentences import tr
from analytics.workloads import waste
from analytics.workloads.finding_parts import label
from analytics.workloads.model import Context, of_gpus
from analytics.workloads.rule import Candidate, HistoryNeed, Rule
from analytics.workloads.stalled_work import (
    BUSY_CPU_PCT,
    STALLED_LABELS,
    STALLED_THRESHOLDS,
    WAITS_FOR_RANK,
    WORKS_MIN_MS,
    WORKS_MIN_SHARE,
    StallEvidence,
    awaited,
    stack_command,
    stalled_candidates,
    working_rows,
)
from analytics.workloads.window_end import still_going
from fallow.clock import MINUTE_MS


def straggler_findings(context: Context) -> Iterator[Candidate]:
    """Yield a finding per job or program whose GPUs wait for a rank that works."""
    return stalled_candidates(context, WAITS_FOR_RANK, lambda rows: _awaited(context, rows))


STRAGGLER = Rule(
    name="straggler",
    category="efficiency",
    sentence=of_gpus(
        "stalled: its kernels wait for another GPU of the job", "stalled: their kernels wait for another GPU of the job"
    ),
    kinds=(waste.STALLED,),
    precedence=20,
    advice=tr(
        "Find out what the working rank does alone, such as an evaluation or slow input, and share it among the ranks."
        " If that is not possible, reply with the reason."
    ),
    history=HistoryNeed(7 * MINUTE_MS),
    thresholds={
        **STALLED_THRESHOLDS,
        "works": (
            f"another GPU of the job works for at least {WORKS_MIN_MS // MINUTE_MS} min and {WORKS_MIN_SHARE:.0%} of"
            f" the stall, or a process of the job on a GPU that does not spin uses {BUSY_CPU_PCT:g} % of one CPU (ours)"
        ),
    },
    labels=(*STALLED_LABELS, label("working_gpus", "they wait for {value}")),
    find=straggler_findings,
)


def _awaited(context: Context, rows: pl.DataFrame) -> StallEvidence:
    """Return the GPUs whose ranks work, on the GPU or the CPU, and how to see what the last of them does."""
    others = awaited(context).filter(
        pl.col("episode").is_in(rows["episode"].implode()), ~pl.col("other").is_in(rows["gpu"].implode())
    )
    working = working_rows(context).filter(pl.col("work").is_in(rows["work"].drop_nulls().implode()))
    numbers = {
        "gpus_of_the_job": len({*rows["gpu"], *working["gpu"], *others["other"]}),
        "working_gpus": "+".join(sorted(set(others["other"]))) or None,
    }
    if not still_going(context, rows) or others.is_empty():
        return StallEvidence(numbers)
    host, gpu = others.select("host", "other").row(-1)
    return StallEvidence(numbers, next_command=stack_command(context, host, [gpu], rows["user"][0]))
