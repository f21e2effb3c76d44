"""The rows that agents would write for the situations: GPUs, processes, hosts, servers and allocations."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from analytics.simulation.tables import table_of
from benchmarks.judged_situations import DAY, HOUR, ROW_MS, SEEN, SEEN_DAYS, Recording, runs
from fallow import parquet
from fallow.clock import DAY_MS, HOUR_MS, utc_day
from fallow.lake import Lake, LakeFile
from fallow.schema import ALLOCATION, DEVICE, GPU, HOST, PROCESS, SERVING, LakeTable
from tests.lakes import made_lake

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.recordings import Floats, Mask

START_MS = 1_792_972_800_000  # Monday 2026-10-26 00:00 UTC
PER_HOST = 8
LISTED, SCRAPED = HOUR // 2, HOUR // 6
"""Number of rows between two process lists, and between two rows of a host or an inference server."""


def hosts_of(fleet: Sequence[Recording]) -> list[str]:
    """Return the host of each GPU: a host has cards of one model and one kind, and a gang is on one host."""
    taken: dict[tuple[str, str], list[int]] = defaultdict(list)
    gangs: dict[str, str] = {}
    sizes = Counter(each.gang for each in fleet if each.gang)
    names = []
    for each in fleet:
        if each.gang in gangs:
            names.append(gangs[each.gang])
            continue
        size, there = sizes.get(each.gang, 1), taken[each.card.model, each.host]
        number = next((n for n, used in enumerate(there) if used + size <= PER_HOST), len(there))
        there += [0] * (number == len(there))
        there[number] += size
        name = f"{each.card.model.split()[1].lower()}-{each.host.replace(' ', '-')}-{number}"
        names.append(name)
        if each.gang:
            gangs[each.gang] = name
    return names


def write_lake(fleet: Sequence[Recording], names: Sequence[str], hosts: Sequence[str], folder: Path) -> None:
    """Write the lake of agents' rows for the first four weeks."""
    lake = made_lake(folder)
    by_host: dict[str, list[int]] = defaultdict(list)
    for number, host in enumerate(hosts):
        by_host[host].append(number)
    for host, numbers in by_host.items():
        tables: dict[LakeTable, list[pa.Table]] = defaultdict(list)
        for index, number in enumerate(numbers):
            for table, rows in _tables(fleet[number], names[number], index, number).items():
                tables[table].append(rows)
        tables[HOST].append(_host_rows([fleet[number] for number in numbers]))
        for table, parts in tables.items():
            _put(lake, table, host, pa.concat_tables(parts))


def _put(lake: Lake, table: LakeTable, host: str, rows: pa.Table) -> None:
    """Write a file per day."""
    times = rows["time"].cast(pa.int64()).to_numpy()
    for number in range(SEEN_DAYS):
        day_ms = START_MS + number * DAY_MS
        own = rows.filter(pa.array((times >= day_ms) & (times < day_ms + DAY_MS)))
        if own.num_rows:
            file = LakeFile(table.name, utc_day(day_ms), host, number + 1, number + 1)
            lake.put(file, parquet.encode(table, own.sort_by("time")))


def _seen(recording: Recording) -> Mask:
    return np.ones(SEEN, np.bool_) if recording.seen is None else recording.seen[:SEEN]


def time_ms(rows: Any) -> Any:
    return START_MS + np.asarray(rows, np.int64) * ROW_MS


def _tables(recording: Recording, gpu: str, index: int, number: int) -> dict[LakeTable, pa.Table]:
    played = _played(recording)
    made = {
        GPU: _gpu_rows(recording, gpu, played),
        DEVICE: _device_rows(recording, gpu, index),
        PROCESS: _process_rows(recording, gpu, number),
        ALLOCATION: _allocation_rows(recording, gpu, number),
    }
    if {"server", "metrics"} <= recording.facts:
        made[SERVING] = _serving_rows(recording, gpu, number)
    return made


def _played(recording: Recording) -> dict[str, Floats]:
    """Return the columns of the work while it is active, and of an idle card elsewhere."""
    active, card = recording.active[:SEEN], recording.card
    idle_draw_w = np.where(recording.occupied[:SEEN], card.context_w, card.idle_w)
    idle = {"power_w": idle_draw_w, "mean_w": idle_draw_w, "clock": 1.0, "gpu_util_zero_ratio": 1.0}
    return {
        name: np.where(active, recording.played(values)[:SEEN], idle.get(name, 0.0))
        for name, values in recording.work.columns.items()
    }


