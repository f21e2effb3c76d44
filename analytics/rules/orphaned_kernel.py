"""A GPU reports kernels although no process is on it: what a killed process left, or a counter that stands still.

The memory in use tells the two apart: less than any context takes is no kernel at all.

Look-alikes that it leaves alone: processes that the agent may not see (their number is unknown, not 0), short processes between two
lists, GPUs that draw more than one whose kernels only wait.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from analytics.language.sentences import tr
from analytics.workloads import waste
from analytics.workloads.finding_parts import label, words_for
from analytics.workloads.model import Context, of_gpus
from analytics.workloads.rule import Candidate, HistoryNeed, Rule
from analytics.workloads.stalled_work import (
    MOSTLY,
    STALLED_LABELS,
    STALLED_THRESHOLDS,
    UNOWNED,
    Said,
    stalled_candidates,
)
from fallow.clock import MINUTE_MS
from fallow.stall_evidence import NO_CONTEXT_BYTES

NO_CONTEXT, CONTEXT = "no context", "memory held"
_WORDS = {
    NO_CONTEXT: "no memory of a context: the reported utilization cannot be true",
    CONTEXT: "memory is still in use",
}


def orphaned_kernel_findings(context: Context) -> Iterator[Candidate]:
    """Yield a finding per GPU with kernels and without a process."""
    return stalled_candidates(context, UNOWNED, _left_behind)


ORPHANED_KERNEL = Rule(
    name="orphaned_kernel",
    category="reclaim",
    sentence=of_gpus("stalled: it reports kernels without a process", "stalled: they report kernels without a process"),
    kinds=(waste.STALLED,),
    precedence=5,
    of_machine=True,
    advice=tr(
        "No process is on the GPU, but it reports kernels. Drain the host and reset the GPU with `nvidia-smi --gpu-reset`."
    ),
    history=HistoryNeed(8 * MINUTE_MS),
    thresholds={
        **STALLED_THRESHOLDS,
        "no process": f"an empty process list for at least {MOSTLY:.0%} of the time (ours)",
        "no context": f"memory in use below {NO_CONTEXT_BYTES // 2**20} MiB (less than any CUDA context takes)",
    },
    labels=(
        *STALLED_LABELS,
        label(
            "left_behind",
            "{value}",
            words_for(_WORDS),
        ),
    ),
    find=orphaned_kernel_findings,
)


def _left_behind(rows: pl.DataFrame) -> Said:
    most = rows["mem_used_max_bytes"].max()
    return Said({"left_behind": None if most is None else NO_CONTEXT if most < NO_CONTEXT_BYTES else CONTEXT})  # type: ignore[operator]
