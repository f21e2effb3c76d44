"""One GPU or MIG instance, and what is remembered of it between intervals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pynvml

from agent.nvml.gpu import DriverGpu
from agent.nvml.inventory import read_text, sys_folder
from agent.nvml.readings import LIST_AGAIN_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.nvml.collector import Clocks, GpuCollector
    from agent.nvml.driver import Driver
    from agent.rows import DeviceRow, ProcessRow
    from agent.snapshot import GpuErrors


@dataclass
class Watched:
    gpu: DriverGpu
    collectors: tuple[GpuCollector, ...]
    since_us: int
    """When it began to be watched, by the clock that never steps."""
    health: str = "ok"
    blind: bool = False
    rows: int = 0
    """Intervals so far."""
    retry_in: int = 0
    backoff: int = 1
    process_count: int | None = None
    listed_at_bytes: int | None = None
    device: DeviceRow | None = None
    errors: GpuErrors | None = None
    instances: dict[str, Watched] = field(default_factory=dict)
    """MIG instances by UUID."""
    _sleep_file: str | None = None

    @property
    def wants_every_second(self) -> bool:
        """Whether one of its collectors sees the more the more often it drains."""
        return any(collector.wants_every_second for collector in self.collectors)

    def began_after(self, moment_us: int, clocks: Clocks) -> bool:
        """Whether it began to be watched after a moment."""
        wall_us, steady_us = clocks()
        return wall_us - (steady_us - self.since_us) > moment_us

    def may_look(self) -> bool:
        """Counts one interval; whether a lost GPU is to be asked again, after a growing number of them."""
        if self.retry_in > 0:
            self.retry_in -= 1
        return self.retry_in == 0

    def wants_list(self, mem_used_bytes: int | None) -> bool:
        """Whether the process list is to be read out of turn: it is unknown, or memory has moved."""
        if self.process_count is None:
            return True
        known = self.listed_at_bytes
        return mem_used_bytes is not None and known is not None and abs(mem_used_bytes - known) > LIST_AGAIN_BYTES

    def listed(self, found: Sequence[ProcessRow] | None, mem_used_bytes: int | None) -> None:
        """Takes note of a process list, None for one that is unknown."""
        self.process_count = None if found is None else len({process["pid"] for process in found})
        self.listed_at_bytes = mem_used_bytes

    def forget(self) -> None:
        """Drops what does not outlive a GPU that was lost or slept."""
        self.process_count = self.listed_at_bytes = None
        for each in (self, *self.instances.values()):
            for collector in each.collectors:
                collector.forget()

    def find_sleep(self, sys: str, pci_bus_id: str | None) -> None:
        """Finds where the kernel says that the GPU is powered down; only GPUs that may power down by themselves do."""
        self._sleep_file = None
        if pci_bus_id is None:
            return
        power = f"{sys_folder(sys, pci_bus_id)}/power"
        if read_text(f"{power}/control") == "auto":
            self._sleep_file = f"{power}/runtime_status"

    def is_asleep(self) -> bool:
        """Whether the GPU is powered down: nothing uses it, and asking it anything would wake it."""
        return self._sleep_file is not None and read_text(self._sleep_file) == "suspended"


def is_split(driver: Driver, gpu: DriverGpu) -> bool | None:
    """Whether MIG is on, None where the driver does not say; raises as `Driver.ask` does."""
    mode = driver.ask(gpu, pynvml.nvmlDeviceGetMigMode)
    return None if mode is None else mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE


def find_instances(driver: Driver, gpu: DriverGpu, known: dict[str, DriverGpu]) -> dict[str, DriverGpu] | None:
    """The instances by UUID as they are now, those of `known` with what is remembered of them; None where unknown.

    Empty slots are passed over. An instance that does not tell its UUID or its number, because of an error or because it
    has just gone, leaves all unknown: it must not look like one that was removed. Raises as `Driver.ask` does.
    """
    slots = driver.ask(gpu, pynvml.nvmlDeviceGetMaxMigDeviceCount)
    if slots is None:
        return None
    found: dict[str, DriverGpu] = {}
    for slot in range(slots):
        handle = driver.ask_slot(gpu, slot)
        if handle is None:
            continue
        uuid = driver.ask_with(gpu, pynvml.nvmlDeviceGetUUID, handle)
        instance_id = driver.ask_with(gpu, pynvml.nvmlDeviceGetGpuInstanceId, handle)
        if uuid is None or instance_id is None:
            return None
        instance = known.get(uuid) or DriverGpu(handle, uuid, gpu.index, parent=gpu)
        instance.handle, instance.gpu_instance_id = handle, instance_id
        found[uuid] = instance
    return found
