"""What a pool needs, what it can release, and its one verdict."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from analytics.capacity.peak_demand import MARGIN
from analytics.decide.decisions import after_snoozes
from analytics.decide.review import findings_and_demand
from analytics.language.sentences import ENGLISH
from analytics.tables.verdicts import pool_verdicts, release_sentence, verdict_words
from analytics.workloads.fleet_demand import fleet_demand
from analytics.workloads.model import Confidence
from analytics.workloads.pool_demand import FleetDemand, what_if_reserve
from fallow.clock import DAY_MS
from tests.findings.conftest import context_of, reviewed
from tests.findings.scenarios.builder import H100, L40S, T_END, Fleet, Gpu
from tests.findings.scenarios.situations import train
from tests.lakes import made_lake

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from analytics.workloads.pool_demand import PoolDemand
    from fallow.lake import Lake


def hosts_of_eight(number: int = 2, days: float = 29) -> tuple[Fleet, list[Gpu]]:
    fleet = Fleet(days, interval_s=3600)
    return fleet, [gpu for host in range(number) for gpu in fleet.host(f"h{host + 1}", H100, 8)]


def uuids(gpus: Sequence[Gpu]) -> tuple[str, ...]:
    return tuple(gpu.uuid for gpu in gpus)


def pool_in(fleet: Fleet | Lake, going: Sequence[Gpu] = (), snoozed: Sequence[Gpu] = ()) -> PoolDemand:
    """The one pool of a fleet, or of a lake, in which findings say that these GPUs may go."""
    site = fleet.recording() if isinstance(fleet, Fleet) else fleet
    [found] = fleet_demand(context_of(site), uuids(going), uuids(snoozed)).pools
    assert found.release is not None
    return found


def test_the_release_is_what_peak_and_reserve_leave_whole_hosts_first() -> None:
    fleet, gpus = hosts_of_eight()
    train(fleet, gpus[:3], "ann")
    train(fleet, gpus[3:5], "ann", fleet.daily(10, 14), job="1002")
    pool = pool_in(fleet)
    assert pool.peak is not None
    assert pool.release is not None
    assert (pool.gpus, pool.free_now, pool.peak.peak, pool.history_days) == (16, 13, 5, 28)
    assert pool.releasable == 16 - math.ceil(5 * 1.15 * (1 + 1 / 28)) == 10
    assert {host: len(own) for host, own in pool.release.by_host.items()} == {"h2": 8, "h1": 2}
    assert pool.release.whole_hosts == ("h2",)
    assert set(pool.release.now) <= set(uuids(gpus[5:]))
    assert (pool.verdict.kind, pool.verdict.gpus, pool.confidence.grade) == ("release", 10, "high")
    assert pool.free_now == (pool.reserve or 0) + (pool.growth or 0) + (pool.kept_for_hosts or 0) + pool.releasable


def test_a_held_gpu_is_demand_until_a_finding_says_that_it_may_go() -> None:
    """Bob holds seven GPUs of the second host: it is not whole, and goes only once he releases them."""
    fleet, gpus = hosts_of_eight()
    train(fleet, gpus[:3], "ann")
    fleet.run(gpus[8:15], "bob", mem_gb=5)
    held, going = pool_in(fleet), pool_in(fleet, gpus[8:15])
    assert held.peak is not None
    assert going.peak is not None
    assert going.release is not None
    assert (held.peak.peak, held.reclaimable, held.releasable) == (10, {}, 16 - math.ceil(10 * 1.15 * 29 / 28))
    assert going.peak.peak == 3
    assert going.reclaimable == {"bob": uuids(gpus[8:15])}
    assert going.releasable == 16 - math.ceil(3 * 1.15 * 29 / 28) == 12
    assert set(going.release.now) == set(uuids((*gpus[3:8], gpus[15])))
    assert len(going.release.reclaim["bob"]) == 6
    assert going.release.whole_hosts == ()
    assert (going.verdict.kind, going.verdict.gpus) == ("release", 6)


@pytest.mark.parametrize("beside", ["instance", "model", "broken"])
def test_a_host_is_not_whole_while_anything_else_is_on_it(beside: str) -> None:
    """The pool does not need h2's seven free GPUs; the eighth is split and in use, of another model in use, or lost."""
    fleet, gpus = hosts_of_eight(1)
    train(fleet, gpus[:2], "ann")
    second = fleet.host("h2", H100, 7 if beside == "model" else 8)
    if beside == "instance":
        train(fleet, fleet.split(second[7], "3g.40gb", "3g.40gb")[:1], "bob", job="2")
    elif beside == "model":
        [other] = fleet.host("spare", L40S, 1)
        other.move(second[0].host, fleet.always)
        train(fleet, other, "bob", job="2")
    else:
        second[7].is_in(fleet.between(-1), "lost")
    pool = next(each for each in fleet_demand(context_of(fleet.recording()), ()).pools if each.model == H100.model)
    assert pool.release is not None
    assert set(uuids(second[:7])) <= set(pool.release.now)
    assert pool.release.whole_hosts == ()


