"""The inventory of a GPU or MIG instance: the columns of the `device` table.

GPUs with direct links to one another form an island, which shows whether a gang's GPUs are contiguous. An island is
named by the lowest UUID in it. A GPU whose links are unknown has no island, which differs from an island of one GPU.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, cast

import pynvml

from agent.kernel_files import kernel_address, read_text
from agent.nvml.gpu import GpuGoneError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.nvml.driver import Driver
    from agent.nvml.gpu import DriverGpu
    from agent.rows import DeviceRow


def read_islands(driver: Driver, gpus: Sequence[DriverGpu]) -> dict[str, str]:
    """Return the NVLink island of each GPU, by UUID; GPUs without known links have none. Raises DriverGoneError."""
    lowest = {gpu.uuid: gpu.uuid for gpu in gpus}
    known = {gpu.uuid for gpu in gpus} if len(gpus) == 1 else set()
    for one, other in combinations(gpus, 2):
        linked = _linked(driver, one, other)
        if linked is not None:
            known |= {one.uuid, other.uuid}
        if linked:
            joined, gone = sorted((lowest[one.uuid], lowest[other.uuid]))
            lowest = {uuid: joined if island == gone else island for uuid, island in lowest.items()}
    return {uuid: island for uuid, island in lowest.items() if uuid in known}


def _linked(driver: Driver, one: DriverGpu, other: DriverGpu) -> bool | None:
    """Return whether NVLink connects two GPUs, directly or through switches; None where a GPU is lost meanwhile."""
    index = pynvml.NVML_P2P_CAPS_INDEX_NVLINK
    try:
        status = driver.ask_with(one, pynvml.nvmlDeviceGetP2PStatus, one.handle, other.handle, index)
    except GpuGoneError:
        return None
    return None if status is None else bool(status == pynvml.NVML_P2P_STATUS_OK)


_SHARED = (
    "gpu_index",
    "driver_version",
    "cuda_driver_version",
    "architecture",
    "compute_capability",
    "numa_node",
    "pci_bus_id",
    "source",
)
_ARCHITECTURES = {
    pynvml.NVML_DEVICE_ARCH_KEPLER: "kepler",
    pynvml.NVML_DEVICE_ARCH_MAXWELL: "maxwell",
    pynvml.NVML_DEVICE_ARCH_PASCAL: "pascal",
    pynvml.NVML_DEVICE_ARCH_VOLTA: "volta",
    pynvml.NVML_DEVICE_ARCH_TURING: "turing",
    pynvml.NVML_DEVICE_ARCH_AMPERE: "ampere",
    pynvml.NVML_DEVICE_ARCH_ADA: "ada",
    pynvml.NVML_DEVICE_ARCH_HOPPER: "hopper",
    pynvml.NVML_DEVICE_ARCH_BLACKWELL: "blackwell",
}


class InventoryCollector:
    name = "inventory"

    def __init__(self, sys: str) -> None:
        """`sys` is the path of the host's /sys."""
        self._sys = sys
        self._islands: dict[str, str] = {}
        self._parents: dict[str, DeviceRow] = {}

    def find_islands(self, driver: Driver, gpus: Sequence[DriverGpu]) -> None:
        """Read which GPUs are linked; raises DriverGoneError."""
        self._islands = read_islands(driver, gpus)

    def collect(self, driver: Driver, gpu: DriverGpu) -> DeviceRow:
        """Return a row without time and pool; call this for a parent before its MIG instances.

        Raises GpuGoneError and DriverGoneError.
        """
        if gpu.parent is not None:
            return self._instance(driver, gpu, self._parents.get(gpu.parent.uuid, {}))
        row = self._parents[gpu.uuid] = self._device(driver, gpu)
        return row

    def _device(self, driver: Driver, gpu: DriverGpu) -> DeviceRow:
        pci = driver.ask(gpu, pynvml.nvmlDeviceGetPciInfo)
        address = None if pci is None else pci.busId.decode() if isinstance(pci.busId, bytes) else pci.busId
        row: DeviceRow = _memory(driver, gpu) | {
            "gpu": gpu.uuid,
            "gpu_index": gpu.index,
            "model": driver.ask(gpu, pynvml.nvmlDeviceGetName),
            "pci_bus_id": address,
            "minor_number": driver.ask(gpu, pynvml.nvmlDeviceGetMinorNumber),
            "serial": driver.ask(gpu, pynvml.nvmlDeviceGetSerial),
            "numa_node": _numa_node(self._sys, address),
            "nvlink_island": self._islands.get(gpu.uuid),
            "source": "nvml",
        }
        cuda = driver.system(pynvml.nvmlSystemGetCudaDriverVersion_v2)
        version = driver.system(pynvml.nvmlSystemGetDriverVersion)
        mig = driver.ask(gpu, pynvml.nvmlDeviceGetMigMode)
        limit_mw = driver.ask(gpu, pynvml.nvmlDeviceGetEnforcedPowerLimit)
        architecture = driver.ask(gpu, pynvml.nvmlDeviceGetArchitecture)
        capability = driver.ask(gpu, pynvml.nvmlDeviceGetCudaComputeCapability)
        row |= {
            "driver_version": version,
            "cuda_driver_version": None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
            "mig_enabled": None if mig is None else mig[0] == pynvml.NVML_DEVICE_MIG_ENABLE,
            "power_limit_w": None if limit_mw is None else round(limit_mw / 1000, 1),
            "architecture": _ARCHITECTURES.get(architecture, None if architecture is None else str(architecture)),
            "compute_capability": None if capability is None else f"{capability[0]}.{capability[1]}",
        }
        return row

    def _instance(self, driver: Driver, instance: DriverGpu, parent: DeviceRow) -> DeviceRow:
        """Return the row of a MIG instance: its own values, and those that it shares with its parent."""
        name = driver.ask(instance, pynvml.nvmlDeviceGetName)
        attributes = driver.ask(instance, pynvml.nvmlDeviceGetAttributes_v2)
        shared = cast("DeviceRow", {each: parent.get(each) for each in _SHARED})
        row: DeviceRow = (
            _memory(driver, instance)
            | shared
            | {
                "gpu": instance.uuid,
                "parent_gpu": None if instance.parent is None else instance.parent.uuid,
                "model": name,
                # the driver appends the profile to the model's name: "... MIG 1g.10gb"
                "mig_profile": name.rpartition("MIG ")[2] if name is not None and "MIG " in name else None,
                "mig_gpu_slices": None if attributes is None else attributes.gpuInstanceSliceCount,
                "gpu_instance_id": instance.gpu_instance_id,
            }
        )
        return row


def _numa_node(sys: str, address: str | None) -> int | None:
    if address is None:
        return None
    text = read_text(f"{sys}/bus/pci/devices/{kernel_address(address)}/numa_node")
    if not text.lstrip("-").isdecimal():
        return None
    node = int(text)
    return node if node >= 0 else None  # -1: the machine has no NUMA nodes


def _memory(driver: Driver, gpu: DriverGpu) -> DeviceRow:
    memory = driver.ask(gpu, pynvml.nvmlDeviceGetMemoryInfo, pynvml.nvmlMemory_v2)
    return {"mem_total_bytes": memory.total if memory is not None and memory.total else None}
