"""MIG instances of a GPU: found anew at every interval, because the driver gives a handle to the next instance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml

from agent.nvml.driver import Gpu

if TYPE_CHECKING:
    from agent.nvml.driver import Driver


def is_split(driver: Driver, gpu: Gpu) -> bool | None:
    """Whether MIG is on, None where the driver does not say; raises as `Driver.ask` does."""
    mode = driver.ask(gpu, pynvml.nvmlDeviceGetMigMode)
    return None if mode is None else mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE


def find_instances(driver: Driver, gpu: Gpu, known: dict[str, Gpu]) -> dict[str, Gpu] | None:
    """The instances by UUID as they are now, those of `known` with what is remembered of them; None where unknown.

    Empty slots are passed over. An instance that does not tell its UUID or its number, because of an error or because it
    has just gone, leaves all unknown: it must not look like one that was removed. Raises as `Driver.ask` does.
    """
    slots = driver.ask(gpu, pynvml.nvmlDeviceGetMaxMigDeviceCount)
    if slots is None:
        return None
    found: dict[str, Gpu] = {}
    for slot in range(slots):
        handle = driver.ask_slot(gpu, slot)
        if handle is None:
            continue
        uuid = driver.ask_with(gpu, pynvml.nvmlDeviceGetUUID, handle)
        instance_id = driver.ask_with(gpu, pynvml.nvmlDeviceGetGpuInstanceId, handle)
        if uuid is None or instance_id is None:
            return None
        instance = known.get(uuid) or Gpu(handle, uuid, gpu.index, parent=gpu)
        instance.handle, instance.gpu_instance_id = handle, instance_id
        found[uuid] = instance
    return found
