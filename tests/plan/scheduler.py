"""A simulated cluster with known policies, as jobs and ledger rows that analytics read, and faults planted in it.

Jobs want their GPUs on one host, or on whole hosts where they are larger. A partition is the hosts that its jobs may
use. A scheduler of kind `fifo` starts the jobs of a partition strictly in order; `backfill` lets later ones go first
where, by the time limits, that delays no earlier job (conservative backfill, as Slurm's planning does), and so does
`fair-share`, in which users who had least come first. A planted fault costs the hours that jobs wait with it, less
those that they wait without it.
"""

from __future__ import annotations

import heapq
import random
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from analytics.capacity.causes import CAUSES, SHORTAGE
from analytics.capacity.jobs import JOB_SCHEMA, WITHHELD_SCHEMA, QueueOrder
from analytics.plan.queue_waits import WaitGroup, all_waits, find_waits
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
    user: str = ""


@dataclass(frozen=True)
class Cluster:
    """Hosts of 8 GPUs by pool, the hosts of each partition, and by host the number of GPUs held without use."""

    pools: Mapping[str, Sequence[str]]
    partitions: Mapping[str, Sequence[str]]
    held: Mapping[str, int] = field(default_factory=dict)
    policy: str = "backfill"

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
    if gpus <= WIDTH:
        fitting = [host for host in hosts if free[host] >= gpus]
        return {min(fitting, key=lambda host: free[host]): gpus} if fitting else None
    whole = [host for host in hosts if free[host] == WIDTH]
    return dict.fromkeys(whole[: gpus // WIDTH], WIDTH) if len(whole) * WIDTH >= gpus else None


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
        used = usage(of, starts) if cluster.policy == "fair-share" else {}
        queue.sort(key=lambda task: (used.get(task.user, 0), -task.priority))
        limits = [(starts[name].at + of[name].limit, starts[name].gpus) for _, name in running]
        for task, place in begin(cluster, queue, free, limits, now):
            starts[task.name] = Start(now, place)
            heapq.heappush(running, (now + task.run, task.name))
            queue.remove(task)
    assert not queue
    return starts


def usage(tasks: Mapping[str, Task], starts: Mapping[str, Start]) -> Mapping[str, int]:
    """The GPU time that each user has been given: who had least comes first in a queue with fair shares."""
    found: dict[str, int] = defaultdict(int)
    for name in starts:
        found[tasks[name].user] += tasks[name].gpus * tasks[name].limit
    return found


def begin(
    cluster: Cluster, queue: Sequence[Task], free: Free, limits: Sequence[tuple[int, Mapping[str, int]]], now: int
) -> list[tuple[Task, dict[str, int]]]:
    """The jobs that start now; takes their GPUs out of `free`.

    The plan has the free GPUs of each host at each moment to come: a running job ends with its limit; waiting jobs have
    their places.
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
        run, asked = round(rng.uniform(*run_h) * 60) * MINUTE_MS, int(at // MINUTE_MS) * MINUTE_MS
        found.append(Task(f"{partition}-{seed}-{number}", asked, rng.choice(sizes), run, run, partition))
    return found


def with_limits(tasks: Sequence[Task], up_to: int, limit: int) -> list[Task]:
    """The same where jobs of up to so many GPUs ask for so long."""
    return [replace(task, limit=max(limit, task.run)) if task.gpus <= up_to else task for task in tasks]


def recorded_jobs(tasks: Sequence[Task], starts: Mapping[str, Start]) -> pl.DataFrame:
    """What the queue's records say, with JOB_SCHEMA."""
    rows = []
    for task in tasks:
        start = starts[task.name]
        who = {
            "scheduler": "slurm",
            "job": task.name,
            "user": task.user or f"user-{task.partition}",
            "partition": task.partition,
        }
        times = {"submitted": task.asked, "eligible": task.asked, "start": start.at, "end": start.at + task.run}
        asked = {"time_limit_ms": task.limit, "priority": task.priority, "gpus": task.gpus, "state": "COMPLETED"}
        rows.append(who | times | asked | {"host_count": len(start.gpus), "hosts": sorted(start.gpus)})
    return pl.DataFrame(rows, schema=JOB_SCHEMA)


def ledger_rows(cluster: Cluster, tasks: Sequence[Task], starts: Mapping[str, Start], until: int) -> pl.DataFrame:
    """What the ledger says of every GPU from 0 to `until`: held, active or free, with the pool."""
    busy: dict[tuple[str, int], list[tuple[int, int, str]]] = {
        (host, number): [] for host in cluster.hosts for number in range(cluster.held.get(host, 0), WIDTH)
    }
    for task in sorted(tasks, key=lambda task: starts[task.name].at):
        start = starts[task.name]
        for host, gpus in start.gpus.items():
            own = [
                spans for (name, _), spans in busy.items() if name == host and (not spans or spans[-1][1] <= start.at)
            ]
            for spans in own[:gpus]:
                spans.append((start.at, start.at + task.run, f"slurm:{task.name}"))
    pieces: list[tuple[str, int, int, int, str, str | None]] = [
        (host, number, 0, until, "held", "slurm:notebook")
        for host, held in cluster.held.items()
        for number in range(held)
    ]
    for gpu, spans in busy.items():
        at = 0
        for begin_ms, end_ms, job in spans:
            pieces += [(*gpu, at, begin_ms, "free", None), (*gpu, begin_ms, end_ms, "active", job)]
            at = end_ms
        pieces.append((*gpu, at, until, "free", None))
    pool_of = {host: pool for pool, own in cluster.pools.items() for host in own}
    rows = pl.DataFrame(pieces, schema=["host", "number", "time", "end", "state", "job"], orient="row")
    return rows.filter(pl.col("time") < pl.col("end")).select(
        "host",
        "time",
        "end",
        "state",
        "job",
        pool=pl.col("host").replace_strict(pool_of),
        gpu=pl.format("{}/{}", "host", "number"),
        user=pl.lit(None, pl.String),
        account=pl.lit(None, pl.String),
        instance=pl.lit(value=False),
        gpu_share=pl.lit(1.0),
        segment_start="time",
        segment_end="end",
    )


A, B = tuple(f"a{n}" for n in range(8)), tuple(f"b{n}" for n in range(8))
LARGE, SMALL = "H100", "A100"
MEMORY_GIB = {LARGE: 80, SMALL: 40}
TWO_POOLS = Cluster({"A": A, "B": B}, {"a": A, "b": B})
SIZES = (1, 2, 4, 8)


@dataclass(frozen=True)
class Planted:
    """One situation; `lifted`: what remains as faults are removed one by one, each with the cause of its hours."""

    name: str
    cluster: Cluster
    tasks: Sequence[Task]
    lifted: Sequence[tuple[str, Cluster, Sequence[Task]]] = ()
    other: str = SMALL

    def true_hours(self) -> dict[str, float]:
        """Hours of each cause: those waited with a fault less those waited without it; what is left is shortage."""
        left, found = waited_hours(self.tasks, simulate(self.cluster, self.tasks)), {}
        for cause, cluster, tasks in self.lifted:
            less = waited_hours(tasks, simulate(cluster, tasks))
            found[cause], left = left - less, less
        return dict.fromkeys((cause.name for cause in CAUSES), 0.0) | found | {SHORTAGE: left}

    def found_hours(self) -> dict[str, float]:
        """Hours of each cause as `plan queue` says them, from the records and the ledger alone."""
        starts = simulate(self.cluster, self.tasks)
        until = max(starts[task.name].at + task.run for task in self.tasks)
        models = pl.col("pool").replace_strict({"A": LARGE, "B": self.other})
        ledger = ledger_rows(self.cluster, self.tasks, starts, until).with_columns(model=models)
        order = QueueOrder(self.cluster.policy == "fifo", len({task.priority for task in self.tasks}) > 1)
        waits = found_waits(recorded_jobs(self.tasks, starts), ledger, until, order)
        return {cause: spent / HOUR_MS for cause, spent in waits.cause_ms.items()}


def found_waits(jobs: pl.DataFrame, ledger: pl.DataFrame, until: int, order: QueueOrder) -> WaitGroup:
    """All waits of [0, until) as `plan queue` finds them."""
    none = pl.DataFrame(schema=WITHHELD_SCHEMA)
    return all_waits(find_waits(jobs, ledger, MEMORY_GIB, (0, until), held_min_ms=HOUR_MS, order=order, withheld=none))


def planted(seed: int) -> Sequence[Planted]:
    """One of each fault, and two of them together."""
    many = workload(seed, "a", count=200, every_min=12, sizes=SIZES, run_h=(1, 6))
    fewer = workload(seed, "a", count=200, every_min=16, sizes=SIZES, run_h=(1, 6))
    light = workload(seed + 100, "b", count=40, every_min=60, sizes=SIZES, run_h=(1, 6))
    wide = workload(seed, "a", count=150, every_min=240, sizes=(32, 64), run_h=(2, 6))
    right = [replace(each, priority=1) for each in wide] + workload(
        seed + 50, "a", count=400, every_min=90, sizes=(1, 2, 4), run_h=(0.3, 1)
    )
    long = with_limits(right, 4, 48 * HOUR_MS)
    fenced, open_pool = Cluster({"A": A + B}, {"a": A, "b": B}), Cluster({"A": A + B}, {"a": A + B, "b": A + B})
    everywhere = replace(TWO_POOLS, partitions={"a": A + B, "b": B})
    held, both = replace(TWO_POOLS, held={"a5": 8, "a6": 8, "a7": 8}), replace(TWO_POOLS, held={"a7": 8, "b7": 8})
    opened = replace(both, partitions=everywhere.partitions)
    return (
        Planted("a real shortage", TWO_POOLS, many + light),
        Planted("a wrong pool", TWO_POOLS, many + light, (("pool", everywhere, many + light),), LARGE),
        Planted("a fenced block", fenced, many + light, (("block", open_pool, many + light),)),
        Planted("over-long limits", TWO_POOLS, long, (("limits", TWO_POOLS, right),)),
        Planted("held without use", held, fewer + light, (("unused", TWO_POOLS, fewer + light),)),
        Planted("strict order", replace(TWO_POOLS, policy="fifo"), right, (("head_of_line", TWO_POOLS, right),)),
        Planted(
            "a wrong pool and held",
            both,
            many + light,
            (("pool", opened, many + light), ("unused", everywhere, many + light)),
            LARGE,
        ),
    )


def worst(true: Mapping[str, float], found: Mapping[str, float]) -> float:
    """By how much the hours of any cause are off, as a share of all hours waited."""
    return max(abs(found[cause] - true[cause]) for cause in true) / sum(true.values())
