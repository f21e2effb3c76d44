"""Clocks, and why they are held down."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml

if TYPE_CHECKING:
    from agent.nvml.driver import Driver, Gpu


class Clocks:
    """`sm_clock_mhz`, `mem_clock_mhz` and `throttle_reasons`."""

    name = "clocks"

    def read(self, driver: Driver, gpu: Gpu) -> dict[str, int | None]:
        """Megahertz, and NVML's bit mask as it is; drivers before 535 know it by its older name."""
        reasons = driver.ask(gpu, pynvml.nvmlDeviceGetCurrentClocksEventReasons)
        if reasons is None:
            reasons = driver.ask(gpu, pynvml.nvmlDeviceGetCurrentClocksThrottleReasons)
        return {
            "sm_clock_mhz": driver.ask(gpu, pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM),
            "mem_clock_mhz": driver.ask(gpu, pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_MEM),
            "throttle_reasons": reasons,
        }
