"""Power, and the counters of energy and of throttled time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml

from agent.nvml.fields import read_fields

if TYPE_CHECKING:
    from agent.nvml.driver import Driver, Gpu

THROTTLED = {
    pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP: "throttled_power_cap_ms",
    pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST: "throttled_sync_boost_ms",
    pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN: "throttled_sw_thermal_ms",
    pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN: "throttled_hw_thermal_ms",
    pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN: "throttled_power_brake_ms",
}

_ENERGY = pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION
_MEMORY_TEMPERATURE = pynvml.NVML_FI_DEV_MEMORY_TEMP
_FIELDS = (_ENERGY, _MEMORY_TEMPERATURE, *THROTTLED)

_NS_PER_MS = 1_000_000


class Power:
    """`power_w`, `energy_mj`, the `throttled_` columns and `mem_temperature_c`: what one call for field values gives."""

    name = "power"

    def read(self, driver: Driver, gpu: Gpu) -> dict[str, float | int | None]:
        """Watts, millijoules, milliseconds and degrees; NVML gives milliwatts, and nanoseconds of throttled time."""
        power_mw = driver.ask(gpu, pynvml.nvmlDeviceGetPowerUsage)
        fields = read_fields(driver, gpu, _FIELDS)
        row: dict[str, float | int | None] = {
            "power_w": None if power_mw is None else round(power_mw / 1000, 1),
            "energy_mj": fields[_ENERGY]
            if _ENERGY in fields
            else driver.ask(gpu, pynvml.nvmlDeviceGetTotalEnergyConsumption),
            "mem_temperature_c": fields.get(_MEMORY_TEMPERATURE),
        }
        for field, column in THROTTLED.items():
            if field in fields:
                row[column] = fields[field] // _NS_PER_MS
        return row
