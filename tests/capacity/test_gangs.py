"""Which gangs could start: by hand, and against a count minute by minute."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict

import polars as pl
import pytest

from analytics.capacity.gangs import Gang, gangs, sizes

SCHEMA = {
    "pool": pl.String, "model": pl.String, "host": pl.String, "gpu": pl.String, "time": pl.Int64, "end": pl.Int64,
    "state": pl.String, "gpu_share": pl.Float64,
}  # fmt: skip
Row = tuple[str, str, str, str, int, int, str, float]


def frame(rows: list[Row]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def host(name: str, free: int, *, gpus: int = 8, model: str = "H100", until: int = 10) -> list[Row]:
    states = ["free"] * free + ["active"] * (gpus - free)
    return [("p", model, name, f"{name}-{place}", 0, until, state, 1.0) for place, state in enumerate(states)]


def found(rows: list[Row], until: int = 10) -> dict[int, Gang]:
    return {each.size: each for each in gangs(frame(rows), 0, until)}


def test_free_gpus_that_lie_apart_make_no_gang() -> None:
    rows = host("a", 4) + host("b", 4)
    gang = found(rows)
    assert [gang[size].now for size in (1, 2, 4, 8, 16)] == [8, 4, 2, 0, 0]
    assert gang[8].free_share == 1.0
    assert gang[8].start_share == 0.0
    assert gang[16].free_share == 0.0


def test_a_job_beyond_one_host_takes_whole_hosts() -> None:
    rows = host("a", 8) + host("b", 8) + host("c", 7)
    gang = found(rows)
    assert gang[16].now == 1
    assert found([*host("a", 8), *host("b", 7), *host("c", 7)])[16].now == 0


def test_models_do_not_mix() -> None:
    gang = found(host("a", 2, gpus=4) + host("b", 2, gpus=4, model="A100"))
    assert (gang[2].now, gang[4].now) == (2, 0)
    assert gang[4].free_share == 0.0


def test_shares_are_of_the_time() -> None:
    rows: list[Row] = [
        *(("p", "m", "a", f"a{place}", 0, 4, "free", 1.0) for place in range(2)),
        *(("p", "m", "a", f"a{place}", 4, 10, "active", 1.0) for place in range(2)),
    ]
    gang = found(rows)
    assert gang[2].start_share == pytest.approx(0.4)
    assert gang[2].now == 0


def test_what_nobody_saw_may_have_been_free() -> None:
    rows: list[Row] = [("p", "m", "a", "a0", 0, 10, "free", 1.0), ("p", "m", "a", "a1", 0, 10, "unknown", 1.0)]
    gang = found(rows)
    assert (gang[2].now, gang[2].now_most) == (0, 1)
    assert (gang[2].start_share, gang[2].start_share_most) == (0.0, 1.0)


def test_instances_of_split_gpus_are_no_gpus() -> None:
    rows: list[Row] = [("p", "m", "a", f"MIG-{place}", 0, 10, "free", 1 / 7) for place in range(7)]
    assert all(each.now == 0 for each in gangs(frame(rows), 0, 10))


def test_no_rows() -> None:
    assert [(each.now, each.start_share) for each in gangs(frame([]), 0, 10)] == [(0, 0.0)] * 4
    assert gangs(frame([]), 10, 10)[0].start_share is None


def test_sizes() -> None:
    assert sizes(0) == (1, 2, 4, 8)
    assert sizes(15) == (1, 2, 4, 8)
    assert sizes(64) == (1, 2, 4, 8, 16, 32, 64)


@pytest.mark.parametrize("seed", range(12))
def test_against_a_count_of_every_moment(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311  # no secret
    rows: list[Row] = []
    for number in range(rng.randint(2, 6)):
        pool, model, gpus = rng.choice("pq"), rng.choice("mn"), rng.choice((1, 2, 4, 8))
        for place in range(gpus):
            cuts = sorted({0, 40, *rng.sample(range(1, 40), 4)})
            for start, end in itertools.pairwise(cuts):
                state = rng.choice(("free", "free", "free", "active", "unknown"))
                if rng.random() < 0.9:  # a gap in the ledger
                    rows.append((pool, model, f"h{number}", f"h{number}-{place}", start, end, state, 1.0))
    since, until = 3, 37
    for each in gangs(frame(rows), since, until):
        assert each == counted(rows, each.size, since, until)


def counted(rows: list[Row], size: int, since: int, until: int) -> Gang:
    """The same by looking at every moment."""
    width: dict[tuple[str, str], int] = defaultdict(int)
    for moment in range(since, until):
        there: dict[tuple[str, str, str], int] = defaultdict(int)
        for pool, model, where, _, start, end, *_ in rows:
            there[pool, model, where] += start <= moment < end
        for (pool, model, _), number in there.items():
            width[pool, model] = max(width[pool, model], number)
    sure = [at_once(rows, size, moment, ("free",), width) for moment in range(since, until)]
    most = [at_once(rows, size, moment, ("free", "unknown"), width) for moment in range(since, until)]
    length = until - since
    return Gang(
        size, sure[-1][0], most[-1][0],
        pytest.approx(sum(apart for _, apart in sure) / length),
        pytest.approx(sum(number > 0 for number, _ in sure) / length),
        pytest.approx(sum(number > 0 for number, _ in most) / length),
    )  # fmt: skip


def at_once(
    rows: list[Row], size: int, moment: int, states: tuple[str, ...], width: dict[tuple[str, str], int]
) -> tuple[int, bool]:
    """How many could start at a moment, and whether so many were free in one pool and model."""
    free: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for pool, model, where, _, start, end, state, _ in rows:
        if start <= moment < end and state in states:
            free[pool, model][where] += 1
    number = 0
    for group, hosts in free.items():
        if size <= width[group]:
            number += sum(each // size for each in hosts.values())
        else:
            whole = sum(each // width[group] for each in hosts.values())
            number += whole // -(-size // width[group])
    return number, any(sum(hosts.values()) >= size for hosts in free.values())
