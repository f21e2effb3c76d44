"""GPUs that were never used since they were first observed: the defensive purchase.

Look-alikes that it leaves alone: a replaced or moved card, an agent that was installed later, cards added this week, a
silent host, GPUs whose utilization or processes could not be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import polars as pl

from analytics.intervals import SPAN_MS
from analytics.states import UNOCCUPIED
from analytics.workloads import waste
from analytics.workloads.commands import watch_command
from analytics.workloads.confidence import watched_users
from analytics.workloads.finding_parts import label
from analytics.workloads.ledger_rows import highest, joined, whole_number
from analytics.workloads.model import Context, Evidence, Finding, of_gpus
from analytics.workloads.rule import Candidate, HistoryNeed, Rule
from analytics.workloads.window_end import allocated_by_count, unoccupied_now
from fallow.clock import HOUR_MS


def never_used_findings(context: Context) -> Iterator[Candidate]:
    """Yield a finding per host with GPUs that have no process and no kernel in the lake's whole history."""
    never = _never_used(context.whole.lifetimes, context.settings.never_used_min_ms)
    if never.is_empty():
        return
    unused = context.inside.segments.filter(pl.col("state").is_in(UNOCCUPIED))
    there = unoccupied_now(context, never["gpu"])
    for (host,), gpus in never.sort("host", "gpu").group_by("host", maintain_order=True):
        segments = unused.filter(pl.col("gpu").is_in(gpus["gpu"].implode()))
        if not segments.is_empty():
            history = context.whole.lifetimes.filter(pl.col("gpu").is_in(gpus["gpu"].implode()))
            uuids = tuple(gpus["gpu"])
            unwatched = bool(history["unwatched"].any())
            first_seen = whole_number(history, pl.col("first_seen").min())
            reserved = pl.col("state") == "reserved"
            yield Candidate(
                segments,
                subject="",
                host=host,
                gpus=uuids,
                user=joined(segments, "user"),
                since_ms=first_seen,
                numbers={
                    **({"user_source": None} if unwatched else {}),
                    "observed_gpu_hours": whole_number(history, pl.col("util_ms").sum()) / HOUR_MS,
                    "reserved_gpu_hours": whole_number(segments, SPAN_MS.filter(reserved).sum()) / HOUR_MS,
                    "gpu_util_max_pct": highest(history, "gpu_util_max_pct"),
                    "mem_used_max_bytes": highest(history, "mem_used_max_bytes"),
                    "model": "+".join(sorted({context.inventory.model(gpu) for gpu in uuids})),
                },
                failed=(watched_users(unwatched=unwatched), allocated_by_count(context, [host])),
                reclaimable_gpus=() if unwatched else [gpu for gpu in uuids if gpu in there],
                next_command=watch_command(host),
                revised=partial(_over_its_history, history=history),
            )


NEVER_USED = Rule(
    name="never_used",
    category="reclaim",
    sentence=of_gpus("never used since first observed"),
    kinds=(waste.NEVER_USED,),
    precedence=10,
    per_host=True,
    history=HistoryNeed(setting="never_used_min_ms"),
    thresholds={
        "findings.never_used_min": (
            "7 d of observed time, a setting (a whole week, so that a weekend alone is no surplus)"
        )
    },
    labels=(label("observed_gpu_hours", "{value} GPU-hours observed"),),
    find=never_used_findings,
)


def _never_used(history: pl.DataFrame, shortest_ms: int) -> pl.DataFrame:
    """Return host and UUID of GPUs that were observed long enough and never used.

    All hosts count: a card that moved is used if it was used anywhere, and belongs to the host where it was last
    observed.
    """
    gpus = history.group_by("gpu").agg(
        pl.col("host").sort_by("last_seen", "host").last(),
        pl.col("used_ms", "unused_ms").sum(),
        measured_ms=pl.col("util_ms").sum(),
    )
    return gpus.filter(
        # a GPU without measured utilization is unknown, not unused
        (pl.col("used_ms") == 0) & (pl.col("unused_ms") >= shortest_ms) & (pl.col("measured_ms") >= shortest_ms)
    ).select("host", "gpu")


def _over_its_history(finding: Finding, history: pl.DataFrame) -> Finding:
    """Return the finding with evidence from the whole of the history, not the window's part of it."""
    first_seen, last_seen, samples = history.select(
        pl.col("first_seen").min(), pl.col("last_seen").max(), pl.col("sample_count").sum()
    ).row(0)
    return replace(
        finding, evidence=Evidence(first_seen, last_seen, {**finding.evidence.numbers, "sample_count": samples})
    )
