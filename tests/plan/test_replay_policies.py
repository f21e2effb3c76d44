"""Each policy of a replay in a case of a few jobs, counted by hand; times in hours."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import polars as pl
import pytest

from analytics.plan.replay.engine import replay
from analytics.plan.replay.policy import OffPeakHours, Priorities, ReplayPolicy, SmallWork
from analytics.plan.replay.replay_fleet import HostGroup, ReplayFleet
from analytics.plan.replay.station import NO_GPUS, TOO_LITTLE_MEMORY, TOO_MANY, TOO_WIDE
from fallow.clock import HOUR_MS, to_ms
from fallow.errors import UsageError
from tests.plan.queueing import one_pool, replay_jobs

if TYPE_CHECKING:
    from analytics.plan.replay.policy import Order

GB = 10**9
H100 = "NVIDIA H100 80GB HBM3"
FIFO, BACKFILL = ReplayPolicy(), ReplayPolicy(order="backfill")


def job(asked: float, hours: float, gpus: int = 1, limit: float | None = None, **more: object) -> dict[str, object]:
    """A job that asks at an hour and runs for so many."""
    limit_ms = None if limit is None else round(limit * HOUR_MS)
    times = {"asked": round(asked * HOUR_MS), "ran_ms": round(hours * HOUR_MS), "limit_ms": limit_ms}
    return {**times, "gpus": gpus, **more}


def runs_of(jobs: list[dict[str, object]], fleet: ReplayFleet, policy: ReplayPolicy = FIFO) -> pl.DataFrame:
    """What became of each, in hours."""
    runs = replay(replay_jobs(jobs), fleet, policy).runs
    return runs.with_columns((pl.col("arrived", "begin", "end", "held_ms", "cut_ms") / HOUR_MS).round(6))


def times(jobs: list[dict[str, object]], fleet: ReplayFleet, policy: ReplayPolicy = FIFO) -> list[tuple[float, float]]:
    """When each first began and ended."""
    return runs_of(jobs, fleet, policy).select("begin", "end").rows()


def begins(jobs: list[dict[str, object]], fleet: ReplayFleet, policy: ReplayPolicy = FIFO) -> list[float | None]:
    return runs_of(jobs, fleet, policy)["begin"].to_list()


def test_in_order_the_first_that_waits_holds_up_all_others() -> None:
    jobs = [job(0, 4, 2), job(1, 2, 4), job(2, 1, 1)]
    assert times(jobs, one_pool(4)) == [(0, 4), (4, 6), (6, 7)]


def test_pools_and_models_do_not_wait_for_one_another() -> None:
    fleet = ReplayFleet((HostGroup("p", "m", 1, 1), HostGroup("p", "n", 1, 1), HostGroup("q", "m", 1, 1)))
    jobs = [job(0, 4), job(0, 4), job(1, 1, model="n"), job(1, 1, pool="q")]
    assert times(jobs, fleet) == [(0, 4), (4, 8), (1, 2), (1, 2)]


def test_hosts_that_are_open_to_some_partitions_take_only_their_jobs() -> None:
    own = frozenset({"night"})
    fleet = ReplayFleet((HostGroup("p", "m", 1, 1, partitions=own), HostGroup("p", "m", 1, 1)))
    jobs = [job(0, 4, partition="day"), job(1, 1, partition="day"), job(1, 1, partition="night"), job(1, 1)]
    assert times(jobs, fleet) == [(0, 4), (4, 5), (1, 2), (2, 3)]
    assert replay(replay_jobs(jobs), fleet, FIFO).holds.sort("number")["host"].to_list() == [1, 1, 0, 0]


def test_a_job_lies_on_one_host_and_a_gang_on_several() -> None:
    jobs = [job(0, 4, 3), job(0, 2, 2), job(1, 1, 3), job(1, 1, 8, hosts=2)]
    found = replay(replay_jobs(jobs), one_pool(4, hosts=2), FIFO)
    holds = found.holds.sort("number", "host").select("number", "host", "gpus").rows()
    assert holds == [(0, 0, 3), (1, 1, 2), (2, 1, 3), (3, 0, 4), (3, 1, 4)]
    assert found.runs["begin"].to_list() == [0, 0, 2 * HOUR_MS, 4 * HOUR_MS]  # two and one are free, but not three


def test_the_fullest_host_is_filled_so_that_others_stay_whole() -> None:
    assert times([job(0, 4, 1), job(0, 4, 3), job(0, 4, 4)], one_pool(4, hosts=2)) == [(0, 4)] * 3


@pytest.mark.parametrize(
    ("limit", "third"), [(2, 2), (3, 2), (4, 6)], ids=["done before", "done just then", "would delay it"]
)
def test_backfill_starts_those_early_that_are_done_before_the_first_begins(limit: float, third: float) -> None:
    """The second waits for the end of the first one's limit, 5 h; the third comes at 2 h and needs one free GPU."""
    jobs = [job(0, 4, 3, 5), job(1, 2, 4, 2), job(2, 1, 1, limit)]
    assert times(jobs, one_pool(4), BACKFILL) == [(0, 4), (4, 6), (third, third + 1)]


