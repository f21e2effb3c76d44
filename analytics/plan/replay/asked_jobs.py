"""What each job asks for under a policy, as lists that the replay's loop reads by the number of the row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import polars as pl

from analytics.plan.replay.shared_gpus import Need
from fallow.clock import DAY_MS

UNLIMITED_MS = 365 * DAY_MS
"""What a job without a time limit is planned with, as Slurm's backfill scheduler does."""

Turn: TypeAlias = tuple[int, int, int]
"""A job's place in a queue: its rank (less is more urgent), when it came, and the number of its row."""


@dataclass(frozen=True)
class AskedJobs:
    """One entry per job: its turn in the queue, GPUs and over how many hosts, how long it runs and may run, where it ran, and its need of a GPU."""

    turns: Sequence[Turn]
    gpus: Sequence[int]
    hosts: Sequence[int]
    run_ms: Sequence[int]
    limit_ms: Sequence[int]
    pools: Sequence[str | None]
    models: Sequence[str | None]
    partitions: Sequence[str | None]
    mem_bytes: Sequence[int | None]
    needs: Sequence[Need | None]
    is_small: Sequence[bool]

    @classmethod
    def of(cls, jobs: pl.DataFrame, *, is_sharing: bool) -> AskedJobs:
        """Of rows as `given_jobs` makes them; needs are left out where nobody shares a GPU."""
        ones = zip(*(jobs[name].to_list() for name in ("gpus", "hosts", "mem_bytes", "sm_pct")), strict=True)
        return cls(
            turns=list(zip(jobs["rank"].to_list(), jobs["arrived"].to_list(), range(jobs.height), strict=True)),
            gpus=jobs["gpus"].to_list(),
            hosts=jobs["hosts"].to_list(),
            run_ms=jobs["ran_ms"].to_list(),
            limit_ms=jobs["limit_ms"].fill_null(UNLIMITED_MS).to_list(),
            pools=jobs["pool"].to_list(),
            models=jobs["model"].to_list(),
            partitions=jobs["partition"].to_list(),
            mem_bytes=jobs["mem_bytes"].to_list(),
            needs=[
                Need(mem_bytes, sm_pct)
                if is_sharing and gpus == hosts == 1 and mem_bytes is not None and sm_pct is not None
                else None
                for gpus, hosts, mem_bytes, sm_pct in ones
            ],
            is_small=jobs["is_small"].to_list(),
        )
