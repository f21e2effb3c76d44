"""GPUs that several hosts have reported: moved cards, cloned machines. Their time counts once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import polars as pl

from analytics.intervals import clip


def counted_once(stretches: pl.DataFrame) -> pl.DataFrame:
    """The ledger's rows without the time of a GPU that another host's rows hold already.

    What a host knows goes before what none knows (`unknown`), then a host that has the GPU before one that misses it
    (`unavailable`), then the host that saw the GPU last. Sums of rows that are cut are shared by time.
    """
    several = _of_several_hosts(stretches)
    if several.is_empty():
        return stretches
    doubled = pl.col("gpu").is_in(several["gpu"].to_list())
    parts = [_once(rows) for _, rows in stretches.filter(doubled).group_by("gpu", maintain_order=True)]
    return pl.concat([stretches.filter(~doubled), *parts]).sort("gpu", "time", "host")


def _once(rows: pl.DataFrame) -> pl.DataFrame:
    last = pl.col("end").max().over("host")
    worth = pl.col("state").replace_strict({"unknown": 2, "unavailable": 1}, default=0)
    ordered = rows.with_columns(worth=worth, last=last).sort(
        "worth", "last", "host", "time", descending=[False, True, False, False]
    )
    taken = Taken()
    index, starts, ends = [], [], []
    for number, (start, end) in enumerate(ordered.select("time", "end").iter_rows()):
        for left, right in taken.free(start, end):
            index.append(number)
            starts.append(left)
            ends.append(right)
        taken.add(start, end)
    kept = ordered.drop("worth", "last")[index]
    free = pl.DataFrame({"from_ms": starts, "to_ms": ends}, schema={"from_ms": pl.Int64, "to_ms": pl.Int64})
    return clip(pl.concat([kept, free], how="horizontal"), "from_ms", "to_ms").drop("from_ms", "to_ms")


def spells_counted_once(spells: pl.DataFrame, stretches: pl.DataFrame) -> pl.DataFrame:
    """The spells of GPUs that several hosts report, cut to the time for which each host's rows count.

    `stretches` are those that `counted_once` gave back.
    """
    several = spells.select("gpu", "host").unique().group_by("gpu").len().filter(pl.col("len") > 1)
    several = pl.concat([several.select("gpu"), _of_several_hosts(stretches)]).unique()
    doubled = pl.col("gpu").is_in(several["gpu"].to_list())
    if several.is_empty():
        return spells
    counted = stretches.filter(doubled).select("host", "gpu", counts_from="time", counts_to="end")
    met = spells.filter(doubled).join(counted, on=("host", "gpu"))
    inside = clip(met, "counts_from", "counts_to").select(spells.columns)
    return pl.concat([spells.filter(~doubled), inside]).sort("gpu", "time", "host")


def on_several_hosts(rows: pl.DataFrame) -> bool:
    """Whether several hosts have reported the same GPU."""
    return not _of_several_hosts(rows).is_empty()


def _of_several_hosts(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select("gpu", "host").unique().group_by("gpu").len().filter(pl.col("len") > 1).select("gpu")


class Taken:
    """Times that are spoken for, as sorted spans that do not touch."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def free(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The parts of a time that nothing has taken."""
        at = max(bisect_right(self._ends, start) - 1, 0)
        for left, right in zip(self._starts[at:], self._ends[at:], strict=True):
            if left >= end:
                break
            if left > start:
                yield start, left
            start = max(start, right)
        if start < end:
            yield start, end

    def add(self, start: int, end: int) -> None:
        """Takes a time, together with the spans that it touches."""
        first = bisect_right(self._ends, start - 1)
        last = bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]
