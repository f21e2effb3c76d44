"""What a scrape shows: checked with the Prometheus parsers and, where it is installed, with promtool."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from agent.metrics import catalogue
from agent.metrics.collector import collect
from agent.snapshot import GpuErrors, PublishingStatus, SinceClock, Snapshot, SnapshotBoard, is_idle
from fallow import schema
from fallow.exposition import OPEN_METRICS, TEXT, ExposedSamples, label_text
from tests.agent.player import UUID
from tests.agent.simulation import START_MS
from tests.agent.snapshots import (
    BUSY,
    FREE,
    GIB,
    HELD,
    INTERVAL_MS,
    LOST,
    gpu_row,
    mig_snapshot,
    process_row,
    snapshot,
)
from tests.deploy.queries import OF_AGENTS, dcgm_dashboard
from tests.fakes.nvml import Gpu, Scenario, constant

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.agent.simulation import SimulatedHost

NOW_MS = 1_795_000_000_000

Found = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scrape(seen: Snapshot | None, age_s: float = 1.5, content_type: str = TEXT) -> str:
    return collect(None if seen is None else (seen, age_s)).render(content_type).decode()


def parsed(page: str) -> Found:
    """The samples; the parser adds `_total` to counters that lack it, as DCGM's do."""
    return {
        (
            sample.name.removesuffix("_total") if sample.name.startswith("DCGM") else sample.name,
            frozenset(sample.labels.items()),
        ): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def values(page: str, name: str, **labels: str) -> list[float]:
    """Values of the samples of a name that carry these labels, and perhaps others."""
    return [
        value for (found, have), value in parsed(page).items() if found == name and have >= frozenset(labels.items())
    ]


def value(page: str, name: str, **labels: str) -> float:
    [found] = values(page, name, **labels)
    return found


def labels_of(page: str, name: str, **labels: str) -> dict[str, str]:
    [found] = [dict(have) for (each, have) in parsed(page) if each == name and have >= frozenset(labels.items())]
    return found


def test_values_are_in_the_units_of_their_names() -> None:
    page = scrape(snapshot(NOW_MS))
    assert value(page, "DCGM_FI_DEV_GPU_UTIL", UUID=BUSY) == 73.4
    assert value(page, "DCGM_FI_PROF_SM_ACTIVE", UUID=BUSY) == 0.615
    assert value(page, "DCGM_FI_DEV_FB_USED", UUID=BUSY) == 48 * 1024
    assert value(page, "DCGM_FI_DEV_FB_TOTAL", UUID=BUSY) == 80 * 1024
    assert value(page, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", UUID=BUSY) == 123_456_789_012
    assert value(page, "fallow_gpu_util_max_ratio", UUID=BUSY) == 1
    assert value(page, "fallow_gpu_throttled_seconds_total", UUID=BUSY, reason="power_cap") == 1.5
    assert value(page, "fallow_process_gpu_memory_bytes", pid="4711") == 48 * GIB
    assert value(page, "fallow_process_cpu_util_ratio", pid="4711") == 1.3
    assert value(page, "fallow_host_cpu_util_ratio") == 0.125
    assert value(page, "fallow_agent_cpu_seconds_per_interval", process="worker") == 0.0015
    assert value(page, "fallow_publish_last_success_timestamp_seconds") == NOW_MS / 1000 - 30


def test_unknown_is_absent_and_a_measured_zero_is_there() -> None:
    page = scrape(snapshot(NOW_MS))
    assert value(page, "DCGM_FI_DEV_GPU_UTIL", UUID=HELD) == 0
    assert value(page, "fallow_gpu_throttled_seconds_total", UUID=BUSY, reason="hw_thermal") == 0
    assert values(page, "DCGM_FI_PROF_SM_ACTIVE", UUID=HELD) == []
    assert values(page, "fallow_gpu_throttled_seconds_total", UUID=HELD) == []
    assert values(page, "fallow_host_pressure_ratio", resource="io") == []
    assert "nan" not in page.lower()


def test_a_mig_instance_goes_by_its_parent_and_its_own_ids() -> None:
    page = scrape(mig_snapshot(NOW_MS))
    labels = labels_of(page, "DCGM_FI_DEV_GPU_UTIL", GPU_I_ID="1")
    assert labels == {
        "gpu": "0",
        "UUID": "GPU-aaaa",
        "pci_bus_id": "00000000:07:00.0",
        "device": "nvidia0",
        "modelName": "NVIDIA H100 80GB HBM3",
        "GPU_I_PROFILE": "3g.40gb",
        "GPU_I_ID": "1",
        "MIG_UUID": "MIG-1111",
        "Hostname": "gn001",
    }
    assert values(page, "DCGM_FI_DEV_POWER_USAGE") == [300.0]  # once, with the parent


def test_idle_is_what_was_seen_of_it() -> None:
    page = scrape(snapshot(NOW_MS))
    assert value(page, "fallow_gpu_idle_seconds", UUID=BUSY) == 0
    assert value(page, "fallow_gpu_idle_seconds", UUID=HELD) == 2400
    blind = replace(snapshot(NOW_MS), gpus=(gpu_row(BUSY, NOW_MS),))
    assert values(scrape(blind), "fallow_gpu_idle_seconds") == []


@pytest.mark.parametrize("health", ["lost", "missing", "reset_required", "wedged", "driver_down", "released", "asleep"])
def test_a_gpu_that_is_not_watched_shows_its_state_and_nothing_else(health: str) -> None:
    rows = (gpu_row(BUSY, NOW_MS, gpu_util_pct=50.0), gpu_row(LOST, NOW_MS, health=health, util_source="none"))
    page = scrape(replace(snapshot(NOW_MS), gpus=rows, processes=(process_row(LOST, 1, "ada"),)))
    shown = {name for (name, labels) in parsed(page) if ("UUID", LOST) in labels}
    assert shown == {"fallow_gpu_info", "fallow_gpu_health"}
    states = {state: value(page, "fallow_gpu_health", UUID=LOST, health=state) for state in catalogue.HEALTH_STATES}
    assert states == {state: float(state == health) for state in catalogue.HEALTH_STATES}


def test_old_values_never_look_live() -> None:
    seen = snapshot(NOW_MS)
    assert value(scrape(seen, 30.0), "fallow_up") == 1
    assert parsed(scrape(None)) == {("fallow_up", frozenset()): 0.0}, "before the first interval"
    page = scrape(seen, 30.1)
    assert value(page, "fallow_up") == 0
    assert value(page, "fallow_sample_timestamp_seconds", UUID=BUSY) == NOW_MS / 1000
    assert value(page, "fallow_sample_age_seconds", UUID=BUSY) == 30.1
    with_gpu = {name for (name, labels) in parsed(page) if "UUID" in dict(labels)}
    assert with_gpu == {"fallow_sample_timestamp_seconds", "fallow_sample_age_seconds"}
    assert not any(
        name.startswith(("DCGM", "fallow_host", "fallow_process", "fallow_serving")) for name, _ in parsed(page)
    )


def test_thinned_sampling_is_not_stale() -> None:
    thinned = gpu_row(BUSY, NOW_MS, gpu_util_pct=1.0) | {"time": NOW_MS - 80_000, "interval_ms": 80_000}
    seen = replace(snapshot(NOW_MS), gpus=(thinned,))
    assert value(scrape(seen, 100), "fallow_up") == 1
    assert value(scrape(seen, 241), "fallow_up") == 0


def test_a_model_on_two_gpus_is_counted_once() -> None:
    page = scrape(snapshot(NOW_MS))
    assert values(page, "fallow_serving_running_requests") == [3.0]
    assert len(values(page, "fallow_serving_gpu_info", model="m")) == 2


def test_failing_publication_shows() -> None:
    failing = PublishingStatus(failing_since_ms=NOW_MS - 5000, last_error="no route", waiting_rows=7)
    page = scrape(replace(snapshot(NOW_MS), publishing=failing))
    assert value(page, "fallow_publish_failing") == 1
    assert value(page, "fallow_publish_failing_since_timestamp_seconds") == NOW_MS / 1000 - 5
    assert values(page, "fallow_publish_last_success_timestamp_seconds") == []
    assert "no route" not in page


def test_both_formats_say_the_same() -> None:
    seen = snapshot(NOW_MS)
    families = list(openmetrics.text_string_to_metric_families(scrape(seen, content_type=OPEN_METRICS)))
    found = {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}
    assert found == parsed(scrape(seen))
    kinds = {family.name: family.type for family in families}
    assert kinds["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"] == "unknown"  # a counter there ends in _total
    assert kinds["fallow_gpu_throttled_seconds"] == "counter"
    assert "# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter" in scrape(seen)


@given(st.text(max_size=30), st.text(max_size=30))
def test_any_text_can_be_a_label(first: str, second: str) -> None:
    samples = ExposedSamples()
    samples.add(catalogue.UP, 1, label_text({"one": first, "two": second}))
    page = samples.render(TEXT).decode()
    [(_, labels)] = parsed(page)
    # what is not Unicode is shown as `?`; an empty label is the same as none
    expected = {"one": first, "two": second}
    assert dict(labels) == {name: text.encode(errors="replace").decode() for name, text in expected.items() if text}


def test_every_family_reads_a_column_that_there_is() -> None:
    columns = {f"{table.name}.{column.name}" for table in schema.TABLES for column in table.columns}
    columns |= {f"errors.{name}" for name in GpuErrors.__annotations__}
    read = [family for family in OF_AGENTS if "." in family.source and " " not in family.source]
    assert len(read) > 60
    assert [family.source for family in read if family.source not in columns] == []


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (package prometheus)")
@pytest.mark.parametrize("seen", [snapshot(NOW_MS), mig_snapshot(NOW_MS)], ids=["whole", "mig"])
def test_promtool_finds_nothing_but_what_dcgm_brings_along(seen: Snapshot) -> None:
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=scrape(seen), capture_output=True, text=True, check=False, timeout=60
    )
    complaints = {tuple(line.split(" ", 1)) for line in (done.stdout + done.stderr).splitlines()}
    others = {
        (name, what)
        for name, what in complaints
        if "camelCase" not in what and not (name.startswith("DCGM") and "_total" in what)  # modelName; DCGM's counters
    }
    assert others == set()
    assert done.returncode in {0, 3}  # 3: it complained


def test_a_snapshot_survives_json() -> None:
    seen = snapshot(NOW_MS)
    assert Snapshot.from_json(seen.as_json()) == seen
    assert Snapshot.from_json(seen.as_json() | {"of_a_newer_agent": 1}) == seen


def test_the_board_knows_how_old_its_snapshot_is() -> None:
    board = SnapshotBoard()
    assert board.latest() is None
    assert board.latest_with_age() is None
    old = replace(snapshot(), time_ms=snapshot().time_ms - 60_000)
    board.publish(old)
    newest = board.latest_with_age()
    assert newest is not None
    assert (newest[0], board.latest()) == (old, old)
    assert 60 <= newest[1] < 90


def feed(clock: SinceClock, *intervals: dict[str, Any]) -> list[int | None]:
    """Idle since, after each interval: its number on the grid, and the row's values."""
    found = []
    for each in intervals:
        row = gpu_row(BUSY, (each.pop("at") + 1) * INTERVAL_MS, **each)
        since_ms = clock.feed([row])[BUSY]
        found.append(None if since_ms is None else since_ms // INTERVAL_MS)
    return found


IDLE: dict[str, Any] = {"gpu_util_pct": 0.0, "gpu_util_max_pct": 0}


def test_idle_since_counts_unbroken_observation_only() -> None:
    busy = {"gpu_util_pct": 0.4, "gpu_util_max_pct": 9}
    unknown: dict[str, Any] = {"gpu_util_pct": None}
    assert feed(SinceClock(is_idle), {"at": 5, **IDLE}, {"at": 6, **IDLE}) == [5, 5]
    assert feed(SinceClock(is_idle), {"at": 5, **IDLE}, {"at": 6, **busy}, {"at": 7, **IDLE}) == [5, None, 7]
    assert feed(SinceClock(is_idle), {"at": 5, **IDLE}, {"at": 6, **unknown}, {"at": 7, **IDLE}) == [5, None, 7]
    assert feed(SinceClock(is_idle), {"at": 5, **IDLE}, {"at": 7, **IDLE}) == [5, 7]  # nobody looked at the sixth
    assert feed(SinceClock(is_idle), {"at": 5, **IDLE}, {"at": 2, **IDLE}) == [5, 2]  # the clock was put back
    assert feed(SinceClock(is_idle), {"at": 5, "gpu_util_pct": 0.0, "gpu_util_max_pct": 3}) == [
        None
    ]  # too short to round up


def test_idle_clocks_of_gpus_that_are_gone_are_forgotten() -> None:
    clock = SinceClock(is_idle)
    clock.feed([gpu_row(BUSY, INTERVAL_MS, **IDLE), gpu_row(FREE, INTERVAL_MS, **IDLE)])
    assert clock.feed([gpu_row(FREE, 2 * INTERVAL_MS, **IDLE)]) == {FREE: 0}


WORKING = Gpu(
    UUID,
    util=constant(80),
    mem_used=constant(40 * GIB),
    encoder_util=constant(7),
    decoder_util=constant(31),
    gpm={5: constant(40)},
)


@pytest.fixture
def page(simulated: Callable[..., SimulatedHost]) -> str:
    """The page of an agent on the fake driver after some seconds."""
    seen: list[Snapshot | None] = []
    host = simulated(Scenario((WORKING,), START_MS))
    host.at(7.5, lambda supervisor: seen.append(supervisor._board.latest()))  # noqa: SLF001
    host.run(9)
    (newest,) = seen
    assert newest is not None
    return collect((newest, 1.0)).render(TEXT).decode()


def dcgm_samples(page: str, name: str) -> list[Any]:
    return [
        sample
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name.removesuffix("_total") == name
    ]


def test_every_panel_and_variable_of_the_dashboard_finds_a_series(page: str) -> None:
    for title, query in dcgm_dashboard()["panels"].items():
        [(name, matchers)] = re.findall(r"(DCGM_\w+)\{([^}]*)\}", query)
        labels = set(re.findall(r"(\w+)=~", matchers)) - {"instance"}  # which Prometheus adds
        assert any(labels <= sample.labels.keys() for sample in dcgm_samples(page, name)), title
    for variable in dcgm_dashboard()["variables"]:
        assert any(variable["label"] in sample.labels for sample in dcgm_samples(page, variable["metric"])), variable


def test_the_values_are_dcgms_in_its_units(page: str) -> None:
    def shown(name: str) -> float:
        (sample,) = dcgm_samples(page, name)
        return float(sample.value)

    assert shown("DCGM_FI_DEV_ENC_UTIL") == 7
    assert shown("DCGM_FI_DEV_DEC_UTIL") == 31
    assert shown("DCGM_FI_PROF_GR_ENGINE_ACTIVE") == pytest.approx(0.8, abs=0.02)
    parts = ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_RESERVED", "DCGM_FI_DEV_FB_FREE")
    assert sum(map(shown, parts)) == shown("DCGM_FI_DEV_FB_TOTAL") == 80 * 1024
