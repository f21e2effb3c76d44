"""What the NVML worker reads in each lane, over the fake driver: rows, GPM, MIG, inventory, errors, XIDs, fields."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pynvml
import pytest

from agent.nvml.driver import NEWEST_CHECKED, field_numbers, parsed_version
from tests.agent.lanes import PAST_S, STEP_MS, of
from tests.agent.simulation import START_MS
from tests.fakes.nvml import (
    GIB,
    Fault,
    Gpu,
    MigInstance,
    Process,
    Scenario,
    Steps,
    Xid,
    constant,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.agent.lanes import Lanes

    MakeLanes = Callable[..., Lanes]
    from tests.agent.simulation import SimulatedHost


def kinds(answer: dict[str, Any]) -> list[str]:
    return [incident["kind"] for incident in answer["incidents"]]


def test_gpm_gives_averages_over_the_whole_interval(lanes: MakeLanes) -> None:
    # SM activity alternates every 100 ms: a point sample would see 0 or 80, the average is 40
    flicker = Steps(tuple((tenth / 10, 80.0 if tenth % 2 else 0.0) for tenth in range(900)))
    gpm = {2: flicker, 3: constant(20), 5: constant(11.5), 10: constant(33), 11: constant(1), 12: constant(2),
           13: constant(3), 20: constant(1000), 21: constant(500)}  # fmt: skip
    host = lanes(Gpu("GPU-a", util=constant(60), gpm=gpm, nvlink_group=0, nvlink_tx_mib_per_s=constant(7)))
    assert "sm_active_pct" not in of(host.row(), "GPU-a"), "averages need two moments"
    row = of(host.row(), "GPU-a")
    assert row["util_source"] == "samples", "the ring knows the maximum as well"
    assert row["gpu_util_pct"] == row["gpu_util_max_pct"] == row["gpu_util_p98_pct"] == 60
    assert (row["gpu_util_coverage_ratio"], row["offset_ms"]) == (1, 0)
    assert row["sm_active_pct"] == pytest.approx(40, abs=8)
    assert (row["sm_occupancy_pct"], row["tensor_active_pct"], row["dram_active_pct"]) == (20, 11.5, 33)
    assert (row["fp64_active_pct"], row["fp32_active_pct"], row["fp16_active_pct"]) == (1, 2, 3)
    assert row["pcie_tx_bytes_per_s"] == 1000 * 2**20
    assert row["pcie_rx_bytes_per_s"] == 500 * 2**20
    assert row["nvlink_tx_bytes_per_s"] == 7 * 2**20


def test_a_gpm_metric_that_is_nan_is_null(lanes: MakeLanes) -> None:
    host = lanes(Gpu("GPU-a", util=constant(60), gpm={2: constant(40)}, gpm_nan=(2, 3)))
    host.row()
    row = of(host.row(), "GPU-a")
    assert row["gpu_util_pct"] == 60
    assert "sm_active_pct" not in row
    assert "sm_occupancy_pct" not in row


def test_averages_over_a_longer_gap_are_not_this_intervals(lanes: MakeLanes) -> None:
    host = lanes(Gpu("GPU-a", util=constant(60), gpm={2: constant(40)}))
    host.row()
    host.skip(2)
    assert "sm_active_pct" not in of(host.row(), "GPU-a")
    assert of(host.row(), "GPU-a")["sm_active_pct"] == 40


def test_mig_instances_are_devices_of_their_own_and_power_stays_with_the_parent(lanes: MakeLanes) -> None:
    own = (Process(os.getpid(), mem_bytes=GIB),)
    host = lanes(
        Gpu(
            "GPU-m",
            power_w=constant(300),
            processes=own,
            gpm_supported=True,
            mig=(
                MigInstance("MIG-1", gi=1, slot=0, util=constant(30), mem_used=constant(2 * GIB), processes=own),
                MigInstance("MIG-2", gi=2, slot=1, util=constant(0), profile="2g.20gb", gpu_slices=2),
            ),
        )
    )
    first = host.row()
    answer = host.row()
    assert [row["gpu"] for row in answer["gpu"]] == ["GPU-m", "MIG-1", "MIG-2"]
    parent, busy, idle = answer["gpu"]
    assert parent["power_w"] == 300
    assert parent["util_source"] == "none"
    assert parent.get("gpu_util_pct") is None, "unknown for a GPU that is split, and never 0"
    assert busy["util_source"] == "gpm"
    assert busy["gpu_util_pct"] == pytest.approx(30, abs=0.5)
    assert busy["mem_used_bytes"] == 2 * GIB
    assert "power_w" not in busy
    assert parent["process_count"] == 1, "the sum over its instances"
    assert (busy["process_count"], idle["process_count"]) == (1, 0)
    assert (idle["gpu_util_pct"], idle["gpu_util_max_pct"], idle["gpu_util_zero_ratio"]) == (0, 0, 1)
    assert [row["gpu"] for row in answer["process"]] == ["MIG-1"]
    instance = of(first, "MIG-2", "device")
    assert (instance["parent_gpu"], instance["mig_profile"], instance["mig_gpu_slices"]) == ("GPU-m", "2g.20gb", 2)
    assert instance["gpu_instance_id"] == 2


def test_ampere_under_mig_has_no_utilization_at_all(lanes: MakeLanes) -> None:
    host = lanes(Gpu("GPU-m", architecture=7, gpm_supported=False, mig=(MigInstance("MIG-1", gi=1),)))
    host.row()
    for row in host.row()["gpu"]:
        assert (row["util_source"], row.get("gpu_util_pct")) == ("none", None)


def test_a_reshaped_gpu_never_gives_an_instances_rows_to_the_next_one(lanes: MakeLanes) -> None:
    reshape_s = PAST_S + 2
    host = lanes(
        Gpu(
            "GPU-m",
            mig=(
                MigInstance("MIG-old", gi=1, slot=0, mem_used=constant(GIB), end_s=reshape_s),
                MigInstance("MIG-new", gi=1, slot=0, mem_used=constant(5 * GIB), start_s=reshape_s + 0.01),
            ),
        )
    )
    answers = [host.row() for _ in range(7)]
    seen = [row for answer in answers for row in answer["gpu"] if row["gpu"].startswith("MIG-")]
    assert {(row["gpu"], row["mem_used_bytes"]) for row in seen} == {("MIG-old", GIB), ("MIG-new", 5 * GIB)}
    assert "mig_changed" in [kind for answer in answers for kind in kinds(answer)]
    assert "MIG-new" in [row["gpu"] for answer in answers for row in answer["device"]]


def test_mig_that_is_switched_on_is_noticed(lanes: MakeLanes) -> None:
    mode = Steps(((0, 0), (PAST_S + 3, 1)))
    instance = MigInstance("MIG-1", gi=1, start_s=PAST_S + 3)
    host = lanes(Gpu("GPU-m", util=constant(50), mig=(instance,), mig_mode=mode))
    answers = [host.row() for _ in range(9)]
    assert [row["gpu"] for row in answers[0]["gpu"]] == ["GPU-m"]
    assert [row["gpu"] for row in answers[-1]["gpu"]] == ["GPU-m", "MIG-1"]


def test_the_inventory_says_what_is_near_what(lanes: MakeLanes, tmp_path: Path) -> None:
    node = tmp_path / "sys/bus/pci/devices/0000:17:00.0/numa_node"
    node.parent.mkdir(parents=True)
    node.write_text("1\n")
    host = lanes(
        Gpu("GPU-a", nvlink_group=0),
        Gpu("GPU-b", nvlink_group=0, pci_bus_id="0000:18:00"),
        Gpu("GPU-c", pci_bus_id="0000:19:00"),
    )
    a, b, c = (of(host.opened, gpu, "device") for gpu in ("GPU-a", "GPU-b", "GPU-c"))
    assert (a["nvlink_island"], b["nvlink_island"], c["nvlink_island"]) == ("GPU-a", "GPU-a", "GPU-c")
    assert (a["numa_node"], b["numa_node"]) == (1, None)
    assert (a["architecture"], a["compute_capability"]) == ("hopper", "9.0")


def test_error_counters_that_get_worse_are_events(lanes: MakeLanes) -> None:
    at_s = PAST_S + 3
    host = lanes(
        Gpu(
            "GPU-a",
            ecc_uncorrected_offset=5,
            ecc_uncorrected=Steps(((0, 0), (at_s, 2))),
            remap_pending=Steps(((0, 0), (at_s, 1))),
            recovery_action=Steps(((0, 0), (at_s, 1))),
            pcie_replay=constant(9),
        ),
        Gpu("GPU-b", field_errors={4: 3, 230: 4}),
    )
    healthy = of(host.opened, "GPU-a", "errors")
    assert (healthy["row_remap_pending"], healthy["recovery_action"], healthy["pcie_replay_count"]) == (
        False,
        "none",
        9,
    )
    assert kinds(host.opened) == [], "the errors that a card has had before are no news"
    refused = of(host.opened, "GPU-b", "errors")
    assert (refused["ecc_uncorrected_count"], refused["recovery_action"]) == (None, None)
    answers = [host.row(errors=True) for _ in range(6)]
    changed = of(answers[-1], "GPU-a", "errors")
    assert changed["ecc_uncorrected_count"] - healthy["ecc_uncorrected_count"] == 2
    assert (changed["row_remap_pending"], changed["recovery_action"]) == (True, "gpu_reset")
    found = [kind for answer in answers for kind in kinds(answer)]
    assert sorted(found) == ["ecc_uncorrected", "recovery_action", "row_remap_pending"]


def test_every_xid_is_an_event_of_the_next_answer(lanes: MakeLanes) -> None:
    at_s = PAST_S + 1.2
    host = lanes(Gpu("GPU-a"), Gpu("GPU-b"), xids=(Xid(1, at_s, 79), Xid(0, at_s + 0.01, 31), Xid(0, 1.0, 13)))
    answers = [host.row() for _ in range(5)]
    found = [each for answer in answers for each in answer["incidents"] if each["kind"] == "xid"]
    assert [(xid["gpu"], xid["code"]) for xid in found] == [("GPU-b", 79), ("GPU-a", 31)]
    assert all(0 <= host.scenario.seconds(xid["time"] / 1000) - at_s < STEP_MS / 1000 for xid in found)


def test_no_thread_waits_in_the_driver_for_events(lanes: MakeLanes) -> None:
    host = lanes(Gpu("GPU-a"))
    host.row()
    assert len(list(Path("/proc", str(host.worker.pid), "task").iterdir())) == 1


def test_a_driver_without_field_values_still_gives_energy(lanes: MakeLanes) -> None:
    host = lanes(Gpu("GPU-a"), faults=(Fault("function_not_found", function="nvmlDeviceGetFieldValues"),))
    row = of(host.row(), "GPU-a")
    assert row["energy_mj"] is not None
    assert row.get("throttled_power_cap_ms") is None


def test_a_sleeping_gpu_is_not_woken(lanes: MakeLanes, tmp_path: Path) -> None:
    power = tmp_path / "sys/bus/pci/devices/0000:17:00.0/power"
    power.mkdir(parents=True)
    (power / "control").write_text("auto\n")
    status = power / "runtime_status"
    status.write_text("active\n")
    host = lanes(Gpu("GPU-a", util=constant(50)), Gpu("GPU-b", util=constant(50), pci_bus_id="0000:18:00"))
    host.row()
    status.write_text("suspended\n")
    answer = host.row()
    asleep, awake = answer["gpu"]
    assert (asleep["health"], asleep.get("gpu_util_pct"), asleep.get("power_w")) == ("asleep", None, None)
    assert awake["health"] == "ok"
    assert kinds(answer) == ["gpu_asleep"]
    assert answer["costs"]["nvml_calls"] > 0
    status.write_text("active\n")
    answer = host.row()
    assert answer["gpu"][0]["health"] == "ok"
    assert kinds(answer) == ["gpu_ok"]


def test_a_gpu_of_which_nothing_may_be_read_is_degraded_and_says_so(lanes: MakeLanes) -> None:
    host = lanes(Gpu("GPU-a"), Gpu("GPU-b"), faults=(Fault("no_permission", gpu=0, start_s=PAST_S + 3),))
    answers = [host.row() for _ in range(6)]
    refused, fine = answers[-1]["gpu"]
    assert (refused["health"], fine["health"]) == ("degraded", "ok")
    assert (refused["util_source"], refused.get("process_count")) == ("none", None)
    (said,) = [each for answer in answers for each in answer["incidents"] if each["kind"] == "gpu_degraded"]
    assert "none of its values may be read" in said["detail"]


def test_instances_that_cannot_be_told_apart_are_not_read(lanes: MakeLanes) -> None:
    late = Fault("unknown", gpu=0, function="nvmlDeviceGetGpuInstanceId", start_s=PAST_S + 3)
    host = lanes(
        Gpu("GPU-m", mig=(MigInstance("MIG-1", gi=1, util=constant(30), mem_used=constant(GIB)),)), faults=(late,)
    )
    answers = [host.row() for _ in range(9)]
    assert of(answers[0], "MIG-1")["mem_used_bytes"] == GIB
    unknown, parent = of(answers[-1], "MIG-1"), of(answers[-1], "GPU-m")
    assert unknown.get("mem_used_bytes") is None, "its handle may be another instance's by now"
    assert (unknown["util_source"], parent["process_count"]) == ("none", None)


THROTTLED = ("throttled_sw_thermal_ms", "throttled_hw_thermal_ms", "throttled_power_brake_ms")
OLD, NEW, NEITHER = (251, 252, 253), (269, 270, 271), (None, None, None)

OF_PYNVML = {
    "ecc_corrected_count": "ECC_SBE_VOL_TOTAL",
    "ecc_uncorrected_count": "ECC_DBE_VOL_TOTAL",
    "ecc_corrected_lifetime_count": "ECC_SBE_AGG_TOTAL",
    "ecc_uncorrected_lifetime_count": "ECC_DBE_AGG_TOTAL",
    "throttled_power_cap_ms": "CLOCKS_EVENT_REASON_SW_POWER_CAP",
    "throttled_sync_boost_ms": "CLOCKS_EVENT_REASON_SYNC_BOOST",
    "throttled_sw_thermal_ms": "CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN",
    "throttled_hw_thermal_ms": "CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN",
    "throttled_power_brake_ms": "CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN",
    "mem_temperature_c": "MEMORY_TEMP",
    "energy_mj": "TOTAL_ENERGY_CONSUMPTION",
    "pcie_replay_count": "PCIE_REPLAY_COUNTER",
    "remapped_rows_corrected_count": "REMAPPED_COR",
    "remapped_rows_uncorrected_count": "REMAPPED_UNC",
    "row_remap_pending": "REMAPPED_PENDING",
    "row_remap_failed": "REMAPPED_FAILURE",
    "recovery_action": "GET_GPU_RECOVERY_ACTION",
}


@pytest.mark.parametrize(
    ("driver", "numbers"),
    [
        ("470.256.02", NEITHER),
        ("570.172.08", NEITHER),
        ("575.51.02", OLD),
        ("580.65.06", OLD),
        ("580.76.05", NEITHER),
        ("580.82.07", NEW),
        ("615.71", NEW),
        ("620.10", NEITHER),
        ("none", NEITHER),
    ],
)
def test_the_numbers_of_a_driver(driver: str, numbers: tuple[int | None, ...]) -> None:
    known = field_numbers(parsed_version(driver))
    assert tuple(known.get(column) for column in THROTTLED) == numbers
    assert (known["throttled_power_cap_ms"], known["throttled_sync_boost_ms"], known["energy_mj"]) == (74, 76, 83)


def test_the_newest_numbers_are_those_of_the_binding() -> None:
    """A newer binding has to be compared, and NEWEST_CHECKED raised, before it is pinned."""
    binding = parsed_version(version("nvidia-ml-py"))
    assert binding is not None
    assert binding[1:2] <= NEWEST_CHECKED
    assert field_numbers(binding[1:]) == {
        column: getattr(pynvml, f"NVML_FI_DEV_{name}") for column, name in OF_PYNVML.items()
    }


@pytest.mark.parametrize(
    ("driver", "known"), [("580.65.06", True), ("580.82.07", True), ("570.172.08", False), ("620.10", False)]
)
def test_throttled_time_is_right_or_null_whatever_the_driver(
    simulated: Callable[..., SimulatedHost], driver: str, *, known: bool
) -> None:
    throttled = {
        "power_cap": constant(0.5),
        "sw_thermal": constant(0.25),
        "hw_thermal": constant(0),
        "power_brake": constant(1),
    }
    gpu = Gpu("GPU-a", architecture=10, util=constant(60), throttled=throttled, mem_temperature_c=constant(71))
    host = simulated(Scenario((gpu,), START_MS - 20_000, driver_version=driver)).run(3)
    for row in host.of("GPU-a"):
        read_ms = row["time"] + row["interval_ms"] + row["read_delay_ms"] - host.scenario.start_ms
        expected = [gpu.throttled_ns(reason, read_ms) // 10**6 for reason in throttled]
        assert row["mem_temperature_c"] == 71
        shown = [row[f"throttled_{reason}_ms"] for reason in throttled]
        assert shown == pytest.approx(expected if known else [expected[0], None, None, None], abs=1)
    told = [event["detail"].partition(":")[0] for event in host.events("call_unsupported")]
    assert told == (
        ["the driver (620.10) is newer than the drivers that this fallow supports"] if driver == "620.10" else []
    )
