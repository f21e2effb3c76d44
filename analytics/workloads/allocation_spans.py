"""What claims say, as a rule needs it: all that was claimed up to the end of the window, of all hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from analytics.allocations.spans import known_allocations
from analytics.workloads.memo import once

if TYPE_CHECKING:
    from analytics.workloads.model import Context


@once
def claims(context: Context) -> pl.DataFrame:
    """What is known of each claim that began before the end of the window: `known_allocations`, and `stated`.

    `stated` is the end that the source itself gave, null where there is none: the end of a time limit may be raised.
    """
    begun = context.rollups.claims.filter(pl.col("time") < context.until_ms).with_columns(stated=pl.col("end"))
    return known_allocations(begun)
