"""Each policy of a replay in a case of a few jobs, counted by hand; times in hours."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import polars as pl
import pytest

from analytics.plan.replay.engine import replay
from analytics.plan.replay.policy import OffPeakHours, Priorities, ReplayPolicy, SmallWork, policy_from
from analytics.plan.replay.replay_fleet import HostGroup, ReplayFleet
from analytics.plan.replay.station import NO_GPUS, TOO_LITTLE_MEMORY, TOO_MANY, TOO_WIDE
from fallow.clock import HOUR_MS, to_ms
from fallow.errors import UsageError
from tests.plan.queueing import one_pool, replay_jobs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from analytics.plan.replay.policy import Order

GB = 10**9
H100 = "NVIDIA H100 80GB HBM3"
FIFO, BACKFILL = ReplayPolicy(), ReplayPolicy(order="backfill")


def job(
    asked: float, hours: float, gpus: int = 1, hosts: int = 1, limit: float | None = None, **more: object
) -> dict[str, object]:
    """A job that asks at an hour and runs for so many."""
    limit_ms = None if limit is None else round(limit * HOUR_MS)
    times = {"asked": round(asked * HOUR_MS), "ran_ms": round(hours * HOUR_MS), "limit_ms": limit_ms}
    return {**times, "gpus": gpus, "hosts": hosts, **more}


def times(
    jobs: list[Mapping[str, object]], fleet: ReplayFleet, policy: ReplayPolicy = FIFO
) -> list[tuple[float | None, float | None]]:
    """When each first began and ended."""
    runs = replay(replay_jobs(jobs), fleet, policy).runs
    return [
        (begin / HOUR_MS, end / HOUR_MS) if begin is not None else (None, None)
        for begin, end in runs.select("begin", "end").iter_rows()
    ]


def in_hours(values: pl.Series) -> list[float | None]:
    return [None if each is None else each / HOUR_MS for each in values]


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
    assert found.holds.sort("number", "host").select("number", "host", "gpus").rows() == [
        (0, 0, 3.0), (1, 1, 2.0), (2, 1, 3.0), (3, 0, 4.0), (3, 1, 4.0),
    ]  # fmt: skip
    assert found.runs["begin"].to_list() == [0, 0, 2 * HOUR_MS, 4 * HOUR_MS]  # two and one are free, but not three


def test_the_fullest_host_is_filled_so_that_others_stay_whole() -> None:
    assert times([job(0, 4, 1), job(0, 4, 3), job(0, 4, 4)], one_pool(4, hosts=2)) == [(0, 4)] * 3


@pytest.mark.parametrize(
    ("limit", "begins"), [(2, 2), (3, 2), (4, 6)], ids=["done before", "done just then", "would delay it"]
)
def test_backfill_starts_those_early_that_are_done_before_the_first_begins(limit: float, begins: float) -> None:
    """The second waits for the end of the first one's limit, 5 h; the third comes at 2 h and needs a GPU that is free."""
    jobs = [job(0, 4, 3, limit=5), job(1, 2, 4, limit=2), job(2, 1, 1, limit=limit)]
    assert times(jobs, one_pool(4), BACKFILL) == [(0, 4), (4, 6), (begins, begins + 1)]


def test_backfill_starts_long_ones_on_gpus_that_the_first_will_not_need() -> None:
    """Two are free at 2 h, of which the first needs one at 4 h: one of the long jobs can have the other."""
    jobs = [job(0, 4, 3, limit=4), job(1, 2, 4, limit=2), job(2, 9, limit=9), job(2, 9, limit=9)]
    assert times(jobs, one_pool(5), BACKFILL) == [(0, 4), (4, 6), (2, 11), (6, 15)]


@pytest.mark.parametrize(("order", "third", "last"), [("backfill", 11, 2), ("conservative", 6, 7)])
def test_conservative_backfill_delays_nobody_and_easy_only_not_the_first(
    order: Order, third: float, last: float
) -> None:
    """The last could begin at 2 h beside the second, but then all four GPUs that the third needs are not free at 6 h."""
    jobs = [job(0, 4, 3, limit=4), job(1, 2, 2, limit=2), job(1, 1, 4, limit=1), job(2, 9, limit=9)]
    found = times(jobs, one_pool(4), ReplayPolicy(order=order))
    assert [begin for begin, _ in found] == [0, 4, third, last]


