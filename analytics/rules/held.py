"""Somebody's processes occupy GPUs and run no kernel for an hour or more.

Look-alikes that it leaves alone: pauses for evaluation and checkpoints, compilation, servers with rare requests (all
under an hour), display servers and monitors, GPUs whose utilization nobody measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import polars as pl

from analytics.intervals import SPAN_MS
from analytics.ledger.summary import ratio
from analytics.states import UNOCCUPIED
from analytics.workloads import waste
from analytics.workloads.commands import ending_command, ties
from analytics.workloads.confidence import known_holder
from analytics.workloads.finding_parts import finding_of
from analytics.workloads.ledger_rows import THRESHOLDS_MIN, held_gpu_ms
from analytics.workloads.model import Context, EvidenceValue, Finding, HistoryNeed, Rule, of_gpus
from analytics.workloads.processes import held_by_work
from analytics.workloads.window_end import on_host_ahead, still_going
from fallow.clock import HOUR_MS

_BY = ("host", "holder", "whom")


def held_findings(context: Context) -> Iterator[Finding]:
    """Held intervals of at least `findings.held_min`: one finding per host and user (per GPU where none is known)."""
    held = held_by_work(context, context.inside.stretches.filter(pl.col("state") == "held")).with_columns(
        spell_ms=pl.col("stretch_end") - pl.col("stretch_start"),
        # an unknown holder on one GPU need not be the unknown holder on the next
        whom=pl.coalesce("holder", "gpu"),
    )
    long = held.filter(pl.col("spell_ms") >= context.settings.held_min_ms)
    now = _ongoing(context, long)
    # a process list says nothing of a GPU that its processes have left since
    idle = frozenset(now["gpu"]) | _left(context)
    facts = _facts(held, long, now)
    for by, stretches in long.partition_by(_BY, as_dict=True, maintain_order=True).items():
        yield _held_finding(context, stretches, facts[by], idle)


HELD = Rule(
    name="held",
    category="reclaim",
    sentence=of_gpus("held without running a kernel"),
    kinds=(waste.HELD_IDLE,),
    precedence=30,
    per_host=True,
    history=HistoryNeed(setting="held_min_ms"),
    thresholds={
        "findings.held_min": "60 min, a setting (after 60 idle minutes 42 % of idle intervals last another hour, after 5 only 4.7 %: "
        "GenTD26 serving trace)",
    },
    find=held_findings,
)


def _held_finding(context: Context, stretches: pl.DataFrame, facts: Mapping[str, Any], idle: frozenset[str]) -> Finding:
    current = tuple(facts["current"] or ())
    listed = (gpu for gpu in context.holders.beyond(current) if gpu not in idle)
    bound = ties(context, current)
    bound = replace(bound, gpus=tuple(sorted({*listed, *bound.gpus})))
    host, holder, source = facts["host"], facts["holder"], facts["source"]
    return finding_of(
        context,
        HELD,
        stretches,
        subject=facts["whom"],
        holder=holder,
        numbers=_held_numbers(context, facts, current),
        failed=(
            known_holder(source, holder),
            bound.failed,
        ),
        reclaimable_gpus=() if bound else current,
        # nothing to take back where the holder has gone or works again
        next_command=ending_command(context, host, current, holder, bound=bound) if current else "",
    )


def _ongoing(context: Context, long: pl.DataFrame) -> pl.DataFrame:
    """The rows of intervals that still ran at the end of the window: only their GPUs can be taken back."""
    now = still_going(context, long)
    last = pl.col("end") == pl.col("end").max().over("gpu")
    return long.filter(pl.col("gpu").is_in(now) & last)


def _left(context: Context) -> frozenset[str]:
    """The GPUs that nobody was on at the end of the window."""
    rows = context.inside.stretches
    last = rows.filter(pl.col("end") == pl.col("end").max().over("gpu"))
    return frozenset(last.filter(pl.col("state").is_in(UNOCCUPIED) & ~on_host_ahead(context))["gpu"])


def _facts(held: pl.DataFrame, long: pl.DataFrame, now: pl.DataFrame) -> dict[tuple[object, ...], dict[str, Any]]:
    """What each finding says, from all held rows, those of long intervals, and those that still run."""
    powered = pl.col("power_mean_w").is_not_null()
    found = long.group_by(_BY).agg(
        source=pl.col("holder_source").sort_by("time", "gpu").last(),
        stretch_count=pl.struct("gpu", "stretch_start").n_unique(),
        longest_ms=pl.col("spell_ms").max(),
        mem_used_max_bytes=pl.col("mem_used_max_bytes").max(),
        power_sum=(SPAN_MS * pl.col("power_mean_w")).filter(powered).sum(),
        power_ms=SPAN_MS.filter(powered).sum(),
        gpu_util_max_pct=pl.col("gpu_util_max_pct").max(),
    )
    all_held = held.group_by(_BY).agg(**{f"held_{minutes}": held_gpu_ms(minutes) for minutes in THRESHOLDS_MIN})
    running = now.group_by(_BY).agg(current=pl.col("gpu").unique().sort())
    for each in (all_held, running):
        found = found.join(each, on=_BY, how="left", nulls_equal=True)
    return {tuple(row[name] for name in _BY): row for row in found.iter_rows(named=True)}


def _held_numbers(context: Context, facts: Mapping[str, Any], current: tuple[str, ...]) -> dict[str, EvidenceValue]:
    processes = context.holders.on(current)
    return {
        **{
            f"held_gpu_hours_in_stretches_of_{minutes}_min": facts[f"held_{minutes}"] / HOUR_MS
            for minutes in THRESHOLDS_MIN
        },
        "holder_source": facts["source"],
        "gpus_held_now": len(current),
        "stretch_count": facts["stretch_count"],
        "longest_h": facts["longest_ms"] / HOUR_MS,
        "mem_used_max_bytes": facts["mem_used_max_bytes"],
        "power_mean_w": ratio(facts["power_sum"], facts["power_ms"]),
        "gpu_util_max_pct": facts["gpu_util_max_pct"],
        "commands": "+".join(sorted({process.command for process in processes if process.command})) or None,
    }
