"""Which processes are on a GPU, as the driver lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from agent.nvml.driver import Driver
    from agent.nvml.gpu import Gpu
    from agent.rows import ProcessRow

LIST_AGAIN_BYTES = 64 * 2**20
"""Memory in use that moved by so much since the last list says that a process came, went or grew."""

_LISTS: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("compute", pynvml.nvmlDeviceGetComputeRunningProcesses_v3),
    ("graphics", pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3),
    ("mps", pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3),
)


class ProcessCollector:
    """Rows of the `process` table as far as the driver knows them."""

    name = "processes"

    def collect(self, driver: Driver, gpu: Gpu) -> list[ProcessRow] | None:
        """The processes on a GPU without their time; None where a list is unknown.

        Raises GpuGoneError and DriverGoneError.
        """
        found: list[ProcessRow] = []
        for kind, call in _LISTS:
            processes = driver.ask(gpu, call)
            if processes is None:
                if kind != "compute" and driver.unsupported(gpu, call):
                    continue  # a kind of process that this GPU cannot have
                return None  # a list that failed or was refused: nobody can say that the GPU is free
            found.extend(
                {"gpu": gpu.uuid, "pid": each.pid, "kind": kind, "mem_used_bytes": each.usedGpuMemory}
                for each in processes
            )
        return found
