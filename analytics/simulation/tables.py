"""The lake's tables of a simulated host-day, and a whole fleet written to a lake with the memory of one host-day."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from analytics.simulation.catalog import PROCESS_INTERVAL_MS
from analytics.simulation.days import GpuDay, SimulatedDay, host_days, row_range
from analytics.simulation.placement import Reservation, SimulatedFleet
from analytics.simulation.plan import FleetPlan, plan_fleet
from analytics.simulation.queue import SCHEDULER, Row, SimulatedQueue, allocation_id, simulated_queue
from analytics.simulation.stays import Stay
from fallow import __version__
from fallow.clock import DAY_MS, utc_day
from fallow.lake import Lake, LakeFile
from fallow.parquet import arrow_schema, encode, table_from_rows
from fallow.schema import AGENT, ALLOCATION, DEVICE, EVENT, GPU, HOST, PROCESS, REQUEST, SERVING, LakeTable

DRIVER, CUDA = "580.95.05", "13.0"

_NEVER_THROTTLED = ("throttled_sync_boost_ms", "throttled_hw_thermal_ms", "throttled_power_brake_ms")


def gpu_table(day: SimulatedDay) -> pa.Table:
    """Return the gpu rows of the day; the rows of a lost GPU are marked and measure nothing."""
    return pa.concat_tables(_gpu_rows(day, gpu) for gpu in day.gpus)


def _offsets(rng: np.random.Generator, count: int) -> NDArray[np.int64]:
    """Return some milliseconds; 0 for the day's last row, which would otherwise reach into a day without rows."""
    offsets = rng.integers(0, 4, count)
    offsets[-1:] = 0
    return offsets


