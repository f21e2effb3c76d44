"""How many GPUs of each pool were not needed at once: an interval, in blocks that a job could use, and whether last week's answer held."""

from __future__ import annotations

from analytics.tables.names import MODEL, POOL
from analytics.tables.table import Column, column_of, fact, record_column
from analytics.workloads.surplus import BLOCKS
from fallow.clock import WEEK_MS


def _blocks(size: int) -> Column:
    about = f"How many can go if only whole blocks of {size} on one host do."
    return fact(f"blocks_of_{size}", "count", lambda each: each.in_blocks[size], about=about)


SURPLUS_COLUMNS = (
    *(
        column_of("surplus", each)
        for each in (
            POOL,
            MODEL,
            fact("gpus", "number", "estimate.gpus"),
            fact("low", "count", lambda each: each.estimate.next_week[0]),
            fact("point", "count", "estimate.left"),
            fact("high", "count", lambda each: each.estimate.next_week[1]),
            *map(_blocks, reversed(BLOCKS)),
            fact("history_days", "number", "estimate.days"),
        )
    ),
    record_column(
        "back_test",
        (
            fact("since_ms", "count", lambda each: each.evidence.until_ms - WEEK_MS),
            fact("until_ms", "count", "evidence.until_ms"),
            fact("point", "count", "surplus.backtest.surplus"),
            fact("hours", "count", "surplus.backtest.hours"),
            fact(
                "short_hours",
                "count",
                "surplus.backtest.exceeded",
                about="Hours in which more were needed at once than the estimate of a week earlier would have left.",
            ),
        ),
        lambda each: each if each.surplus.backtest else None,
    ),
)
"""Of a finding with a `surplus`. Programs alone have it: people read what can be given back."""
