"""A fleet of a scenario as the rows that its agents would have written."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fallow import parquet, schema
from fallow.clock import DAY_MS, SECOND_MS
from tests.ledger.recording import Recording

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tests.findings.scenarios.builder import Fleet
    from tests.findings.scenarios.parts import Column, Gpu, Host, Mask, Stay

_REASONS = {"power_cap": 0x4, "sync_boost": 0x10, "sw_thermal": 0x20, "hw_thermal": 0x40, "power_brake": 0x80}
_MEASURES_NOTHING = ("lost", "missing", "asleep", "reset_required", "wedged", "driver_down", "released", "unknown")


def record_fleet(fleet: Fleet) -> Recording:
    """Every table of the fleet."""
    recording = Recording()
    for host in fleet.hosts:
        there = [(gpu, place & host.seen) for gpu in fleet.gpus for where, place in gpu.places if where is host]
        there = [(gpu, seen) for gpu, seen in there if seen.any()]
        if there:
            recording.add(schema.GPU, host.name, pa.concat_tables([_gpu_rows(fleet, gpu, seen) for gpu, seen in there]))
        listed = [rows for gpu, seen in there for rows in _process_rows(fleet, gpu, seen)]
        if listed:
            recording.add(schema.PROCESS, host.name, pa.concat_tables(listed))
        recording.add(schema.HOST, host.name, _host_rows(fleet, host))
        recording.add(schema.DEVICE, host.name, _device_rows(fleet, host, there))
        for (table, name), rows in fleet.extra.items():
            if name == host.name:
                recording.add(schema.table(table), host.name, rows)
    return recording


def _table(table: schema.LakeTable, columns: Mapping[str, object], count: int) -> pa.Table:
    """Arrays are columns with NaN as null, a single value is repeated, a missing column is null."""
    fields = parquet.arrow_schema(table)
    return pa.table([_column(columns.get(field.name), field.type, count) for field in fields], schema=fields)


def _column(value: Any, kind: pa.DataType, count: int) -> pa.Array:
    if isinstance(value, np.ndarray):
        missing = np.isnan(value) if value.dtype.kind == "f" else None
        if missing is not None and not pa.types.is_floating(kind):
            value = np.rint(np.nan_to_num(value)).astype(np.int64)
        return pa.array(value, mask=missing).cast(kind)
    return pa.nulls(count, kind) if value is None else pa.repeat(pa.scalar(value, kind), count)


def power_w(gpu: Gpu) -> Column:
    """Board power by utilization, or SM activity where it is known: a full load draws 90 % of the limit."""
    card = gpu.card
    load = np.where(np.isnan(gpu.sm), gpu.util, gpu.sm) / 100
    parked = np.where(gpu.processes > 0, card.parking_w, 0.0)
    modelled = card.idle_w + parked + (0.9 * _limit_w(gpu) - card.idle_w - parked) * load
    return np.where(np.isnan(gpu.power), modelled, gpu.power)


def _limit_w(gpu: Gpu) -> float:
    limit = gpu.device.get("power_limit_w", gpu.card.power_limit_w)
    return float(limit) if isinstance(limit, int | float) else gpu.card.power_limit_w


def _gpu_rows(fleet: Fleet, gpu: Gpu, seen: Mask) -> pa.Table:
    columns: dict[str, Any] = {
        "gpu_util_pct": gpu.util,
        "gpu_util_max_pct": gpu.peak,
        "gpu_util_p98_pct": np.minimum(np.maximum(gpu.p98, gpu.util), gpu.peak),
        "gpu_util_zero_ratio": np.round(1 - gpu.busy, 4),
        "gpu_util_coverage_ratio": np.ones(fleet.rows),
        "sm_active_pct": gpu.sm,
        "dram_active_pct": gpu.dram,
        "tensor_active_pct": gpu.tensor,
        "mem_used_bytes": gpu.mem,
        "process_count": gpu.processes,
    }
    if gpu.parent is None:
        columns |= _board(fleet, gpu)
    if gpu.device.get(
        "mig_enabled"
    ):  # a split GPU's utilization is that of its instances, its memory and processes their sum
        instances = [each for each in fleet.gpus if each.parent is gpu]
        columns |= dict.fromkeys(
            (name for name in columns if name.startswith(("gpu_util", "sm_", "dram_", "tensor_"))), None
        )
        columns["mem_used_bytes"] = sum(each.mem for each in instances)
        columns["process_count"] = sum(each.processes for each in instances)
    dead = np.isin(gpu.health, _MEASURES_NOTHING)
    for name, value in columns.items():
        if value is not None and dead.any():
            columns[name] = np.where(dead, np.nan, value)
    for when, name, value in gpu.overrides:
        there = columns.get(name)
        start = np.full(fleet.rows, np.nan) if there is None else np.asarray(there, np.float64)
        columns[name] = np.where(when, np.nan if value is None else np.asarray(value, np.float64), start)
    chosen = {name: value[seen] if isinstance(value, np.ndarray) else value for name, value in columns.items()}
    chosen |= {"time": fleet.times_ms[seen], "gpu": gpu.uuid, "interval_ms": fleet.interval_ms, "offset_ms": 0}
    chosen |= {"health": gpu.health[seen], "util_source": "gpm" if gpu.card.gpm else "samples"}
    return _table(schema.GPU, chosen, int(seen.sum()))


def _board(fleet: Fleet, gpu: Gpu) -> dict[str, Any]:
    """What belongs to the whole card: power, energy, temperature, clocks and the counters of throttling."""
    power = power_w(gpu)
    epochs = [0, *sorted(gpu.restarts), fleet.rows]
    since = np.empty(fleet.rows, np.int64)
    counters = {"energy_mj": power * fleet.interval_ms} | {
        f"throttled_{cause}_ms": share * fleet.interval_ms for cause, share in gpu.throttled.items()
    }
    climbed = {name: np.empty(fleet.rows) for name in counters}
    for first, last in pairwise(epochs):
        since[first:last] = int(fleet.times_ms[first]) - 60 * SECOND_MS if first < fleet.rows else 0
        for name, rise in counters.items():
            climbed[name][first:last] = np.cumsum(rise[first:last])
    reasons = np.zeros(fleet.rows, np.int64)
    for cause, share in gpu.throttled.items():
        reasons |= np.where(share > 0, _REASONS[cause], 0)
    reasons |= np.where(gpu.util == 0, 0x1, 0)
    slowed = 1 - 0.4 * np.max(list(gpu.throttled.values()), axis=0)
    clock = np.where(gpu.util > 0, gpu.card.boost_clock_mhz * slowed, gpu.card.idle_clock_mhz)
    hot = (gpu.throttled["sw_thermal"] > 0) | (gpu.throttled["hw_thermal"] > 0)
    return climbed | {
        "power_w": np.round(power, 1),
        "counters_since": since,
        "temperature_c": np.where(hot, 87.0, 28 + gpu.card.rise_c * power / gpu.card.power_limit_w),
        "sm_clock_mhz": clock,
        "mem_clock_mhz": np.full(fleet.rows, float(gpu.card.mem_clock_mhz)),
        "throttle_reasons": reasons,
    }


def _process_rows(fleet: Fleet, gpu: Gpu, seen: Mask) -> list[pa.Table]:
    """Every process at every list: on the process grid, and when one starts or has ended."""
    listed = fleet.times_ms % fleet.process_interval_ms == 0
    for stay in gpu.stays:
        listed = listed | (np.diff(stay.when, prepend=False))
    listed &= seen & ~np.isin(gpu.health, _MEASURES_NOTHING)
    return [_stay_rows(fleet, gpu, stay, np.flatnonzero(listed & stay.when)) for stay in gpu.stays]


def _stay_rows(fleet: Fleet, gpu: Gpu, stay: Stay, rows: NDArray[np.int64]) -> pa.Table:
    own = {name: value[rows] if isinstance(value, np.ndarray) else value for name, value in stay.columns.items()}
    unknown = own.keys() - set(schema.PROCESS.names)
    if unknown:
        raise KeyError(f"the process table has no column {', '.join(sorted(unknown))}")
    common = {"time": fleet.times_ms[rows], "gpu": gpu.uuid, "interval_ms": fleet.process_interval_ms}
    return _table(schema.PROCESS, common | {"mem_used_bytes": stay.mem[rows]} | own, len(rows))


def _host_rows(fleet: Fleet, host: Host) -> pa.Table:
    columns = {name: level[host.seen] for name, level in host.levels.items()}
    times = {"time": fleet.times_ms[host.seen], "interval_ms": fleet.interval_ms}
    return _table(schema.HOST, columns | times, int(host.seen.sum()))


def _device_rows(fleet: Fleet, host: Host, there: Sequence[tuple[Gpu, Mask]]) -> list[dict[str, object]]:
    """The inventory of each day, at the GPU's first row of it."""
    rows = []
    for gpu, seen in there:
        times = fleet.times_ms[seen & (gpu.health == "ok")]
        _, firsts = np.unique(times // DAY_MS, return_index=True)
        card = gpu.card
        entry: dict[str, object] = {"gpu": gpu.uuid, "gpu_index": gpu.index, "pool": host.pool, "source": "nvml"}
        entry |= {"model": card.model, "mem_total_bytes": card.mem_total_bytes, "power_limit_w": card.power_limit_w}
        entry |= {"driver_version": "580.95.05", "cuda_driver_version": "13.0"}
        entry |= {"mig_enabled": False if gpu.parent is None else None}
        rows += [entry | gpu.device | {"time": int(times[first])} for first in firsts]
    return rows
