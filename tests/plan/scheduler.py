"""A simulated cluster with known policies: what its queue does to jobs, as jobs and ledger rows that analytics read.

Jobs want their GPUs on one host, or on whole hosts where they are larger. A partition is the hosts that its jobs may use. A
scheduler of kind `fifo` starts the jobs of a partition strictly in order; `backfill` lets later ones go first where, by the time limits,
that delays nobody who came before (conservative backfill, as Slurm's planning does).
"""

from __future__ import annotations

import heapq
import random
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from analytics.plan.jobs import JOB_SCHEMA
from fallow.clock import HOUR_MS, MINUTE_MS

WIDTH = 8


@dataclass(frozen=True)
class Task:
    """One job: when it asks, for how much, and how long it really runs."""

    name: str
    asked: int
    gpus: int
    run: int
    limit: int
    partition: str
    priority: int = 0


@dataclass(frozen=True)
class Cluster:
    """Hosts of 8 GPUs by pool, the hosts of each partition, and how many GPUs of a host somebody holds without any use.

    Where `keeps_shape` is False, jobs take GPUs wherever they lie: a cluster in which nothing is ever scattered.
    """

    pools: Mapping[str, Sequence[str]]
    partitions: Mapping[str, Sequence[str]]
    held: Mapping[str, int] = field(default_factory=dict)
    policy: str = "backfill"
    keeps_shape: bool = True

    @property
    def hosts(self) -> list[str]:
        return [host for own in self.pools.values() for host in own]


@dataclass(frozen=True)
class Start:
    """When a job began, and how many GPUs of which hosts it had."""

    at: int
    gpus: Mapping[str, int]


Free = dict[str, int]


