"""A GPU reports kernels although no process is on it: what a killed process left.

Look-alikes that it leaves alone: processes that the agent may not see (their number is unknown, not 0), short processes
between two lists, GPUs that draw more than one whose kernels only wait, utilization without the memory of a context (a
wrong reading, in data quality).
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from analytics.language.sentences import tr
from analytics.workloads import waste
from analytics.workloads.model import Context, of_gpus
from analytics.workloads.rule import Candidate, HistoryNeed, Rule
from analytics.workloads.stalled_work import (
    MOSTLY,
    STALLED_LABELS,
    STALLED_THRESHOLDS,
    UNOWNED,
    StallEvidence,
    may_be_probed,
    stalled_candidates,
)
from fallow.clock import MINUTE_MS


def orphaned_kernel_findings(context: Context) -> Iterator[Candidate]:
    """Yield a finding per GPU with kernels and without a process."""
    return stalled_candidates(context, UNOWNED, lambda rows: _hidden(context, rows))


def _hidden(context: Context, rows: pl.DataFrame) -> StallEvidence:
    probed = may_be_probed(context, rows)
    return StallEvidence(failed=[*probed, tr("its processes may be hidden from the list")] if probed else [])


ORPHANED_KERNEL = Rule(
    name="orphaned_kernel",
    category="reclaim",
    sentence=of_gpus("stalled: it reports kernels without a process", "stalled: they report kernels without a process"),
    kinds=(waste.STALLED,),
    precedence=5,
    of_machine=True,
    advice=tr(
        "No process is on the GPU, but it reports kernels. Drain the host and reset the GPU with `nvidia-smi"
        " --gpu-reset`."
    ),
    history=HistoryNeed(7 * MINUTE_MS),
    thresholds={
        **STALLED_THRESHOLDS,
        "no process": f"an empty process list for at least {MOSTLY:.0%} of the time (ours)",
    },
    labels=STALLED_LABELS,
    find=orphaned_kernel_findings,
)
