"""Windows of simulated clusters that can be replayed, from the queue's records and the ledger alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from analytics.capacity.jobs import JOB_SCHEMA
from analytics.plan.replay.replay_base import ReplayBase, queue_policy, replay_base
from analytics.plan.replay.replay_fleet import GpuFacts
from analytics.plan.replay.replay_jobs import WORK_NEEDS
from fallow.clock import HOUR_MS
from tests.plan.scheduler import Cluster, Start, Task, ledger_rows, recorded_jobs, simulate

MEMORY = 80 * 2**30
PRICE = 2.0


def placed_rows(cluster: Cluster, tasks: Sequence[Task], starts: Mapping[str, Start], until: int) -> pl.DataFrame:
    """The ledger's rows as they are placed in pools: one model for each pool, no parts of cards."""
    rows = ledger_rows(cluster, tasks, starts, until)
    return rows.with_columns(model=pl.lit("H100"))


def base_of(jobs: pl.DataFrame, placed: pl.DataFrame, until: int, *, error_max: float = 0.25) -> ReplayBase:
    """What replays of [0, until) start from; teams are called as users."""
    policy = queue_policy(jobs, placed, team_of=lambda user, _: user, window=(0, until))
    return replay_base(
        jobs=jobs,
        placed=placed,
        needs=pl.DataFrame(schema=WORK_NEEDS),
        facts=GpuFacts(lambda _: MEMORY, lambda _: PRICE),
        team_of=lambda user, _: user,
        window=(0, until),
        error_max=error_max,
        places=frozenset(placed.select("pool", "model").unique().rows()),
        policy=policy,
    )


def simulated_base(cluster: Cluster, tasks: Sequence[Task]) -> ReplayBase:
    """The base of all that a simulated scheduler made of some jobs."""
    starts = simulate(cluster, tasks)
    until = max(starts[task.name].at + task.run for task in tasks)
    return base_of(recorded_jobs(tasks, starts), placed_rows(cluster, tasks, starts, until), until)


def job_row(who: str, start_h: float | None, end_h: float | None, **facts: object) -> dict[str, object]:
    """What the queue says of a job on one GPU of host a, which asked when it began; `facts` say what is otherwise."""
    start, end = (None if hours is None else round(hours * HOUR_MS) for hours in (start_h, end_h))
    times = {"submitted": start, "start": start, "end": end, "time_limit_ms": 24 * HOUR_MS}
    size = {"gpus": 1, "host_count": 1, "hosts": ["a"]}
    return {"scheduler": "slurm", "job": who, "user": who, "partition": "p"} | times | size | facts


def jobs_frame(*rows: dict[str, object]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=JOB_SCHEMA)


def gpu_rows(until_h: float, gpus: Mapping[str, Sequence[tuple[float, float, str, str | None]]]) -> pl.DataFrame:
    """The ledger's rows of GPUs called `host/number`: hours from and until, state, job or (without a colon) user.

    In between they are free.
    """
    rows = []
    for gpu, spans in gpus.items():
        at = 0.0
        for since, until, state, whose in [*spans, (until_h, until_h, "", None)]:
            job, user = (whose, whose.split(":")[1]) if whose and ":" in whose else (None, whose)
            rows += [(gpu, at, since, "free", None, None), (gpu, since, until, state, job, user)]
            at = until
    names = {"gpu": pl.String, "time": pl.Float64, "end": pl.Float64}
    names |= dict.fromkeys(("state", "job", "user"), pl.String)
    found = pl.DataFrame(rows, schema=names, orient="row").filter(pl.col("time") < pl.col("end"))
    place = {"pool": pl.lit("P"), "model": pl.lit("H100"), "host": pl.col("gpu").str.split("/").list.first()}
    whole = {"account": pl.lit(None, pl.String), "instance": pl.lit(value=False), "gpu_share": pl.lit(1.0)}
    return found.with_columns((pl.col("time", "end") * HOUR_MS).round().cast(pl.Int64), **place, **whole)
