"""A card with at least twice the memory that its workload needs: a smaller card is enough.

Look-alikes that it leaves alone: preallocated memory (`preallocated`), rare peaks such as a weekly evaluation, runs out
of memory, one rank that is larger than the others, cards that are already split.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from analytics.workloads.finding_parts import label
from analytics.workloads.model import Context, of_gpus
from analytics.workloads.rule import Candidate
from analytics.workloads.smaller_cards import SMALLER_CARD_LABELS, smaller_card_findings, smaller_card_rule
from analytics.workloads.workloads import IDLE_MAX_PCT, NEARLY_IDLE, above_a_gpu_day, with_demand, workloads

OVERSIZED = 2.0
"""Least ratio of the card's memory to the need: below this ratio no smaller card is on the market."""


def memory_oversized_findings(context: Context) -> Iterator[Candidate]:
    """Yield findings about workloads that need at most half of their card's memory.

    One finding per user, account, model and sufficient card.
    """
    # out of memory there is nothing to spare: such work is nowhere near half of its card
    large = above_a_gpu_day(workloads(context).filter(pl.col("card_bytes") >= OVERSIZED * pl.col("need_bytes")))
    if large.is_empty():
        return
    # of work that leaves the card nearly idle `compute_oversized` says the same, and of a burst now and then nothing is
    # known that would show how fast a card it needs
    busy = with_demand(context, large).filter(~NEARLY_IDLE)
    yield from smaller_card_findings(context, busy, less_memory=True)


MEMORY_OVERSIZED = smaller_card_rule(
    "memory_oversized",
    of_gpus("needing at most half of the card's memory: a smaller card is enough"),
    memory_oversized_findings,
    precedence=20,
    thresholds={
        "oversized": (
            f"the card has at least {OVERSIZED:g} times the memory that is needed (the next smaller card has half)"
        ),
        "utilization": (
            f"above {IDLE_MAX_PCT:g} % for more than 5 % of the time: up to that `compute_oversized` says it"
        ),
        "speed": (
            "the smaller card reaches the FP16 and memory rates used for 95 % of the time (peak rates of the data"
            " sheets)"
        ),
    },
    labels=(label("gpu_util_p95_pct", "utilization {value} % or less for 95 % of the time"), *SMALLER_CARD_LABELS),
)
