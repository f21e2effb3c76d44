"""Ranks, the same way everywhere: 1 is the largest figure, and equal figures share a rank."""

from __future__ import annotations

import polars as pl


def rank(figure: pl.Expr) -> pl.Expr:
    """Return the rank of each row's figure among all rows; null where the figure is null."""
    return figure.rank("min", descending=True).cast(pl.Int64)
