"""Spans of allocations: nothing overlaps, nothing is lost, and what cannot be placed is counted."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.allocations.spans import (
    FOREVER_MS,
    PROCESS_JOBS_SCHEMA,
    UNPLACED_SCHEMA,
    allocation_spans,
    flatten,
    merged_spans,
    overlapping_allocations,
    place,
)
from tests.allocations.conftest import allocation, frame


def spans(*rows: dict[str, Any]) -> list[tuple[Any, ...]]:
    return flatten(frame(*rows)).select("gpu", "start", "end", "user").rows()


def jobs(*rows: tuple[str, str, int, int, str | None]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=PROCESS_JOBS_SCHEMA, orient="row")


def counted(
    count: int | None, start: int = 0, end: int = 100, allocation_id: str = "1", host: str = "h1"
) -> pl.DataFrame:
    rows = [(host, start, end, count, allocation_id, "ann", "ml", "slurm", None)]
    return pl.DataFrame(rows, schema=UNPLACED_SCHEMA, orient="row")


def test_allocations_that_overlap_name_everybody_in_every_column() -> None:
    found = flatten(frame(allocation("a", 0, 60, "2"), allocation("a", 30, 90, "1", scheduler="kubernetes")))
    assert found.rows() == [
        ("a", 0, 30, "u2", "a2", "2", "slurm:2"),
        ("a", 30, 60, "u1+u2", "a1+a2", "1+2", "pod:1+slurm:2"),
        ("a", 60, 90, "u1", "a1", "1", "pod:1"),
    ]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([allocation("a", 0, None), allocation("a", 0, 30)], [("a", 0, 30, "u1")]),
        ([allocation("a", 0, None)], [("a", 0, FOREVER_MS, "u1")]),
        ([allocation("a", 0, None, planned_end=70)], [("a", 0, 70, "u1")]),
        # a requeued job, whose first end nobody told, may get another GPU; a reservation may grow
        ([allocation("a", 0, None), allocation("b", 50, None)], [("a", 0, 50, "u1"), ("b", 50, FOREVER_MS, "u1")]),
        ([allocation("a", 0, None), allocation("b", 50, None, host="h2")],
         [("a", 0, FOREVER_MS, "u1"), ("b", 50, FOREVER_MS, "u1")]),
        ([allocation("a", 0, None, scheduler="csv"), allocation("b", 50, None, scheduler="csv")],
         [("a", 0, FOREVER_MS, "u1"), ("b", 50, FOREVER_MS, "u1")]),
        ([allocation("a", 50, 50), allocation("a", 60, 40, "2")], []),
        ([allocation("a", 0, 10, user=None)], [("a", 0, 10, None)]),
    ],
    ids=["came again with its end", "runs on", "until its limit", "begins again on its host", "on another host",
         "a reservation grows", "ends as it begins", "nobody knows its user"],
)  # fmt: skip
def test_where_a_allocation_ends(rows: list[dict[str, Any]], expected: list[tuple[Any, ...]]) -> None:
    assert spans(*rows) == expected


EVENTS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 30), st.integers(0, 30), st.sampled_from(["ann", "bob", None])),
    max_size=12,
)


@given(EVENTS, st.randoms(use_true_random=False))
def test_every_moment_has_the_users_of_its_allocations_in_any_order(
    events: list[tuple[str, int, int, str | None]], random: Any
) -> None:
    rows = [
        allocation(gpu, start, end, f"j{number}", user=user) for number, (gpu, start, end, user) in enumerate(events)
    ]
    found = flatten(frame(*rows))
    for gpu in "ab":
        mine = found.filter(pl.col("gpu") == gpu)
        assert (mine["start"].shift(-1) >= mine["end"]).drop_nulls().all()
        for moment in range(31):
            covering = [row for row in rows if row["gpu"] == gpu and row["time"] <= moment < row["end"]]
            here = mine.filter((pl.col("start") <= moment) & (pl.col("end") > moment))
            ids = "+".join(sorted(row["allocation_id"] for row in covering))
            assert here["allocation_id"].to_list() == ([ids] if covering else [])
            users = "+".join(sorted({row["user"] for row in covering} - {None})) or None
            assert here["user"].to_list() == ([users] if covering else [])
    again = rows + random.sample(rows, len(rows) // 2)
    random.shuffle(again)
    assert flatten(frame(*again)).equals(found)


def test_a_allocation_on_the_whole_host_is_on_each_of_its_gpus() -> None:
    placed = place(counted(2), {"h1": ["a", "b"]})
    assert placed.placed.select("gpu", "start", "end", "allocation_id").rows() == [
        ("a", 0, 100, "1"),
        ("b", 0, 100, "1"),
    ]
    assert placed.unplaced.is_empty()


@pytest.mark.parametrize(
    ("count", "work", "gpus", "left"),
    [
        (1, [("b", "h1", 10, 20, "slurm:1")], ["b"], []),
        (2, [("b", "h1", 10, 20, "slurm:1")], ["b"], [1]),
        (1, [("b", "h1", 10, 20, "slurm:1+slurm:7")], ["b"], []),
        (1, [("a", "h1", 0, 5, "slurm:1"), ("b", "h1", 0, 50, "slurm:1")], ["b"], []),  # whatever it touched
        (None, [("b", "h1", 10, 20, "slurm:1")], ["b"], []),
        (1, [("b", "h1", 100, 120, "slurm:1")], [], [1]),  # after it: an id that was used again
        (1, [("b", "h2", 10, 20, "slurm:1")], [], [1]),
        (1, [("b", "h1", 10, 20, "slurm:11"), ("b", "h1", 10, 20, "pod:1"), ("b", "h1", 10, 20, None)], [], [1]),
        (None, [], [], [None]),
    ],
)
def test_processes_of_the_job_show_which_gpus_it_has(
    count: int | None, work: list[Any], gpus: list[str], left: list[int | None]
) -> None:
    placed = place(counted(count), {"h1": ["a", "b", "c", "d"]}, jobs(*work))
    assert placed.placed["gpu"].to_list() == gpus
    assert placed.unplaced["gpu_count_on_host"].to_list() == left


def test_all_allocations_of_a_time_in_one_call() -> None:
    rows = frame(
        allocation("a", 0, 50, "1"),
        allocation(None, 20, 80, "2", host_gpu_count=2),
        allocation(None, 0, 90, "3", host="h2", host_gpu_count=1),
    )
    found = allocation_spans(rows, {"h1": ["a", "b"], "h2": ["c", "d"]}, since_ms=10, until_ms=60)
    assert found.placed.select("gpu", "start", "end", "allocation_id").rows() == [
        ("a", 10, 20, "1"),
        ("a", 20, 50, "1+2"),
        ("a", 50, 60, "2"),
        ("b", 20, 60, "2"),
    ]
    assert found.unplaced.rows() == [("h2", 10, 60, 1, "3", "u3", "a3", "slurm", None)]


def test_what_is_placed_later_joins_the_spans_without_naming_anybody_twice() -> None:
    known = flatten(frame(allocation("a", 0, 50, "1"), allocation("a", 0, 50, "2")))
    later = place(counted(1, 0, 100, "2"), {"h1": ["a"]}).placed.with_columns(user=pl.lit("u2"))
    found = merged_spans(known, later)
    assert found.select("start", "end", "user", "job").rows() == [
        (0, 50, "u1+u2", "slurm:1+slurm:2"),
        (50, 100, "u2", "slurm:2"),
    ]
    assert merged_spans(known, later.clear()).equals(known)


def test_a_count_beside_named_gpus_is_what_else_there_is() -> None:
    named, others = [allocation("a", 0, 50), allocation("b", 0, 50, "2")], allocation(None, 0, 50, host_gpu_count=3)
    found = allocation_spans(frame(*named, others, allocation(None, 0, 50, "2")), {}).unplaced
    assert found.select("allocation_id", "gpu_count_on_host").rows() == [("1", 2)]


def test_two_allocations_on_one_gpu_are_told_and_one_allocation_twice_is_not() -> None:
    two, twice = (
        [allocation("a", 0, 60), allocation("a", 30, 90, "2")],
        [allocation("b", 0, 60), allocation("b", 20, 60)],
    )
    found = overlapping_allocations(frame(*two, *twice, allocation("c", 0, 9)))
    assert found.rows() == [("a", "h1", 30, 60, "slurm:1+slurm:2")]
    assert found.columns == ["gpu", "host", "time", "end", "allocations"]


def test_a_plus_in_a_name_is_not_two_names() -> None:
    rows = (
        allocation("a", 0, 50, user="CORP+ann", account="r+d"),
        allocation("a", 0, 50, "2", user="bob", account=None),
    )
    (found,) = flatten(frame(*rows)).to_dicts()
    assert (found["user"], found["account"]) == ("CORP\\ann+bob", "r\\d")
    late = allocation_spans(frame(allocation(None, 0, 50, "3", user="CORP+eve", host_gpu_count=1)), {}).unplaced
    known = merged_spans(flatten(frame(*rows)), place(late, {"h1": ["a"]}).placed)
    assert known["user"].to_list() == ["CORP\\ann+CORP\\eve+bob"]
