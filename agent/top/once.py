"""One look at this host's GPUs, without spool or lake."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.attribution import AttributionSettings, ProcessOwners
from agent.nvml.installation import driver_error
from agent.supervise.fleet import DriverDownError, HostGpus
from agent.top.sources import expected_gpus
from fallow.clock import format_ms
from fallow.units import format_bytes

if TYPE_CHECKING:
    from agent.nvml.worker_protocol import IntervalAnswer
    from agent.rows import DeviceRow, GpuRow, ProcessRow
    from agent.snapshot import Row
    from fallow.config import Config

SPAN_MS = 1000
_LAG_S = 0.3
_OWNERS_WAIT_S = 1.5
_HEALTH_WIDTH = 9
_MOST_HOLDERS = 4


@dataclass(frozen=True)
class Look:
    """Rows of the `gpu`, `process` and `device` tables for one second, not rounded to any grid."""

    host: str
    time_ms: int
    gpus: list[GpuRow]
    processes: list[ProcessRow]
    devices: list[DeviceRow]

    def as_json(self) -> dict[str, object]:
        """The look as JSON values with the lake's column names."""
        return {
            "host": self.host,
            "time": format_ms(self.time_ms),
            "gpus": [_without_time(row) for row in self.gpus],
            "processes": [_without_time(row) for row in self.processes],
            "devices": self.devices,
        }


def look_once(timeout_s: float, host: str, loaded: Config) -> Look:
    """Watches for one second; a GPU whose calls do not return within `timeout_s` is `wedged`, and the others are shown.

    Raises DriverError where the driver cannot be used.
    """
    owners = ProcessOwners(AttributionSettings.from_config(loaded))
    fleet = HostGpus(timeout_s, expected_gpus(loaded, host))
    try:
        fleet.start(may_wait=False)
        start_ms = time.time_ns() // 1_000_000
        time.sleep(SPAN_MS / 1000 + _LAG_S)
        answer = _rows(fleet, start_ms)
        gpus, devices = fleet.complete(answer, start_ms, SPAN_MS), fleet.take_devices()
    finally:
        fleet.close()
    owners.describe(answer["process"], start_ms + SPAN_MS)
    owners.wait(_OWNERS_WAIT_S)  # what the kubelet, Slurm or a directory service had to be asked for
    newest = list({device["gpu"]: device for device in devices}.values())  # a second worker describes them again
    return Look(host, start_ms, gpus, owners.describe(answer["process"], start_ms + SPAN_MS), newest)


def _rows(fleet: HostGpus, start_ms: int) -> IntervalAnswer:
    try:
        return fleet.rows(start_ms, start_ms + SPAN_MS, list_processes=True, devices="none", errors=False)
    except DriverDownError as error:
        told = [str(each["detail"]) for each in fleet.take_incidents()]
        raise driver_error(0, told[-1] if told else str(error)) from error


def _without_time(row: Row) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("time", "offset_ms", "read_delay_ms")}


def table_text(look: Look) -> str:
    """One line per GPU and one per process; unknown values are `-`."""
    devices = {device["gpu"]: device for device in look.devices}
    health_width = max([_HEALTH_WIDTH, *(len(row["health"]) for row in look.gpus)])
    header = f"{'gpu':>3}  {'model':<24} {'health':<{health_width}} {'util':>6} {'memory':>21} {'power':>8} {'temp':>6}  users"
    lines = [f"{look.host}, {format_ms(look.time_ms)}, the second before", header]
    lines += [_gpu_text(row, devices.get(row["gpu"], {}), look.processes, health_width) for row in look.gpus]
    for each in look.processes:
        index = _shown(devices.get(each["gpu"], {}).get("gpu_index"))
        lines.append(
            f"     GPU {index}: pid {each['pid']} ({each['kind']}), {_shown(each.get('user'))}, "
            f"{_shown(each.get('command'))}, {_shown(each.get('mem_used_bytes'), format_bytes)}"
        )
    return "\n".join(lines)


def _gpu_text(row: GpuRow, device: DeviceRow, processes: list[ProcessRow], health_width: int) -> str:
    memory = (
        f"{_shown(row.get('mem_used_bytes'), format_bytes)} of {_shown(device.get('mem_total_bytes'), format_bytes)}"
    )
    return (
        f"{_shown(device.get('gpu_index')):>3}  {_shown(device.get('model')):<24.24} "
        f"{row['health']:<{health_width}} "
        f"{_shown(row.get('gpu_util_pct'), lambda pct: f'{pct:.0f} %'):>6} {memory:>21} "
        f"{_shown(row.get('power_w'), lambda watts: f'{watts:.0f} W'):>8} "
        f"{_shown(row.get('temperature_c'), lambda degrees: f'{degrees} °C'):>6}  {_holders(row, processes)}"
    )


def _holders(row: GpuRow, processes: list[ProcessRow]) -> str:
    """The first few by name, and how many more there are."""
    users = sorted({str(each.get("user") or f"pid {each['pid']}") for each in processes if each["gpu"] == row["gpu"]})
    if not users:
        return _nobody(row)
    more = len(users) - _MOST_HOLDERS
    return ", ".join(users[:_MOST_HOLDERS]) + (f" +{more}" if more > 0 else "")


def _nobody(row: GpuRow) -> str:
    return "nobody" if row.get("process_count") == 0 else "not known"


def _shown(value: Any, form: Any = str) -> str:
    return "-" if value is None else str(form(value))
