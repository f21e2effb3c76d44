"""Clocks that were set, and rows that overlap in time, which a clock that went back leaves behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from analytics.ledger.text import count, moment
from analytics.quality.model import MOST_NAMED, Remark, named

if TYPE_CHECKING:
    from collections.abc import Iterator

    from analytics.quality.model import Data


def ahead(data: Data) -> Iterator[Remark]:
    """Hosts with rows of a time to come, or of hours after everybody else's last ones."""
    seen = data.seen
    ordered = sorted(seen.ahead, key=lambda host: (-seen.ahead[host], host))
    for host in ordered[:MOST_NAMED]:
        sentence = (
            f"the clock of {host} is ahead: its rows go up to {moment(seen.ahead[host])}, beyond {seen.ahead_of}; findings end "
            f"with the other hosts, at {moment(seen.until_ms)}, and nothing of {host} is taken back as of now until its clock is set "
            "(chronyc tracking, timedatectl)"
        )
        yield Remark("clock_ahead", sentence, 1, host)
    if (more := len(ordered) - MOST_NAMED) > 0:
        yield Remark("clock_ahead", f"the clocks of {count(more, 'more host')} are ahead too", more)


def stepped(data: Data) -> Iterator[Remark]:
    """Hosts whose clock jumped."""
    if len(data.steps):
        hosts = (
            data.steps.group_by("host")
            .agg(pl.len(), pl.col("time").max())
            .sort("len", "host", descending=[True, False])
        )
        last = data.steps.sort("time").row(-1, named=True)
        sentence = (
            f"the clock of {named(list(hosts['host']), 'host')} jumped, {count(len(data.steps), 'time')} in all, last at "
            f"{moment(last['time'])}: time that was passed twice counts once, time that was left out is unknown"
        )
        yield Remark("clock_stepped", sentence, len(data.steps), f"{last['host']}: {last['detail'] or 'no detail'}")


def overlapping(data: Data) -> Iterator[Remark]:
    """Rows of one GPU that cover the same time."""
    rows = data.values.filter(pl.col("kind") == "overlapping_rows").sort("count", "gpu", descending=[True, False])
    if len(rows):
        total, worst = int(rows["count"].sum()), rows.row(0, named=True)
        where = worst["gpu"] or worst["host"]
        example = f"{where}: {worst['example']}" if worst["example"] else where
        sentence = (
            f"{count(total, 'row')} of {count(rows['gpu'].n_unique(), 'GPU')} on {named(list(rows['host'].unique(maintain_order=True)), 'host')} "
            f"begin before the row before them has ended: each moment counts once, by the later row (such as {example})"
        )
        yield Remark("overlapping_rows", sentence, total, example)
