"""The replay of queues whose answer is known: Erlang's, Cobham's, and those of pre-emption."""

from __future__ import annotations

import heapq

import pytest

from analytics.plan.replay.engine import replay
from analytics.plan.replay.policy import Priorities, ReplayPolicy
from tests.plan.queueing import (
    RandomClass,
    crommelin_hours,
    erlang_c,
    hours_by_rank,
    observed,
    one_pool,
    random_jobs,
    stay_by_rank,
)

FIFO = ReplayPolicy()
BY_KIND = Priorities("kind", ("urgent", "usual"))
SEED = 18


def test_erlang_c_is_that_of_the_tables() -> None:
    """Two servers and one Erlang: 1/3 of the jobs wait; ten and eight: 0.4092."""
    assert erlang_c(2, 1.0) == pytest.approx(1 / 3)
    assert erlang_c(10, 8.0) == pytest.approx(0.4092, abs=5e-5)


def test_crommelin_with_one_server_is_pollaczek_and_khinchin() -> None:
    assert crommelin_hours(1, 0.8) == pytest.approx(0.8 / (2 * 0.2))


@pytest.mark.parametrize("gpus", [1, 7])
def test_jobs_in_order_begin_exactly_when_the_next_gpu_is_free(gpus: int) -> None:
    """The recursion of Kiefer and Wolfowitz (1955): each job takes the GPU that is free first."""
    jobs = random_jobs([RandomClass("usual", 0.9 * gpus)], 5_000, SEED)
    free, expected = [0] * gpus, []
    for asked, ran_ms in jobs.select("asked", "ran_ms").iter_rows():
        begin = max(asked, heapq.heappop(free))
        heapq.heappush(free, begin + ran_ms)
        expected.append(begin)
    assert replay(jobs, one_pool(gpus), FIFO).runs["begin"].to_list() == expected


def _erlang(gpus: int, busy: float, jobs: int) -> None:
    found = observed([RandomClass("usual", gpus * busy)], gpus, FIFO, jobs, SEED)
    assert found.utilization == pytest.approx(busy, rel=0.01)
    load = gpus * found.utilization  # of these jobs: a little more load makes full queues much longer
    assert found.waited["usual"] == pytest.approx(erlang_c(gpus, load) / (gpus - load), rel=0.04)


def test_random_jobs_wait_as_long_as_erlang_says() -> None:
    _erlang(1, 0.3, 60_000)


@pytest.mark.long
@pytest.mark.parametrize(("gpus", "busy"), [(1, 0.8), (16, 0.9), (64, 0.95)])
def test_many_random_jobs_wait_as_long_as_erlang_says(gpus: int, busy: float) -> None:
    _erlang(gpus, busy, 300_000)


@pytest.mark.long
@pytest.mark.parametrize(
    ("gpus", "classes"),
    [
        (1, [RandomClass("urgent", 0.2), RandomClass("usual", 0.4)]),
        (1, [RandomClass("urgent", 0.5, 0.25, 0.0), RandomClass("usual", 0.25, 2.0, 0.5)]),
        (4, [RandomClass("urgent", 1.0), RandomClass("usual", 2.0)]),
    ],
)
def test_classes_wait_as_long_as_cobham_says(gpus: int, classes: list[RandomClass]) -> None:
    found = observed(classes, gpus, ReplayPolicy(priorities=BY_KIND), 400_000, SEED)
    assert found.waited == pytest.approx(hours_by_rank(classes, gpus), rel=0.05)


@pytest.mark.long
def test_jobs_of_an_hour_wait_as_long_as_crommelin_says_whoever_goes_first() -> None:
    """M/D/c with classes: urgency moves waits between jobs of one length, and leaves their mean as it is.

    Federgruen and Groenevelt, *M/G/c Queueing Systems with Multiple Customer Classes*, Management Science 34 (1988).
    """
    urgent, usual = RandomClass("urgent", 1.0, variation=0.0), RandomClass("usual", 2.2, variation=0.0)
    found = observed([urgent, usual], 4, ReplayPolicy(priorities=BY_KIND), 400_000, SEED)
    mean = (urgent.load * found.waited["urgent"] + usual.load * found.waited["usual"]) / (urgent.load + usual.load)
    assert mean == pytest.approx(crommelin_hours(4, 3.2), rel=0.05)
    assert found.waited["urgent"] < mean / 2


@pytest.mark.long
@pytest.mark.parametrize(
    "classes",
    [
        [RandomClass("urgent", 0.2), RandomClass("usual", 0.4)],
        [RandomClass("urgent", 0.5, 0.25, 0.0), RandomClass("usual", 0.25, 2.0, 0.5)],
    ],
)
def test_preempted_jobs_stay_as_long_as_theory_says(classes: list[RandomClass]) -> None:
    policy = ReplayPolicy(priorities=Priorities("kind", ("urgent", "usual"), preempt=True))
    found = observed(classes, 1, policy, 200_000, SEED)
    assert found.stayed == pytest.approx(stay_by_rank(classes), rel=0.05)
