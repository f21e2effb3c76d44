"""Stalled suspects: which rows show kernels without work, and for how long they must before a GPU is a suspect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from agent.metrics.collector import collect
from agent.supervise.stalled import StalledWatch, judge
from fallow.exposition import TEXT
from tests.agent.simulation import START_MS
from tests.agent.snapshots import GIB, INTERVAL_MS, device_row, gpu_row
from tests.fakes.nvml import Gpu, Scenario, Steps, constant

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.rows import DeviceRow
    from agent.snapshot import Snapshot
    from tests.agent.simulation import SimulatedHost

UUID = "GPU-a"
H100: DeviceRow = device_row(UUID, 0)  # type: ignore[assignment]  # a row of the `device` table
BUSY = {"gpu_util_pct": 100.0, "gpu_util_coverage_ratio": 1.0, "process_count": 1, "mem_used_bytes": 60 * GIB}
QUIET = {f"{pipe}_active_pct": 0.0 for pipe in ("tensor", "fp64", "fp32", "fp16", "dram")}
QUIET |= {f"{link}_bytes_per_s": 5e5 for link in ("pcie_tx", "pcie_rx", "nvlink_tx", "nvlink_rx")}
HUNG = BUSY | QUIET | {"sm_active_pct": 14.0, "power_w": 120.0}
"""A rank that waits in a collective."""
BEFORE_HOPPER = BUSY | {"power_w": 90.0, "mem_util_pct": 0.0}


def row(number: int, **values: Any) -> Any:
    return gpu_row(UUID, (number + 1) * INTERVAL_MS, **values)


def verdict(values: dict[str, Any], device: DeviceRow = H100) -> bool | None:
    return judge(row(0, **values), None, device).stalled


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(HUNG, id="hung collective"),
        pytest.param(BEFORE_HOPPER | {"process_count": 0}, id="orphaned kernel, no activity counters"),
        pytest.param(HUNG | {"power_w": None, "process_count": 0}, id="orphaned kernel, no power"),
    ],
)
def test_two_witnesses_that_agree_make_it_stalled(values: dict[str, Any]) -> None:
    assert verdict(values) is True


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({"dram_active_pct": 45.0, "power_w": 200.0}, id="memory-bound decoding at low power"),
        pytest.param({"fp64_active_pct": 6.0}, id="FP64 solver"),
        pytest.param({"tensor_active_pct": 2.5}, id="throttled training"),
        pytest.param({"pcie_rx_bytes_per_s": 9e6}, id="tiny kernels: launches cross PCIe"),
        pytest.param({"sm_active_pct": 95.0}, id="integer work on all SMs"),
        pytest.param({"nvlink_rx_bytes_per_s": 2e9}, id="a collective that moves data"),
        pytest.param({"decoder_util_pct": 40}, id="video"),
        pytest.param({"power_w": 320.0}, id="power alone denies it"),
        pytest.param({"gpu_util_pct": 30.0}, id="bursts: actors, loaders, warm-up loops"),
        pytest.param({"gpu_util_pct": 0.0}, id="idle"),
    ],
)
def test_one_witness_of_work_is_enough(values: dict[str, Any]) -> None:
    assert verdict(HUNG | values) is False


@pytest.mark.parametrize(
    ("values", "device"),
    [
        pytest.param(BEFORE_HOPPER, H100, id="power alone"),
        pytest.param(HUNG | {"power_w": None}, H100, id="activity alone"),
        pytest.param(HUNG | {"pcie_rx_bytes_per_s": None}, H100, id="activity without the traffic of launches"),
        pytest.param(HUNG, {}, id="power of an unknown card"),
        pytest.param(HUNG | {"gpu_util_coverage_ratio": 0.17}, H100, id="point samples"),
        pytest.param(HUNG | {"health": "lost"}, H100, id="lost"),
    ],
)
def test_too_few_witnesses_are_unknown_and_never_a_verdict(values: dict[str, Any], device: DeviceRow) -> None:
    assert verdict(values, device) is None


def test_a_low_power_cap_takes_the_witness_away() -> None:
    h200 = H100 | {"model": "NVIDIA H200"}
    assert verdict(HUNG | {"power_w": 198.0}, h200) is True  # type: ignore[arg-type]  # a row of the table
    assert verdict(HUNG | {"power_w": 198.0}, h200 | {"power_limit_w": 300.0}) is False  # type: ignore[arg-type]


def watched(*rows: Any, after: int = 3) -> tuple[list[bool | None], list[str]]:
    """The gauge after each row, and the kinds of the events."""
    watch = StalledWatch(after * INTERVAL_MS)
    gauge = [watch.feed([each], {UUID: H100})[UUID] for each in rows]
    return gauge, [str(each["kind"]) for each in watch.take_incidents()]


def test_a_suspicion_takes_its_time_and_ends_with_the_first_work() -> None:
    hung = [row(number, **HUNG) for number in range(4)]
    working = row(4, **HUNG | {"tensor_active_pct": 40.0})
    assert watched(*hung, working) == ([False, False, True, True, False], ["stalled_suspect", "stalled_over"])


def test_time_without_observation_breaks_a_suspicion() -> None:
    unseen = row(2, health="lost")
    gauge, kinds = watched(*(row(number, **HUNG) for number in (0, 1)), unseen, *(row(n, **HUNG) for n in (3, 4, 6, 7)))
    assert (gauge, kinds) == ([False, False, None, False, False, False, False], [])


def test_work_between_two_power_readings_shows_in_the_energy_counter() -> None:
    rows = [row(n, **HUNG | {"energy_mj": n * INTERVAL_MS * 400, "counters_since": 0}) for n in range(6)]
    assert watched(*rows, after=1) == ([True, *[False] * 5], ["stalled_suspect", "stalled_over"])
    reset = [row(n, **HUNG | {"energy_mj": 10**9 * n, "counters_since": n}) for n in range(6)]
    assert watched(*reset, after=1)[0] == [True] * 6


def test_clocks_that_are_held_down_are_work_as_in_the_ledger() -> None:
    rows = [row(n, **HUNG | {"throttled_hw_thermal_ms": n * INTERVAL_MS // 10, "counters_since": 0}) for n in range(4)]
    assert watched(*rows, after=1)[0] == [True, False, False, False]


def test_gauge_and_events_of_an_agent_on_the_driver(simulated: Callable[..., SimulatedHost]) -> None:
    """Two cards work; then one hangs for ten seconds while the other is bound by its memory, at the same power."""
    hung = Steps(((0, 40.0), (3, 0.0), (13, 40.0)))
    gpm = {2: constant(14), 5: hung, 12: constant(0), 10: constant(0), 20: constant(0.5), 21: constant(0.5)}
    cards = [
        Gpu(uuid, util=constant(100), mem_used=constant(40 * GIB), power_w=constant(120), gpm=gpm | more)
        for uuid, more in ((UUID, {}), ("GPU-b", {10: constant(60)}))
    ]
    host = simulated(Scenario(tuple(cards), START_MS), agent__stalled_after="5s")
    seen: list[Snapshot | None] = []
    for moment_s in (6.5, 11.5):
        host.at(moment_s, lambda supervisor: seen.append(supervisor._board.latest()))  # noqa: SLF001
    host.run(18)
    assert [each["gpu"] for kind in ("stalled_suspect", "stalled_over") for each in host.events(kind)] == [UUID, UUID]
    assert ", tensor_active_pct 0.0, dram_active_pct 0.0, " in host.events("stalled_suspect")[0]["detail"]
    pages = [collect((each, 0.0)).render(TEXT).decode() for each in seen if each is not None]
    gauges = [line.rpartition(" ")[2] for page in pages for line in page.splitlines() if "stalled_suspect{" in line]
    assert gauges == ["0", "0", "1", "0"]
