"""How many GPUs of each pool were not needed at once: an interval, in blocks that a job could use, and whether last week's answer held."""

from __future__ import annotations

from analytics.tables.names import MODEL, POOL
from analytics.tables.table import Column, fact, record_column
from analytics.workloads.surplus import BLOCKS


def _blocks(size: int) -> Column:
    about = f"How many can go if only whole blocks of {size} on one host do."
    return fact(f"blocks_of_{size}", "count", lambda each: each.blocks.get(size), about=about)


SURPLUS_COLUMNS = (
    POOL,
    MODEL,
    fact("gpus", "number"),
    *(fact(name, "count") for name in ("low", "point", "high")),
    *map(_blocks, reversed(BLOCKS)),
    fact("history_days", "number"),
    record_column(
        "back_test",
        (
            *(fact(name, "count") for name in ("since_ms", "until_ms", "point", "hours")),
            fact(
                "short_hours",
                "count",
                about="Hours in which more were needed at once than the estimate of a week earlier would have left.",
            ),
        ),
    ),
)
"""Of `SurplusInterval`. Programs alone have it: people read what can be given back."""
