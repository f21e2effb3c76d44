"""For all jobs, fleets and policies: no GPU is held twice, every job that fits runs; host room against a plain twin."""

from __future__ import annotations

from itertools import combinations

import polars as pl
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from analytics.plan.replay.engine import Replayed, replay
from analytics.plan.replay.host_room import Hold, HostRoom, RoomAhead
from analytics.plan.replay.policy import ORDERS, Priorities, ReplayPolicy, SmallWork
from analytics.plan.replay.replay_fleet import HostGroup, ReplayFleet
from tests.plan.queueing import replay_jobs

GB = 10**9
PLACES = st.tuples(st.sampled_from("pq"), st.sampled_from(["m", "NVIDIA H100 80GB HBM3"]))
SIZES = st.tuples(st.integers(1, 6), st.integers(1, 3)).map(lambda size: (max(size), size[1]))


FACTS = st.fixed_dictionaries(
    {
        "asked": st.integers(0, 30),
        "ran_ms": st.integers(0, 20),
        "limit_ms": st.none() | st.integers(1, 25),
        "kind": st.sampled_from([None, "serving", "batch"]),
        "mem_bytes": st.sampled_from([None, 5 * GB, 30 * GB]),
        "sm_pct": st.sampled_from([None, 10.0, 45.0]),
    }
)


@st.composite
def a_job(draw: st.DrawFn) -> dict[str, object]:
    (pool, model), (gpus, hosts) = draw(PLACES), draw(SIZES)
    return {"pool": pool, "model": model, "gpus": gpus, "hosts": hosts, **draw(FACTS)}


GROUPS = st.tuples(PLACES, st.integers(1, 3), st.integers(1, 4)).map(
    lambda drawn: HostGroup(*drawn[0], *drawn[1:], mem_bytes=80 * GB)
)
POLICIES = st.builds(
    ReplayPolicy,
    order=st.sampled_from(ORDERS),
    priorities=st.none()
    | st.builds(Priorities, st.just("kind"), st.just(("serving",)), st.booleans(), st.booleans(), st.integers(0, 5)),
    share=st.sampled_from([1, 3]),
    mig=st.booleans(),
    small_work=st.none() | st.just(SmallWork("q")),
)


def most_held(replayed: Replayed) -> pl.DataFrame:
    """The most GPUs of each host that are held at once: `pool`, `model`, `host` and `most`."""
    holds = replayed.holds.filter(pl.col("end") > pl.col("time"))
    place = ("pool", "model", "host")
    begun = holds.select(*place, at="time", change=pl.col("gpus"))
    ended = holds.select(*place, at="end", change=-pl.col("gpus"))
    changes = pl.concat([begun, ended]).group_by(*place, "at").agg(pl.col("change").sum()).sort("at")
    return changes.group_by(place).agg(most=pl.col("change").cum_sum().max())


@given(st.lists(a_job(), max_size=25), st.lists(GROUPS, min_size=1, max_size=4), POLICIES)
def test_no_gpu_is_held_twice_and_who_can_run_runs(
    rows: list[dict[str, object]], groups: list[HostGroup], policy: ReplayPolicy
) -> None:
    assume(policy.small_work is None or "q" in {group.pool for group in groups})
    jobs = replay_jobs(rows)
    found = replay(jobs, ReplayFleet(tuple(groups)), policy)
    widths = {}
    for group in sorted(groups, key=lambda group: policy.small_work is not None and group.pool != "q"):
        widths.setdefault((group.pool, group.model), []).extend([group.gpus_per_host] * group.hosts)
    for pool, model, host, most in most_held(found).iter_rows():
        assert most <= widths[pool, model][host] + 1e-9
    runs = found.runs.with_columns(ran_ms=jobs["ran_ms"])
    assert (runs["begin"].is_null() == runs["why_not"].is_not_null()).all()
    ran = runs.drop_nulls("begin")
    assert (ran["begin"] >= ran["arrived"]).all()
    assert (ran["end"] - ran["begin"] >= ran["held_ms"]).all()
    assert (ran["held_ms"] >= ran["ran_ms"]).all()
    undisturbed = ran.filter(pl.col("preempted") == 0)
    assert (undisturbed["held_ms"] == undisturbed["ran_ms"]).all()


@given(st.lists(a_job(), max_size=25), st.integers(1, 3), st.integers(1, 4))
def test_backfill_never_delays_the_first_that_waits(rows: list[dict[str, object]], hosts: int, gpus: int) -> None:
    """All come at once with limits that they use up: the first without room begins when it would in order."""
    # a job that takes no time makes others wait for none, which their begin does not show
    jobs = replay_jobs([row | {"ran_ms": 1 + int(str(row["ran_ms"]))} for row in rows]).with_columns(
        asked=pl.lit(0, pl.Int64), limit_ms="ran_ms", pool=pl.lit("p"), model=pl.lit("m")
    )
    fleet = ReplayFleet((HostGroup("p", "m", hosts, gpus),))
    in_order, *others = (replay(jobs, fleet, ReplayPolicy(order=order)).runs for order in ORDERS)
    first = in_order.filter(pl.col("begin") > 0).head(1)
    for early in others:
        assert early.join(first.select("number"), on="number")["begin"].to_list() == first["begin"].to_list()


