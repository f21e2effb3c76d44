"""Which jobs could start in a pool, fragmentation, a check against jobs that came, and moves that make room."""

from __future__ import annotations

import itertools
import random

import polars as pl
import pytest

from analytics.capacity.jobs import JOB_SCHEMA
from analytics.plan.room_for_jobs import (
    Fragmentation,
    Moves,
    Occupant,
    OccupiedHost,
    PoolRoom,
    RoomCheck,
    fragments,
    moves_for,
    pool_rooms,
)
from analytics.tables.plan_defrag import room_for_jobs, room_sentence
from fallow.clock import HOUR_MS, MINUTE_MS

TEXTS = dict.fromkeys(("pool", "model", "host", "gpu", "state", "user", "job"), pl.String)
SCHEMA = (
    TEXTS | dict.fromkeys(("time", "end", "segment_start"), pl.Int64) | {"instance": pl.Boolean, "rate": pl.Float64}
)
DAY = (0, 24 * HOUR_MS)
Rows = list[dict[str, object]]


def rows(host: str, states: str, job: str | None = "slurm:7", span: tuple[int, int] = DAY) -> Rows:
    """A GPU of a host for each state by its first letter; without a job nobody knows whose those in use are."""
    shared = {"pool": "p", "model": "H100", "host": host, "time": span[0], "end": span[1], "segment_start": span[0]}
    shared |= {"gpu_share": 1.0, "instance": False, "rate": 2.0}
    found: Rows = []
    for place, letter in enumerate(states):
        state = {"a": "active", "f": "free", "h": "held", "u": "unknown"}[letter]
        is_used = letter in "ah"
        whose = {"user": "mei" if is_used and job else None, "job": job or f"slurm:{host}" if is_used else None}
        found.append({**shared, "gpu": f"{host}-{place}", "state": state, **whose})
    return found


def job(came: int, start: int | None, gpus: int, *hosts: str) -> dict[str, object]:
    return {"job": "1", "submitted": came, "start": start, "gpus": gpus, "hosts": list(hosts)}


def room(placed: Rows, *jobs: dict[str, object], sizes: tuple[int, ...] = (2, 4)) -> PoolRoom:
    frame = pl.DataFrame(jobs, schema=JOB_SCHEMA)
    ledger = pl.DataFrame(placed, schema=SCHEMA | {"gpu_share": pl.Float64})
    [found] = pool_rooms(ledger, frame, DAY, 30 * MINUTE_MS, sizes)
    return found


def test_what_moves_is_priced_by_what_it_has_run() -> None:
    two, four = room(rows("a", "afff") + rows("b", "aaff", "slurm:8")).sizes
    assert (two.gang.now, two.moves) == (2, None)
    assert four.moves is not None
    [(moved, target)] = four.moves.moved
    assert (moved.job, target, four.moves.lost_ms) == ("slurm:7", "b", 24 * HOUR_MS)


@pytest.mark.parametrize(
    ("more", "asked"),
    [({"state": "held"}, 1), ({"state": "held", "segment_start": 24 * HOUR_MS - 10 * MINUTE_MS}, 0), ({}, 0)],
    ids=["held", "held of late", "active"],
)
def test_only_who_holds_a_gpu_for_long_is_asked_for_it(more: dict[str, object], asked: int) -> None:
    first, *others = rows("a", "afff")
    four = room([first | more, *others]).sizes[1]
    assert (0 if four.moves is None else four.moves.asked_gpus) == asked
    assert four.missing_gpus == 1 - asked


def test_a_job_on_two_hosts_does_not_move_and_gpus_that_nobody_sees_are_not_free() -> None:
    assert room(rows("a", "afff") + rows("b", "afff")).sizes[1].moves is None
    assert room(rows("a", "afff") + rows("b", "ffff")).sizes[1].gang.now
    found = room(rows("a", "ufff"))
    assert (found.gpus, found.free, found.sizes[1].gang.now, found.sizes[1].gang.now_most) == (4, 3, 0, 1)


def test_the_sizes_of_the_jobs_that_came_say_what_lies_apart() -> None:
    placed = rows("a", "ffaa") + rows("b", "faaa", "slurm:8")
    jobs = [job(0, 0, 2, "a"), job(0, 0, 8, "a", "b"), job(0, 0, 1, "b"), job(0, 0, 1, "b")]  # pieces: 2, 4, 4, 1, 1
    found = room(placed, *jobs).fragmentation
    assert found.pieces == 5
    assert [found.now, found.mean] == pytest.approx([(2 * 2 / 5 + 1 * 3 / 5) / 3] * 2)
    assert room(placed).fragmentation == Fragmentation(None, None, 0), "no job, no size, no share"


