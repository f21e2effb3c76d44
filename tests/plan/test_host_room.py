"""Room on hosts, now and ahead, against a twin that looks at every host at every moment."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.plan.replay.host_room import Hold, HostRoom, RoomAhead

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
    """There is one GPU until another comes free at 3; both are reserved from then on, and the longer job does not fit before."""
    room = RoomAhead(0, [1], 2, [(3, ((0, 1),))])
    assert [room.reserve(gpus, 1, lasting)[0] for gpus, lasting in ((2, 2), (1, 5), (1, 2))] == [3, 5, 0]
