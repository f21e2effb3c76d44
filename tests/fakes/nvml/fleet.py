"""A ready-made scenario for benchmarks: the host that the agent's budget is stated for."""

from __future__ import annotations

from itertools import cycle, islice
from typing import TYPE_CHECKING

from tests.fakes.nvml.devices import GIB, Gpu, Process
from tests.fakes.nvml.scenario import Scenario
from tests.fakes.nvml.steps import Steps, constant

if TYPE_CHECKING:
    from collections.abc import Sequence

GPUS = 8
PROCESSES = 32
_HOURS = 4
_PHASE_S = 60
_GPM = {2: 0.8, 3: 0.4, 5: 0.3, 10: 0.5, 11: 0.01, 12: 0.1, 13: 0.05, 20: 12.0, 21: 30.0}
"""SM active and occupancy, tensor, DRAM, FP64, FP32, FP16 (%), PCIe sent and received (MiB/s), per percent busy."""


def standard_fleet(start_ms: int, pids: Sequence[int], *, gpm: bool = True) -> Scenario:
    """8 GPUs with 4 processes each, busy in different patterns for 4 hours; fewer than 32 `pids` are used in turn.

    With `gpm` they are H100 that measure everything, without it A100 that do not; all share one NVSwitch.
    """
    owners = tuple(islice(cycle(pids), PROCESSES))
    return Scenario(
        gpus=tuple(_gpu(index, owners[index * 4 : index * 4 + 4], gpm=gpm) for index in range(GPUS)),
        start_ms=start_ms,
    )


def _gpu(index: int, pids: Sequence[int], *, gpm: bool) -> Gpu:
    util = _pattern(index)
    return Gpu(
        uuid=f"GPU-0000000{index}-aaaa-bbbb-cccc-00000000000{index}",
        model="NVIDIA H100 80GB HBM3" if gpm else "NVIDIA A100-SXM4-80GB",
        architecture=9 if gpm else 7,
        compute_capability=(9, 0) if gpm else (8, 0),
        util=util,
        mem_util=_scaled(util, 0.5),
        mem_used=constant(sum((slot + 1) * 4 * GIB for slot in range(len(pids)))),
        power_w=_scaled(util, 5.5, 75),
        temperature_c=_scaled(util, 0.4, 30),
        throttled={"power_cap": _scaled(util, 0.001)},
        processes=tuple(Process(pid, mem_bytes=(slot + 1) * 4 * GIB) for slot, pid in enumerate(pids)),
        gpm={metric: _scaled(util, factor) for metric, factor in _GPM.items()} if gpm else {},
        nvlink_group=0,
        nvlink_tx_mib_per_s=_scaled(util, 900),
        nvlink_rx_mib_per_s=_scaled(util, 890),
        pci_bus_id=f"0000:{0x10 + index:02x}:00",
        serial=f"165000000000{index}",
        energy_offset_mj=index * 1_000_000_007,
    )


def _pattern(index: int) -> Steps:
    """GPU 0 idles, GPU 1 is full, the others change every 15 s, some with idle phases."""
    if index < 2:
        return constant(100.0 * index)
    phases = _HOURS * 3600 // _PHASE_S
    return Steps(tuple((n * _PHASE_S, float(n * (7 + 4 * index) % 11 * 10)) for n in range(phases)))


def _scaled(steps: Steps, factor: float, offset: float = 0.0) -> Steps:
    return Steps(tuple((at_s, round(offset + value * factor, 3)) for at_s, value in steps.points))
