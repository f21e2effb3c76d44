"""What the choice of a threshold does to an idle headline: the same time counted in spells of 30, 60 and 120 minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from analytics.language.quantities import Number
from analytics.language.sentences import Listed, Sentence, say
from fallow.clock import HOUR_MS, MINUTE_MS

if TYPE_CHECKING:
    from collections.abc import Mapping

THRESHOLDS_MIN = (30, 60, 120)
"""Printed beside every idle headline, because the choice of threshold moves it several times over."""


def held_gpu_hours(stretches: pl.DataFrame) -> dict[int, float]:
    """GPU-hours in the ledger's `held` stretches of at least each of THRESHOLDS_MIN, by minutes.

    A stretch counts with its whole length, before cuts at midnight and at the window's start; its time is that inside.
    """
    held = stretches.filter(pl.col("state") == "held")
    sums = held.select(held_gpu_ms(minutes).alias(str(minutes)) for minutes in THRESHOLDS_MIN).row(0)
    return {minutes: float(total) / HOUR_MS for minutes, total in zip(THRESHOLDS_MIN, sums, strict=True)}


def held_gpu_ms(minutes: int) -> pl.Expr:
    """The same of `held` rows for one threshold, in GPU milliseconds."""
    long = pl.col("stretch_end") - pl.col("stretch_start") >= minutes * MINUTE_MS
    return ((pl.col("end") - pl.col("time")) * pl.col("gpu_share")).filter(long).sum()


def in_words(gpu_hours: Mapping[int, float]) -> Sentence:
    """`4.0 / 3.0 / 2.0 GPU-hours in stretches of at least 30 / 60 / 120 min`."""
    return say(
        "{sums} GPU-hours in stretches of at least {minutes} min",
        sums=Listed((say("{sum}", sum=Number(hours, 1)) for hours in gpu_hours.values()), " / "),
        minutes=" / ".join(map(str, gpu_hours)),
    )
