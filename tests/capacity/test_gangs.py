"""Which gangs could start: by hand, and against a count minute by minute."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict

import polars as pl
import pytest

from analytics.capacity.demand import Gang, gangs, sizes

TEXT = dict.fromkeys(("pool", "model", "host", "gpu"), pl.String)
SCHEMA = TEXT | {"time": pl.Int64, "end": pl.Int64, "state": pl.String, "gpu_share": pl.Float64}
Row = tuple[str, str, str, str, int, int, str, float]


def frame(rows: list[Row]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def host(name: str, free: int, gpus: int = 8, model: str = "H100") -> list[Row]:
    states = ["free"] * free + ["active"] * (gpus - free)
    return [("p", model, name, f"{name}-{place}", 0, 10, state, 1.0) for place, state in enumerate(states)]


def found(rows: list[Row]) -> dict[int, Gang]:
    return {each.size: each for each in gangs(frame(rows), 0, 10)}


def test_free_gpus_that_lie_apart_make_no_gang() -> None:
    gang = found(host("a", 4) + host("b", 4))
    assert [gang[size].now for size in (1, 2, 4, 8, 16)] == [8, 4, 2, 0, 0]
    assert [(gang[size].free_share, gang[size].start_share) for size in (8, 16)] == [(1.0, 0.0), (0.0, 0.0)]


def test_a_job_beyond_one_host_takes_whole_hosts() -> None:
    assert found(host("a", 8) + host("b", 8) + host("c", 7))[16].now == 1
    assert found(host("a", 8) + host("b", 7) + host("c", 7))[16].now == 0


def test_models_do_not_mix() -> None:
    gang = found(host("a", 2, 4) + host("b", 2, 4, "A100"))
    assert (gang[2].now, gang[4].now, gang[4].free_share) == (2, 0, 0.0)


def test_shares_are_of_the_time() -> None:
    spans = ((0, 4, "free"), (4, 10, "active"))
    gang = found([("p", "m", "a", f"a{place}", *span, 1.0) for place in range(2) for span in spans])
    assert (gang[2].start_share, gang[2].now) == (pytest.approx(0.4), 0)


def test_what_nobody_saw_may_have_been_free() -> None:
    gang = found([("p", "m", "a", state, 0, 10, state, 1.0) for state in ("free", "unknown")])[2]
    assert (gang.now, gang.now_most, gang.start_share, gang.start_share_most) == (0, 1, 0.0, 1.0)


def test_instances_of_split_gpus_are_no_gpus() -> None:
    rows = [("p", "m", "a", f"MIG-{place}", 0, 10, "free", 1 / 7) for place in range(7)]
    assert all(each.now == 0 for each in gangs(frame(rows), 0, 10))


def test_no_rows() -> None:
    assert [(each.now, each.start_share) for each in gangs(frame([]), 0, 10)] == [(0, 0.0)] * 4
    assert gangs(frame([]), 10, 10)[0].start_share is None


def test_sizes() -> None:
    assert [sizes(gpus) for gpus in (0, 15, 64)] == [(1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8, 16, 32, 64)]


@pytest.mark.parametrize("seed", range(12))
def test_against_a_count_of_every_moment(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311  # no secret
    rows: list[Row] = []
    for number in range(rng.randint(2, 6)):
        pool, model, gpus = rng.choice("pq"), rng.choice("mn"), rng.choice((1, 2, 4, 8))
        for place in range(gpus):
            for start, end in itertools.pairwise(sorted({0, 40, *rng.sample(range(1, 40), 4)})):
                state = rng.choice(("free", "free", "free", "active", "unknown"))
                if rng.random() < 0.9:  # a gap in the ledger
                    rows.append((pool, model, f"h{number}", f"h{number}-{place}", start, end, state, 1.0))
    for each in gangs(frame(rows), 3, 37):
        assert each == counted(rows, each.size, range(3, 37))


def counted(rows: list[Row], size: int, moments: range) -> Gang:
    """The same by looking at every moment."""
    width: dict[tuple[str, str], int] = defaultdict(int)
    for moment in moments:
        for (pool, model, _), states in hosts_at(rows, moment).items():
            width[pool, model] = max(width[pool, model], len(states))
    sure = [at_once(rows, size, moment, ("free",), width) for moment in moments]
    most = [at_once(rows, size, moment, ("free", "unknown"), width) for moment in moments]
    shares = ([apart for _, apart in sure], [number > 0 for number, _ in sure], [number > 0 for number, _ in most])
    return Gang(size, sure[-1][0], most[-1][0], *(pytest.approx(sum(each) / len(moments)) for each in shares))


def hosts_at(rows: list[Row], moment: int) -> dict[tuple[str, str, str], list[str]]:
    """The states of the GPUs of each host at a moment."""
    found: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for pool, model, where, _, start, end, state, _ in rows:
        if start <= moment < end:
            found[pool, model, where].append(state)
    return found


def at_once(
    rows: list[Row], size: int, moment: int, states: tuple[str, ...], width: dict[tuple[str, str], int]
) -> tuple[int, bool]:
    """How many could start at a moment, and whether so many were free in one pool and model."""
    free: dict[tuple[str, str], list[int]] = defaultdict(list)
    for (pool, model, _), seen in hosts_at(rows, moment).items():
        free[pool, model].append(sum(state in states for state in seen))
    number = 0
    for group, hosts in free.items():
        whole = sum(each // width[group] for each in hosts) // -(-size // width[group])
        number += sum(each // size for each in hosts) if size <= width[group] else whole
    return number, any(sum(hosts) >= size for hosts in free.values())