def fit(cluster: Cluster, free: Mapping[str, int], task: Task) -> dict[str, int] | None:
    """The fullest host that has room, or whole hosts; None where it does not fit."""
    gpus, hosts = task.gpus, cluster.partitions[task.partition]
    if not cluster.keeps_shape:
        return anywhere(free, gpus, hosts)
    if gpus <= WIDTH:
        fitting = [host for host in hosts if free[host] >= gpus]
        return {min(fitting, key=lambda host: free[host]): gpus} if fitting else None
    whole = [host for host in hosts if free[host] == WIDTH]
    return dict.fromkeys(whole[: gpus // WIDTH], WIDTH) if len(whole) * WIDTH >= gpus else None


def anywhere(free: Mapping[str, int], gpus: int, hosts: Sequence[str]) -> dict[str, int] | None:
    """The GPUs of the fullest hosts; None where there are too few."""
    place: dict[str, int] = {}
    for host in sorted((host for host in hosts if free[host]), key=lambda host: free[host]):
        place[host] = min(free[host], gpus)
        gpus -= place[host]
        if not gpus:
            return place
    return None


def simulate(cluster: Cluster, tasks: Sequence[Task]) -> dict[str, Start]:
    """When each job begins; every job does, if its partition is large enough."""
    free: Free = {host: WIDTH - cluster.held.get(host, 0) for host in cluster.hosts}
    coming = sorted(tasks, key=lambda task: task.asked)
    queue: list[Task] = []
    running: list[tuple[int, str]] = []
    starts: dict[str, Start] = {}
    of = {task.name: task for task in tasks}
    while coming or running:
        now = min([*([coming[0].asked] if coming else []), *([running[0][0]] if running else [])])
        while running and running[0][0] == now:
            _, name = heapq.heappop(running)
            for host, gpus in starts[name].gpus.items():
                free[host] += gpus
        while coming and coming[0].asked == now:
            queue.append(coming.pop(0))
        queue.sort(key=lambda task: -task.priority)
        limits = [(starts[name].at + of[name].limit, starts[name].gpus) for _, name in running]
        for task, place in begin(cluster, queue, free, limits, now):
            starts[task.name] = Start(now, place)
            heapq.heappush(running, (now + task.run, task.name))
            queue.remove(task)
    assert not queue
    return starts


def begin(
    cluster: Cluster, queue: Sequence[Task], free: Free, limits: Sequence[tuple[int, Mapping[str, int]]], now: int
) -> list[tuple[Task, dict[str, int]]]:
    """The jobs that start now; takes their GPUs out of `free`.

    The plan has the free GPUs of each host at each moment to come: what runs ends with its limit, and who waits is planned in.
    """
    begun: list[tuple[Task, dict[str, int]]] = []
    moments = sorted({now, *(end for end, _ in limits)})
    plan = [
        {host: free[host] + sum(place.get(host, 0) for end, place in limits if end <= at) for host in free}
        for at in moments
    ]
    stopped: set[str] = set()
    for task in queue:
        if task.partition in stopped:
            continue
        step, place = planned(cluster, moments, plan, task)
        last = split(moments, plan, moments[step] + task.limit)
        for at in range(step, last):
            for host, gpus in place.items():
                plan[at][host] -= gpus
        if step == 0:
            begun.append((task, place))
            for host, gpus in place.items():
                free[host] -= gpus
        elif cluster.policy == "fifo":
            stopped.add(task.partition)
    return begun


def planned(cluster: Cluster, moments: Sequence[int], plan: Sequence[Free], task: Task) -> tuple[int, dict[str, int]]:
    """The first step of the plan from which on a job can run for as long as it may, and where."""
    for step, at in enumerate(moments):
        last = bisect_left(moments, at + task.limit)
        least = {host: min(each[host] for each in plan[step:last]) for host in cluster.partitions[task.partition]}
        place = fit(cluster, least, task)
        if place is not None:
            return step, place
    raise AssertionError(f"{task} never fits")


def split(moments: list[int], plan: list[Free], at: int) -> int:
    """The step that begins at a moment, made where there is none."""
    step = bisect_left(moments, at)
    if step == len(moments) or moments[step] != at:
        moments.insert(step, at)
        plan.insert(step, dict(plan[step - 1]))
    return step


def waited_hours(tasks: Sequence[Task], starts: Mapping[str, Start]) -> float:
    """Hours that the jobs waited."""
    return sum(starts[task.name].at - task.asked for task in tasks) / HOUR_MS


def workload(
    seed: int, partition: str, *, count: int, every_min: float, sizes: Sequence[int], run_h: tuple[float, float]
) -> list[Task]:
    """Jobs that come at random, in whole minutes, with limits as long as they run."""
    rng, at, found = random.Random(seed), 0.0, []  # noqa: S311  # no secret
    for number in range(count):
        at += rng.expovariate(1 / (every_min * MINUTE_MS))
        run = round(rng.uniform(*run_h) * 60) * MINUTE_MS
        found.append(
            Task(
                f"{partition}-{seed}-{number}", int(at // MINUTE_MS) * MINUTE_MS, rng.choice(sizes), run, run, partition
            )
        )
    return found


def with_limits(tasks: Sequence[Task], up_to: int, limit: int) -> list[Task]:
    """The same where jobs of up to so many GPUs ask for so long."""
    return [replace(task, limit=max(limit, task.run)) if task.gpus <= up_to else task for task in tasks]


def recorded_jobs(tasks: Sequence[Task], starts: Mapping[str, Start]) -> pl.DataFrame:
    """What the queue's records say, with JOB_SCHEMA."""
    rows = [
        {
            "scheduler": "slurm", "job": task.name, "user": f"user-{task.partition}", "partition": task.partition,
            "state": "COMPLETED", "submitted": task.asked, "eligible": task.asked, "start": starts[task.name].at,
            "end": starts[task.name].at + task.run, "time_limit_ms": task.limit, "priority": task.priority, "gpus": task.gpus,
            "host_count": len(starts[task.name].gpus), "hosts": sorted(starts[task.name].gpus),
        }
        for task in tasks
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=JOB_SCHEMA)


def ledger_rows(cluster: Cluster, tasks: Sequence[Task], starts: Mapping[str, Start], until: int) -> pl.DataFrame:
    """What the ledger says of every GPU from 0 to `until`: held, active or free, with the pool."""
    busy: dict[tuple[str, int], list[tuple[int, int, str]]] = {
        (host, number): [] for host in cluster.hosts for number in range(WIDTH)
    }
    for task in sorted(tasks, key=lambda task: starts[task.name].at):
        start = starts[task.name]
        for host, gpus in start.gpus.items():
            open_ones = [
                number
                for number in range(cluster.held.get(host, 0), WIDTH)
                if not busy[host, number] or busy[host, number][-1][1] <= start.at
            ]
            for number in open_ones[:gpus]:
                busy[host, number].append((start.at, start.at + task.run, f"slurm:{task.name}"))
    pool_of = {host: pool for pool, own in cluster.pools.items() for host in own}
    rows = []
    for (host, number), spans in busy.items():
        if number < cluster.held.get(host, 0):
            pieces = [(0, until, "held", "slurm:notebook")]
        else:
            pieces, at = [], 0
            for begin_ms, end_ms, job in spans:
                pieces += [(at, begin_ms, "free", None), (begin_ms, end_ms, "active", job)]
                at = end_ms
            pieces.append((at, until, "free", None))
        rows += [
            {"pool": pool_of[host], "host": host, "gpu": f"{host}/{number}", "time": a, "end": b, "state": state, "job": job, "holder": None,
             "stretch_start": a, "stretch_end": b, "gpu_share": 1.0}
            for a, b, state, job in pieces if a < b
        ]  # fmt: skip
    return pl.DataFrame(rows, schema_overrides={"holder": pl.String})
