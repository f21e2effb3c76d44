"""Who used their GPUs best, compared only with those who had the same kind of card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from analytics.inventory import UNKNOWN_MODEL
from analytics.money.priced_segments import UNNAMED
from analytics.ranks import rank
from analytics.states import ALLOCATED
from fallow.clock import HOUR_MS

COMPARED_FROM_MS = HOUR_MS
"""Who was given less of a model is not compared on it: a share of some minutes says nothing."""

_DECIMALS = 9
"""Sums of the same times in another order differ beyond them; such shares are equal."""


@dataclass(frozen=True)
class EfficiencyRank:
    """The place of one group among the `compared` ones that had GPUs of `model`; 1 is the most efficient.

    `allocated_ms` and `efficiency` are the group's own on that model, the one of which it had the most GPU time.
    """

    place: int
    compared: int
    model: str
    allocated_ms: float
    efficiency: float


def efficiency_ranks(pieces: pl.DataFrame, group: str) -> Mapping[str, EfficiencyRank]:
    """The rank of each group of priced segments; none for those who had their model to themselves."""
    name, model = pl.col(group).cast(pl.String), pl.col("model")
    by_model = (
        pieces.filter(pl.col("state").is_in(ALLOCATED) & ~name.is_in(UNNAMED) & (model != UNKNOWN_MODEL))
        .group_by(name.alias("name"), model.alias("card"))
        .agg(pl.col("gpu_ms").sum(), effective_ms=(pl.col("gpu_ms") * pl.col("used_share")).sum())
        .filter(pl.col("gpu_ms") >= COMPARED_FROM_MS)
        .with_columns(efficiency=(pl.col("effective_ms") / pl.col("gpu_ms")).clip(0, 1).round(_DECIMALS))
        .with_columns(place=rank(pl.col("efficiency")).over("card"), compared=pl.len().over("card"))
    )
    most = by_model.sort("gpu_ms", "card", descending=(True, False)).unique("name", keep="first", maintain_order=True)
    rows = most.filter(pl.col("compared") > 1).select("name", "place", "compared", "card", "gpu_ms", "efficiency")
    return {name: EfficiencyRank(*figures) for name, *figures in rows.iter_rows()}
