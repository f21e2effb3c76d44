"""One look at this host's GPUs, without spool or lake."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.advice import driver_error
from agent.attribution import AttributionSettings, Owners
from agent.worker_client import WorkerClient, WorkerGoneError, WorkerHungError
from fallow.clock import format_ms
from fallow.units import format_bytes

if TYPE_CHECKING:
    from fallow.config import Config

SPAN_MS = 1000
_LAG_S = 0.3
_OWNERS_WAIT_S = 1.5


@dataclass(frozen=True)
class Look:
    """Rows of the `gpu`, `process` and `device` tables for one second, not rounded to any grid."""

    host: str
    time_ms: int
    gpus: list[dict[str, Any]]
    processes: list[dict[str, Any]]
    devices: list[dict[str, Any]]

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
    """Watches for one second; raises DriverError where the driver cannot be used."""
    owners = Owners(AttributionSettings.from_config(loaded))
    worker = WorkerClient(sys_path=loaded.text("agent.sys"))
    try:
        opened = _answer(worker.request("open", timeout_s))
        start_ms = time.time_ns() // 1_000_000
        time.sleep(SPAN_MS / 1000 + _LAG_S)
        answer = _answer(
            worker.request(
                "row",
                timeout_s,
                start_ms=start_ms,
                end_ms=start_ms + SPAN_MS,
                list_processes=True,
                devices="none",
                errors="none",
            )
        )
    except WorkerHungError as hung:
        where = f" on GPU {hung.uuid}" if hung.uuid else ""
        raise driver_error(0, f"{hung}{where} within {timeout_s:g} s") from hung
    except WorkerGoneError as gone:
        raise driver_error(0, str(gone)) from gone
    finally:
        worker.end(2)
    if not opened["gpus"]:
        raise driver_error(0, "it is loaded and lists no GPU")
    owners.describe(answer["process"], start_ms + SPAN_MS)
    owners.wait(_OWNERS_WAIT_S)  # what the kubelet, Slurm or a directory service had to be asked for
    return Look(host, start_ms, answer["gpu"], owners.describe(answer["process"], start_ms + SPAN_MS), opened["device"])


def _answer(answer: dict[str, Any]) -> dict[str, Any]:
    if lost := answer.get("driver_gone"):
        raise driver_error(lost["code"], lost["message"])
    return answer


def _without_time(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("time", "offset_ms", "read_delay_ms")}


def table_text(look: Look) -> str:
    """One line per GPU and one per process; unknown values are `-`."""
    devices = {device["gpu"]: device for device in look.devices}
    header = f"{'gpu':>3}  {'model':<24} {'health':<9} {'util':>6} {'memory':>21} {'power':>8} {'temp':>6}  holders"
    lines = [f"{look.host}, {format_ms(look.time_ms)}, the second before", header]
    for row in look.gpus:
        device = devices.get(row["gpu"], {})
        users = sorted(
            {str(each.get("user") or f"pid {each['pid']}") for each in look.processes if each["gpu"] == row["gpu"]}
        )
        memory = f"{_shown(row.get('mem_used_bytes'), format_bytes)} of {_shown(device.get('mem_total_bytes'), format_bytes)}"
        lines.append(
            f"{_shown(device.get('gpu_index')):>3}  {_shown(device.get('model')):<24.24} {row['health']:<9.9} "
            f"{_shown(row.get('gpu_util_pct'), lambda pct: f'{pct:.0f} %'):>6} {memory:>21} "
            f"{_shown(row.get('power_w'), lambda watts: f'{watts:.0f} W'):>8} "
            f"{_shown(row.get('temperature_c'), lambda degrees: f'{degrees} °C'):>6}  {', '.join(users) or _nobody(row)}"
        )
    for each in look.processes:
        index = _shown(devices.get(each["gpu"], {}).get("gpu_index"))
        lines.append(f"     GPU {index}: pid {each['pid']} ({each['kind']}), {_shown(each.get('user'))}, "
                     f"{_shown(each.get('command'))}, {_shown(each.get('mem_used_bytes'), format_bytes)}")  # fmt: skip
    return "\n".join(lines)


def _nobody(row: dict[str, Any]) -> str:
    return "nobody" if row.get("process_count") == 0 else "not known"


def _shown(value: Any, form: Any = str) -> str:
    return "-" if value is None else str(form(value))
