"""`fallow agent once`: one second of this host's GPUs, from the driver itself, as text or JSON."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from agent.top.sources import DriverSource
from fallow.clock import SECOND_MS, format_ms
from fallow.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.rows import DeviceRow, GpuRow, ProcessRow
    from agent.snapshot import Row, Snapshot
    from fallow.config import Config

_HEALTH_WIDTH = 9
_MOST_USERS = 4


def look_once(loaded: Config) -> Snapshot:
    """Return one second of readings. Raises DriverError where the driver is unusable."""
    with contextlib.closing(DriverSource(loaded, SECOND_MS)) as source:
        return source.look()


def as_json(look: Snapshot) -> dict[str, object]:
    """Return the look as JSON values with the lake's column names; its time is the start of the second."""
    return {
        "host": look.host,
        "time": format_ms(look.time_ms - look.interval_ms),
        "gpus": [_without_time(row) for row in look.gpus],
        "processes": [_without_time(row) for row in look.processes],
        "devices": list(look.devices.values()),
    }


def _without_time(row: Row) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("time", "offset_ms", "read_delay_ms")}


def table_text(look: Snapshot) -> str:
    """Return one line per GPU and one per process; unknown values are `-`."""
    health_width = max([_HEALTH_WIDTH, *(len(row["health"]) for row in look.gpus)])
    header = (
        f"{'gpu':>3}  {'model':<24} {'health':<{health_width}} {'util':>6} {'memory':>21} {'power':>8} {'temp':>6} "
        " users"
    )
    lines = [f"{look.host}, {format_ms(look.time_ms)}, the second before", header]
    lines += [_gpu_text(row, look.devices.get(row["gpu"], {}), look.processes, health_width) for row in look.gpus]
    for each in look.processes:
        index = _shown(look.devices.get(each["gpu"], {}).get("gpu_index"))
        lines.append(
            f"     GPU {index}: pid {each['pid']} ({each['kind']}), {_shown(each.get('user'))}, "
            f"{_shown(each.get('command'))}, {_shown(each.get('mem_used_bytes'), format_bytes)}"
        )
    return "\n".join(lines)


def _gpu_text(row: GpuRow, device: DeviceRow, processes: Sequence[ProcessRow], health_width: int) -> str:
    memory = (
        f"{_shown(row.get('mem_used_bytes'), format_bytes)} of {_shown(device.get('mem_total_bytes'), format_bytes)}"
    )
    return (
        f"{_shown(device.get('gpu_index')):>3}  {_shown(device.get('model')):<24.24} "
        f"{row['health']:<{health_width}} "
        f"{_shown(row.get('gpu_util_pct'), lambda pct: f'{pct:.0f} %'):>6} {memory:>21} "
        f"{_shown(row.get('power_w'), lambda watts: f'{watts:.0f} W'):>8} "
        f"{_shown(row.get('temperature_c'), lambda degrees: f'{degrees} °C'):>6}  {_users(row, processes)}"
    )


def _users(row: GpuRow, processes: Sequence[ProcessRow]) -> str:
    """Return the first users by name, and the number of further users."""
    users = sorted({str(each.get("user") or f"pid {each['pid']}") for each in processes if each["gpu"] == row["gpu"]})
    if not users:
        return "no user" if row.get("process_count") == 0 else "not known"
    more = len(users) - _MOST_USERS
    return ", ".join(users[:_MOST_USERS]) + (f" +{more}" if more > 0 else "")


def _shown(value: Any, form: Any = str) -> str:
    return "-" if value is None else str(form(value))