def _gpu_rows(recording: Recording, gpu: str, played: dict[str, Floats]) -> pa.Table:
    seen, card, occupied = _seen(recording), recording.card, recording.occupied[:SEEN]
    noise = np.random.default_rng(len(gpu)).normal(0, 1.0, SEEN)
    slowed = np.cumsum(played["slowed_ms"]).astype(np.int64)
    measured: dict[str, Any] = {
        "time": time_ms(np.arange(SEEN)),
        "mem_used_bytes": np.where(occupied, recording.memory[:SEEN] * card.mem_bytes, 0).astype(np.int64),
        "power_w": np.round(played["power_w"] + noise, 1),
        "energy_mj": np.cumsum(played["mean_w"] * ROW_MS).astype(np.int64),
        "temperature_c": np.where(played["clock"] < 1, 88, 30 + 45 * played["mean_w"] / card.limit_w).astype(np.int16),
        "sm_clock_mhz": (card.clock_mhz * np.where(played["gpu_util_pct"] > 0, played["clock"], 0.2)).astype(np.int16),
        "throttle_reasons": np.where(played["clock"] < 1, 0x20, np.where(played["gpu_util_pct"] > 0, 0, 1)).astype(
            np.int64
        ),
        "throttled_sw_thermal_ms": slowed,
        "process_count": occupied.astype(np.int16),
        **{
            name: np.round(played[name], 4)
            for name in ("gpu_util_pct", "gpu_util_max_pct", "gpu_util_p98_pct", "gpu_util_zero_ratio")
        },
        **({name: np.round(played[name], 1) for name in ("sm_active_pct", "dram_active_pct")} if card.gpm else {}),
    }
    constant = {
        "gpu": gpu, "interval_ms": ROW_MS, "health": "ok", "util_source": "gpm" if card.gpm else "samples",
        "gpu_util_coverage_ratio": 1.0, "counters_since": START_MS - HOUR_MS, "throttled_power_cap_ms": 0,
        "throttled_hw_thermal_ms": 0, "throttled_power_brake_ms": 0, "throttled_sync_boost_ms": 0,
        "mem_reserved_bytes": 600 * 2**20,
    }  # fmt: skip
    return table_of(GPU, {name: values[seen] for name, values in measured.items()} | constant, int(seen.sum()))


def _device_rows(recording: Recording, gpu: str, index: int) -> pa.Table:
    card, first = recording.card, np.flatnonzero(_seen(recording))[0]
    rows = np.unique(np.concatenate(([first], np.arange(first - first % DAY + DAY, SEEN, DAY))))
    return table_of(
        DEVICE,
        {
            "time": time_ms(rows), "gpu": gpu, "gpu_index": index, "model": card.model,
            "mem_total_bytes": card.mem_bytes, "power_limit_w": card.limit_w, "mig_enabled": False, "source": "nvml",
        },
        len(rows),
    )  # fmt: skip