def test_backfill_starts_long_ones_on_gpus_that_the_first_will_not_need() -> None:
    """Two are free at 2 h, of which the first needs one at 4 h: one of the long jobs can have the other."""
    jobs = [job(0, 4, 3, 4), job(1, 2, 4, 2), job(2, 9, 1, 9), job(2, 9, 1, 9)]
    assert times(jobs, one_pool(5), BACKFILL) == [(0, 4), (4, 6), (2, 11), (6, 15)]


@pytest.mark.parametrize(("order", "third", "last"), [("backfill", 11, 2), ("conservative", 6, 7)])
def test_conservative_backfill_delays_nobody_and_easy_not_the_first(order: Order, third: float, last: float) -> None:
    """The last could start at 2 h beside the second, but then the four GPUs for the third are not free at 6 h."""
    jobs = [job(0, 4, 3, 4), job(1, 2, 2, 2), job(1, 1, 4, 1), job(2, 9, 1, 9)]
    assert begins(jobs, one_pool(4), ReplayPolicy(order=order)) == [0, 4, third, last]


def test_limits_cut_to_need_make_room_for_backfill() -> None:
    jobs = [job(0, 4, 3, 24), job(1, 2, 4, 24), job(2, 1, 1, 24)]
    assert times(jobs, one_pool(4), BACKFILL)[2] == (6, 7)
    assert times(jobs, one_pool(4), replace(BACKFILL, limit_to_need=True))[2] == (2, 3)


URGENT = Priorities("kind", ("serving", "training"))


def test_urgent_jobs_go_first_and_unknown_kinds_last() -> None:
    jobs = [job(0, 2), job(0.5, 1), job(1, 1, kind="training"), job(1.5, 1, kind="serving")]
    assert times(jobs, one_pool(1), ReplayPolicy(priorities=URGENT)) == [(0, 2), (4, 5), (3, 4), (2, 3)]


def test_what_an_urgent_job_took_is_not_there_for_backfill() -> None:
    """At 2 h it takes the one GPU that was left beside the reservation: the long job at 2.5 h has to wait."""
    jobs = [job(0, 10, 3, 10), job(0, 4, 3, 4), job(1, 1, 4, 1), job(2, 20, 1, 20, kind="serving"), job(2.5, 9, 1, 9)]
    assert begins(jobs, one_pool(4, hosts=2), replace(BACKFILL, priorities=URGENT)) == [0, 0, 4, 2, 5]


def test_of_the_schedulers_own_numbers_more_is_more_urgent() -> None:
    jobs = [job(0, 1), job(0, 1), job(0, 1, priority=3), job(0, 1, priority=8)]
    policy = ReplayPolicy(priorities=Priorities("priority"))
    assert times(jobs, one_pool(1), policy) == [(2, 3), (3, 4), (1, 2), (0, 1)]


