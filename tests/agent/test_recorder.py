"""What the recorder makes of its sources: several for one table, and one that fails with its stand-in."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from agent.collectors import Collector, Interval
from tests.agent.simulation import START_MS
from tests.fakes.nvml import GIB, Gpu, Process, Scenario, constant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.agent.simulation import SimulatedHost

    Simulated = Callable[..., SimulatedHost]

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
