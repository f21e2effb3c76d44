"""What one driver call each tells of a GPU at the end of an interval: memory, power, temperature, clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml

from agent.nvml.driver import read_fields

if TYPE_CHECKING:
    from agent.collectors import Collector
    from agent.nvml.driver import Driver
    from agent.nvml.gpu import Gpu


class Memory:
    """`mem_used_bytes` and `mem_reserved_bytes`."""

    name = "memory"

    def read(self, driver: Driver, gpu: Gpu) -> dict[str, int | None]:
        """Version 2 tells `reserved` from `used`; the older call counts it as used, so it does not stand in."""
        info = driver.ask(gpu, pynvml.nvmlDeviceGetMemoryInfo, pynvml.nvmlMemory_v2)
        if info is None or info.total == 0:  # unified memory reports a total of 0: nothing is known
            return {}
        return {"mem_used_bytes": info.used, "mem_reserved_bytes": info.reserved}


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


class Thermal:
    """`temperature_c`."""

    name = "thermal"

    def read(self, driver: Driver, gpu: Gpu) -> dict[str, int | None]:
        """Whole degrees Celsius."""
        return {"temperature_c": driver.ask(gpu, pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU)}


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


COLLECTORS: tuple[Collector, ...] = (Memory(), Power(), Thermal(), Clocks())
