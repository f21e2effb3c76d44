"""What a GPU is: the columns of the `device` table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml

if TYPE_CHECKING:
    from agent.collectors import Value
    from agent.driver import Driver, Gpu


def read_device(driver: Driver, gpu: Gpu) -> dict[str, Value]:
    """One inventory entry without its time and pool; unknown values are None.

    Raises GpuGoneError and DriverGoneError.
    """
    memory = driver.ask(gpu, pynvml.nvmlDeviceGetMemoryInfo, pynvml.nvmlMemory_v2)
    limit_mw = driver.ask(gpu, pynvml.nvmlDeviceGetEnforcedPowerLimit)
    pci = driver.ask(gpu, pynvml.nvmlDeviceGetPciInfo)
    mig = driver.ask(gpu, pynvml.nvmlDeviceGetMigMode)
    cuda = driver.system(pynvml.nvmlSystemGetCudaDriverVersion_v2)
    return {
        "gpu": gpu.uuid,
        "gpu_index": gpu.index,
        "model": driver.ask(gpu, pynvml.nvmlDeviceGetName),
        "mem_total_bytes": memory.total if memory is not None and memory.total else None,
        "power_limit_w": None if limit_mw is None else round(limit_mw / 1000, 1),
        "pci_bus_id": None if pci is None else _text(pci.busId),
        "driver_version": driver.system(pynvml.nvmlSystemGetDriverVersion),
        "cuda_driver_version": None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        "mig_enabled": None if mig is None else mig[0] == pynvml.NVML_DEVICE_MIG_ENABLE,
        "source": "nvml",
    }


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
