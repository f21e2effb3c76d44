"""How each GPU stands at the end of a window, by the last ledger row that says anything of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from analytics.ledger.summary import SILENT_AFTER_MS
from analytics.states import IN_USE
from analytics.workloads.ledger_rows import by_job
from analytics.workloads.model import Context, once_per_context

STANDING = "claim:"
"""A reservation ends GPU by GPU, and no work with it; a job, pod or Ray job ends as a whole.

An allocation from a file may be either. Where nobody lists the processes on its GPUs, they may all be of one job.
"""


@dataclass(frozen=True)
class WindowEnd:
    """The last ledger row of each GPU that says anything, silent GPUs included, by GPU and by job.

    How it stands on a host whose clock is ahead nobody knows: there may be work there.
    """

    state: Mapping[str, str]
    jobs_on: Mapping[str, frozenset[str]]
    at_work: Mapping[str, frozenset[str]]
    """By job the GPUs that it works on, or may work on where nobody lists processes."""


@once_per_context
def newest_rows(context: Context) -> pl.DataFrame:
    """The last row of each GPU that says anything, however old."""
    rows = context.inside.stretches.filter(pl.col("state") != "unknown").sort("gpu", "end")
    return rows.unique("gpu", keep="last", maintain_order=True)


@once_per_context
def window_end(context: Context) -> WindowEnd:
    last = newest_rows(context)
    jobs = by_job(last)
    told_apart = pl.col("gpu").is_in(pl.Series(context.holders.lists.keys(), dtype=pl.String).implode())
    ending_whole = jobs.filter(~pl.col("work").str.starts_with(STANDING) | (unlisted() & ~told_apart))
    working = jobs.filter(pl.col("state").is_in(IN_USE) | unlisted() | on_host_ahead(context))
    told = last.filter(~on_host_ahead(context))
    return WindowEnd(
        dict(told.select("gpu", "state").iter_rows()), _sets(ending_whole, "gpu", "work"), _sets(working, "work", "gpu")
    )


def unlisted() -> pl.Expr:
    """Whether somebody is on the GPU and no list says who: at rest or not, it may be work."""
    return (pl.col("state") != "reserved") & pl.col("holder_source").ne_missing("process")


def _sets(frame: pl.DataFrame, key: str, value: str) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for name, each in frame.select(key, value).iter_rows():
        found[name].add(each)
    return {name: frozenset(values) for name, values in found.items()}


@once_per_context
def last_rows(context: Context) -> pl.DataFrame:
    """The last ledger row of each GPU that was seen in the window's last hour, by a host whose clock is right."""
    rows = context.inside.stretches.filter(pl.col("end") > context.until_ms - SILENT_AFTER_MS)
    return rows.sort("gpu", "end").unique("gpu", keep="last", maintain_order=True).filter(~on_host_ahead(context))


def still_going(context: Context, stretches: pl.DataFrame) -> tuple[str, ...]:
    """The GPUs that were seen lately and whose last row of the window is among these: what is the case at its end."""
    last_seen = _last_seen(context)
    rows = zip(stretches["gpu"].to_list(), stretches["end"].to_list(), strict=True)
    return tuple(sorted({gpu for gpu, end in rows if last_seen.get(gpu) == end}))


@once_per_context
def _last_seen(context: Context) -> dict[str, int]:
    """The end of the last row of each GPU that was seen lately."""
    last = context.inside.stretches.group_by("gpu").agg(pl.col("end").max(), pl.col("host").sort_by("end").last())
    return dict(last.filter(seen_lately(context)).select("gpu", "end").iter_rows())


def seen_lately(context: Context) -> pl.Expr:
    """Whether what a GPU's last row (`host`, `end`) says was the case at the end of the window."""
    return (pl.col("end") > context.until_ms - SILENT_AFTER_MS) & ~on_host_ahead(context)


def on_host_ahead(context: Context) -> pl.Expr:
    """Whether a row is of a host whose clock is ahead."""
    return pl.col("host").is_in(pl.Series(sorted(context.ahead), dtype=pl.String).implode())