def _process_rows(recording: Recording, gpu: str, number: int) -> pa.Table:
    """Return the list of processes at each start, and every half hour."""
    parts, seen = [], _seen(recording)
    for run, (first, after) in enumerate(runs(recording.occupied[:SEEN])):
        rows = np.unique(np.concatenate(([first], np.arange(-(-first // LISTED) * LISTED, after, LISTED)))).astype(
            np.int64
        )
        rows = rows[seen[rows]]
        left = SEEN if recording.orphan_from is None else recording.orphan_from
        waits = "waits for input" in recording.facts
        parts.append(table_of(
            PROCESS,
            {
                "time": time_ms(rows), "gpu": gpu, "interval_ms": LISTED * ROW_MS, "pid": 10_000 + 100 * number + run,
                "started": int(time_ms(first)) - 2000, "kind": "compute", "user": recording.user,
                "command": recording.command,
                "mem_used_bytes": (recording.memory[rows] * recording.card.mem_bytes).astype(np.int64),
                "parent_pid": np.where((rows >= left) & (not recording.slurm), 1, recording.parent).astype(np.int32),
                "cpu_util_pct": np.where(recording.active[rows], 160.0 if waits else 100.0, 0.5),
                "slurm_job_id": _job(recording, number, first),
                "slurm_account": f"acc-{recording.user}" if recording.slurm else None,
                **({"pod": f"{recording.command}-{number}", "namespace": f"ns-{recording.user}"}
                   if recording.pod else {}),
                "attribution": "proc+cgroup",
            },
            len(rows),
        ))  # fmt: skip
    return pa.concat_tables(parts) if parts else table_of(PROCESS, {}, 0)


def _job(recording: Recording, number: int, first: int) -> str | None:
    """Return the id of the Slurm job that begins here, the same for all GPUs of a gang."""
    if not recording.slurm:
        return None
    own = sum(recording.gang.encode()) % 900 * 7 + 1000 if recording.gang else number
    return f"{own}{first:05}"


def _allocation_rows(recording: Recording, gpu: str, number: int) -> pa.Table:
    parts = []
    for first, after in runs(recording.allocated):
        if first < SEEN:
            pod = f"ns-{recording.user}/{recording.command}-{number}"
            parts.append(table_of(
                ALLOCATION,
                {
                    "time": np.array([time_ms(first)]), "end": int(time_ms(after)) if after < SEEN else None,
                    "gpu": gpu, "gpu_count": 1,
                    "allocation_id": pod if recording.pod else _job(recording, number, first),
                    "scheduler": "kubernetes" if recording.pod else "slurm",
                    "user": None if recording.pod else recording.user,
                    "account": f"{'ns' if recording.pod else 'acc'}-{recording.user}", "name": "work",
                },
                1,
            ))  # fmt: skip
    return pa.concat_tables(parts) if parts else table_of(ALLOCATION, {}, 0)


def _serving_rows(recording: Recording, gpu: str, number: int) -> pa.Table:
    """Return the server's own metrics of its requests."""
    asked = np.zeros(SEEN)
    if recording.work.requests is not None:
        asked = recording.played(recording.work.requests)[:SEEN]
    per_s = asked.reshape(-1, SCRAPED).sum(axis=1) / (SCRAPED * ROW_MS / 1000)
    rows = np.arange(0, SEEN, SCRAPED)
    there = recording.occupied[rows]
    columns = {
        "time": time_ms(rows)[there], "requests_per_s": per_s[there], "generated_tokens_per_s": 220 * per_s[there],
        "prompt_tokens_per_s": 400 * per_s[there], "running_requests": np.minimum(np.rint(4 * per_s[there]), 40.0),
        "kv_cache_used_ratio": np.minimum(0.35 * per_s[there], 0.95),
    }  # fmt: skip
    constant = {
        "gpu": gpu, "interval_ms": SCRAPED * ROW_MS, "endpoint": f"http://127.0.0.1:{8000 + number}/metrics",
        "model": f"model-{number}", "engine": "vllm" if recording.command == "vllm" else "triton", "health": "ok",
        "pid": 10_000 + 100 * number, "waiting_requests": 0.0,
    }  # fmt: skip
    return table_of(SERVING, columns | constant, int(there.sum()))


def _host_rows(fleet: Sequence[Recording]) -> pa.Table:
    """Return the host's figures, which show what limits the GPUs, or another user's program."""
    rng, rows, host = np.random.default_rng(len(fleet)), np.arange(0, SEEN, SCRAPED), fleet[0].host
    working = np.mean([each.active[rows] for each in fleet], axis=0)
    waiting = np.mean([each.active[rows] & ("waits for input" in each.facts) for each in fleet], axis=0) > 0
    cpu, disk = (
        (waiting & host.startswith("cpu starved")) | host.startswith("cpu noise"),
        waiting & host.startswith("io"),
    )
    seen = np.any([_seen(each)[rows] for each in fleet], axis=0)
    columns = {
        "time": time_ms(rows),
        "cpu_util_pct": np.where(cpu, rng.uniform(93, 99.5, len(rows)), np.where(disk, 12, 5 + 30 * working)),
        "cpu_pressure_pct": np.where(cpu, rng.uniform(35, 80, len(rows)), rng.uniform(0, 1.5, len(rows))),
        "io_pressure_pct": np.where(disk, rng.uniform(30, 75, len(rows)), rng.uniform(0, 2, len(rows))),
        "disk_read_bytes_per_s": np.where(disk, 2e9, 1e7 + 1e8 * working),
    }
    constant = {
        "interval_ms": SCRAPED * ROW_MS,
        "cpu_count": 128,
        "mem_used_bytes": 300 * 2**30,
        "mem_total_bytes": 1024 * 2**30,
        "mem_pressure_pct": 0.0,
    }
    return table_of(HOST, {name: values[seen] for name, values in columns.items()} | constant, int(seen.sum()))
