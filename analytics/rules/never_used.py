"""GPUs that nobody has used since they were first seen: the defensive purchase.

Look-alikes that it leaves alone: a replaced or moved card, an agent that came later, cards added this week, a host that
fell silent, GPUs whose utilization or processes nobody could read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import polars as pl

from analytics.intervals import SPAN_MS
from analytics.states import UNOCCUPIED
from analytics.workloads import waste
from analytics.workloads.commands import watch_command
from analytics.workloads.confidence import watched_holders
from analytics.workloads.finding_parts import finding_of, label
from analytics.workloads.ledger_rows import highest, joined, whole_number
from analytics.workloads.model import Context, Evidence, Finding, HistoryNeed, Rule, of_gpus
from analytics.workloads.window_end import claimed_by_count, counted_gpus, seen_lately
from fallow.clock import HOUR_MS


def never_used_findings(context: Context) -> Iterator[Finding]:
    """GPUs without any process or kernel in the lake's whole history: one finding per host."""
    never = _never_used(context.whole.lifetimes, context.settings.never_used_min_ms)
    if never.is_empty():
        return
    unused = context.inside.stretches.filter(pl.col("state").is_in(UNOCCUPIED))
    there = _still_there(context, never["gpu"])
    for (host,), gpus in never.sort("host", "gpu").group_by("host", maintain_order=True):
        stretches = unused.filter(pl.col("gpu").is_in(gpus["gpu"].implode()))
        if not stretches.is_empty():
            history = context.whole.lifetimes.filter(pl.col("gpu").is_in(gpus["gpu"].implode()))
            uuids = tuple(gpus["gpu"])
            unwatched = bool(history["unwatched"].any())
            first_seen = whole_number(history, pl.col("first_seen").min())
            reserved = pl.col("state") == "reserved"
            found = finding_of(
                context,
                NEVER_USED,
                stretches,
                subject="",
                host=host,
                gpus=uuids,
                holder=joined(stretches, "holder"),
                since_ms=first_seen,
                numbers={
                    **({"holder_source": None} if unwatched else {}),
                    "observed_gpu_hours": whole_number(history, pl.col("util_ms").sum()) / HOUR_MS,
                    "reserved_gpu_hours": whole_number(stretches, SPAN_MS.filter(reserved).sum()) / HOUR_MS,
                    "gpu_util_max_pct": highest(history, "gpu_util_max_pct"),
                    "mem_used_max_bytes": highest(history, "mem_used_max_bytes"),
                    "model": "+".join(sorted({context.inventory.model(gpu) for gpu in uuids})),
                },
                failed=(watched_holders(unwatched=unwatched), claimed_by_count(context, [host])),
                reclaimable_gpus=() if unwatched else [gpu for gpu in uuids if gpu in there],
                next_command=watch_command(host),
            )
            # the evidence is the whole of the history, not the window's part of it
            samples = {"sample_count": whole_number(history, pl.col("sample_count").sum())}
            last_seen = whole_number(history, pl.col("last_seen").max())
            yield replace(found, evidence=Evidence(first_seen, last_seen, {**found.evidence.numbers, **samples}))


NEVER_USED = Rule(
    name="never_used",
    category="reclaim",
    sentence=of_gpus("never used since first seen"),
    kinds=(waste.NEVER_USED,),
    precedence=10,
    per_host=True,
    history=HistoryNeed(setting="never_used_min_ms"),
    thresholds={
        "findings.never_used_min": "7 d of observed time, a setting (a whole week, so that a weekend alone is no surplus)"
    },
    labels=(label("observed_gpu_hours", "{value} GPU-hours observed"),),
    find=never_used_findings,
)


def _never_used(history: pl.DataFrame, shortest_ms: int) -> pl.DataFrame:
    """Host and UUID of the GPUs that were watched for long enough and never used.

    Over all hosts: a card that moved has been used if it was used anywhere; it belongs to where it was seen last.
    """
    gpus = history.group_by("gpu").agg(
        pl.col("host").sort_by("last_seen", "host").last(),
        pl.col("used_ms", "unused_ms").sum(),
        measured_ms=pl.col("util_ms").sum(),
    )
    return gpus.filter(
        # a GPU whose utilization nobody could measure is unknown, not unused
        (pl.col("used_ms") == 0) & (pl.col("unused_ms") >= shortest_ms) & (pl.col("measured_ms") >= shortest_ms)
    ).select("host", "gpu")


def _still_there(context: Context, gpus: pl.Series) -> frozenset[str]:
    """The GPUs that were in order at the end of the window: a lost or silent one is nothing to hand out."""
    rows = context.inside.stretches.filter(pl.col("gpu").is_in(gpus.implode()))
    last = rows.group_by("gpu").agg(pl.col("end").max(), pl.col("state", "host").sort_by("end").last())
    # which of a host's free GPUs a claim counts nobody can say
    counted = (pl.col("state") == "free") & pl.col("host").is_in(list(counted_gpus(context)))
    there = last.filter(pl.col("state").is_in(UNOCCUPIED) & seen_lately(context) & ~counted)
    return frozenset(there["gpu"])
