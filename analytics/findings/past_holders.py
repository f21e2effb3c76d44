"""Who was on a GPU at some moment, from the daily table of processes: no raw process list is read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from analytics.findings.holders import Holders, Process
from fallow.clock import DAY_MS

if TYPE_CHECKING:
    from analytics.ledger.rollups import Rollups

_LOOK_BACK_MS = 2 * DAY_MS
"""As far back as a newest list may lie, just after midnight."""
_NEXT_JOB = re.compile(r"\+(?=(?:slurm|pod|ray|claim):)")


def past_holders(rollups: Rollups, until_ms: int) -> Holders:
    """The processes that were on each GPU just before `until_ms`, as far as the day's first and last lists tell."""
    rows = rollups.processes().filter(pl.col("time").is_between(until_ms - _LOOK_BACK_MS, until_ms - 1))
    # of the GPU's last day until then, those that its last list names, or that were listed before and after the moment
    newest = rows.filter(pl.col("time") // DAY_MS == (pl.col("time") // DAY_MS).max().over("gpu"))
    there = newest.filter(pl.col("end") > pl.min_horizontal(pl.col("last_listed"), pl.lit(until_ms - 1)))
    lists: dict[str, list[Process]] = {}
    for row in there.sort("gpu", "pid").iter_rows(named=True):
        jobs = dict(each.split(":", 1) for each in _NEXT_JOB.split(row["job"] or "") if ":" in each)
        namespace, _, pod = jobs.get("pod", "").partition("/")
        lists.setdefault(row["gpu"], []).append(
            Process(
                gpu=row["gpu"],
                host=row["host"],
                pid=row["pid"],
                user=row["user"],
                command=row["command"],
                pod=pod or None,
                namespace=namespace or None,
                slurm_job_id=jobs.get("slurm"),
            )
        )
    return Holders({gpu: tuple(processes) for gpu, processes in lists.items()})
