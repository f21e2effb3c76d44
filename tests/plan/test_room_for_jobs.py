"""Which jobs could start in a pool, what lies apart, and whether the jobs that came agree."""

from __future__ import annotations

import polars as pl
import pytest

from analytics.plan.jobs import JOB_SCHEMA
from analytics.plan.room_for_jobs import PoolRoom, RoomCheck, pool_rooms
from analytics.tables.plan_defrag import room_sentence
from fallow.clock import HOUR_MS, MINUTE_MS

SCHEMA = {
    "pool": pl.String, "model": pl.String, "host": pl.String, "gpu": pl.String, "time": pl.Int64, "end": pl.Int64,
    "stretch_start": pl.Int64, "state": pl.String, "holder": pl.String, "job": pl.String, "gpu_share": pl.Float64,
    "instance": pl.Boolean, "rate": pl.Float64,
}  # fmt: skip
DAY = (0, 24 * HOUR_MS)


def rows(
    host: str, *states: str, job: str = "slurm:7", span: tuple[int, int] = DAY, rate: float | None = 2.0
) -> list[dict[str, object]]:
    """A GPU of a host for each state."""
    return [
        {
            "pool": "p", "model": "H100", "host": host, "gpu": f"{host}-{place}", "time": span[0], "end": span[1],
            "stretch_start": span[0], "state": state, "holder": None if state in {"free", "unknown"} else "mei",
            "job": None if state in {"free", "unknown"} else job, "gpu_share": 1.0, "instance": False, "rate": rate,
        }
        for place, state in enumerate(states)
    ]  # fmt: skip


def job(came: int, start: int | None, gpus: int, *hosts: str, end: int | None = None) -> dict[str, object]:
    return {"job": "1", "submitted": came, "start": start, "end": end, "gpus": gpus, "hosts": list(hosts)}


def room(placed: list[dict[str, object]], *jobs: dict[str, object], sizes: tuple[int, ...] = (2, 4)) -> PoolRoom:
    frame = pl.DataFrame(list(jobs), schema=pl.Schema(JOB_SCHEMA))
    [found] = pool_rooms(pl.DataFrame(placed, schema=SCHEMA), frame, DAY, 30 * MINUTE_MS, sizes)
    return found


def test_what_moves_is_priced_by_what_it_has_run() -> None:
    placed = rows("a", "active", "free", "free", "free") + rows("b", "active", "active", "free", "free", job="slurm:8")
    two, four = room(placed).sizes
    assert (two.gang.now, two.moves) == (2, None)
    assert four.moves is not None
    [(moved, target)] = four.moves.moved
    assert (moved.job, target, four.moves.lost_ms) == ("slurm:7", "b", 24 * HOUR_MS)


@pytest.mark.parametrize(
    ("more", "asked"),
    [
        ({"state": "held"}, 1),
        ({"state": "held", "stretch_start": 24 * HOUR_MS - 10 * MINUTE_MS}, 0),
        ({"state": "active"}, 0),
    ],
)
def test_only_who_holds_a_gpu_for_long_is_asked_for_it(more: dict[str, object], asked: int) -> None:
    placed = rows("a", "active", "free", "free", "free")
    four = room([placed[0] | more, *placed[1:]]).sizes[1]
    assert (0 if four.moves is None else four.moves.asked_gpus) == asked
    assert four.short == 1 - asked


def test_a_job_on_two_hosts_and_parts_of_cards_do_not_move() -> None:
    spread = rows("a", "active", "free", "free", "free") + rows("b", "active", "free", "free", "free")
    assert room(spread).sizes[1].moves is None
    assert (
        room([*rows("a", "active", "free", "free", "free"), *rows("b", "free", "free", "free", "free", job="x")])
        .sizes[1]
        .gang.now
    )


def test_gpus_that_nobody_sees_are_not_free() -> None:
    found = room(rows("a", "unknown", "free", "free", "free"))
    assert (found.gpus, found.free, found.sizes[1].gang.now, found.sizes[1].gang.now_most) == (4, 3, 0, 1)


def test_the_sizes_of_the_jobs_that_came_say_what_lies_apart() -> None:
    placed = rows("a", "free", "free", "active", "active") + rows(
        "b", "free", "active", "active", "active", job="slurm:8"
    )
    jobs = [job(0, 0, 2, "a"), job(0, 0, 8, "a", "b"), job(0, 0, 1, "b"), job(0, 0, 1, "b")]  # pieces: 2, 4, 4, 1, 1
    found = room(placed, *jobs).fragmentation
    assert found.pieces == 5
    assert [found.now, found.mean] == pytest.approx([(2 * 2 / 5 + 1 * 3 / 5) / 3] * 2)
    unknown = room(placed).fragmentation
    assert (unknown.pieces, unknown.now) == (0, pytest.approx((2 * 2 / 4 + 1 * 3 / 4) / 3))


def test_jobs_that_came_are_held_against_the_room_there_was() -> None:
    noon = 12 * HOUR_MS
    placed = rows("a", "free", "free", span=(0, noon)) + rows("a", "active", "active", span=(noon, 24 * HOUR_MS))
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
    ("states", "sizes", "said", "short"),
    [
        (("active", "active"), (1,), "no GPU is free", 1),
        (("free", "active"), (2,), "No job of 2 GPUs or more could start", 1),
        (("free", "free"), (3,), "No job of 3 GPUs or more could start", 2),  # two whole hosts
        (("free", "free"), (9,), "No pool has GPUs of one model for a job of that size", None),
    ],
)
def test_the_headline_says_why_no_job_could_start(
    states: tuple[str, ...], sizes: tuple[int, ...], said: str, short: int | None
) -> None:
    other = rows("b", "active", "active", job="slurm:8")
    for each in other:
        each["holder"] = None  # whose it is nobody knows: it stays
    busy = [dict(each, holder=None) for each in rows("a", *states)]
    found = room([*busy, *other], sizes=sizes)
    assert said in str(room_sentence([found]))
    assert [each.short for each in found.sizes] == ([] if short is None else [short])