def test_jobs_that_came_are_held_against_the_room_there_was() -> None:
    noon = 12 * HOUR_MS
    placed = rows("a", "ff", span=(0, noon)) + rows("a", "aa", span=(noon, 24 * HOUR_MS))
    jobs = [
        job(HOUR_MS, HOUR_MS + MINUTE_MS, 2, "a"),  # room, at once
        job(2 * HOUR_MS, 3 * HOUR_MS, 1, "a"),  # room, waited
        job(noon + HOUR_MS, 20 * HOUR_MS, 2, "a"),  # no room, waited
        job(noon, noon, 2, "a"),  # began in the moment in which it came: there was room just before
        job(HOUR_MS, HOUR_MS, 4, "a"),  # more than there is, and yet it began
        job(HOUR_MS, None, 2),  # never began: nobody knows where it would have
    ]
    assert room(placed, *jobs).check == RoomCheck(2, 1, 1, 1)


@pytest.mark.parametrize(
    ("states", "size", "said", "missing"),
    [
        ("aa", 1, "no GPU is free", [1]),
        ("fa", 2, "No job of 2 GPUs or more could start", [1]),
        ("ff", 3, "No job of 3 GPUs or more could start", [2]),  # two whole hosts
        ("ff", 9, "No pool has enough GPUs of one model for a job of that size", []),
    ],
)
def test_the_headline_says_why_no_job_could_start(states: str, size: int, said: str, missing: list[int]) -> None:
    """Whose the others are nobody knows: they stay."""
    found = room(rows("a", states, None) + rows("b", "aa", None), sizes=(size,))
    assert said in str(room_sentence([found]))
    assert "reclaimable only if a finding also says" in str(room_for_jobs([found]).notes)
    assert [each.missing_gpus for each in found.sizes] == missing


HOSTS = """
8 1 22|8 2 2|16 2 107|32 4 28|48 4 9|64 2 22|64 8 7|82 8 1|96 4 17|96 8 570|104 2 387|128 1 2|128 8 39
"""
"""CPUs, GPUs and number of such hosts, as counted in trace `openb` (alibaba/clusterdata, cluster-trace-gpu-v2023)."""
JOBS = """
0 8 185|0 16 516|0 32 387|1 8 3283|1 16 3338|1 32 368|2 8 3|2 16 1|2 32 12|4 32 3|4 48 9|4 64 3|\
8 64 3|8 82 18|8 96 18|8 128 5
"""
"""GPUs, CPUs (rounded up to those of some host) and how many such pods."""


def test_the_empty_openb_cluster_has_the_fragmentation_that_the_authors_of_fgd_published() -> None:
    hosts, jobs = ([tuple(map(int, each.split())) for each in text.split("|")] for text in (HOSTS, JOBS))
    total, gpus = sum(count for *_, count in jobs), sum(gpus * number for _, gpus, number in hosts)
    assert (sum(number for *_, number in hosts), gpus, total) == (1_213, 6_212, 8_152)
    lost = 0.0
    for cpus, free, number in hosts:
        # who wants no GPU, or more CPUs than the host has, can use none of its GPUs
        shares = [(want if want and need <= cpus else free + 1, count / total) for want, need, count in jobs]
        lost += number * fragments(free, shares)
    assert lost / gpus == pytest.approx(0.1389, abs=0.00005)  # 13.89 %


def test_each_size_counts_as_often_as_it_comes() -> None:
    shares = [(1, 0.75), (4, 0.25)]
    assert [fragments(free, shares) for free in (0, 2, 4)] == [0.0, pytest.approx(0.25 * 2), 0.0]


def piece(host: str, gpus: int, *, idle: bool = False, movable: bool = True, hours: int = 1) -> Occupant:
    return Occupant(host, "mei", f"slurm:{host}{gpus}{hours}", gpus, idle, movable, hours * gpus * HOUR_MS)


def of(name: str, free: int, *occupants: Occupant, width: int = 4) -> OccupiedHost:
    return OccupiedHost(name, width, free, occupants)


def test_the_smaller_piece_moves_to_where_it_fits() -> None:
    hosts = [of("a", 2, piece("a", 2)), of("b", 3, piece("b", 1)), of("c", 0, piece("c", 4))]
    found = moves_for(hosts, 4)
    assert found is not None
    assert (found.hosts, [(each.gpus, to) for each, to in found.moved]) == (("b",), [(1, "a")])
    assert (found.moved_gpus, found.asked_gpus, found.lost_ms, found.is_least) == (1, 0, HOUR_MS, True)


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
        idle, movable = numbers.random() < 0.1, numbers.random() < 0.8
        there.append(piece(name, gpus, idle=idle, movable=movable, hours=len(there) + 1))
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
        gone = [(each, to) for each, to in zip(pieces, where, strict=True) if to]
        moves = [(each, to) for each, to in gone if to != "!"]
        if {to for _, to in moves} & {each.host for each, _ in gone}:
            continue
        free = {host.name: host.free for host in hosts}
        for each, to in gone:
            free[each.host] += each.gpus
            if to != "!":
                free[to] -= each.gpus
        rooms = [name for name, count in free.items() if count >= min(size, 4) and name not in {to for _, to in moves}]
        if min(free.values()) >= 0 and len(rooms) >= -(-size // 4):
            moved = sum(each.gpus for each, _ in moves)
            best = min(best or (99, 99), (moved, sum(each.gpus for each, _ in gone) - moved))
    return best
