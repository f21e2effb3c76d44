"""Collectors are timed, their failures isolated, counted and reported once."""

from __future__ import annotations

import errno
from functools import partial

import pytest

from agent.collectors import CollectorRuns, Interval
from agent.host import HostMeter
from agent.nvml.readings import GpuCollector
from agent.nvml.sampler import COLLECTORS


def failing() -> list[int]:
    raise ValueError("first line\nsecond line")


def test_a_failure_costs_its_own_rows_and_is_counted() -> None:
    runs = CollectorRuns()
    assert runs.run("a", failing, [0]) == [0]
    assert runs.run("a", lambda: [1], [0]) == [1]
    assert runs.run("b", lambda: [2], []) == [2]
    assert [(name, each.runs, each.failures) for name, each in runs.costs.items()] == [("a", 2, 1), ("b", 1, 0)]
    assert all(each.wall_s > 0 for each in runs.costs.values())


def test_collectors_that_fail_for_the_same_reason_are_each_reported() -> None:
    def without_files() -> list[int]:
        raise OSError(errno.EMFILE, "Too many open files")

    runs = CollectorRuns()
    for name in ("memory", "power", "host") * 2:
        runs.run(name, without_files, [])
    assert runs.take_details() == [
        f"the collector {name} failed, and its columns are unknown: OSError: [Errno 24] Too many open files"
        for name in ("memory", "power", "host")
    ]


def test_reasons_that_differ_every_time_do_not_fill_the_memory() -> None:
    def fail(number: int) -> list[int]:
        raise ValueError(f"process {number}")

    runs = CollectorRuns()
    for number in range(1000):
        runs.run("a", partial(fail, number), [])
    assert len(runs.take_details()) == 1000
    assert len(runs._reasons) < 1000  # noqa: SLF001  # what is kept for the agent's life
    runs.run("a", partial(fail, 999), [])
    assert runs.take_details() == []


def test_errors_that_the_caller_expects_pass() -> None:
    runs = CollectorRuns()
    with pytest.raises(ValueError, match="first line"):
        runs.run("a", failing, [], (ValueError,))
    assert (runs.costs["a"].failures, runs.take_details()) == (0, [])


def test_what_stands_in_for_a_failed_source_is_a_row_of_its_table() -> None:
    (row,) = HostMeter().unknown(Interval(10_000, 20_000))
    assert row == {"time": 10_000, "interval_ms": 10_000}


def test_the_collectors_of_a_gpu_have_names_of_their_own() -> None:
    names = [each.name for each in COLLECTORS]
    assert all(names)
    assert len(set(names)) == len(names)
    assert all(issubclass(each, GpuCollector) for each in COLLECTORS)
