"""Device memory: what processes use, and what the driver keeps for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml

if TYPE_CHECKING:
    from agent.nvml.driver import Driver, Gpu


class Memory:
    """`mem_used_bytes` and `mem_reserved_bytes`."""

    name = "memory"

    def read(self, driver: Driver, gpu: Gpu) -> dict[str, int | None]:
        """Version 2 tells `reserved` from `used`; the older call counts it as used, so it does not stand in."""
        info = driver.ask(gpu, pynvml.nvmlDeviceGetMemoryInfo, pynvml.nvmlMemory_v2)
        if info is None or info.total == 0:  # unified memory reports a total of 0: nothing is known
            return {}
        return {"mem_used_bytes": info.used, "mem_reserved_bytes": info.reserved}
