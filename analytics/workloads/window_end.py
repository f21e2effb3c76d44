"""How each GPU stands at the end of a window, by the last ledger row that says anything of it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from analytics.states import IN_USE
from analytics.workloads.finding_parts import on_host_ahead
from analytics.workloads.ledger_by_job import by_job
from analytics.workloads.memo import once

if TYPE_CHECKING:
    from collections.abc import Mapping

    from analytics.workloads.model import Context

STANDING = "claim:"
"""A reservation ends GPU by GPU, and no work with it; a job, pod or Ray job ends as a whole."""


@dataclass(frozen=True)
class Now:
    """The last ledger row of each GPU that says anything, silent GPUs included, by GPU and by job.

    How it stands on a host whose clock is ahead nobody knows: there may be work there.
    """

    state: Mapping[str, str]
    jobs_on: Mapping[str, frozenset[str]]
    at_work: Mapping[str, frozenset[str]]
    """By job the GPUs that it works on, or may work on where nobody lists processes."""


@once
def newest_rows(context: Context) -> pl.DataFrame:
    """The last row of each GPU that says anything, however old."""
    rows = context.inside.stretches.filter(pl.col("state") != "unknown").sort("gpu", "end")
    return rows.unique("gpu", keep="last", maintain_order=True)


@once
def now(context: Context) -> Now:
    """How the GPUs stand, and whose jobs are on them."""
    last = newest_rows(context)
    jobs = by_job(last).filter(~pl.col("work").str.starts_with(STANDING))
    working = jobs.filter(pl.col("state").is_in(IN_USE) | unlisted() | on_host_ahead(context))
    told = last.filter(~on_host_ahead(context))
    return Now(dict(told.select("gpu", "state").iter_rows()), _sets(jobs, "gpu", "work"), _sets(working, "work", "gpu"))


def unlisted() -> pl.Expr:
    """Whether somebody is on the GPU and no list says who: at rest or not, it may be work."""
    return (pl.col("state") != "reserved") & pl.col("holder_source").ne_missing("process")


def _sets(frame: pl.DataFrame, key: str, value: str) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for name, each in frame.select(key, value).iter_rows():
        found[name].add(each)
    return {name: frozenset(values) for name, values in found.items()}
