"""Faults planted in simulated clusters: the hours that each cost, by running the scheduler again without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from analytics.plan.queue_waits import TIME_OF, find_waits
from analytics.plan.wait_causes import CAUSES, SHORTAGE
from fallow.clock import HOUR_MS
from tests.plan.scheduler import (
    Cluster,
    Task,
    ledger_rows,
    recorded_jobs,
    simulate,
    waited_hours,
    with_limits,
    workload,
)

A, B = tuple(f"a{n}" for n in range(8)), tuple(f"b{n}" for n in range(8))
LARGE, SMALL = "H100", "A100"
MEMORY_GIB = {LARGE: 80, SMALL: 40}
TWO_POOLS = Cluster({"A": A, "B": B}, {"a": A, "b": B})
SIZES = (1, 2, 4, 8)


@dataclass(frozen=True)
class Planted:
    """One situation: `lifted` has what is left of it when one fault after the other is taken away, each by the cause of its hours."""

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
        return dict.fromkeys(CAUSES, 0.0) | found | {SHORTAGE: left}

    def found_hours(self) -> dict[str, float]:
        """Hours of each cause as `plan queue` says them, from the records and the ledger alone."""
        starts = simulate(self.cluster, self.tasks)
        until = max(starts[task.name].at + task.run for task in self.tasks)
        models = pl.col("pool").replace_strict({"A": LARGE, "B": self.other})
        ledger = ledger_rows(self.cluster, self.tasks, starts, until).with_columns(model=models)
        waits = find_waits(recorded_jobs(self.tasks, starts), ledger, MEMORY_GIB, (0, until), held_min_ms=HOUR_MS)
        return {cause: waits.rows[column].sum() / HOUR_MS for cause, column in TIME_OF.items()}


def planted(seed: int) -> Sequence[Planted]:
    """One of each fault, and two of them together."""
    many = workload(seed, "a", count=200, every_min=12, sizes=SIZES, run_h=(1, 6))
    fewer = workload(seed, "a", count=200, every_min=16, sizes=SIZES, run_h=(1, 6))
    light = workload(seed + 100, "b", count=40, every_min=60, sizes=SIZES, run_h=(1, 6))
    large = [
        replace(each, priority=1)
        for each in workload(seed, "a", count=150, every_min=240, sizes=(32, 64), run_h=(2, 6))
    ]
    right = large + workload(seed + 50, "a", count=400, every_min=90, sizes=(1, 2, 4), run_h=(0.3, 1))
    long = with_limits(right, 4, 48 * HOUR_MS)
    fenced, open_pool = Cluster({"A": A + B}, {"a": A, "b": B}), Cluster({"A": A + B}, {"a": A + B, "b": A + B})
    everywhere = replace(TWO_POOLS, partitions={"a": A + B, "b": B})
    held, both = replace(TWO_POOLS, held={"a5": 8, "a6": 8, "a7": 8}), replace(TWO_POOLS, held={"a7": 8, "b7": 8})
    return (
        Planted("a real shortage", TWO_POOLS, many + light),
        Planted("a wrong pool", TWO_POOLS, many + light, (("pool", everywhere, many + light),), LARGE),
        Planted("a fenced block", fenced, many + light, (("block", open_pool, many + light),)),
        Planted("over-long limits", TWO_POOLS, long, (("limits", TWO_POOLS, right),)),
        Planted("held without use", held, fewer + light, (("unused", TWO_POOLS, fewer + light),)),
        Planted("strict order", replace(TWO_POOLS, policy="fifo"), right, (("order", TWO_POOLS, right),)),
        Planted(
            "a wrong pool and held", both, many + light,
            (("pool", replace(both, partitions=everywhere.partitions), many + light), ("unused", everywhere, many + light)), LARGE,
        ),
    )  # fmt: skip


def worst(true: Mapping[str, float], found: Mapping[str, float]) -> float:
    """By how much the hours of any cause are off, as a share of all hours waited."""
    return max(abs(found[cause] - true[cause]) for cause in CAUSES) / sum(true.values())
