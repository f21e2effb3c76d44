"""Claims as spans that do not overlap."""

from __future__ import annotations

from itertools import pairwise

import polars as pl

SPAN_SCHEMA = {"gpu": pl.String, "start": pl.Int64, "end": pl.Int64, "holder": pl.String}

_FOREVER_MS = 2**62


def flatten(claims: pl.DataFrame) -> pl.DataFrame:
    """Spans (gpu, start, end, holder), sorted, in which each moment of a GPU lies at most once.

    Args:
        claims: rows of the `claim` table, `time` and `end` as integer ms; a null end runs on, a null gpu (the
            scheduler named only a count) cannot be placed and is left out. Where claims overlap, the holder is
            everybody who claims, sorted and joined by `+`.
    """
    spans: list[tuple[str, int, int, str | None]] = []
    placed = claims.filter(pl.col("gpu").is_not_null())
    for (gpu,), group in placed.group_by("gpu", maintain_order=True):
        ends = group["end"].fill_null(_FOREVER_MS)
        rows = [each for each in zip(group["time"], ends, group["user"], strict=True) if each[0] < each[1]]
        edges = sorted({edge for start, end, _ in rows for edge in (start, end)})
        for left, right in pairwise(edges):
            users = [user for start, end, user in rows if start <= left < end]
            if users:
                named = sorted({user for user in users if user is not None})
                spans.append((str(gpu), left, right, "+".join(named) or None))
    return pl.DataFrame(spans, schema=SPAN_SCHEMA, orient="row").sort("gpu", "start")
