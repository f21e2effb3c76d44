"""A powerful card that is busy for at most a fifth of the time: a slower or older card is enough.

Look-alikes that it leaves alone: decoding bound by memory bandwidth, bursts that need the speed (even of less than a
second), a card at the edge of its memory, a GPU without any kernel (`held`).
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from analytics.language.sentences import Number, Sentence, tr
from analytics.workloads.finding_parts import Known
from analytics.workloads.model import Context, Finding, Label, of_gpus
from analytics.workloads.rule import Candidate
from analytics.workloads.smaller_cards import SMALLER_CARD_LABELS, smaller_card_findings, smaller_card_rule
from analytics.workloads.workloads import IDLE_MAX_PCT, NEARLY_IDLE, above_a_gpu_day, with_demand, workloads

OUT_OF_MEMORY_SHARE = 0.97
"""Highest peak as a share of the card's memory. Above this share the workload may have run out of memory."""

_MEAN_MAX_PCT = 0.95 * IDLE_MAX_PCT + 0.05 * 100
"""Highest mean of utilization that is at most IDLE_MAX_PCT for 95 % of the time."""


def _utilization_words(known: Known, _: Finding) -> list[Sentence]:
    """Return the utilization level of 95 % of the time, the limit of the rule, and the maximum."""
    within, most = (Number(float(known[key]), 1) for key in ("gpu_util_p95_pct", "gpu_util_max_pct"))
    return [
        tr(
            "utilization of {within} % or less for 95 % of the time (limit: {limit} %), maximum {most} %",
            within=within,
            limit=Number(IDLE_MAX_PCT),
            most=most,
        )
    ]


def compute_oversized_findings(context: Context) -> Iterator[Candidate]:
    """Yield findings about workloads that leave a powerful card nearly idle.

    One finding per user, account, model and sufficient card.
    """
    idle = workloads(context).filter(
        pl.col("util_mean_pct") <= _MEAN_MAX_PCT,
        pl.col("peak_bytes") < OUT_OF_MEMORY_SHARE * pl.col("card_bytes"),
        pl.col("need_bytes").is_not_null(),
    )
    idle = above_a_gpu_day(idle)
    if idle.is_empty():
        return
    calm = with_demand(context, idle).filter((pl.col("util_pct") > 0) & NEARLY_IDLE)
    yield from smaller_card_findings(context, calm, less_memory=False)


COMPUTE_OVERSIZED = smaller_card_rule(
    "compute_oversized",
    of_gpus("busy for at most a fifth of the time: a slower or older card is enough"),
    compute_oversized_findings,
    precedence=10,
    thresholds={
        "utilization": (
            f"above 0 and at most {IDLE_MAX_PCT:g} % for 95 % of the time (Princeton Job Defense Shield: GPU too"
            " powerful)"
        ),
        "memory": (
            "the lesser card holds it; a workload that took 97 % of its card or more may have run out of memory and is"
            " left out"
        ),
        "speed": (
            "the lesser card reaches the FP16 and memory rates used for 95 % of the time (peak rates of the data"
            " sheets)"
        ),
    },
    labels=(*SMALLER_CARD_LABELS, Label(("gpu_util_p95_pct", "gpu_util_max_pct"), _utilization_words)),
)
