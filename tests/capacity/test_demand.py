"""Demand by the hour, and its duration curve."""

from __future__ import annotations

import itertools
import random

import polars as pl
import pytest

from analytics.capacity.demand import demand, duration

HOUR_MS = 3_600_000
SCHEMA = {"gpu": pl.String, "time": pl.Int64, "end": pl.Int64, "state": pl.String, "gpu_share": pl.Float64}
Row = tuple[str, int, int, str, float]
STATES = ("active", "low", "held", "reserved", "free", "unavailable", "unknown")


def frame(rows: list[Row]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def hours(*rows: tuple[str, float, float, str], share: float = 1.0, until: int = 4) -> pl.DataFrame:
    spans = [(gpu, round(start * HOUR_MS), round(end * HOUR_MS), state, share) for gpu, start, end, state in rows]
    return demand(frame(spans), 0, until * HOUR_MS)


def test_the_most_at_once_counts() -> None:
    found = hours(("a", 0, 1.5, "active"), ("b", 0, 1, "held"), ("a", 1.5, 4, "free"), ("b", 1, 4, "free"))
    assert found["allocated"].to_list() == [2, 1, 0, 0]
    assert found["working"].to_list() == [1, 1, 0, 0]
    assert found["there"].to_list() == [2, 2, 2, 2]


def test_unknown_time_is_no_idle_time() -> None:
    found = hours(("a", 0, 4, "active"), ("b", 0, 2, "unknown"), ("b", 2, 4, "free"))
    assert found["working"].to_list() == [1, 1, 1, 1]
    assert found["working_or_unknown"].to_list() == [2, 2, 1, 1]
    assert found["allocated_or_unknown"].to_list() == [2, 2, 1, 1]


def test_hours_without_any_row_are_left_out() -> None:
    found = hours(("a", 0, 1, "active"), ("a", 3, 4, "active"))
    assert (found["time"] // HOUR_MS).to_list() == [0, 3]
    assert demand(frame([]), 0, 4 * HOUR_MS).is_empty()


def test_instances_count_their_share() -> None:
    found = hours(*((f"MIG-{each}", 0, 4, "active") for each in range(7)), share=1 / 7)
    assert found["working"].to_list() == [1.0] * 4


def test_the_duration_curve() -> None:
    curve = duration(pl.Series([3.0, 1.0, 3.0, 0.0]))
    assert curve.rows() == [(3.0, 2), (1.0, 3), (0.0, 4)]
    assert duration(pl.Series([], dtype=pl.Float64)).is_empty()


@pytest.mark.parametrize("seed", range(8))
def test_against_a_count_of_every_minute(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311  # no secret
    minute, length = 60_000, 300
    rows: list[Row] = []
    for gpu in range(6):
        for start, end in itertools.pairwise(sorted({0, length, *rng.sample(range(1, length), 7)})):
            share = rng.choice((1.0, 1.0, 0.5))
            rows.append((str(gpu), start * minute, end * minute, rng.choice(STATES), share))
    found = demand(frame(rows), 0, length * minute)
    counted = {
        "there": STATES,
        "working": ("active", "low"),
        "allocated": ("active", "low", "held", "reserved"),
        "allocated_or_unknown": ("active", "low", "held", "reserved", "unknown"),
    }
    for hour, row in enumerate(found.iter_rows(named=True)):
        moments = range(hour * 60 * minute, (hour + 1) * 60 * minute, minute)
        at_once = [[(share, state) for _, a, b, state, share in rows if a <= at < b] for at in moments]
        for name, states in counted.items():
            assert row[name] == max(sum(share for share, state in now if state in states) for now in at_once)
