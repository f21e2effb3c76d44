"""Claims as spans that do not overlap."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise

import polars as pl

CLAIM_COLUMNS = ("time", "gpu", "end", "claim_id", "user")
SPAN_SCHEMA = {"gpu": pl.String, "start": pl.Int64, "end": pl.Int64, "holder": pl.String}

_FOREVER_MS = 2**62


def flatten(claims: pl.DataFrame) -> pl.DataFrame:
    """Spans (gpu, start, end, holder), sorted, in which each moment of a GPU lies at most once.

    Args:
        claims: rows of the `claim` table with CLAIM_COLUMNS, `time` and `end` as integer ms; a null end runs on
            unless a later row of the same claim ends it, a null gpu (the scheduler named only a count) cannot be
            placed and is left out. Where claims overlap, the holder is everybody who claims, sorted and joined by `+`.
    """
    spans: list[tuple[str, int, int, str | None]] = []
    placed = (
        claims.filter(pl.col("gpu").is_not_null())
        .group_by("gpu", "time", "claim_id", "user", maintain_order=True)
        .agg(pl.col("end").max())
    )
    for (gpu,), group in placed.group_by("gpu", maintain_order=True):
        ends = group["end"].fill_null(_FOREVER_MS)
        rows = [each for each in zip(group["time"], ends, group["user"], strict=True) if each[0] < each[1]]
        changes: dict[int, Counter[str | None]] = defaultdict(Counter)
        for start, end, user in rows:
            changes[start][user] += 1
            changes[end][user] -= 1
        running: Counter[str | None] = Counter()
        for left, right in pairwise(sorted(changes)):
            running.update(changes[left])
            if users := [user for user, count in running.items() if count]:
                named = sorted(user for user in users if user is not None)
                spans.append((str(gpu), left, right, "+".join(named) or None))
    return pl.DataFrame(spans, schema=SPAN_SCHEMA, orient="row").sort("gpu", "start")