def _gpu_rows(day: SimulatedDay, gpu: GpuDay) -> pa.Table:
    card, lost, count = day.plan.host.pool.card, gpu.lost, len(day.seen)
    rng = np.random.default_rng([day.seed, day.plan.host.number, 5, gpu.position, day.day_ms // DAY_MS])
    did, busy_pct, context = gpu.did, gpu.did.intensity_ratio * 100, gpu.process_count > 0
    columns: dict[str, object] = {
        "gpu": day.plan.host.gpus[gpu.position].uuid,
        "offset_ms": _offsets(rng, count),
        "counters_since": day.plan.booted_ms,
        "health": np.where(lost, "lost", "ok"),
        "util_source": "simulated",
        "gpu_util_coverage_ratio": np.where(lost, 0.0, np.round(1.0 - 0.002 * rng.random(count), 4)),
    }
    measured: dict[str, NDArray[Any]] = {
        **vars(did),
        **vars(gpu.board),
        "mem_util_pct": np.round(did.gpu_util_pct * (0.15 + 0.45 * did.intensity_ratio), 2),
        "mem_used_bytes": gpu.mem_used_bytes,
        "mem_reserved_bytes": np.full(count, card.mem_reserved_bytes),
        "mem_clock_mhz": np.full(count, card.mem_clock_mhz),
        "process_count": gpu.process_count,
        **dict.fromkeys(_NEVER_THROTTLED, np.zeros(count, np.int64)),
    }
    if card.gpm:
        sm_pct = np.minimum(did.gpu_util_pct, 4.0 * (did.gpu_util_pct > 0) + 0.85 * busy_pct)
        measured |= {
            "sm_active_pct": np.round(sm_pct, 1),
            "sm_occupancy_pct": np.round(0.28 * sm_pct, 1),
            "tensor_active_pct": np.round(0.42 * np.minimum(busy_pct, sm_pct), 1),
            "dram_active_pct": np.round(np.where(context, 0.5 * sm_pct, 0.0), 1),
            **dict.fromkeys(("nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s"), _between_gpus(day, gpu)),
        }
    null = lost if lost.any() else None
    return _observed_rows(GPU, day, columns | {name: pa.array(values, mask=null) for name, values in measured.items()})


def _between_gpus(day: SimulatedDay, gpu: GpuDay) -> NDArray[np.float64]:
    """Return the traffic from a GPU of a larger job to the others, in steps of 256 MiB/s; 0 on GPUs that work alone."""
    rates = np.zeros(len(day.times_ms))
    for stay in gpu.stays:
        if len(stay.gpus) > 1 and gpu.position not in stay.unused:
            rows = row_range(stay, day.day_ms, len(rates), day.interval_ms)
            rates[rows] = np.rint(0.8 * gpu.did.gpu_util_pct[rows]) * 2**28
    return rates


def process_table(day: SimulatedDay) -> pa.Table:
    """Return every process of a GPU each PROCESS_INTERVAL_MS, at each change and when the agent comes back."""
    parts = []
    for gpu in day.gpus:
        for stay in gpu.stays:
            rows = _snapshots(day, gpu, stay)
            parts += [_process_rows(day, gpu, stay, rows, nth) for nth in range(stay.processes)] if len(rows) else []
    return pa.concat_tables(parts) if parts else arrow_schema(PROCESS).empty_table()


def _snapshots(day: SimulatedDay, gpu: GpuDay, stay: Stay) -> NDArray[np.int64]:
    """Return the rows at which the processes of a stay are listed."""
    count, every = len(day.times_ms), on_grid_ms(PROCESS_INTERVAL_MS, day.interval_ms) // day.interval_ms
    rows = row_range(stay, day.day_ms, count, day.interval_ms)
    listed = np.zeros(count, np.bool_)
    listed[::every] = True
    listed[rows.start] = True
    listed[1:] |= day.seen[1:] & ~day.seen[:-1]
    inside = np.zeros(count, np.bool_)
    inside[rows] = True
    return np.flatnonzero(listed & inside & day.seen & ~gpu.lost)


def on_grid_ms(every_ms: int, interval_ms: int) -> int:
    """Return an interval on the row grid: the next multiple of the row interval."""
    return -(-every_ms // interval_ms) * interval_ms


def _process_rows(day: SimulatedDay, gpu: GpuDay, stay: Stay, rows: NDArray[np.int64], nth: int) -> pa.Table:
    serving = stay.work == "serving"
    slurm = stay.work == "training"
    return table_of(
        PROCESS,
        {
            "time": day.times_ms[rows],
            "gpu": day.plan.host.gpus[gpu.position].uuid,
            "interval_ms": on_grid_ms(PROCESS_INTERVAL_MS, day.interval_ms),
            "pid": pid_of(stay, gpu.position, nth),
            "started": stay.start_ms - 1000 * (nth + 1),
            "kind": "compute",
            "mem_used_bytes": gpu.mem_used_bytes[rows] // stay.processes,
            "user": stay.user,
            "command": stay.command,
            "arguments": stay.arguments,
            "parent_pid": _parents(day, stay, rows),
            "container_id": f"{stay.seed:016x}"[:12] if serving else None,
            "pod": stay.name if serving else None,
            "namespace": stay.account if serving else None,
            "slurm_job_id": stay.job_id if slurm else None,
            "slurm_account": stay.account if slurm else None,
            "attribution": "simulated",
        },
        len(rows),
    )


def pid_of(stay: Stay, position: int, nth: int = 0) -> int:
    """Return the number of a stay's process on a GPU."""
    return 2000 + (stay.seed // 7 + 17 * position + 5 * nth) % 4_000_000


def _parents(day: SimulatedDay, stay: Stay, rows: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the parent of the stay's processes; 1 after its exit."""
    left_ms = stay.idle_from_ms if stay.orphaned else None
    left = np.zeros(len(rows), np.bool_) if left_ms is None else day.times_ms[rows] >= left_ms
    return np.where(left, 1, 1000 + stay.seed % 900).astype(np.int32)


def device_table(day: SimulatedDay) -> pa.Table:
    """Return the inventory at the first row of the day, and at each return of an agent, without lost GPUs."""
    starts = np.flatnonzero(day.seen & ~np.concatenate([[False], day.seen[:-1]]))
    card = day.plan.host.pool.card
    model = {"model": card.model, "mem_total_bytes": card.mem_total_bytes, "power_limit_w": card.power_limit_w}
    driver = {"driver_version": DRIVER, "cuda_driver_version": CUDA, "mig_enabled": False, "source": "simulated"}
    host = day.plan.host
    island = min(gpu.uuid for gpu in host.gpus) if card.nvlink and len(host.gpus) > 1 else None  # all reach each other
    shared = {**model, **driver, "nvlink_island": island, "pool": day.plan.host.pool.name}
    return table_from_rows(
        DEVICE,
        [
            {
                **shared,
                "time": int(day.times_ms[row]),
                "gpu": day.plan.host.gpus[gpu.position].uuid,
                "gpu_index": gpu.position,
                "pci_bus_id": f"00000000:{0x1B + 0x10 * gpu.position:02X}:00.0",
            }
            for row in starts
            for gpu in day.gpus
            if not gpu.lost[row]
        ],
    )


def event_table(day: SimulatedDay, *, first: bool) -> pa.Table:
    """Return the events of agent and GPUs on the day; `first` says whether the agent started on this day."""
    events: list[tuple[int, str | None, str, str]] = []
    started_ms = max(day.plan.added_ms, day.day_ms) if first else day.plan.added_ms
    if first or day.day_ms <= started_ms:
        events.append((started_ms, None, "agent_start", "simulated agent started"))
    if day.plan.outage_ms is not None:
        killed_ms, back_ms = day.plan.outage_ms
        events.append((killed_ms, None, "agent_killed", "simulated: the agent ended without a word"))
        events.append((back_ms, None, "agent_start", "simulated agent started"))
    for position, lost_ms in day.plan.lost_ms.items():
        events.append((lost_ms, day.plan.host.gpus[position].uuid, "gpu_lost", "simulated: XID 79, fallen off the bus"))
    return table_from_rows(
        EVENT,
        [
            {"time": time_ms, "gpu": gpu, "kind": kind, "detail": detail}
            for time_ms, gpu, kind, detail in events
            if day.day_ms <= time_ms < day.day_ms + DAY_MS
        ],
    )


def allocation_table(day: SimulatedDay, queue: SimulatedQueue, *, first: bool, until_ms: int) -> pa.Table:
    """Return the allocations that start on the day, a row per GPU; with `first` also running ones, cut to its start."""
    plan = day.plan
    rows: list[dict[str, object]] = []

    def add(start_ms: int, end_ms: int, gpus: tuple[int, ...], rest: Mapping[str, object]) -> None:
        is_cut = first and start_ms < day.day_ms
        start_ms = day.day_ms if is_cut else start_ms
        if day.day_ms <= start_ms < day.day_ms + DAY_MS:
            end = None if end_ms >= until_ms else end_ms
            known = dict(queue.allocations.get((plan.host.name, str(rest["allocation_id"])), {}))
            if is_cut:  # when it was asked for lies before the records
                known |= {"submitted": None, "eligible": None}
            shared = {"time": start_ms, "end": end, "gpu_count": len(gpus), **rest, **known}
            rows.extend({**shared, "gpu": plan.host.gpus[gpu].uuid} for gpu in gpus)

    def named(of: Stay | Reservation, scheduler: str, allocation_id: str) -> dict[str, object]:
        return {
            "scheduler": scheduler,
            "allocation_id": allocation_id,
            "user": of.user,
            "account": of.account,
            "name": of.name,
        }

    for stay in plan.stays:
        if stay.allocated:
            scheduler = "slurm" if stay.job_id else "kubernetes"
            add(stay.start_ms, stay.end_ms, stay.gpus, named(stay, scheduler, allocation_id(stay)))
    for reserved in plan.reservations:
        add(reserved.start_ms, until_ms, reserved.gpus, named(reserved, SCHEDULER, reserved.allocation_id))
    return table_from_rows(ALLOCATION, sorted(rows, key=lambda row: (str(row["gpu"]), str(row["time"]))))


def agent_table(day: SimulatedDay) -> pa.Table:
    """Return the cost of a simulated agent, and the intervals that an outage lost."""
    rng, seen, count = day.rng, day.seen, len(day.seen)
    back = np.flatnonzero(seen[1:] & ~seen[:-1]) + 1
    missed = np.zeros(count, np.int32)
    if day.plan.outage_ms is not None and len(back):
        missed[back] = (day.plan.outage_ms[1] - day.plan.outage_ms[0]) // day.interval_ms
    return _observed_rows(
        AGENT,
        day,
        {
            "version": __version__,
            "supervisor_cpu_ms": np.round(rng.gamma(20, 0.11, count), 1),
            "worker_cpu_ms": np.round(rng.gamma(20, 0.05 + 0.012 * len(day.gpus), count), 1),
            "supervisor_rss_bytes": 18 * 1024**2,
            "worker_rss_bytes": 15 * 1024**2,
            "nvml_calls": 14 * len(day.gpus),
            "nvml_busy_ms": np.round(rng.gamma(12, 0.2 * len(day.gpus) / 8 + 0.1, count), 2),
            "nvml_slowest_ms": np.round(rng.gamma(4, 0.2, count), 2),
            "nvml_slowest_call": "nvmlDeviceGetPowerUsage",
            "missed_intervals": missed,
            "spool_rows": rng.integers(0, 400, count),
        },
    )


def host_table(day: SimulatedDay) -> pa.Table:
    """Return the host's CPU, memory and traffic, which follow the work of its GPUs."""
    rng, count = day.rng, len(day.seen)
    busy = np.mean([gpu.did.gpu_util_pct for gpu in day.gpus], axis=0) / 100
    total = 128 * 1024**3 * max(2, len(day.gpus))
    starved = np.zeros(count, np.bool_)
    for stay in (stay for gpu in day.gpus for stay in gpu.stays if stay.starved):
        starved[row_range(stay, day.day_ms, count, day.interval_ms)] = True
    return _observed_rows(
        HOST,
        day,
        {
            "cpu_util_pct": np.round(2 + 35 * busy + rng.gamma(2, 1, count), 1),
            "cpu_count": 16 * max(2, len(day.gpus)),
            "mem_used_bytes": ((0.05 + 0.3 * busy) * total).astype(np.int64) // 2**20 * 2**20,
            "mem_total_bytes": total,
            "swap_used_bytes": 0,
            "cpu_pressure_pct": np.round(rng.gamma(1, 0.3, count), 1),
            "mem_pressure_pct": 0.0,
            "io_pressure_pct": np.round(
                np.where(starved, rng.uniform(38, 64, count), rng.gamma(1, 0.5, count) * (1 + 4 * busy)), 1
            ),
            "disk_read_bytes_per_s": np.rint(
                np.where(starved, rng.uniform(1.9e9, 2.1e9, count), 1e4 + 2e8 * busy * rng.gamma(2, 0.5, count))
            ),
            "disk_write_bytes_per_s": np.rint(1e5 + 2e7 * busy * rng.gamma(1, 1, count)),
            "net_receive_bytes_per_s": np.rint(2e4 + 4e8 * busy * rng.gamma(2, 0.5, count)),
            "net_transmit_bytes_per_s": np.rint(2e4 + 2e8 * busy * rng.gamma(2, 0.5, count)),
        },
    )


def _observed_rows(table: LakeTable, day: SimulatedDay, columns: dict[str, object]) -> pa.Table:
    """Return the rows of a day with a running agent; a column has a value per row of the day, or a single value."""
    shared = {"time": day.times_ms, "interval_ms": day.interval_ms}
    values = (shared | columns).items()
    whole = table_of(table, dict(values), len(day.seen))
    return whole if day.seen.all() else whole.filter(pa.array(day.seen)).combine_chunks()


def table_of(table: LakeTable, columns: dict[str, object], count: int) -> pa.Table:
    """Return the columns in the table's schema: arrays stay, a single value is repeated, a missing column is null."""
    arrays = []
    for field in arrow_schema(table):
        value = columns.get(field.name)
        if isinstance(value, np.ndarray):
            value = pa.array(value)
        if isinstance(value, (pa.Array, pa.ChunkedArray)):
            arrays.append(value.cast(field.type))
        else:
            arrays.append(
                pa.nulls(count, field.type) if value is None else pa.repeat(pa.scalar(value, field.type), count)
            )
    return pa.table(arrays, schema=arrow_schema(table))


_REQUESTS_PER_S = 6.0
"""Requests that a server answers at full load."""
_TOKENS_PER_REQUEST = 180.0
_PORT = 8000


def serving_table(day: SimulatedDay) -> pa.Table:
    """Return a row per server each PROCESS_INTERVAL_MS, while an agent observes the host and the server is loaded."""
    parts = [_rows(day, gpu, stay) for gpu in day.gpus for stay in gpu.stays if stay.server is not None]
    return pa.concat_tables(parts) if parts else arrow_schema(SERVING).empty_table()


def _rows(day: SimulatedDay, gpu: GpuDay, stay: Stay) -> pa.Table:
    server = stay.server
    assert server is not None  # noqa: S101  # the caller chose those that have one
    interval_ms = on_grid_ms(PROCESS_INTERVAL_MS, day.interval_ms)
    every, count = interval_ms // day.interval_ms, len(day.times_ms)
    scraped = np.zeros(count, np.bool_)
    scraped[row_range(stay, day.day_ms, count, day.interval_ms)] = True
    rows = np.flatnonzero(scraped & day.seen & ~gpu.lost)
    rows = rows[rows % every == 0]
    # what happened since the scrape before
    sums = np.concatenate([[0.0], np.cumsum(gpu.did.gpu_util_pct)])
    load = (sums[rows + 1] - sums[np.maximum(rows + 1 - every, 0)]) / np.minimum(every, rows + 1) / 100
    now = gpu.did.gpu_util_pct[rows] / 100
    rate = np.round(_REQUESTS_PER_S * load, 2)
    speaks = server.kv_cache_ratio is not None
    return table_of(
        SERVING,
        {
            "time": day.times_ms[rows],
            "interval_ms": interval_ms,
            "endpoint": f"http://127.0.0.1:{_PORT + gpu.position}/metrics",
            "model": server.model,
            "engine": server.engine,
            "health": "ok",
            "gpu": day.plan.host.gpus[gpu.position].uuid,
            "pid": pid_of(stay, gpu.position),
            "kv_cache_used_ratio": np.round((server.kv_cache_ratio or 0.0) * now, 3) if speaks else None,
            "running_requests": np.rint(12 * now),
            "waiting_requests": np.rint(np.maximum(0.0, 20 * (now - 0.8))),
            "requests_per_s": rate,
            "generated_tokens_per_s": np.round(_TOKENS_PER_REQUEST * rate, 1) if speaks else None,
        },
        len(rows),
    )


METADATA = {"simulated": "true"}
"""Metadata of every simulated Parquet file, beside schema version and writer."""


def write_fleet(lake: Lake, fleet: SimulatedFleet, progress: Callable[[float], None] | None = None) -> FleetPlan:
    """Write the simulated fleet into the lake and return its plan.

    The same fleet gives the same files to the byte. `progress` is called with the completed share, 0 to 1, after each
    host-day. Raises LakeError if the lake cannot be written.
    """
    plan = plan_fleet(fleet)
    queue = simulated_queue(plan)
    days = (day for host in plan.hosts for day in host_days(fleet, host))
    for done, day in enumerate(days, 1):
        for table, data in day_tables(fleet, day, queue):
            _write_table(lake, table, day, data)
        if progress is not None:
            progress(done / (len(plan.hosts) * fleet.days))
    _write_requests(lake, queue.requests)
    return plan


def day_tables(fleet: SimulatedFleet, day: SimulatedDay, queue: SimulatedQueue) -> Iterator[tuple[LakeTable, pa.Table]]:
    """Yield the tables of a host-day that have rows."""
    first = day.day_ms == fleet.since_ms
    every = (
        (GPU, gpu_table(day)),
        (PROCESS, process_table(day)),
        (HOST, host_table(day)),
        (DEVICE, device_table(day)),
        (EVENT, event_table(day, first=first)),
        (AGENT, agent_table(day)),
        (SERVING, serving_table(day)),
        (ALLOCATION, allocation_table(day, queue, first=first, until_ms=fleet.until_ms)),
    )
    yield from ((table, data) for table, data in every if data.num_rows)


def _write_requests(lake: Lake, requests: Iterable[Row]) -> None:
    """Write a file for each day with waiting jobs, under the scheduler's name."""
    days: dict[str, list[Row]] = {}
    for each in requests:
        days.setdefault(utc_day(cast("int", each["as_of"])), []).append(each)
    for date, rows in sorted(days.items()):
        data = table_from_rows(REQUEST, rows)
        number = 1000 * max(cast("int", row["as_of"]) for row in rows)
        lake.put(LakeFile(REQUEST.name, date, SCHEDULER, number, number), encode(REQUEST, data, METADATA))


def _write_table(lake: Lake, table: LakeTable, day: SimulatedDay, data: pa.Table) -> None:
    """Write a file per table, date and host; sequence numbers are the times of its first and last row (µs)."""
    span = pc.min_max(data.column("time").cast("int64"))
    first, last = (1000 * span[end].as_py() for end in ("min", "max"))
    lake.put(LakeFile(table.name, utc_day(day.day_ms), day.plan.host.name, first, last), encode(table, data, METADATA))
