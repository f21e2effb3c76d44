"""The fake driver's field values, and the counters that begin anew when the driver is loaded or the GPU reset."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.agent.player import OTHER_UUID, UUID, Player, ms_ago, one
from tests.fakes.nvml import Gpu, Scenario, Steps, constant

FIELDS = """
def fields(handle, *wanted):
    found = nv.nvmlDeviceGetFieldValues(handle, list(wanted))
    wide = {3, 4, 5, 6, 74, 76, 83, 138, 139, 251, 252, 253, 269, 270, 271}
    assert all(f.nvmlReturn or f.fieldId > 250 or (f.valueType == (3 if f.fieldId in wide else 1)) for f in found)
    return [(f.value.ullVal if f.fieldId in wide else f.value.uiVal) if f.nvmlReturn == 0 else -f.nvmlReturn for f in found]
"""
ECC, REMAP, THROTTLED = (3, 4, 5, 6), (142, 143, 144, 145), (74, 76, 251, 252, 253)


def read(player: Player, scenario: Scenario, *wanted: Any) -> Any:
    return player.ask(scenario, FIELDS + f"out = fields(gpu, *{wanted})")


def test_a_healthy_card_has_no_errors_and_no_repairs(player: Player) -> None:
    assert read(player, one(), *ECC, *REMAP, *THROTTLED, 94, 230) == [0] * 15


def test_errors_and_repairs_follow_their_steps(player: Player) -> None:
    gpu = Gpu(
        UUID,
        ecc_corrected=Steps(((0, 0), (10, 7), (1000, 99))),
        ecc_uncorrected=Steps(((0, 0), (20, 2))),
        ecc_corrected_offset=100,
        ecc_uncorrected_offset=5,
        remapped_corrected=constant(3),
        remapped_uncorrected=constant(1),
        remap_pending=Steps(((0, 0), (30, 1))),
        remap_failed=Steps(((0, 1), (30, 0))),
        pcie_replay=constant(12),
        recovery_action=Steps(((0, 0), (40, 1))),
    )

    assert read(player, one(gpu), *ECC, *REMAP, 94, 230) == [7, 2, 107, 7, 3, 1, 1, 0, 12, 1]
    out = player.ask(one(gpu), "out = nv.nvmlDeviceGetRemappedRows(gpu)")
    assert out == (3, 1, 1, 0)


def test_what_a_card_does_not_count_is_unsupported_field_by_field(player: Player) -> None:
    gpu = Gpu(UUID, ecc=False, row_remap=False, field_errors={94: 999, 83: 3})

    assert read(player, one(gpu), *ECC, *REMAP, 94, 83, 999, 82) == [*[-3] * 8, -999, -3, -3, 40]
    assert player.ask(one(gpu), "out = attempt(nv.nvmlDeviceGetRemappedRows, gpu)") == "NVMLError_NotSupported"


def test_throttled_time_is_exact(player: Player) -> None:
    gpu = Gpu(
        UUID,
        throttled={
            "power_cap": Steps(((0, 0.25), (10, 1), (12.345, 0))),
            "sync_boost": Steps(((0, 0), (1, 0.001), (2, 0))),
        },
        throttle=Steps(((0, 0x60), (3, 0x40), (5, 0x80), (6, 0x08), (50, 0))),
    )
    scenario = one(gpu)

    expected = [2_500_000_000 + 2_345_000_000, 1_000_000, 3_000_000_000, 5_000_000_000, 1_000_000_000]
    assert read(player, scenario, *THROTTLED) == expected
    renumbered = replace(scenario, driver_version="580.82.07")
    assert read(player, renumbered, 74, 76, 269, 270, 271) == expected
    reasons = ("power_cap", "sync_boost", "sw_thermal", "hw_thermal", "power_brake")
    assert [scenario.throttled_ns(0, reason, 60_000) for reason in reasons] == expected


@pytest.mark.parametrize(
    ("version", "old", "new"),
    [
        ("560.35.03", [-2, -2, -2], [-2, -2, -2]),
        ("570.172.08", [1, 1, 1], [-2, -2, -2]),
        ("575.51.02", [0, 50 * 10**9, 0], [1, 1, 1]),
        ("580.82.07", [1, 1, 1], [0, 50 * 10**9, 0]),
    ],
)
def test_a_number_means_something_else_to_another_driver(
    player: Player, version: str, old: list[int], new: list[int]
) -> None:
    gpu = Gpu(UUID, architecture=10, throttled={"hw_thermal": Steps(((0, 1), (50, 0)))})
    assert read(player, one(gpu, driver_version=version), 251, 252, 253, 269, 270, 271) == [*old, *new]


def test_throttled_time_while_it_grows(player: Player) -> None:
    scenario = one(Gpu(UUID, throttled={"hw_thermal": constant(0.5)}))
    field, before, after = player.ask(
        scenario, "before = time.time_ns(); f = nv.nvmlDeviceGetFieldValues(gpu, [252])[0]\n"
        "out = (f.value.ullVal, before, time.time_ns())",
    )  # fmt: skip

    read_ms = range(before // 10**6 - scenario.start_ms, after // 10**6 - scenario.start_ms + 1)
    assert field in {scenario.throttled_ns(0, "hw_thermal", t_ms) for t_ms in read_ms}


def test_nvlink_traffic_of_all_links_and_of_one(player: Player) -> None:
    gpu = Gpu(UUID, nvlink_group=0, nvlink_links=4, nvlink_tx_mib_per_s=Steps(((0, 100.5), (10, 0))),
              nvlink_rx_mib_per_s=Steps(((0, 0), (1, 8), (2, 0))))  # fmt: skip
    every = 0xFFFFFFFF

    out = read(player, one(gpu), (138, every), (139, every), (138, 3), (138, 4))
    assert out == [1005 * 1024, 8 * 1024, 1005 * 256, -2]
    assert read(player, one(), (138, every), (139, every)) == [-3, -3]


def test_power_and_energy_by_field(player: Player) -> None:
    gpu = Gpu(UUID, power_w=Steps(((0, 300.5), (10, 0))), energy_offset_mj=7, mem_temperature_c=constant(77))

    assert read(player, one(gpu), 82, 83, 185, 186) == [77, 3_005_007, 0, 0]


# -- epochs

COUNTERS = (83, 74, 3, 4, 5, (138, 0xFFFFFFFF))


def counting(**options: Any) -> Gpu:
    return Gpu(
        options.pop("uuid", UUID),
        power_w=Steps(((0, 100), (50, 0))),
        energy_offset_mj=10**9,
        throttled={"power_cap": Steps(((0, 1), (50, 0)))},
        ecc_corrected=Steps(((0, 0), (5, 3), (45, 8))),
        ecc_corrected_offset=20,
        nvlink_group=0,
        nvlink_tx_mib_per_s=Steps(((0, 1), (50, 0))),
        **options,
    )


def test_a_reload_of_the_driver_begins_every_counter_anew(player: Player) -> None:
    before = read(player, one(counting()), *COUNTERS)
    scenario = one(counting(), reloads=(20, 40.123))
    after = read(player, scenario, *COUNTERS)

    assert before == [10**9 + 5_000_000, 50_000_000_000, 8, 0, 28, 50 * 1024]
    assert after == [987_700, 9_877_000_000, 5, 0, 28, int(9.877 * 1024)]
    assert (scenario.counters_since_ms(0, 60_000), scenario.counters_since_ms(0, 39_999)) == (40_123, 20_000)
    assert scenario.energy_mj(0, 60_000) == 987_700
    assert scenario.energy_mj(0, 20_000) == 0
    assert scenario.energy_mj(0, 19_999) == 10**9 + 1_999_900


def test_a_reset_is_one_gpus_own(player: Player) -> None:
    gpus = (counting(resets=(45.0,)), counting(uuid=OTHER_UUID))
    scenario = Scenario(gpus=gpus, start_ms=ms_ago(60))
    program = FIELDS + f"out = [fields(nv.nvmlDeviceGetHandleByIndex(i), *{COUNTERS[:3]}) for i in (0, 1)]"
    out = player.ask(scenario, program)

    assert out == [[500_000, 5_000_000_000, 5], [10**9 + 5_000_000, 50_000_000_000, 8]]
    assert [scenario.energy_mj(index, 60_000) for index in (0, 1)] == [500_000, 10**9 + 5_000_000]


def test_a_counter_begins_anew_while_it_is_watched(player: Player) -> None:
    scenario = Scenario(gpus=(Gpu(UUID, energy_offset_mj=10**6, resets=(1.5,)),), start_ms=ms_ago(0))
    lowest, read_at = player.ask(
        scenario,
        """
        while (energy := nv.nvmlDeviceGetTotalEnergyConsumption(gpu)) >= 10**6:
            time.sleep(0.005)
        out = (energy, time.time())
        """,
    )

    assert scenario.seconds(read_at) == pytest.approx(1.5, abs=0.006)
    assert lowest <= scenario.energy_mj(0, round(scenario.seconds(read_at) * 1000) + 1)