def test_a_card_that_was_replaced_leaves_its_host_a_block_of_eight() -> None:
    """A job has all of h1 at night, others four GPUs of each host by day: one of three hosts has to stay whole."""
    fleet, gpus = hosts_of_eight(3)
    [old] = fleet.host("spare", H100, 1)
    old.move(gpus[0].host, fleet.between(0, 4))
    old.absent(fleet.between(4))
    train(fleet, gpus[:8], "ann", fleet.daily(1, 4))
    train(fleet, [*gpus[:4], *gpus[8:12], *gpus[16:20]], "bob", fleet.daily(6, 24), job="1002")
    pool = pool_in(fleet)
    assert pool.release is not None
    assert (pool.free_now, pool.growth, pool.kept_for_hosts) == (12, 0, 1)
    assert len({pool.release.host_of[gpu] for gpu in pool.release.now}) == 2


def test_the_days_a_pool_was_observed_are_those_of_the_last_month() -> None:
    """It was observed for two weeks, then hardly for four: since three days it is again, and is known in four more."""
    fleet, gpus = hosts_of_eight(1, 45)
    train(fleet, gpus[:3], "ann")
    fleet.hosts[0].outage(fleet.between(-31, -3))
    [pool] = fleet_demand(context_of(fleet.recording()), ()).pools
    assert pool.release is None
    assert pool.history_days == pytest.approx(3, abs=0.1)
    assert pool.known_from_ms == pytest.approx(T_END + 4 * DAY_MS, abs=DAY_MS // 10)


def test_where_nothing_is_free_users_release_first() -> None:
    fleet, gpus = hosts_of_eight(1)
    train(fleet, gpus[:3], "ann")
    fleet.run(gpus[3:], "bob", mem_gb=5)
    pool = pool_in(fleet, gpus[3:])
    assert (pool.free_now, pool.verdict.kind, pool.verdict.gpus) == (0, "reclaim", 4)


def with_queue(fleet: Fleet, folder: Path, gpus: int) -> Lake:
    """The lake of a fleet in which bob waits for GPUs of h1 for most of each day, and has them for six hours."""
    for day in range(28):
        asked = T_END - (day + 1) * DAY_MS
        times = {"submitted": asked, "eligible": asked, "gpu_count": gpus}
        fleet.allocation(fleet.gpus[:gpus], "bob", -day - 0.25, -day - 0.01, allocation_id=f"w{day}", **times)
    return fleet.write(made_lake(folder / "lake"))


def test_a_full_pool_keeps_and_orders_what_jobs_wait_for(tmp_path: Path) -> None:
    fleet, gpus = hosts_of_eight(1)
    train(fleet, gpus, "ann")
    full, queued = pool_in(fleet), pool_in(with_queue(fleet, tmp_path, 2))
    assert queued.peak is not None
    assert (full.releasable, full.verdict.kind, full.verdict.order_by) == (0, "keep", None)
    assert (queued.peak.peak, queued.releasable, queued.verdict.kind, queued.verdict.gpus) == (10, 0, "order", 2)
    assert queued.verdict.order_by is not None
    # GPUs may be free while jobs that need more wait: the sentence is about demand
    assert str(verdict_words(queued)).endswith("now: demand, with queued jobs, takes every GPU")


def test_demand_that_is_about_to_grow_is_kept_for() -> None:
    """Two GPUs more each week: the forecast of the next quarter takes all sixteen, though four are free today."""
    fleet, gpus = hosts_of_eight(2, 43)
    for week in range(6):
        train(fleet, gpus[2 * week : 2 * week + 2], "ann", fleet.between(7 * week), job=str(week))
    pool = pool_in(fleet)
    assert pool.growth
    assert pool.free_now == (pool.reserve or 0) + pool.growth + (pool.releasable or 0) + (pool.kept_for_hosts or 0)
    assert pool.verdict.kind != "release"
    assert {each.releasable for each in pool.reserves if each.margin == MARGIN} == {pool.releasable}


def test_snoozed_gpus_stay_and_none_takes_their_place() -> None:
    fleet, gpus = hosts_of_eight()
    train(fleet, gpus[:3], "ann")
    before = pool_in(fleet)
    assert before.release is not None
    pool = pool_in(fleet, snoozed=gpus[8:12])
    assert pool.release is not None
    assert (pool.snoozed, pool.releasable) == (4, (before.releasable or 0) - 4)
    assert set(pool.release.now) == set(before.release.now) - set(uuids(gpus[8:12]))
    assert pool.release.whole_hosts == ()


def test_held_gpus_of_a_snoozed_finding_are_demand() -> None:
    fleet, gpus = hosts_of_eight()
    train(fleet, gpus[:3], "ann")
    fleet.run(gpus[8:12], "bob", mem_gb=5)
    review = reviewed(fleet.recording())
    [own] = [each for each in review.findings if each.rule == "held"]
    review = replace(review, fleet=fleet_demand(review.context, uuids(gpus[8:12])))
    snoozed = replace(own, status="snoozed", reclaimable_gpus=uuids(gpus[8:12]))
    kept = after_snoozes(replace(review, findings=(snoozed,)))
    assert sum(len(users) for users in review.fleet.pools[0].reclaimable.values()) == 4
    assert (kept.reclaimable_now, kept.pools[0].reclaimable) == (0, {})
    assert kept.releasable < review.fleet.releasable


@pytest.mark.parametrize(("gpus", "days", "grade"), [(0, 0.0, "high"), (1, 0.3, "medium"), (8, 1.25, None)])
def test_a_shortfall_lowers_the_confidence_and_one_beyond_the_reserve_releases_nothing(
    gpus: int, days: float, grade: str | None
) -> None:
    """Of 16 GPUs 4 were in demand, one more was kept, and for some hours of the last week 5 were in demand, or 13."""
    fleet, there = hosts_of_eight()
    train(fleet, there[:4], "ann")
    if gpus:
        train(fleet, there[4 : 5 + gpus], "bob", fleet.between(-3, -3 + days), job="1002")
    [pool] = fleet_demand(context_of(fleet.recording()), ()).pools
    assert pool.backtest is not None
    assert bool(pool.backtest.shortfall_hours) == (gpus > 0)
    assert {each.releasable for each in pool.reserves if each.margin == MARGIN} == {pool.releasable}
    if grade is None:
        assert (pool.releasable, pool.verdict.kind) == (0, "keep")
    else:
        assert (bool(pool.releasable), pool.confidence.grade) == (True, grade)


def test_unused_gpus_of_a_pool_with_a_low_confidence_count_once() -> None:
    """Its reserve is none that is known: its free GPUs are those whose demand is not known."""
    fleet, there = hosts_of_eight()
    train(fleet, there[:3], "ann")
    pool = pool_in(fleet)
    unsure = FleetDemand.of([pool.graded(Confidence(("one", "two", "three", "four")))])
    assert (unsure.pools[0].verdict.kind, unsure.demand_unknown) == ("unknown", pool.free_now)
    assert what_if_reserve(unsure, MARGIN).releasable is None
    assert_adds_up(unsure)


def test_production_keeps_for_more_hours() -> None:
    fleet = Fleet(29, interval_s=1800)
    for eight in (fleet.host("h1", H100, 8, pool="production"), fleet.host("h2", L40S, 8, pool="train")):
        train(fleet, eight[:2], "ann")
        train(fleet, eight[2], "bob", fleet.every(48, 1), job="1002")  # 3 % of the hours with their half hour after
    found = fleet_demand(context_of(fleet.recording()), ())
    assert {pool.pool: pool.peak and pool.peak.peak for pool in found.pools} == {"production": 3, "train": 2}
    assert {pool.pool: pool.peak and pool.peak.highest for pool in found.pools} == {"production": 3, "train": 3}
    verdicts = pool_verdicts(found)
    assert verdicts is not None
    assert "peak demand" in {each.name for each in verdicts.terms}, "a peak below the highest demand needs its meaning"


def test_gpus_that_may_be_allocated_by_count_are_not_free() -> None:
    fleet, gpus = hosts_of_eight(1)
    train(fleet, gpus[:1], "ann")
    sure = pool_in(fleet)
    fleet.allocation(gpus[:1], "eve", 1, allocation_id="count", gpu=None, host_gpu_count=3, gpu_count=3)
    [pool] = fleet_demand(context_of(fleet.recording()), ()).pools
    assert (sure.uncertain, pool.uncertain, pool.free_now) == (0, 7, 0)


# --- over random fleets -----------------------------------------------------------------------------------------------


def random_fleet(seed: int) -> Fleet:
    """Two pools of two hosts on which some work in days and nights, some hold, some come and go."""
    rng = np.random.default_rng(seed)
    fleet = Fleet(float(rng.choice([6, 16, 29])), interval_s=3600)
    for pool in ("train", "prod"):
        gpus = [gpu for host in range(2) for gpu in fleet.host(f"{pool}{host}", H100, 8, pool=pool)]
        at = 0
        while at < len(gpus):
            own, at = gpus[at : at + int(rng.integers(1, 5))], at + int(rng.integers(1, 5))
            user = f"u{rng.integers(6)}"
            kind = rng.choice(["busy", "nights", "held", "left", "free"])
            if kind == "busy":
                train(fleet, own, user, job=f"{pool}{at}")
            elif kind == "nights":
                train(fleet, own, user, fleet.daily(0, int(rng.integers(2, 20))), job=f"{pool}{at}")
            elif kind == "held":
                fleet.run(own, user, mem_gb=5)
            elif kind == "left":
                fleet.run(own, user, fleet.between(0, float(rng.uniform(1, 5))), util=90.0)
    return fleet


def assert_adds_up(fleet: FleetDemand) -> None:
    if (what_if := what_if_reserve(fleet, MARGIN)).pools:
        assert what_if.releasable == fleet.releasable
    for pool in fleet.pools:
        assert pool.verdict.kind in {"release", "reclaim", "order", "keep", "unknown"}
        if pool.release is None:
            assert pool.verdict.kind == "unknown"
            continue
        kept = (pool.reserve or 0) + (pool.growth or 0) + (pool.kept_for_hosts or 0) + pool.snoozed
        assert pool.free_now + pool.reclaimable_now == kept + pool.release.gpus
        assert len(pool.release.now) <= pool.free_now
        assert set(pool.release.later) <= {gpu for own in pool.reclaimable.values() for gpu in own}
        if pool.verdict.kind == "order":
            assert not pool.release.gpus
        if pool.release.gpus:
            assert pool.verdict.kind in {"release", "reclaim"}
            assert pool.outlook.full is None or pool.outlook.full.likely is None
    sentence = ENGLISH.translate(release_sentence(fleet))
    assert ("more once released by" in sentence) == bool(fleet.release_later)
    unused = fleet.free_now + fleet.reclaimable_now
    kept = fleet.demand_unknown + fleet.reserve + fleet.growth + fleet.kept_for_hosts + fleet.snoozed
    assert unused == kept + fleet.releasable


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 6))])
def test_no_pool_is_both_to_release_and_to_order_and_gpus_add_up(seed: int) -> None:
    context = context_of(random_fleet(seed).recording())
    findings, fleet = findings_and_demand(context)
    assert_adds_up(fleet)
    last = dict(context.inside.segments.sort("end").select("gpu", "state").iter_rows())
    assert all(last[gpu] == "free" for gpu in fleet.released)
    assert {finding.pool for finding in findings if finding.pool} <= {
        pool.key for pool in fleet.pools if pool.verdict.kind == "release"
    }
