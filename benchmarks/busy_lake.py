"""A site that runs every busy program once: what each GPU does by the second, the truth, and rows by witnesses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from analytics.simulation.tables import table_of
from benchmarks.busy_programs import CARDS, GIB, LEVELS, PROGRAMS, Level, Parts, Program
from fallow import parquet
from fallow.clock import DAY_MS, HOUR_MS, SECOND_MS, utc_day
from fallow.lake import Lake, LakeFile
from fallow.schema import ALLOCATION, DEVICE, GPU, HOST, PROCESS, LakeTable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from benchmarks.recordings import Card

Rng = np.random.Generator
MONDAY_MS = 1_788_739_200_000  # 2026-09-07 00:00 UTC
BEFORE_H, AFTER_H = 4, 8
SECONDS = (BEFORE_H + AFTER_H) * 3600
ONSET_S = BEFORE_H * 3600
"""Stalls begin here, or in the half minute after."""
SLOT_S, SCRAPE_S = 10, 30
"""Length of the agent's rows, and of scraped ones, which have the reading of their last second."""
NAMES = list(LEVELS)
_FACTS = Level._fields[: Level._fields.index("works")]
PROFILED = ("sm_active_pct", "tensor_active_pct", "dram_active_pct", "fp64_active_pct", "pcie_rx_bytes_per_s",
            "pcie_tx_bytes_per_s", "nvlink_rx_bytes_per_s", "nvlink_tx_bytes_per_s")  # fmt: skip
_RING = (
    "gpu_util_pct",
    "gpu_util_max_pct",
    "gpu_util_p98_pct",
    "gpu_util_zero_ratio",
    "gpu_util_coverage_ratio",
    "mem_util_pct",
)
UTIL, POWER = ("gpu_util_pct",), ("power_w", "energy_mj", "counters_since")
SETS: dict[str, tuple[str, ...]] = {
    "utilization": UTIL,
    "and power": UTIL + POWER,
    "power and SM": (*UTIL, *POWER, "sm_active_pct"),
    "agent": (),
    "all": (),
}
"""Columns of each set of witnesses. The last two are an agent's whole rows with its lists of processes and its hosts:
`agent` without profiled columns where a card has no GPM, `all` with those that DCGM would add."""


@dataclass(frozen=True)
class SimulatedGpu:
    """One GPU over the whole time."""

    name: str
    host: str
    index: int
    program: Program
    card: Card
    profiled: bool
    job: str
    readings: dict[str, NDArray[np.float32]]
    """Levels, `watts` and `process` by second."""
    truth: NDArray[np.int8]
    """By slot: 1 no work is done, 0 otherwise, -1 not judged."""
    is_culprit: bool = False
    parent: str | None = None

    @property
    def is_pod(self) -> bool:
        return self.program.command in ("vllm", "tritonserver")

    @property
    def is_split(self) -> bool:
        """Return whether the card itself is split into instances."""
        return self.program.mig and self.parent is None

    @property
    def memory_bytes(self) -> float:
        return self.program.memory * (GIB if self.program.memory > 1 else self.card.mem_bytes)

    @property
    def limit_w(self) -> float:
        return self.card.limit_w * (0.45 if "capped" in (part[0] for part in self.program.parts) else 1)

    @property
    def hidden(self) -> tuple[str, ...]:
        """Return the columns that the driver does not fill here."""
        if self.is_split:
            return (*PROFILED, *_RING)
        return ("power_w", "energy_mj", "mem_util_pct") if self.parent else ()


@dataclass(frozen=True)
class Site:
    seed: int
    start_ms: int
    gpus: tuple[SimulatedGpu, ...]

    @cached_property
    def job_seconds(self) -> dict[str, tuple[int, int]]:
        """Return the first second with a process, and the one after the last, of each job with processes."""
        spans = dict[str, tuple[int, int]]()
        for gpu in self.gpus:
            seconds = np.flatnonzero(gpu.readings["process"])
            if gpu.job and len(seconds):
                first, after = spans.get(gpu.job, (SECONDS, 0))
                spans[gpu.job] = min(first, int(seconds[0])), max(after, int(seconds[-1]) + 1)
        return spans


