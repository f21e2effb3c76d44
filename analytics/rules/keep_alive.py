"""Short bursts by a timer keep a GPU from looking idle: tiny memory, next to no CPU, no work.

A tool's name, such as `keep-gpu`, is one witness; it never decides by itself.

Look-alikes that it leaves alone: servers that warm up (their weights take memory), requests at random, servers and pods
whose health is probed (without a tool's name no command ends them), loaders and simulations
(their processes use the CPU), monitors, short jobs from cron that move data.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from analytics.language.sentences import tr
from analytics.ledger.day_processes import KEEPER
from analytics.ledger.day_stalls import BURSTS_MIN, DUTY_MAX_PCT, PERIOD_CV_MAX, QUIET_CPU_PCT, TINY_BYTES
from analytics.names import JOINER
from analytics.workloads import waste
from analytics.workloads.finding_parts import label, words_for
from analytics.workloads.model import Context, of_gpus
from analytics.workloads.rule import Candidate, HistoryNeed, Rule
from analytics.workloads.stalled_work import (
    KEPT,
    STALLED_LABELS,
    STALLED_THRESHOLDS,
    StallEvidence,
    may_be_probed,
    stalled_candidates,
)
from fallow.clock import MINUTE_MS

NAMED, UNNAMED = "named", "unnamed"
_WORDS = {
    NAMED: "the command is named like a tool that keeps GPUs busy",
    UNNAMED: "the command names no such tool",
}


def keep_alive_findings(context: Context) -> Iterator[Candidate]:
    """Yield a finding per program of one user that keeps a GPU from looking idle."""
    return stalled_candidates(context, KEPT, lambda rows: _tool(context, rows))


KEEP_ALIVE = Rule(
    name="keep_alive",
    category="reclaim",
    sentence=of_gpus("kept from looking idle by short bursts without work"),
    kinds=(waste.STALLED,),
    precedence=15,
    history=HistoryNeed(7 * MINUTE_MS),
    thresholds={
        **STALLED_THRESHOLDS,
        "bursts": (
            f"at least {BURSTS_MIN}, with intervals of a coefficient of variation up to {PERIOD_CV_MAX} and"
            f" {DUTY_MAX_PCT:g} % of the time at most (requests come at random, near 1)"
        ),
        "memory": f"up to {TINY_BYTES // 2**30} GiB (a context and little more; keep-gpu holds 1 GiB)",
        "cpu": f"up to {QUIET_CPU_PCT:g} % of one CPU (loading and simulating need one or more; ours)",
    },
    labels=(
        *STALLED_LABELS,
        label(
            "tool",
            "{value}",
            words_for(_WORDS),
        ),
    ),
    find=keep_alive_findings,
)


def _tool(context: Context, rows: pl.DataFrame) -> StallEvidence:
    """Return whether a process of the user in that time is named like a known tool; without the name, doubt remains."""
    spans = rows.select("host", "gpu", since="time", until="end", whom="user")
    met = context.rollups.processes(context.since_ms).join(spans, on=("host", "gpu"))
    own = pl.col("whom").is_null() | pl.col("whom").str.split(JOINER).list.contains(pl.col("user"))
    met = met.filter((pl.col("time") < pl.col("until")) & (pl.col("end") > pl.col("since")) & own)
    names = [*met["command"].drop_nulls(), *met["arguments"].drop_nulls()]
    if any(KEEPER.search(name) for name in names):
        return StallEvidence({"tool": NAMED})
    probed = may_be_probed(context, rows)
    failed = [tr("no known tool is named: a short regular job looks the same"), *probed]
    return StallEvidence({"tool": UNNAMED}, failed, ends_work=not probed)