def test_limits_cut_to_need_make_room_for_backfill() -> None:
    jobs = [job(0, 4, 3, limit=24), job(1, 2, 4, limit=24), job(2, 1, 1, limit=24)]
    assert times(jobs, one_pool(4), BACKFILL)[2] == (6, 7)
    assert times(jobs, one_pool(4), replace(BACKFILL, limit_to_need=True))[2] == (2, 3)


URGENT = Priorities("kind", ("serving", "training"))


def test_urgent_jobs_go_first_and_unknown_kinds_last() -> None:
    jobs = [job(0, 2), job(0.5, 1), job(1, 1, kind="training"), job(1.5, 1, kind="serving")]
    assert times(jobs, one_pool(1), ReplayPolicy(priorities=URGENT)) == [(0, 2), (4, 5), (3, 4), (2, 3)]


def test_what_an_urgent_job_took_is_not_there_for_backfill() -> None:
    """At 2 h it takes the one GPU that was left beside the reservation: the long job at 2.5 h has to wait."""
    jobs = [
        job(0, 10, 3, limit=10), job(0, 4, 3, limit=4), job(1, 1, 4, limit=1), job(2, 20, limit=20, kind="serving"),
        job(2.5, 9, limit=9),
    ]  # fmt: skip
    found = times(jobs, one_pool(4, hosts=2), replace(BACKFILL, priorities=URGENT))
    assert [begin for begin, _ in found] == [0, 0, 4, 2, 5]


def test_of_the_schedulers_own_numbers_more_is_more_urgent() -> None:
    jobs = [job(0, 1), job(0, 1), job(0, 1, priority=3), job(0, 1, priority=8)]
    policy = ReplayPolicy(priorities=Priorities("priority"))
    assert times(jobs, one_pool(1), policy) == [(2, 3), (3, 4), (1, 2), (0, 1)]


@pytest.mark.parametrize(
    ("resume", "cost_h", "end", "held"),
    [(True, 0, 5, 4), (True, 0.5, 5.5, 4.5), (False, 0, 6, 5), (False, 0.5, 6.5, 5.5)],
)
def test_a_preempted_job_goes_on_or_begins_anew(resume: bool, cost_h: float, end: float, held: float) -> None:  # noqa: FBT001
    """It has run for an hour of four when an urgent one takes its GPUs for an hour."""
    priorities = replace(URGENT, preempt=True, resume=resume, cost_ms=round(cost_h * HOUR_MS))
    jobs = replay_jobs([job(0, 4, 2, kind="training"), job(1, 1, 2, kind="serving")])
    runs = replay(jobs, one_pool(2), ReplayPolicy(priorities=priorities)).runs
    assert in_hours(runs["begin"]) == [0, 1]
    assert in_hours(runs["end"]) == [end, 2]
    assert in_hours(runs["held_ms"]) == [held, 1]
    assert runs["preempted"].to_list() == [1, 0]


def test_the_least_urgent_gives_way_then_who_began_last_and_nobody_in_vain() -> None:
    policy = ReplayPolicy(priorities=replace(URGENT, preempt=True))
    jobs = [
        job(0, 9, 1, kind="training"), job(1, 9, 2, kind="batch"), job(2, 9, 1, kind="batch"), job(3, 1, 2, kind="serving"),
        job(3, 1, 5, kind="serving"),
    ]  # fmt: skip
    runs = replay(replay_jobs(jobs), one_pool(4), policy).runs
    assert runs["preempted"].to_list() == [0, 1, 0, 0, 0]  # the two of the larger one are enough, the smaller one stays
    assert runs["why_not"].to_list() == [None, None, None, None, TOO_WIDE]