@pytest.mark.parametrize(
    ("resume", "cost_h", "end", "held"),
    [(True, 0, 5, 4), (True, 0.5, 5.5, 4.5), (False, 0, 6, 5), (False, 0.5, 6.5, 5.5)],
)
def test_a_preempted_job_goes_on_or_begins_anew(
    resume: bool,  # noqa: FBT001
    cost_h: float,
    end: float,
    held: float,
) -> None:
    """It has run for an hour of four when an urgent one takes its GPUs for an hour."""
    priorities = replace(URGENT, preempt=True, resume=resume, cost_ms=round(cost_h * HOUR_MS))
    jobs = [job(0, 4, 2, kind="training"), job(1, 1, 2, kind="serving")]
    runs = runs_of(jobs, one_pool(2), ReplayPolicy(priorities=priorities))
    assert runs.select("begin", "end", "held_ms", "preempted").rows() == [(0, end, held, 1), (1, 2, 1, 0)]


def test_the_least_urgent_gives_way_then_who_began_last_and_nobody_in_vain() -> None:
    policy = ReplayPolicy(priorities=replace(URGENT, preempt=True))
    jobs = [job(0, 9, kind="training"), job(1, 9, 2, kind="batch"), job(2, 9, kind="batch")]
    jobs += [job(3, 1, 2, kind="serving"), job(3, 1, 5, kind="serving")]
    runs = runs_of(jobs, one_pool(4), policy)
    assert runs["preempted"].to_list() == [0, 1, 0, 0, 0]  # the two of the larger one are enough, the smaller one stays
    assert runs["why_not"].to_list() == [None, None, None, None, TOO_WIDE]


@pytest.mark.parametrize(
    ("hours", "asked", "arrived"),
    [
        ((22, 6), "2026-01-05 12:00", "2026-01-05 21:00"),
        ((22, 6), "2026-01-05 22:00", "2026-01-05 22:00"),
        ((22, 6), "2026-01-05 04:59", "2026-01-05 04:59"),
        ((22, 6), "2026-01-05 05:00", "2026-01-05 21:00"),
        ((22, 6), "2026-03-29 12:00", "2026-03-29 20:00"),
        pytest.param((2.5, 5), "2026-03-29 00:00", "2026-03-29 01:30", id="an hour that the clock skips begins later"),
    ],
)
def test_deferrable_jobs_come_at_the_next_off_peak_hour_by_the_local_clock(
    hours: tuple[float, float], asked: str, arrived: str
) -> None:
    """Moments in UTC; the hours are those of Paris: UTC+1, from 29 March 2026 on UTC+2."""
    since, until = (round(60 * hour) for hour in hours)
    policy = ReplayPolicy(off_peak=OffPeakHours(since, until, "Europe/Paris"))
    came, comes = (to_ms(datetime.fromisoformat(each).replace(tzinfo=UTC)) for each in (asked, arrived))
    jobs = replay_jobs([{"asked": came, "is_deferrable": True}, {"asked": came}])
    runs = replay(jobs, one_pool(2), policy).runs
    assert runs.select("arrived", "begin").rows() == [(comes, comes), (came, came)]


def test_jobs_that_ran_before_the_window_hold_their_gpus_from_their_start() -> None:
    jobs = [job(5, 3, started=-HOUR_MS, before_window=True), job(0, 1), job(0, 1, started=HOUR_MS) | {"asked": None}]
    assert runs_of(jobs, one_pool(1)).select("arrived", "begin").rows() == [(-1, -1), (0, 2), (1, 3)]


def idle_intervals(*pairs: tuple[float, float]) -> list[dict[str, int]]:
    return [{"begin": round(begin * HOUR_MS), "end": round(end * HOUR_MS)} for begin, end in pairs]


def test_an_idle_timeout_ends_jobs_and_says_whom_it_hit() -> None:
    idle = (idle_intervals((1, 2), (6, 10)), idle_intervals((1, 4), (6, 10)), idle_intervals((1, 2)), None)
    jobs = [job(0, 10, idle_intervals=each) for each in idle]
    runs = runs_of(jobs, one_pool(4), ReplayPolicy(idle_timeout_ms=2 * HOUR_MS))
    cuts = [(8, 2, False), (3, 7, True), (10, 0, False), (10, 0, False)]
    assert runs.select("end", "cut_ms", "worked_later").rows() == cuts


