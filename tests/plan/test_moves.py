"""Which work moves to make room: by hand, and against every way there is."""

from __future__ import annotations

import itertools
import random

import pytest

from analytics.plan.moves import Moves, Occupant, OccupiedHost, moves_for

HOUR = 3_600_000


def piece(host: str, gpus: int, *, idle: bool = False, movable: bool = True, hours: int = 1) -> Occupant:
    return Occupant(host, "mei", f"slurm:{host}{gpus}{hours}", gpus, idle, movable, hours * gpus * HOUR)


def of(name: str, free: int, *occupants: Occupant, width: int = 4) -> OccupiedHost:
    return OccupiedHost(name, width, free, occupants)


def test_the_smaller_piece_moves_to_where_it_fits() -> None:
    hosts = [of("a", 2, piece("a", 2)), of("b", 3, piece("b", 1)), of("c", 0, piece("c", 4))]
    found = moves_for(hosts, 4)
    assert found is not None
    assert found.hosts == ("b",)
    assert [(each.gpus, to) for each, to in found.moved] == [(1, "a")]
    assert (found.moved_gpus, found.asked_gpus, found.lost_ms, found.is_least) == (1, 0, HOUR, True)


def test_who_holds_idle_gpus_is_asked_before_anything_moves() -> None:
    hosts = [of("a", 3, piece("a", 1)), of("b", 1, piece("b", 3, idle=True)), of("c", 2)]
    found = moves_for(hosts, 4)
    assert found is not None
    assert (found.hosts, found.moved, [each.host for each in found.asked]) == (("b",), (), ["b"])


@pytest.mark.parametrize(
    "hosts",
    [
        [of("a", 3, piece("a", 1)), of("b", 0, piece("b", 4))],  # nowhere to go
        [of("a", 3, piece("a", 1, movable=False)), of("b", 3, piece("b", 1, movable=False))],
        [of("a", 3), of("b", 3)],  # a GPU of each is broken
        [],
    ],
)
def test_no_move_makes_room(hosts: list[OccupiedHost]) -> None:
    assert moves_for(hosts, 4) is None


def test_a_job_larger_than_a_host_takes_whole_hosts() -> None:
    hosts = [of("a", 4), of("b", 2, piece("b", 2)), of("c", 2, piece("c", 1), piece("c", 1, hours=2))]
    found = moves_for(hosts, 8)
    assert found is not None
    assert set(found.hosts) == {"a", "b"}
    assert [to for _, to in found.moved] == ["c"]
    assert moves_for(hosts, 12) is None


def test_no_other_way_moves_fewer() -> None:
    numbers = random.Random(4)  # noqa: S311  # an example generator
    with_moves = 0
    for _ in range(150):
        hosts = [_drawn(name, numbers) for name in ("a", "b", "c")]
        size = numbers.choice((2, 3, 4, 4, 8))
        found, least = moves_for(hosts, size), _least(hosts, size)
        assert (None if found is None else (found.moved_gpus, found.asked_gpus)) == least, (hosts, size)
        with_moves += bool(found and found.moved)
        if found:
            _holds(hosts, found, size)
    assert with_moves > 5


def _drawn(name: str, numbers: random.Random) -> OccupiedHost:
    left, there = 4 - numbers.choice((0, 0, 1)), []
    while left and numbers.random() < 0.8:
        gpus = numbers.randint(1, min(2, left))
        there.append(
            piece(name, gpus, idle=numbers.random() < 0.1, movable=numbers.random() < 0.8, hours=len(there) + 1)
        )
        left -= gpus
    return of(name, left, *there)


def _holds(hosts: list[OccupiedHost], found: Moves, size: int) -> None:
    free = {host.name: host.free for host in hosts}
    for each, to in found.moved:
        assert to not in found.hosts
        free[to] -= each.gpus
        free[each.host] += each.gpus
    for each in found.asked:
        free[each.host] += each.gpus
    assert min(free.values()) >= 0
    assert all(free[name] >= min(size, 4) for name in found.hosts)
    assert len(found.hosts) == -(-size // 4)


def _least(hosts: list[OccupiedHost], size: int) -> tuple[int, int] | None:
    """The least (moved, asked) of all ways: each piece stays, lets go, or goes to some other host."""
    pieces = [each for host in hosts for each in host.occupants if each.is_movable]
    best: tuple[int, int] | None = None
    for where in itertools.product(*[("", "!") if each.is_idle else ("", *"abc") for each in pieces]):
        free = {host.name: host.free for host in hosts}
        left = {each.host for each, to in zip(pieces, where, strict=True) if to}
        if any(to == each.host or to in left for each, to in zip(pieces, where, strict=True)):
            continue
        full = dict(free)
        for each, to in zip(pieces, where, strict=True):
            full[each.host] += each.gpus if to else 0
            if to and to != "!":
                full[to] -= each.gpus
        if min(full.values()) < 0:
            continue
        targets = {to for to in where if to and to != "!"}
        rooms = [name for name, count in full.items() if count >= min(size, 4) and name not in targets]
        if len(rooms) >= -(-size // 4):
            moved = sum(each.gpus for each, to in zip(pieces, where, strict=True) if to and to != "!")
            asked = sum(each.gpus for each, to in zip(pieces, where, strict=True) if to == "!")
            best = min(best or (99, 99), (moved, asked))
    return best
