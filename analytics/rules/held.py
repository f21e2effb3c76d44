"""Somebody's processes occupy GPUs and run no kernel for an hour or more.

Look-alikes that it leaves alone: pauses for evaluation and checkpoints, compilation, servers with rare requests (all
under an hour), display servers and monitors, GPUs whose utilization nobody measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import polars as pl

from analytics.ledger.summary import ratio
from analytics.states import UNOCCUPIED
from analytics.workloads import waste
from analytics.workloads.commands import ending_command, ties
from analytics.workloads.finding_parts import finding_of
from analytics.workloads.ledger_rows import highest, idle_numbers, newest_source
from analytics.workloads.model import Context, Finding, HistoryNeed, Rule, of_gpus
from analytics.workloads.processes import held_by_work
from analytics.workloads.window_end import on_host_ahead, still_going

_BY = ("host", "holder", "whom")


def held_findings(context: Context) -> Iterator[Finding]:
    """Held intervals of at least `findings.held_min`: one finding per host and user (per GPU where none is known)."""
    held = held_by_work(context, context.inside.stretches.filter(pl.col("state") == "held")).with_columns(
        spell_ms=pl.col("stretch_end") - pl.col("stretch_start"),
        # an unknown holder on one GPU need not be the unknown holder on the next
        whom=pl.coalesce("holder", "gpu"),
    )
    long = held.filter(pl.col("spell_ms") >= context.settings.held_min_ms)
    # a process list says nothing of a GPU that its processes have left since
    idle = _left(context).union(still_going(context, long))
    every = held.partition_by(_BY, as_dict=True)
    for by, stretches in long.partition_by(_BY, as_dict=True, maintain_order=True).items():
        current = still_going(context, stretches)
        listed = (gpu for gpu in context.holders.beyond(current) if gpu not in idle)
        bound = ties(context, current)
        bound = replace(bound, gpus=tuple(sorted({*listed, *bound.gpus})))
        host, holder, source = stretches["host"][0], stretches["holder"][0], newest_source(stretches)
        powered = stretches.filter(stretches["power_mean_w"].is_not_null())
        known_ms = powered["end"] - powered["time"]
        commands = {process.command for process in context.holders.on(current) if process.command}
        yield finding_of(
            context,
            HELD,
            stretches,
            subject=stretches["whom"][0],
            holder=holder,
            source=source,
            numbers={
                **idle_numbers("held", every[by], stretches, current, source),
                "power_mean_w": ratio(float((known_ms * powered["power_mean_w"]).sum()), float(known_ms.sum())),
                "gpu_util_max_pct": highest(stretches, "gpu_util_max_pct"),
                "commands": "+".join(sorted(commands)) or None,
            },
            failed=[bound.failed],
            reclaimable_gpus=() if bound else current,
            # nothing to take back where the holder has gone or works again
            next_command=ending_command(context, host, current, holder, bound=bound) if current else "",
        )


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
        "GenTD26 serving trace)"
    },
    find=held_findings,
)


def _left(context: Context) -> frozenset[str]:
    """The GPUs that nobody was on at the end of the window."""
    rows = context.inside.stretches
    last = rows.filter(pl.col("end") == pl.col("end").max().over("gpu"))
    return frozenset(last.filter(pl.col("state").is_in(UNOCCUPIED) & ~on_host_ahead(context))["gpu"])
