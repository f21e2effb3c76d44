"""A powerful card that is busy for a fifth of its time at most, where a lesser or older one would do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from analytics.workloads.runs import NEED_THRESHOLDS
from analytics.workloads.smaller_cards import SMALLER_CARD_LABELS, smaller_card_findings
from analytics.workloads.wording import of_gpus
from analytics.workloads.workloads import (
    IDLE_MAX_PCT,
    NEARLY_IDLE,
    WORK_THRESHOLDS,
    above_a_gpu_day,
    with_demand,
    workloads,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from analytics.workloads.model import Context, Finding

from analytics.workloads.model import Rule

OUT_OF_MEMORY_SHARE = 0.97
"""A peak beyond this share of the card: it may have run out of memory."""

_MEAN_MAX_PCT = 0.95 * IDLE_MAX_PCT + 0.05 * 100
"""The highest mean of what is at most IDLE_MAX_PCT for 95 % of the time."""


def compute_oversized_findings(context: Context) -> Iterator[Finding]:
    """Work that leaves a powerful card nearly idle; one finding per holder, account, model and card that would do."""
    idle = workloads(context).filter(
        pl.col("util_mean_pct") <= _MEAN_MAX_PCT,
        pl.col("peak_bytes") < OUT_OF_MEMORY_SHARE * pl.col("card_bytes"),
        pl.col("need_bytes").is_not_null(),
    )
    idle = above_a_gpu_day(idle)
    if idle.is_empty():
        return
    calm = with_demand(context, idle).filter((pl.col("util_pct") > 0) & NEARLY_IDLE)
    yield from smaller_card_findings(context, COMPUTE_OVERSIZED, calm, less_memory=False)


COMPUTE_OVERSIZED = Rule(
    name="compute_oversized",
    category="right_size",
    sentence=of_gpus(
        "uses a fifth of the card's time or less, and a lesser or older card would do",
        "use a fifth of the card's time or less, and a lesser or older card would do",
    ),
    per_host=False,
    thresholds={
        "utilization": f"above 0 and at most {IDLE_MAX_PCT:g} % for 95 % of the time (Princeton Job Defense Shield: GPU too powerful)",
        "memory": "the lesser card holds it; work that took 97 % of its card and more may have run out of memory and is left out",
        "speed": "the lesser card reaches the FP16 and memory rates used for 95 % of the time (peak rates of the data sheets)",
        **NEED_THRESHOLDS,
        **WORK_THRESHOLDS,
    },
    labels=SMALLER_CARD_LABELS,
    find=compute_oversized_findings,
)
