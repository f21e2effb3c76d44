"""Clocks that were set, and rows that overlap in time because a clock went back."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from analytics.language.sentences import tr, tr_many
from analytics.quality.model import MOST_NAMED, Data, Remark, Stamp, gpus_of, named, rows_of


def ahead(data: Data) -> Iterator[Remark]:
    """Report hosts with rows in the future, or hours after the last rows of all other hosts."""
    seen = data.seen
    ordered = sorted(seen.ahead, key=lambda host: (-seen.ahead[host], host))
    for host in ordered[:MOST_NAMED]:
        sentence = tr(
            "the clock of {host} is ahead: its rows go up to {last}, beyond {ahead_of}; findings end with the other hosts, at "
            "{until}, and no GPU of {host} is reclaimable until its clock is set (chronyc tracking, timedatectl)",
            host=host,
            last=Stamp(seen.ahead[host]),
            ahead_of=tr(seen.ahead_of),
            until=Stamp(seen.until_ms),
        )
        yield Remark("clock_ahead", sentence, 1, host)
    if (more := len(ordered) - MOST_NAMED) > 0:
        sentence = tr_many(
            "the clocks of {number} more host are ahead too", "the clocks of {number} more hosts are ahead too", more
        )
        yield Remark("clock_ahead", sentence, more)


def stepped(data: Data) -> Iterator[Remark]:
    """Report hosts whose clock jumped."""
    if len(data.steps):
        hosts = (
            data.steps.group_by("host")
            .agg(pl.len(), pl.col("time").max())
            .sort("len", "host", descending=[True, False])
        )
        last = data.steps.sort("time").row(-1, named=True)
        sentence = tr_many(
            "the clock of {hosts} jumped, {number} time in all, last at {last}: repeated time counts once, skipped time is unknown",
            "the clock of {hosts} jumped, {number} times in all, last at {last}: repeated time counts once, skipped time is unknown",
            len(data.steps),
            hosts=named(list(hosts["host"]), "host"),
            last=Stamp(last["time"]),
        )
        yield Remark("clock_stepped", sentence, len(data.steps), f"{last['host']}: {last['detail'] or 'no detail'}")


def overlapping(data: Data) -> Iterator[Remark]:
    """Report rows of one GPU that cover the same time."""
    rows = data.values.filter(pl.col("kind") == "overlapping_rows").sort("count", "gpu", descending=[True, False])
    if len(rows):
        total, worst = int(rows["count"].sum()), rows.row(0, named=True)
        where = worst["gpu"] or worst["host"]
        example = f"{where}: {worst['example']}" if worst["example"] else where
        sentence = tr(
            "{rows} of {gpus} on {hosts} begin before the row before them has ended: each moment counts once, by the later row "
            "(such as {example})",
            rows=rows_of(total),
            gpus=gpus_of(rows["gpu"].n_unique()),
            hosts=named(list(rows["host"].unique(maintain_order=True)), "host"),
            example=example,
        )
        yield Remark("overlapping_rows", sentence, total, example)
