"""A run of the agent over the fake driver: the lake has to equal the scenario."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from analytics.ledger.build import load_ledger
from analytics.ledger.settings import LedgerSettings
from analytics.ledger.summary import totals_by
from tests.agent.conftest import login_name
from tests.agent.simulation import HOST, START_MS, SimulatedHost
from tests.fakes.nvml import GIB, Gpu, Process, Scenario, Steps, constant
from tests.lakes import made_lake

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECONDS = 60
INTERVAL_S = 10
PAST_S = 60  # the scenario begins before the agent does, so that rings have a history


def fleet(sleeper_pid: int) -> tuple[Gpu, ...]:
    """Six GPUs that behave in the ways that a real one does."""
    own = Process(os.getpid(), mem_bytes=10 * GIB)
    return (
        Gpu("GPU-busy", util=constant(93), mem_util=constant(41), mem_used=constant(70 * GIB), power_w=constant(612.3),
            processes=(own,)),
        Gpu("GPU-free", util=constant(0), mem_used=constant(0), power_w=constant(71.5)),
        Gpu("GPU-held", util=constant(0), mem_used=constant(30 * GIB), power_w=constant(118),
            processes=(Process(sleeper_pid, mem_bytes=30 * GIB),)),
        Gpu("GPU-bursts", util=Steps(tuple((second, 100.0 if second % 3 == 0 else 0.0) for second in range(600))),
            mem_used=constant(5 * GIB),
            power_w=Steps(tuple((second, 90.0 + 7 * (second % 11)) for second in range(600))),
            processes=(own, Process(sleeper_pid, mem_bytes=GIB))),
        Gpu("GPU-changes", util=Steps(((0, 0), (PAST_S + 23.4, 88), (PAST_S + 41.7, 0))), energy_offset_mj=987_654_321,
            mem_used=Steps(((0, 0), (PAST_S + 22, 8 * GIB), (PAST_S + 45, 0))),
            processes=(Process(sleeper_pid, start_s=PAST_S + 22, end_s=PAST_S + 45, mem_bytes=8 * GIB),)),
        Gpu("GPU-garbage", util=constant(55), ring_garbage=True, samples_while_idle=True, processes=(own,)),
    )  # fmt: skip


@dataclass(frozen=True)
class Minute:
    """One run of a minute, shared by the tests that look at it."""

    host: SimulatedHost
    sleeper: int
    """The process id of a program that sleeps."""

    @property
    def rows(self) -> list[tuple[dict[str, Any], Gpu, float, float]]:
        """Each row with its GPU and its interval in scenario seconds."""
        return [(row, self.host.gpu(row["gpu"]), *self.host.span_s(row)) for row in self.host.rows("gpu")]


@pytest.fixture(scope="module")
def minute(tmp_path_factory: pytest.TempPathFactory, library: Path) -> Iterator[Minute]:
    folder = tmp_path_factory.mktemp("minute")
    sleeper = subprocess.Popen(["sleep", "600"])
    scenario = Scenario(fleet(sleeper.pid), start_ms=START_MS - PAST_S * 1000)
    with pytest.MonkeyPatch.context() as patched:
        lake = made_lake(folder / "lake")
        host = SimulatedHost(folder, library, lake, scenario, patched, {"agent.pool": "test"})
        yield Minute(host.run(SECONDS, f"{INTERVAL_S}s"), sleeper.pid)
    sleeper.kill()
    sleeper.wait()


def test_every_interval_of_every_gpu_has_one_row(minute: Minute) -> None:
    host = minute.host
    scenario = host.scenario
    rows = host.rows("gpu")
    assert len({(row["gpu"], row["time"]) for row in rows}) == len(rows) == len(scenario.gpus) * SECONDS // INTERVAL_S
    times = sorted({row["time"] for row in rows})
    assert {later - earlier for earlier, later in pairwise(times)} == {INTERVAL_S * 1000}
    assert all(time % (INTERVAL_S * 1000) == 0 for time in times)
    assert {row["host"] for row in rows} == {HOST}


def test_utilization_equals_the_scenario_with_every_second_observed(minute: Minute) -> None:
    for row, gpu, begin, end in minute.rows:
        assert row["gpu_util_pct"] == pytest.approx(gpu.util.mean(begin, end), abs=0.5), (gpu.uuid, begin)
        assert row["mem_util_pct"] == pytest.approx(gpu.mem_util.mean(begin, end), abs=0.5), (gpu.uuid, begin)
        assert row["gpu_util_coverage_ratio"] >= 0.99, (gpu.uuid, begin)
        assert row["util_source"] == "samples"


def test_the_share_at_zero_is_that_of_the_samples(minute: Minute) -> None:
    scenario = minute.host.scenario
    for row, gpu, begin, end in minute.rows:
        begin_us, end_us = (round(second * 1e6) + scenario.start_ms * 1000 for second in (begin, end))
        entries = scenario.ring(scenario.gpus.index(gpu), begin_us, end_us + 200_000)
        busy_us = sum(
            max(0, min(entry.timestamp_us, end_us) - max(entry.timestamp_us - entry.period_us, begin_us))
            for entry in entries
            if entry.util_pct > 0
        )
        zero_ratio = 1 - busy_us / (end_us - begin_us)
        assert row["gpu_util_zero_ratio"] == pytest.approx(zero_ratio, abs=0.001), (gpu.uuid, begin)


def test_the_energy_counter_is_exact_at_the_moment_that_it_was_read(minute: Minute) -> None:
    for row, gpu, _, end in minute.rows:
        read_ms = round(end * 1000) + row["read_delay_ms"]
        assert row["energy_mj"] == gpu.energy_mj(read_ms), (gpu.uuid, read_ms)


def test_memory_power_and_temperature_are_those_of_the_moment(minute: Minute) -> None:
    for row, gpu, _, end in minute.rows:
        read = end + row["read_delay_ms"] / 1000
        assert row["mem_used_bytes"] == gpu.mem_used.at(read)
        assert row["mem_reserved_bytes"] == gpu.mem_reserved_bytes
        # the power of one GPU changes on whole seconds, far from the moment of the read
        assert row["power_w"] == pytest.approx(gpu.power_w.at(read), abs=0.06)
        assert row["temperature_c"] == gpu.temperature_c.at(read)
        assert row["sm_clock_mhz"] == gpu.sm_clock.at(read)
        assert row["health"] == "ok"


def test_every_process_is_there_with_its_owner(minute: Minute) -> None:
    host = minute.host
    scenario = host.scenario
    user = login_name()
    rows = host.rows("process")
    for row in rows:
        gpu = host.gpu(row["gpu"])
        told = next(process for process in gpu.processes if process.pid == row["pid"])
        assert (row["mem_used_bytes"], row["kind"], row["user"]) == (told.mem_bytes, told.kind, user)
        assert row["attribution"] == "proc"
        assert row["started"] is not None
        if row["pid"] == minute.sleeper:
            assert row["command"] == "sleep"
    assert {(row["gpu"], row["pid"]) for row in rows} == {
        (gpu.uuid, process.pid) for gpu in scenario.gpus for process in gpu.processes
    }


def test_a_process_that_comes_and_goes_is_counted_while_it_is_there(minute: Minute) -> None:
    for row, gpu, _, end in minute.rows:
        read = end + row["read_delay_ms"] / 1000
        there = sum(process.start_s <= read < (process.end_s or 1e9) for process in gpu.processes)
        # memory moves with the process here, so the list is read at once and the count is never stale
        assert row["process_count"] == there, (gpu.uuid, read)


def test_the_run_explains_itself(minute: Minute) -> None:
    host = minute.host
    scenario = host.scenario
    assert [row["kind"] for row in host.rows("event")] == ["agent_start", "agent_stop"]
    devices = host.rows("device")
    assert {row["gpu"] for row in devices} == {gpu.uuid for gpu in scenario.gpus}
    for row in devices:
        gpu = host.gpu(row["gpu"])
        assert (row["model"], row["mem_total_bytes"], row["pool"]) == (gpu.model, gpu.mem_total_bytes, "test")
        assert (row["driver_version"], row["cuda_driver_version"]) == ("580.65.06", "13.0")
    for row in host.rows("agent"):
        assert row["missed_intervals"] == 0
        assert row["nvml_calls"] > 0
        assert row["supervisor_cpu_ms"] > 0
        assert row["worker_rss_bytes"] > 2**20


def test_the_ledger_of_the_run_equals_the_scenario(minute: Minute) -> None:
    host = minute.host
    # a minute is shorter than the default of five: what counts as held has to be shorter too
    ledger = load_ledger(host.lake, LedgerSettings(idle_after_ms=20_000))
    by_gpu = {gpu: totals.state_ms for gpu, totals in totals_by(ledger.segments, "gpu").items()}
    whole = SECONDS * 1000
    assert all(sum(states.values()) == whole for states in by_gpu.values())
    assert by_gpu["GPU-busy"]["active"] == whole
    assert by_gpu["GPU-free"]["free"] == whole
    assert by_gpu["GPU-held"]["held"] == whole
    assert by_gpu["GPU-bursts"]["active"] == whole
    assert by_gpu["GPU-garbage"]["active"] == whole
    changes = host.gpu("GPU-changes")
    expected = {"free": 0, "active": 0}
    for row, gpu, begin, end in minute.rows:
        if gpu is not changes:
            continue
        in_use = changes.util.mean(begin, end) > 0 or row["process_count"] > 0
        expected["active" if in_use else "free"] += INTERVAL_S * 1000
    # a row that caught the first moments of work alone is `low`
    found = by_gpu["GPU-changes"]
    merged = found | {"active": found["active"] + found["low"], "low": 0}
    assert merged == dict.fromkeys(found, 0) | expected
