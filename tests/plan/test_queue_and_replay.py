"""Queue waits and replays of one simulated cluster: what the queue blames is what a replay without it changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analytics.capacity.jobs import QueueOrder
from analytics.plan.replay.engine import replay
from analytics.plan.replay.policy import ReplayPolicy
from analytics.plan.replay.replay_base import ReplayBase, replay_outcome
from fallow.clock import HOUR_MS
from tests.plan.replays import base_of, placed_rows
from tests.plan.scheduler import Cluster, Task, found_waits, recorded_jobs, simulate, with_limits, workload

HOSTS = ("a1", "a2", "a3", "a4")
APART = 0.1
"""Largest allowed difference, as a share of all GPU-hours waited: the queue leaves other jobs where they ran,
a replay does not."""


def jobs_of(policy: str, *, over_long: bool) -> tuple[Cluster, list[Task]]:
    """A busy cluster, whose jobs of up to 8 GPUs ask for a day each or for what they need."""
    sizes = (1, 2, 4, 8, 16)
    tasks = workload(2, "a", count=120, every_min=36, sizes=sizes, run_h=(1, 6))
    tasks = [
        replace(task, user=f"u{number % 3}", priority=number % 3 if policy == "priority" else 0)
        for number, task in enumerate(tasks)
    ]
    scheduler = "backfill" if policy == "priority" else policy
    cluster = Cluster({"A": HOSTS}, {"a": HOSTS}, policy=scheduler)
    return cluster, with_limits(tasks, 8, 24 * HOUR_MS) if over_long else tasks


def saved_share(base: ReplayBase, policy: ReplayPolicy) -> float:
    """The share of the GPU-hours waited that a replay under another policy does without."""
    then = replay(base.coming, base.fleet, policy)
    found = replay_outcome(base.rebuilt.jobs, base.today, then, base.window, has_waits=True).waits
    assert found is not None
    return found.saved_ms / found.today.gpu_ms


@pytest.mark.parametrize("over_long", [False, True], ids=["limits as needed", "limits far above need"])
@pytest.mark.parametrize("policy", ["fifo", "backfill", "priority", "fair-share"])
def test_the_queue_blames_what_the_replay_mends(policy: str, *, over_long: bool) -> None:
    cluster, tasks = jobs_of(policy, over_long=over_long)
    starts = simulate(cluster, tasks)
    until = max(starts[task.name].at + task.run for task in tasks)
    jobs, placed = recorded_jobs(tasks, starts), placed_rows(cluster, tasks, starts, until)
    base = base_of(jobs, placed, until)
    in_order = base.policy.order == "fifo"
    assert in_order == (policy == "fifo")
    waits = found_waits(jobs, placed, until, QueueOrder(in_order, base.policy.priorities is not None))
    assert sum(waits.cause_gpu_ms.values()) == waits.gpu_ms > 0
    blamed = {cause: spent / waits.gpu_ms for cause, spent in waits.cause_gpu_ms.items()}

    limits = saved_share(base, replace(base.policy, limit_to_need=True))
    assert blamed["limits"] == pytest.approx(limits, abs=APART)
    assert (blamed["limits"] > 0.01) == (limits > 0.01) == (over_long and not in_order)

    backfilled = saved_share(base, replace(base.policy, order="conservative", limit_to_need=in_order))
    assert (blamed["head_of_line"] > 0) == in_order
    if in_order:
        assert blamed["head_of_line"] == pytest.approx(backfilled, abs=APART)
        assert blamed["order"] == 0
    else:
        assert blamed["order"] == pytest.approx(0, abs=APART)
