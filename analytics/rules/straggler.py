"""One rank of a job works while the kernels of its other GPUs wait for it.

Look-alikes that it leaves alone: jobs of which no rank works (`hung_job`), uneven work in every step (`imbalance`), ranks that
wait without a kernel (`held`, `partial_use`), barriers of a few minutes.
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
    MOSTLY,
    STALLED_LABELS,
    STALLED_THRESHOLDS,
    WAITS_FOR_RANK,
    StallEvidence,
    stack_command,
    stalled_candidates,
    working_rows,
)
from analytics.workloads.window_end import still_going
from fallow.clock import MINUTE_MS


def straggler_findings(context: Context) -> Iterator[Candidate]:
    """Yield a finding per job or program whose GPUs wait for one that works."""
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
        "Find out what the working rank does alone, such as an evaluation or slow input, and share it among the ranks. If that is not possible, reply with the reason."
    ),
    history=HistoryNeed(7 * MINUTE_MS),
    thresholds={
        **STALLED_THRESHOLDS,
        "works": f"another GPU of the job in use for at least {MOSTLY:.0%} of the time (ours)",
    },
    labels=(*STALLED_LABELS, label("working_gpus", "they wait for {value}")),
    find=straggler_findings,
)


def _awaited(context: Context, rows: pl.DataFrame) -> StallEvidence:
    working = working_rows(context).filter(pl.col("work").is_in(rows["work"].drop_nulls().implode()))
    during = working.filter((pl.col("time") < rows["end"].max()) & (pl.col("end") > rows["time"].min()))
    awaited = sorted(set(during["gpu"]) - set(rows["gpu"]))
    numbers = {"gpus_of_the_job": len({*rows["gpu"], *working["gpu"]}), "working_gpus": "+".join(awaited) or None}
    there = during.filter(pl.col("gpu").is_in(awaited)).sort("end", "gpu")
    if not still_going(context, rows) or there.is_empty():
        return StallEvidence(numbers)
    host, gpu = there.select("host", "gpu").row(-1)
    return StallEvidence(numbers, next_command=stack_command(context, host, [gpu], rows["user"][0]))