def made_site(seed: int) -> Site:
    """Return the site of a seed; with an even seed stalls begin shortly before midnight."""
    rng = np.random.default_rng(seed)
    onset_s = DAY_MS // SECOND_MS - 600 if seed % 2 == 0 else int(rng.integers(5 * 3600, 15 * 3600)) // 60 * 60
    start_ms = MONDAY_MS + (onset_s - ONSET_S) * SECOND_MS
    gpus = [gpu for number, program in enumerate(PROGRAMS) for gpu in program_gpus(rng, number, program)]
    return Site(seed, start_ms, tuple(gpus))


def program_gpus(rng: Rng, number: int, program: Program) -> Iterator[SimulatedGpu]:
    key = str(rng.choice(program.cards.split()))
    card, spin_w, profiled = CARDS[key]
    levels, stalled = course(rng, program)
    culprit = int(rng.integers(0, program.gpus)) if program.culprit else None
    parent_w = np.full(SECONDS, float(card.idle_w))
    for index in range(program.gpus):
        own, alone = levels, index == culprit
        if program.mig:
            own, _ = course(rng, program)
        if alone:
            own = np.where(stalled, NAMES.index(program.culprit), levels)
        works, host = np.array([each.works for each in LEVELS.values()])[own], index * program.hosts // program.gpus
        truth = np.where(stalled, np.where(works, -1, 1), 0)
        if alone:
            truth[stalled] = {"step": 0, "one block": 1}.get(program.culprit, -1)
        if not program.judged:
            truth[:] = -1
        slots = truth.reshape(-1, SLOT_S)
        readings = _readings(rng, card, spin_w, own)
        name, parent = f"GPU-{number:02}-{index}", f"GPU-{number:02}-p" if program.mig else None
        parent_w += (readings["watts"] - card.idle_w) / program.gpus
        yield SimulatedGpu(
            name, f"host-{number:02}-{host}", index, program, card, profiled, str(70_000 + number), readings,
            np.where(slots.min(axis=1) == slots.max(axis=1), slots[:, 0], -1).astype(np.int8), alone, parent,
        )  # fmt: skip
    if program.mig:
        whole = {name: np.zeros(SECONDS) for name in readings} | {"watts": parent_w, "clock": np.ones(SECONDS)}
        yield SimulatedGpu(
            f"GPU-{number:02}-p", f"host-{number:02}-0", program.gpus, program, card, profiled, "", whole,
            np.zeros(SECONDS // SLOT_S, np.int8)
        )  # fmt: skip


def course(rng: Rng, program: Program) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the level of each second, by its number, and whether it belongs to the stall."""
    levels, stalled = np.full(SECONDS, NAMES.index("free")), np.zeros(SECONDS, np.bool_)
    if not program.stall:
        first = int(rng.uniform(0.1, 1) * 3600)
        last = first + int(program.hours * 3600)
        levels[first:last] = _turns(rng, program.parts, last - first)
        return levels, stalled
    onset = ONSET_S + int(rng.integers(0, 30))
    last = onset + int(program.stalled_h * 3600)
    if program.parts:
        first = int(rng.uniform(0.2, 1.5) * 3600)
        after = last + 2 * 3600 if program.resumes else last
        levels[first:after] = _turns(rng, program.parts, after - first)
    levels[onset:last] = _turns(rng, program.stall, last - onset)
    stalled[onset:last] = True
    return levels, stalled


def _turns(rng: Rng, parts: Parts, seconds: int) -> NDArray[np.int64]:
    numbers, lengths = list[int](), list[int]()
    while sum(lengths) < seconds:
        numbers += [NAMES.index(level) for level, _, _ in parts]
        lengths += [round(rng.uniform(least, most)) for _, least, most in parts]
    return np.repeat(numbers, lengths)[:seconds]


def _readings(rng: Rng, card: Card, spin_w: float, levels: NDArray[np.int64]) -> dict[str, NDArray[np.float32]]:
    """Return what a card shows by the second; every GPU draws its own size of each level."""
    base = np.array([[getattr(each, name) for name in _FACTS] for each in LEVELS.values()])
    own = base * np.exp(rng.normal(0, 0.12, base.shape))
    high = base[:, 0] > 50
    own[high, 0] = 100 - (100 - base[high, 0]) * np.exp(rng.normal(0, 0.3, high.sum()))
    steady = np.array([each.spin > 0 for each in LEVELS.values()])
    noise = rng.normal(0, 1, (len(levels), len(_FACTS))) * np.where(steady[levels], 0.004, 0.05)[:, None]
    shown = dict(zip(_FACTS, (own[levels] * (1 + noise)).T, strict=True))
    for name in ("util", "sm", "tensor", "dram", "fp64", "encoder"):
        is_full = base[levels, _FACTS.index(name)] == 100
        shown[name] = np.where(
            is_full, 100, np.clip(shown[name], 0, 100 if name == "util" else shown["util"] + shown["encoder"])
        )
    shown["clock"] = np.where(base[levels, _FACTS.index("clock")] < 1, np.minimum(shown["clock"], 0.98), 1)
    context, process = (
        np.array([getattr(each, name) for each in LEVELS.values()])[levels] for name in ("context", "process")
    )
    drawn_w = np.clip(shown["power"], 0, 1) * (card.limit_w - card.context_w) + shown["spin"] * (
        spin_w - card.context_w
    )
    idle_w = np.where(context, card.context_w, card.idle_w) * (1 + noise[:, 1] / 5)
    shown |= {
        "watts": np.minimum(idle_w + drawn_w, card.limit_w),
        "process": process,
        "memory": context | (shown["util"] > 0),
    }
    return {name: value.astype(np.float32) for name, value in shown.items()}


def write_until(site: Site, lake: Lake, witnesses: str, since_s: int, until_s: int) -> None:
    """Add the rows of some seconds to the lake, and replace the allocations."""
    agent = not SETS[witnesses]
    hosts: dict[str, list[SimulatedGpu]] = {}
    for gpu in site.gpus:
        if (gpu.profiled or witnesses != "power and SM") and (agent or not gpu.program.mig):
            hosts.setdefault(gpu.host, []).append(gpu)
    for host, gpus in hosts.items():
        tables: list[tuple[LakeTable, list[pa.Table]]] = [
            (GPU, [_gpu_rows(site, gpu, witnesses, since_s, until_s) for gpu in gpus]),
            (DEVICE, [_device_rows(site, gpu) for gpu in gpus] if since_s == 0 else []),
            (PROCESS, [_process_rows(site, gpu, since_s, until_s) for gpu in gpus] if agent else []),
            (HOST, [_host_rows(site, gpus, since_s, until_s)] if agent else []),
        ]
        for table, parts in tables:
            _put(lake, table, host, parts, since_s)
        _put(lake, ALLOCATION, host, [_allocation_rows(site, gpu, until_s) for gpu in gpus], 0)


def _put(lake: Lake, table: LakeTable, host: str, parts: list[pa.Table], since_s: int) -> None:
    """Write a file per day, numbered by its first second."""
    rows = pa.concat_tables(parts) if parts else table_of(table, {}, 0)
    days = rows["time"].cast(pa.int64()).to_numpy() // DAY_MS
    for day in np.unique(days):
        file = LakeFile(table.name, utc_day(int(day) * DAY_MS), host, since_s + 1, since_s + 1)
        lake.put(file, parquet.encode(table, rows.filter(pa.array(days == day)).sort_by("time")))


def _gpu_rows(site: Site, gpu: SimulatedGpu, witnesses: str, since_s: int, until_s: int) -> pa.Table:
    agent = not SETS[witnesses]
    step = SLOT_S if agent else SCRAPE_S
    first = np.arange(since_s, until_s, step)
    energy_mj = np.cumsum(gpu.readings["watts"], dtype=np.float64) * 1000 + 10**9

    def mean(name: str, per: float = 1) -> Any:
        own = gpu.readings[name][since_s:until_s].reshape(-1, step)
        return np.round((own.mean(axis=1) if agent else own[:, -1]) * per, 2)

    def last(name: str) -> Any:
        return gpu.readings[name][first + step - 1]

    util = gpu.readings["util"][since_s:until_s].reshape(-1, step)
    slowed_ms = np.cumsum(gpu.readings["clock"] < 1)[first + step - 1] * SECOND_MS
    mb = float(2**20)
    columns: dict[str, Any] = {
        "gpu_util_pct": mean("util") if agent else np.rint(mean("util")), "power_w": np.round(last("watts"), 1),
        "energy_mj": energy_mj[first + step - 1].astype(np.int64), "counters_since": site.start_ms - HOUR_MS,
        "sm_active_pct": np.round(mean("sm"), 1), "tensor_active_pct": np.round(mean("tensor"), 1),
        "dram_active_pct": np.round(mean("dram"), 1), "fp64_active_pct": np.round(mean("fp64"), 1),
        "pcie_rx_bytes_per_s": np.rint(mean("pcie")) * mb, "pcie_tx_bytes_per_s": np.rint(mean("pcie", 0.4)) * mb,
        "nvlink_rx_bytes_per_s": np.rint(mean("nvlink")) * mb, "nvlink_tx_bytes_per_s": np.rint(mean("nvlink")) * mb,
    }  # fmt: skip
    if agent:
        columns |= {
            "gpu_util_max_pct": np.ceil(util.max(axis=1)), "gpu_util_p98_pct": np.ceil(util.max(axis=1)),
            "gpu_util_coverage_ratio": 1.0, "gpu_util_zero_ratio": (util < 0.5).mean(axis=1),
            "mem_util_pct": np.minimum(mean("dram", 1.3), 100),
            "mem_used_bytes": (last("memory") * gpu.memory_bytes).astype(np.int64), "mem_reserved_bytes": 500 * 2**20,
            "process_count": (last("process") * gpu.program.users).astype(np.int16),
            "sm_clock_mhz": (gpu.card.clock_mhz * np.where(util[:, -1] > 0, last("clock"), 0.2)).astype(np.int16),
            "encoder_util_pct": last("encoder").astype(np.int16),
            "throttled_power_cap_ms" if gpu.limit_w < gpu.card.limit_w else "throttled_hw_thermal_ms": slowed_ms,
            "temperature_c": (30 + 45 * last("watts") / gpu.card.limit_w).astype(np.int16),
        }  # fmt: skip
    by_dcgm = gpu.profiled and witnesses == "all"
    hidden = gpu.hidden if gpu.card.gpm or by_dcgm or not agent else PROFILED
    names = set(SETS[witnesses] or columns) - set(hidden)
    constant = {
        "time": site.start_ms + first * SECOND_MS, "interval_ms": step * SECOND_MS, "gpu": gpu.name, "health": "ok",
        "util_source": "none" if gpu.is_split else ("gpm" if gpu.card.gpm else "samples") if agent else "import",
    }  # fmt: skip
    return table_of(GPU, {name: columns[name] for name in names} | constant, len(first))


def _device_rows(site: Site, gpu: SimulatedGpu) -> pa.Table:
    part = {"parent_gpu": gpu.parent, "mig_profile": "2g.20gb", "mig_gpu_slices": 2, "gpu_instance_id": gpu.index + 1}
    columns: dict[str, object] = {
        "time": np.array([site.start_ms]), "gpu": gpu.name, "gpu_index": gpu.index, "model": gpu.card.model,
        "mem_total_bytes": gpu.card.mem_bytes // (4 if gpu.parent else 1), "power_limit_w": gpu.limit_w,
        "source": "nvml",
    }  # fmt: skip
    return table_of(DEVICE, columns | (part if gpu.parent else {"mig_enabled": gpu.is_split}), 1)


def _process_rows(site: Site, gpu: SimulatedGpu, since_s: int, until_s: int) -> pa.Table:
    """Return the lists of processes, each half minute."""
    seconds = np.arange(since_s, until_s, SCRAPE_S)
    seconds = np.repeat(seconds[gpu.readings["process"][seconds] > 0], gpu.program.users)
    who = np.arange(len(seconds)) % gpu.program.users
    start_s = int(np.argmax(gpu.readings["process"] > 0))
    columns = {
        "time": site.start_ms + seconds * SECOND_MS, "gpu": gpu.name, "interval_ms": SCRAPE_S * SECOND_MS,
        "pid": 4000 + 10 * gpu.index + who, "started": site.start_ms + (start_s - 2) * SECOND_MS, "kind": "compute",
        "mem_used_bytes": int(gpu.memory_bytes / gpu.program.users),
        "user": np.array([f"user-{gpu.job}-{each}" for each in who], dtype=object), "command": gpu.program.command,
        "parent_pid": 900, "cpu_util_pct": np.round(gpu.readings["cpu"][seconds] / gpu.program.users, 1),
        "attribution": "proc+cgroup", "pod": f"pod-{gpu.job}" if gpu.is_pod else None,
        "namespace": "serving" if gpu.is_pod else None, "slurm_job_id": None if gpu.is_pod else gpu.job,
        "slurm_account": None if gpu.is_pod else "research",
    }  # fmt: skip
    return table_of(PROCESS, columns, len(seconds))


def _host_rows(site: Site, gpus: list[SimulatedGpu], since_s: int, until_s: int) -> pa.Table:
    first = np.arange(since_s, until_s, SCRAPE_S)

    def total(name: str) -> Any:
        return sum(gpu.readings[name][since_s:until_s].reshape(-1, SCRAPE_S).mean(axis=1) for gpu in gpus)

    columns = {
        "time": site.start_ms + first * SECOND_MS, "interval_ms": SCRAPE_S * SECOND_MS, "cpu_count": 64,
        "mem_total_bytes": 512 * GIB, "mem_used_bytes": 60 * GIB,
        "cpu_util_pct": np.minimum(1.5 + total("cpu") / 64, 100), "cpu_pressure_pct": 0.5, "io_pressure_pct": 0.5,
        "mem_pressure_pct": 0.0, "disk_read_bytes_per_s": 1e4 + 1e6 * total("disk"),
        "disk_write_bytes_per_s": 1e5 + 1e6 * total("saved"), "net_receive_bytes_per_s": 2e4 + 1e6 * total("net"),
        "net_transmit_bytes_per_s": 2e4 + 1e6 * total("net"),
    }  # fmt: skip
    return table_of(HOST, columns, len(first))


def _allocation_rows(site: Site, gpu: SimulatedGpu, until_s: int) -> pa.Table:
    """Return the GPU's allocation, which lasts as long as its job has a process anywhere."""
    start_s, end_s = site.job_seconds.get(gpu.job, (until_s, until_s))
    if start_s >= until_s:
        return table_of(ALLOCATION, {}, 0)
    columns: dict[str, object] = {
        "time": np.array([site.start_ms + start_s * SECOND_MS]),
        "end": site.start_ms + end_s * SECOND_MS if end_s <= until_s else None, "gpu": gpu.name,
        "gpu_count": gpu.program.gpus, "allocation_id": f"serving/pod-{gpu.job}" if gpu.is_pod else gpu.job,
        "scheduler": "kubernetes" if gpu.is_pod else "slurm", "user": None if gpu.is_pod else f"user-{gpu.job}-0",
        "account": "serving" if gpu.is_pod else "research", "name": "work",
    }  # fmt: skip
    return table_of(ALLOCATION, columns, 1)
