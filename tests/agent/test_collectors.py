"""Collectors are timed; failures are isolated, counted, reported once; the recorder merges several for one table."""

from __future__ import annotations

import errno
import os
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from agent.collectors import Collector, CollectorRuns, Interval
from agent.host import HostMeter
from agent.nvml.readings import GpuCollector
from agent.nvml.sampler import COLLECTORS
from tests.agent.simulation import START_MS
from tests.fakes.nvml import GIB, Gpu, Process, Scenario, constant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.agent.simulation import SimulatedHost

    Simulated = Callable[..., SimulatedHost]


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


OTHER_PID = 4_000_000
OWN = (Process(os.getpid(), mem_bytes=GIB),)
SCENARIO = Scenario((Gpu("GPU-a", util=constant(60), processes=OWN),), START_MS - 20_000)


class OtherProcesses(Collector):
    """A second source of the `process` table."""

    name = "other_processes"
    table = "process"

    def collect(self, interval: Interval) -> Sequence[Any]:
        return [{"time": row["time"], "gpu": row["gpu"], "pid": OTHER_PID} for row in interval.processes]


class Broken(Collector):
    """Fails, and does not know what it would have said."""

    name = "broken"
    table = "host"

    def collect(self, _: Interval) -> Sequence[Any]:
        raise ValueError("no such file")

    def unknown(self, _: Interval) -> Sequence[Any]:
        raise OSError("nor this one")


def with_source(simulated: Simulated, *sources: Collector, only: bool = False) -> SimulatedHost:
    """A run whose supervisor has these sources from the first second on; `only` in place of those of their tables."""
    host = simulated(SCENARIO)

    def enter(supervisor: Any) -> None:
        parts, tables = supervisor._parts, {each.table for each in sources}  # noqa: SLF001
        kept = tuple(each for each in parts.collectors if not only or each.table not in tables)
        parts.collectors = (*kept, *sources)

    host.at(0.5, enter)
    return host.run(12)


def test_two_sources_of_one_table_both_have_their_rows(simulated: Simulated) -> None:
    host = with_source(simulated, OtherProcesses())
    listed = {(row["time"], row["pid"]) for row in host.rows("process")}
    times = {time for time, _ in listed}
    assert times
    assert listed == {(time, pid) for time in times for pid in (os.getpid(), OTHER_PID)}


def test_a_source_whose_stand_in_fails_as_well_costs_its_own_rows_alone(simulated: Simulated) -> None:
    host = with_source(simulated, Broken(), only=True)
    assert [row["health"] for row in host.of("GPU-a")] == ["ok"] * 12
    assert host.rows("host") == []
    assert [event["detail"] for event in host.events("part_failed")] == [
        "the collector broken failed, and its columns are unknown: ValueError: no such file",
        "the collector broken (stand-in) failed, and its columns are unknown: OSError: nor this one",
    ]