def test_deferrable_jobs_come_at_the_next_off_peak_hour_by_the_local_clock() -> None:
    """Paris: UTC+1, from 29 March 2026 on UTC+2; 22:00 to 06:00."""
    moments = {
        datetime(2026, 1, 5, 12, tzinfo=UTC): datetime(2026, 1, 5, 21, tzinfo=UTC),
        datetime(2026, 1, 5, 22, tzinfo=UTC): datetime(2026, 1, 5, 22, tzinfo=UTC),
        datetime(2026, 1, 5, 4, 59, tzinfo=UTC): datetime(2026, 1, 5, 4, 59, tzinfo=UTC),
        datetime(2026, 1, 5, 5, tzinfo=UTC): datetime(2026, 1, 5, 21, tzinfo=UTC),
        datetime(2026, 3, 29, 12, tzinfo=UTC): datetime(2026, 3, 29, 20, tzinfo=UTC),
    }
    policy = ReplayPolicy(off_peak=OffPeakHours(22 * 60, 6 * 60, "Europe/Paris"))
    jobs = replay_jobs([{"asked": to_ms(asked), "is_deferrable": True} for asked in moments])
    found = replay(jobs, one_pool(8), policy).runs
    assert found["arrived"].to_list() == found["begin"].to_list() == [to_ms(each) for each in moments.values()]
    others = jobs.with_columns(is_deferrable=False)
    assert replay(others, one_pool(8), policy).runs["arrived"].to_list() == jobs["asked"].to_list()


def test_an_hour_that_the_clock_skips_begins_an_hour_later() -> None:
    policy = ReplayPolicy(off_peak=OffPeakHours(2 * 60 + 30, 5 * 60, "Europe/Paris"))
    asked = to_ms(datetime(2026, 3, 29, 0, tzinfo=UTC))
    arrived = replay(replay_jobs([{"asked": asked, "is_deferrable": True}]), one_pool(1), policy).runs["arrived"]
    assert arrived.to_list() == [to_ms(datetime(2026, 3, 29, 1, 30, tzinfo=UTC))]


def test_jobs_that_ran_before_the_window_hold_their_gpus_from_their_start() -> None:
    jobs = [job(5, 3, started=-HOUR_MS, before_window=True), job(0, 1), job(0, 1, started=HOUR_MS) | {"asked": None}]
    runs = replay(replay_jobs(jobs), one_pool(1), FIFO).runs
    assert in_hours(runs["arrived"]) == [-1, 0, 1]
    assert in_hours(runs["begin"]) == [-1, 2, 3]


def spells(*pairs: tuple[float, float]) -> list[dict[str, int]]:
    return [{"begin": round(begin * HOUR_MS), "end": round(end * HOUR_MS)} for begin, end in pairs]


def test_an_idle_timeout_ends_jobs_and_says_whom_it_hit() -> None:
    jobs = [
        job(0, 10, idle_spells=spells((1, 2), (6, 10))),
        job(0, 10, idle_spells=spells((1, 4), (6, 10))),
        job(0, 10, idle_spells=spells((1, 2))),
        job(0, 10),
    ]
    runs = replay(replay_jobs(jobs), one_pool(4), ReplayPolicy(idle_timeout_ms=2 * HOUR_MS)).runs
    assert in_hours(runs["end"]) == [8, 3, 10, 10]
    assert in_hours(runs["cut_ms"]) == [2, 7, 0, 0]
    assert runs["worked_later"].to_list() == [False, True, False, False]


def test_smaller_blocks_give_what_was_ever_used() -> None:
    jobs = [job(0, 1, 8, gpus_used=3), job(0, 1, 8, gpus_used=0), job(0, 1, 8), job(0, 1, 16, hosts=2, gpus_used=7)]
    fleet = one_pool(8, hosts=4)
    assert replay(replay_jobs(jobs), fleet, ReplayPolicy(block=2)).runs["gpus"].to_list() == [4, 2, 8, 8]
    assert replay(replay_jobs(jobs), fleet, ReplayPolicy(block=1)).runs["gpus"].to_list() == [3, 1, 8, 7]


TWO_POOLS = ReplayFleet((HostGroup("p", "m", 1, 2), HostGroup("q", "m", 1, 2)))


def test_merged_pools_take_in_each_others_jobs() -> None:
    jobs = [job(0, 4, 2), job(1, 1, 2)]
    assert times(jobs, TWO_POOLS)[1] == (4, 5)
    merged = ReplayPolicy(merge=(("q", "p"),))
    assert times(jobs, TWO_POOLS, merged)[1] == (1, 2)
    assert replay(replay_jobs(jobs), TWO_POOLS, merged).runs["pool"].to_list() == ["q", "q"]