WIDEST = 4
FREE = st.lists(st.integers(0, WIDEST), min_size=1, max_size=5)
ASKED = st.tuples(st.integers(1, 8), st.integers(1, 3)).filter(lambda asked: asked[0] >= asked[1])
"""GPUs, and over how many hosts."""
FEW = st.sampled_from([(1, 1), (2, 1), (4, 1), (3, 2)])
"""Few shapes, so that jobs of one shape come again: what was found for it before must not hide a later room."""


def shares(gpus: int, hosts: int) -> list[int]:
    """As even as can be, the larger ones first."""
    return [gpus // hosts + (place < gpus % hosts) for place in range(hosts)]


def has_room(free: list[int], gpus: int, hosts: int) -> bool:
    """Whether any choice of hosts has room: the hosts with the most free GPUs take the larger shares."""
    wanted = shares(gpus, hosts)
    return any(
        all(there >= share for there, share in zip(sorted(chosen, reverse=True), wanted, strict=True))
        for chosen in combinations(free, hosts)
    )


def fullest(free: list[int], gpus: int, hosts: int) -> int:
    """The fewest free GPUs on hosts that have room together: emptier hosts stay for larger jobs."""
    return min(sum(chosen) for chosen in combinations(free, hosts) if has_room(list(chosen), gpus, hosts))


def holds_what_was_asked(hold: Hold, free: list[int], gpus: int, hosts: int) -> bool:
    return (
        len({host for host, _ in hold}) == hosts
        and sorted((share for _, share in hold), reverse=True) == shares(gpus, hosts)
        and all(share <= free[host] for host, share in hold)
    )


def free_between(widths: list[int], spans: list[tuple[int, int, int, int]], start: int, until: int) -> list[int]:
    """The GPUs of each host that nobody has at any moment of [start, until); spans have begin, end, host and GPUs."""
    return [
        min(
            width - sum(gpus for since, end, own, gpus in spans if own == host and since <= moment < end)
            for moment in range(start, until)
        )
        for host, width in enumerate(widths)
    ]


@given(FREE, st.lists(ASKED, max_size=6), st.data())
def test_a_job_finds_room_wherever_any_choice_of_hosts_has_it(
    free: list[int], asked: list[tuple[int, int]], data: st.DataObject
) -> None:
    room, there, taken = HostRoom(free, WIDEST), list(free), list[Hold]()
    for gpus, hosts in asked:
        hold = room.fit(gpus, hosts)
        assert (hold is not None) == has_room(there, gpus, hosts)
        if hold is not None:
            assert holds_what_was_asked(hold, there, gpus, hosts)
            assert sum(there[host] for host, _ in hold) == fullest(there, gpus, hosts)
            room.take(hold)
            taken.append(hold)
        if taken and data.draw(st.booleans()):
            room.give_back(taken.pop(0))
        held = [(host, share) for hold in taken for host, share in hold]
        there = [each - sum(share for own, share in held if own == host) for host, each in enumerate(free)]
        assert room.free == there


@settings(max_examples=60)
@given(
    st.lists(st.integers(1, WIDEST), min_size=1, max_size=3),
    st.lists(st.tuples(FEW, st.integers(1, 9)), min_size=3, max_size=7),
    st.data(),
)
def test_a_reservation_begins_at_the_first_moment_with_room_for_as_long_as_it_lasts(
    widths: list[int], jobs: list[tuple[tuple[int, int], int]], data: st.DataObject
) -> None:
    """Of GPUs that come free one by one, and reservations that take some of them again."""
    until = st.integers(0, 9)
    busy = [(host, data.draw(until)) for host, width in enumerate(widths) for _ in range(width)]
    busy = [each for each in busy if each[1]]
    now_free = [width - sum(host == own for own, _ in busy) for host, width in enumerate(widths)]
    ends = sorted((end, ((host, 1),)) for host, end in busy)
    room = RoomAhead(0, now_free, WIDEST, ends)
    spans = [(0, end, host, 1) for host, end in busy]
    for (gpus, hosts), lasting in jobs:
        if not has_room(widths, gpus, hosts):
            continue
        first = next(
            start for start in range(100) if has_room(free_between(widths, spans, start, start + lasting), gpus, hosts)
        )
        start, hold = room.reserve(gpus, hosts, lasting)
        assert start == first
        there = free_between(widths, spans, start, start + lasting)
        assert holds_what_was_asked(hold, there, gpus, hosts)
        assert sum(there[host] for host, _ in hold) == fullest(there, gpus, hosts)
        spans += [(start, start + lasting, host, share) for host, share in hold]


def test_a_shorter_job_begins_before_a_longer_one_of_its_shape() -> None:
    """One GPU until another comes free at 3; both are reserved from then on, and the longer job does not fit before."""
    room = RoomAhead(0, [1], 2, [(3, ((0, 1),))])
    assert [room.reserve(gpus, 1, lasting)[0] for gpus, lasting in ((2, 2), (1, 5), (1, 2))] == [3, 5, 0]
