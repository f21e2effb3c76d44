"""Which GPUs of a host reach one another without a detour, so that a gang's contiguity can be judged.

An island is named by the lowest UUID in it; a GPU whose relations are unknown has no island, which is not the same as
an island of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import pynvml

from agent.nvml.driver import GpuGoneError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agent.nvml.driver import Driver, Gpu


@dataclass(frozen=True)
class Islands:
    """Islands by the UUID of each GPU."""

    pcie: dict[str, str]
    nvlink: dict[str, str]


def read_islands(driver: Driver, gpus: Sequence[Gpu]) -> Islands:
    """Asks about every pair once; GPUs that are lost meanwhile have no island. Raises DriverGoneError."""
    return Islands(
        pcie=_grouped(gpus, lambda one, other: _near(driver, one, other)),
        nvlink=_grouped(gpus, lambda one, other: _linked(driver, one, other)),
    )


def _near(driver: Driver, one: Gpu, other: Gpu) -> bool | None:
    """Whether the way between two GPUs stays below one PCIe host bridge."""
    level = _asked(driver, one, pynvml.nvmlDeviceGetTopologyCommonAncestor, one.handle, other.handle)
    return None if level is None else bool(level <= pynvml.NVML_TOPOLOGY_HOSTBRIDGE)


def _linked(driver: Driver, one: Gpu, other: Gpu) -> bool | None:
    """Whether two GPUs reach one another over NVLink, directly or through switches."""
    index = pynvml.NVML_P2P_CAPS_INDEX_NVLINK
    status = _asked(driver, one, pynvml.nvmlDeviceGetP2PStatus, one.handle, other.handle, index)
    return None if status is None else bool(status == pynvml.NVML_P2P_STATUS_OK)


def _asked(driver: Driver, gpu: Gpu, call: Callable[..., int], *args: object) -> int | None:
    try:
        answer: int | None = driver.ask_with(gpu, call, *args)
    except GpuGoneError:
        return None
    return answer


def _grouped(gpus: Sequence[Gpu], together: Callable[[Gpu, Gpu], bool | None]) -> dict[str, str]:
    """The lowest UUID reachable from each GPU; a GPU of which no pair is known is left out."""
    lowest = {gpu.uuid: gpu.uuid for gpu in gpus}
    known = {gpu.uuid for gpu in gpus} if len(gpus) == 1 else set()
    for one, other in combinations(gpus, 2):
        answer = together(one, other)
        if answer is not None:
            known |= {one.uuid, other.uuid}
        if answer:
            joined, gone = sorted((lowest[one.uuid], lowest[other.uuid]))
            lowest = {uuid: joined if island == gone else island for uuid, island in lowest.items()}
    return {uuid: island for uuid, island in lowest.items() if uuid in known}
