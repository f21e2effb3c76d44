"""What one driver call each tells of a GPU at the end of an interval: memory, power, temperature, clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pynvml

from agent.nvml.collector import GpuCollector, Span
from agent.nvml.driver import read_fields

if TYPE_CHECKING:
    from agent.nvml.driver import Driver
    from agent.nvml.gpu import Gpu
    from agent.rows import GpuRow

_ENERGY = pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION
_MEMORY_TEMPERATURE = pynvml.NVML_FI_DEV_MEMORY_TEMP
_THROTTLED = {
    pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP: "throttled_power_cap_ms",
    pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST: "throttled_sync_boost_ms",
    pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN: "throttled_sw_thermal_ms",
    pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN: "throttled_hw_thermal_ms",
    pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN: "throttled_power_brake_ms",
}
_FIELDS = (_ENERGY, _MEMORY_TEMPERATURE, *_THROTTLED)
_NS_PER_MS = 1_000_000


class MemoryCollector(GpuCollector):
    """Device memory: what processes use, and what the driver keeps for itself."""

    name = "memory"
    of_instances = True

    def collect(self, driver: Driver, gpu: Gpu, _: Span) -> GpuRow:
        # version 2 tells `reserved` from `used`; the older call counts it as used, so it does not stand in
        info = driver.ask(gpu, pynvml.nvmlDeviceGetMemoryInfo, pynvml.nvmlMemory_v2)
        if info is None or info.total == 0:  # unified memory reports a total of 0: nothing is known
            return {}
        return {"mem_used_bytes": info.used, "mem_reserved_bytes": info.reserved}


class PowerCollector(GpuCollector):
    """Power, the counters of energy and of throttled time, memory temperature: what one call for field values gives."""

    name = "power"

    def collect(self, driver: Driver, gpu: Gpu, _: Span) -> GpuRow:
        power_mw = driver.ask(gpu, pynvml.nvmlDeviceGetPowerUsage)
        fields = read_fields(driver, gpu, _FIELDS)
        energy_mj = fields.get(_ENERGY)
        if energy_mj is None:
            energy_mj = driver.ask(gpu, pynvml.nvmlDeviceGetTotalEnergyConsumption)
        row: GpuRow = {
            "power_w": None if power_mw is None else round(power_mw / 1000, 1),
            "energy_mj": energy_mj,
            "mem_temperature_c": fields.get(_MEMORY_TEMPERATURE),
        }
        throttled = {column: fields[each] // _NS_PER_MS for each, column in _THROTTLED.items() if each in fields}
        return row | cast("GpuRow", throttled)


class TemperatureCollector(GpuCollector):
    """Temperature of the die."""

    name = "temperature"

    def collect(self, driver: Driver, gpu: Gpu, _: Span) -> GpuRow:
        return {"temperature_c": driver.ask(gpu, pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU)}


class ClockCollector(GpuCollector):
    """Clocks, and NVML's bit mask of why they are held down."""

    name = "clocks"

    def collect(self, driver: Driver, gpu: Gpu, _: Span) -> GpuRow:
        reasons = driver.ask(gpu, pynvml.nvmlDeviceGetCurrentClocksEventReasons)
        if reasons is None:  # drivers before 535 know it by its older name
            reasons = driver.ask(gpu, pynvml.nvmlDeviceGetCurrentClocksThrottleReasons)
        return {
            "sm_clock_mhz": driver.ask(gpu, pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM),
            "mem_clock_mhz": driver.ask(gpu, pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_MEM),
            "throttle_reasons": reasons,
        }