def test_more_or_fewer_gpus_are_hosts_like_those_there() -> None:
    fleet = ReplayFleet((HostGroup("p", "m", 2, 4), HostGroup("p", "m", 1, 8), HostGroup("q", "m", 1, 2)))

    def hosts(gpus: int) -> list[tuple[int, int]]:
        groups = replay(replay_jobs([job(0, 1)]), fleet, ReplayPolicy(gpus={"p": gpus})).fleet.groups
        return [(group.hosts, group.gpus_per_host) for group in groups if group.pool == "p"]

    assert hosts(11) == [(2, 4), (1, 3)]
    assert hosts(22) == [(2, 4), (1, 8), (1, 4), (1, 2)]
    assert hosts(0) == []


def test_a_pool_is_merged_once() -> None:
    three = ReplayFleet((*TWO_POOLS.groups, HostGroup("r", "m", 1, 8)))
    with pytest.raises(UsageError, match="the pool q is merged twice"):
        replay(replay_jobs([]), three, ReplayPolicy(merge=(("p", "q"), ("q", "r"))))
    with pytest.raises(UsageError, match="the pool p is merged twice"):
        replay(replay_jobs([]), three, ReplayPolicy(merge=(("p", "p"),)))


def test_kinds_of_small_work_that_do_not_exist_are_said() -> None:
    with pytest.raises(UsageError, match="small_work_kinds is none of batch, test, notebook, serving"):
        policy_from({"small_work_to": "q", "small_work_kinds": ["tests"]}, "UTC", "x.toml")


def test_small_work_goes_to_what_is_there() -> None:
    with pytest.raises(UsageError, match="small work goes to old, which is no pool or model"):
        replay(replay_jobs([]), TWO_POOLS, ReplayPolicy(small_work=SmallWork("old")))
    with pytest.raises(UsageError, match="small work goes to q"):
        replay(replay_jobs([]), TWO_POOLS, ReplayPolicy(merge=(("p", "q"),), small_work=SmallWork("q")))
    model = TWO_POOLS.groups[0].model
    assert replay(replay_jobs([]), TWO_POOLS, ReplayPolicy(small_work=SmallWork(model))).runs.is_empty()
    assert replay(replay_jobs([]), TWO_POOLS, ReplayPolicy(gpus={"q": 0}, small_work=SmallWork("q"))).runs.is_empty()


def test_a_pool_that_is_not_there_is_said() -> None:
    with pytest.raises(UsageError, match="no pool r; the pools are p, q"):
        replay(replay_jobs([]), TWO_POOLS, ReplayPolicy(gpus={"r": 1}))
    with pytest.raises(UsageError, match="no pool r"):
        replay(replay_jobs([]), TWO_POOLS, ReplayPolicy(merge=(("p", "r"),)))
    with pytest.raises(UsageError, match="the fleet has GPUs of several pools or models"):
        replay(replay_jobs([]), TWO_POOLS, ReplayPolicy(gpus={"": 1}))


def test_other_cards_take_the_jobs_of_their_pool_as_fast_as_is_said() -> None:
    cards = HostGroup("p", "new", 1, 2, mem_bytes=40 * GB, slowdown=0.5)
    jobs = [job(0, 2, mem_bytes=30 * GB), job(0, 2), job(0, 2, mem_bytes=50 * GB), job(0, 2, 4), job(0, 2, 4, hosts=2)]
    found = replay(replay_jobs(jobs), one_pool(8), ReplayPolicy(groups=(cards,))).runs
    assert in_hours(found["end"]) == [1, 1, None, None, None]
    assert found["why_not"].to_list() == [None, None, TOO_LITTLE_MEMORY, TOO_WIDE, TOO_MANY]


def test_jobs_of_a_pool_without_gpus_never_run() -> None:
    assert replay(replay_jobs([job(0, 1, pool="q")]), one_pool(1), FIFO).runs["why_not"].to_list() == [NO_GPUS]


