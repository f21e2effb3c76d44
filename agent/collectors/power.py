"""Power and the energy counter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml

if TYPE_CHECKING:
    from agent.driver import Driver, Gpu


class Power:
    """`power_w` and `energy_mj`."""

    name = "power"

    def read(self, driver: Driver, gpu: Gpu) -> dict[str, float | int | None]:
        """NVML gives milliwatts and millijoules."""
        power_mw = driver.ask(gpu, pynvml.nvmlDeviceGetPowerUsage)
        return {
            "power_w": None if power_mw is None else round(power_mw / 1000, 1),
            "energy_mj": driver.ask(gpu, pynvml.nvmlDeviceGetTotalEnergyConsumption),
        }
