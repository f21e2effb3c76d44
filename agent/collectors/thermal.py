"""Temperature of the die."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml

if TYPE_CHECKING:
    from agent.nvml.driver import Driver, Gpu


class Thermal:
    """`temperature_c`."""

    name = "thermal"

    def read(self, driver: Driver, gpu: Gpu) -> dict[str, int | None]:
        """Whole degrees Celsius."""
        return {"temperature_c": driver.ask(gpu, pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU)}