def test_smaller_blocks_give_what_was_ever_used() -> None:
    jobs = [job(0, 1, 8, gpus_used=3), job(0, 1, 8, gpus_used=0), job(0, 1, 8), job(0, 1, 16, hosts=2, gpus_used=7)]
    for block, gpus in ((2, [4, 2, 8, 8]), (1, [3, 1, 8, 7])):
        assert runs_of(jobs, one_pool(8, hosts=4), ReplayPolicy(block=block))["gpus"].to_list() == gpus


TWO_POOLS = ReplayFleet((HostGroup("p", "m", 1, 2), HostGroup("q", "m", 1, 2)))


def test_merged_pools_take_in_each_others_jobs() -> None:
    jobs = [job(0, 4, 2), job(1, 1, 2)]
    assert times(jobs, TWO_POOLS)[1] == (4, 5)
    merged = ReplayPolicy(merge=(("q", "p"),))
    assert times(jobs, TWO_POOLS, merged)[1] == (1, 2)
    assert runs_of(jobs, TWO_POOLS, merged)["pool"].to_list() == ["q", "q"]


def test_more_or_fewer_gpus_are_hosts_like_those_there() -> None:
    fleet = ReplayFleet((HostGroup("p", "m", 2, 4), HostGroup("p", "m", 1, 8), HostGroup("q", "m", 1, 2)))

    def hosts(gpus: int) -> list[tuple[int, int]]:
        groups = replay(replay_jobs([job(0, 1)]), fleet, ReplayPolicy(gpus={"p": gpus})).fleet.groups
        return [(group.hosts, group.gpus_per_host) for group in groups if group.pool == "p"]

    assert hosts(11) == [(2, 4), (1, 3)]
    assert hosts(22) == [(2, 4), (1, 8), (1, 4), (1, 2)]
    assert hosts(0) == []


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (ReplayPolicy(merge=(("p", "q"), ("q", "r"))), "the pool q is merged twice"),
        (ReplayPolicy(merge=(("p", "p"),)), "the pool p is merged twice"),
        (ReplayPolicy(merge=(("p", "s"),)), "no pool s"),
        (ReplayPolicy(gpus={"s": 1}), "no pool s; the pools are p, q, r"),
        (ReplayPolicy(gpus={"": 1}), "the fleet has GPUs of several pools or models"),
        (ReplayPolicy(small_work=SmallWork("old")), "small work goes to old, which is no pool or model"),
        (ReplayPolicy(small_work=SmallWork("q"), merge=(("p", "q"),)), "small work goes to q"),
    ],
)
def test_what_is_not_there_is_said(policy: ReplayPolicy, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        replay(replay_jobs([]), ReplayFleet((*TWO_POOLS.groups, HostGroup("r", "m", 1, 8))), policy)


def test_small_work_may_go_to_a_model_or_to_a_pool_that_a_policy_empties() -> None:
    for policy in (ReplayPolicy(small_work=SmallWork("m")), ReplayPolicy(gpus={"q": 0}, small_work=SmallWork("q"))):
        assert runs_of([], TWO_POOLS, policy).is_empty()


def test_other_cards_take_the_jobs_of_their_pool_as_fast_as_is_said() -> None:
    cards = HostGroup("p", "new", 1, 2, mem_bytes=40 * GB, slowdown=0.5)
    jobs = [job(0, 2, mem_bytes=30 * GB), job(0, 2), job(0, 2, mem_bytes=50 * GB), job(0, 2, 4), job(0, 2, 4, hosts=2)]
    found = runs_of(jobs, one_pool(8), ReplayPolicy(groups=(cards,)))
    ends = [(1, None), (1, None), (None, TOO_LITTLE_MEMORY), (None, TOO_WIDE), (None, TOO_MANY)]
    assert found.select("end", "why_not").rows() == ends


def test_jobs_of_a_pool_without_gpus_never_run() -> None:
    assert runs_of([job(0, 1, pool="q")], one_pool(1))["why_not"].to_list() == [NO_GPUS]


def test_small_work_that_fits_goes_to_older_cards_first_and_waits_for_both() -> None:
    fleet = ReplayFleet((HostGroup("p", "m", 1, 2), HostGroup("old", "o", 1, 1, mem_bytes=16 * GB, slowdown=2.0)))
    small = job(0, 1, kind="batch", mem_bytes=8 * GB)
    jobs = [small, small, job(0, 1, mem_bytes=20 * GB), job(0, 1, kind="batch"), small]  # too large, of unknown need
    runs = runs_of(jobs, fleet, ReplayPolicy(small_work=SmallWork("old")))
    assert runs.select("pool", "end").rows() == [("old", 2), ("p", 1), ("p", 1), ("p", 2), ("p", 2)]


def test_who_stood_behind_a_job_that_began_elsewhere_begins_at_that_moment() -> None:
    fleet = ReplayFleet((HostGroup("p", "m", 1, 2), HostGroup("old", "o", 1, 2, mem_bytes=16 * GB)))
    jobs = [job(0, 10), job(0, 4, 2, pool="old", model="o")]
    jobs += [job(1, 1, 2, kind="batch", mem_bytes=8 * GB), job(2, 1)]
    assert times(jobs, fleet, ReplayPolicy(small_work=SmallWork("old"))) == [(0, 10), (0, 4), (4, 5), (4, 5)]


def card(gpus: int, model: str = "m") -> ReplayFleet:
    return ReplayFleet((HostGroup("p", model, 1, gpus, mem_bytes=80 * GB),))


@pytest.mark.parametrize("order", ["backfill", "conservative"])
def test_backfill_joins_a_shared_gpu_that_stays_as_long(order: Order) -> None:
    """The second waits for both GPUs; the third goes beside the first, the fourth would keep its GPU longer."""
    small = {"mem_bytes": 8 * GB, "sm_pct": 10.0}
    jobs = [job(0, 4, 1, 4, **small), job(1, 1, 2, 1), job(2, 2, 1, 2, **small), job(2, 9, 1, 9, **small)]
    assert times(jobs, card(2), ReplayPolicy(order=order, share=3)) == [(0, 4), (4, 5), (2, 4), (5, 14)]


def test_jobs_take_turns_where_their_needs_fit_together() -> None:
    small = {"mem_bytes": 30 * GB, "sm_pct": 20.0}
    jobs = [*[job(0, 1, **small)] * 3, job(0, 1, 2), job(0.5, 1, **small)]
    assert begins(jobs, card(2), ReplayPolicy(share=4)) == [0, 0, 0, 1, 2]  # two fit in 72 GB; in order, the last waits
    holds = replay(replay_jobs(jobs), card(2), ReplayPolicy(share=4)).holds.filter(pl.col("number") < 3)
    assert holds.select("host", "gpus").rows() == [(0, 0.25)] * 3
    assert begins([job(0, 1, mem_bytes=1, sm_pct=50.0)] * 2, card(1), ReplayPolicy(share=2)) == [0, 1]


def test_mig_instances_have_their_places_on_the_card() -> None:
    """3g takes four memory slices of eight: two of them leave no place to a 1g, though a seventh of the SMs is free."""
    three, one = (job(0, 1, model=H100, mem_bytes=gb * GB, sm_pct=pct) for gb, pct in ((35, 40.0), (5, 10.0)))
    found = replay(replay_jobs([three, three, one]), card(1, H100), ReplayPolicy(mig=True))
    assert found.runs["begin"].to_list() == [0, 0, HOUR_MS]
    assert found.holds["gpus"].to_list() == pytest.approx([3 / 7, 3 / 7, 1 / 7])
    assert begins([one] * 7, card(1, H100), ReplayPolicy(mig=True)) == [0] * 7
