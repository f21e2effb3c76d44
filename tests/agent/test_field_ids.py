"""Which number a field value has depends on the driver: the table, and rows of drivers of both kinds and of unknown ones."""

from __future__ import annotations

from importlib.metadata import version
from itertools import combinations
from typing import TYPE_CHECKING

import pynvml
import pytest

from agent.nvml.driver import FIELD_IDS, NEWEST_CHECKED, field_numbers, parsed_version
from tests.agent.simulation import START_MS
from tests.fakes.nvml import Gpu, Scenario, constant

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.agent.simulation import SimulatedHost

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


def test_no_field_has_two_numbers_in_one_driver() -> None:
    for one, other in combinations(FIELD_IDS, 2):
        if one.column == other.column:
            assert one.until is not None
            assert one.until <= other.since
        assert one.source


@pytest.mark.parametrize(
    ("driver", "known"), [("580.65.06", True), ("580.82.07", True), ("570.172.08", False), ("620.10", False)]
)
def test_throttled_time_is_right_or_null_whatever_the_driver(
    simulated: Callable[..., SimulatedHost], driver: str, *, known: bool
) -> None:
    throttled = {"power_cap": constant(0.5), "sw_thermal": constant(0.25), "hw_thermal": constant(0), "power_brake": constant(1)}  # fmt: skip
    gpu = Gpu("GPU-a", architecture=10, util=constant(60), throttled=throttled, mem_temperature_c=constant(71))
    host = simulated(Scenario((gpu,), START_MS - 20_000, driver_version=driver)).run(3)
    for row in host.of("GPU-a"):
        read_ms = row["time"] + row["interval_ms"] + row["read_delay_ms"] - host.scenario.start_ms
        expected = [gpu.throttled_ns(reason, read_ms) // 10**6 for reason in throttled]
        assert row["mem_temperature_c"] == 71
        shown = [row[f"throttled_{reason}_ms"] for reason in throttled]
        assert shown == pytest.approx(expected if known else [expected[0], None, None, None], abs=1)
    told = [event["detail"].partition(":")[0] for event in host.events("call_unsupported")]
    assert told == (["the driver (620.10) is newer than this fallow knows"] if driver == "620.10" else [])