def test_small_work_that_fits_goes_to_older_cards_first_and_waits_for_both() -> None:
    fleet = ReplayFleet((HostGroup("p", "m", 1, 2), HostGroup("old", "o", 1, 1, mem_bytes=16 * GB, slowdown=2.0)))
    jobs = [
        job(0, 1, kind="batch", mem_bytes=8 * GB), job(0, 1, kind="batch", mem_bytes=8 * GB), job(0, 1, mem_bytes=20 * GB),
        job(0, 1, kind="batch"), job(0, 1, kind="batch", mem_bytes=8 * GB),
    ]  # fmt: skip
    runs = replay(replay_jobs(jobs), fleet, ReplayPolicy(small_work=SmallWork("old"))).runs
    assert runs["pool"].to_list() == ["old", "p", "p", "p", "p"]  # too large for it, and of unknown need
    assert in_hours(runs["end"]) == [2, 1, 1, 2, 2]


def test_who_stood_behind_a_job_that_began_elsewhere_begins_at_that_moment() -> None:
    fleet = ReplayFleet((HostGroup("p", "m", 1, 2), HostGroup("old", "o", 1, 2, mem_bytes=16 * GB)))
    jobs = [
        job(0, 10), job(0, 4, 2, pool="old", model="o"), job(1, 1, 2, kind="batch", mem_bytes=8 * GB), job(2, 1),
    ]  # fmt: skip
    assert times(jobs, fleet, ReplayPolicy(small_work=SmallWork("old"))) == [(0, 10), (0, 4), (4, 5), (4, 5)]


@pytest.mark.parametrize("order", ["backfill", "conservative"])
def test_backfill_joins_a_shared_gpu_that_stays_as_long(order: Order) -> None:
    """The second waits for both GPUs; the third goes beside the first, the fourth would keep its GPU longer."""
    fleet = ReplayFleet((HostGroup("p", "m", 1, 2, mem_bytes=80 * GB),))
    small = {"mem_bytes": 8 * GB, "sm_pct": 10.0}
    jobs = [
        job(0, 4, limit=4, **small),
        job(1, 1, 2, limit=1),
        job(2, 2, limit=2, **small),
        job(2, 9, limit=9, **small),
    ]
    assert times(jobs, fleet, ReplayPolicy(order=order, share=3)) == [(0, 4), (4, 5), (2, 4), (5, 14)]


def test_jobs_take_turns_where_their_needs_fit_together() -> None:
    fleet = ReplayFleet((HostGroup("p", "m", 1, 2, mem_bytes=80 * GB),))
    small = {"mem_bytes": 30 * GB, "sm_pct": 20.0}
    jobs = [job(0, 1, **small), job(0, 1, **small), job(0, 1, **small), job(0, 1, 2), job(0.5, 1, **small)]
    found = replay(replay_jobs(jobs), fleet, ReplayPolicy(share=4))
    assert in_hours(found.runs["begin"]) == [0, 0, 0, 1, 2]  # two fit in 72 GB; in order, the last one waits
    assert found.holds.filter(pl.col("number") < 3).select("host", "gpus").rows() == [(0, 0.25)] * 3
    assert times([job(0, 1, mem_bytes=1, sm_pct=50.0)] * 2, ReplayFleet((HostGroup("p", "m", 1, 1, 80 * GB),)), ReplayPolicy(share=2)) == [
        (0, 1), (1, 2),
    ]  # fmt: skip


def test_mig_instances_have_their_places_on_the_card() -> None:
    """3g takes four memory slices of eight: two of them leave no place to a 1g, though a seventh of the SMs is free."""
    fleet = ReplayFleet((HostGroup("p", H100, 1, 1, mem_bytes=80 * GB),))
    three, one = {"mem_bytes": 35 * GB, "sm_pct": 40.0}, {"mem_bytes": 5 * GB, "sm_pct": 10.0}
    jobs = [job(0, 1, model=H100, **each) for each in (three, three, one)]
    found = replay(replay_jobs(jobs), fleet, ReplayPolicy(mig=True))
    assert in_hours(found.runs["begin"]) == [0, 0, 1]
    assert found.holds["gpus"].to_list() == pytest.approx([3 / 7, 3 / 7, 1 / 7])
    ones = [job(0, 1, model=H100, **one)] * 7
    assert times(ones, fleet, ReplayPolicy(mig=True)) == [(0, 1)] * 7
