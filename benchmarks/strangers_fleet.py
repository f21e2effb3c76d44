"""Mixed, independent fleets of about 112 GPUs: their users over time, an agent's rows, and the truth.

A fleet runs for four weeks before its lake begins and for one week after the lake ends. So work is in progress at the
first row, and the later use of every GPU is known.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from analytics.simulation.tables import table_of
from benchmarks.recordings import A100, H100, L40S, Card
from benchmarks.strangers_people import DAY, HOUR, SLOT_MS, USES, WEEK, Person, Rng, Stay, queue_stays
from fallow import parquet
from fallow.clock import DAY_MS, utc_day
from fallow.lake import Lake, LakeFile
from fallow.schema import ALLOCATION, DEVICE, GPU, PROCESS, SERVING, LakeTable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.recordings import Floats, Mask

HOSTS, PER_HOST = 14, 8
LEAD, AFTER = 4 * WEEK, WEEK
DAYS = (35, 42, 49, 56, 63)
BEGIN_MS = 1_788_134_400_000 - LEAD * SLOT_MS
"""The lake begins on Monday 2026-08-31 00:00 UTC."""
LISTED = HOUR // 2
"""Slots between two lists of processes."""

POOLS: dict[str, dict[str, float]] = {
    "train": {
        "queue": 14,
        "campaign": 8,
        "sweep": 2,
        "deadline": 3,
        "ended project": 3,
        "retraining": 1,
        "newcomer": 2,
        "forgotten": 1,
        "nightly": 1,
        "vacation": 1,
        "nobody": 1.5,
    },
    "lab": {
        "notebook": 4,
        "left notebook": 3,
        "student": 3,
        "vacation": 3,
        "newcomer": 2,
        "forgotten": 3,
        "monday": 2,
        "ended project": 2,
        "deadline": 2,
        "sweep": 1,
        "nightly": 1,
        "queue": 3,
        "nobody": 1,
    },
    "serve": {
        "serving": 8,
        "standby": 3,
        "nightly": 2,
        "monday": 2,
        "retraining": 2,
        "ended project": 2,
        "newcomer": 1,
        "forgotten": 1,
        "notebook": 1,
        "nobody": 1.5,
    },
}
"""How often each use occurs in each pool, by blocks; "nobody" is a block that was bought before it is needed."""


@dataclass(frozen=True)
class Gpu:
    name: str
    host: str
    pool: str
    card: Card
    index: int


@dataclass(frozen=True)
class World:
    """All events, by GPU and slot, from four weeks before the lake to a week after it.

    `util_pct` above 0 is a kernel. `process` is whether a process exists, and `allocated` whether the GPU is allocated.
    `over` is whether only leftovers of ended work are on the GPU, and `server` whether a server is loaded.
    """

    gpus: tuple[Gpu, ...]
    stays: tuple[Stay, ...]
    days: int
    util_pct: Floats
    process: Mask
    allocated: Mask
    over: Mask
    server: Mask
    mem_ratio: Floats
    unseen: Mask
    power_w: Floats
    kinds: tuple[frozenset[str], ...]
    """The uses that each GPU had."""

    @property
    def moments(self) -> range:
        """Return the ends of the judged weeks, from the second on."""
        return range(LEAD + 2 * WEEK, LEAD + self.days * DAY + 1, WEEK)


def made_world(seed: int) -> World:
    """Return the fleet of a seed."""
    rng = np.random.default_rng(seed)
    days = int(rng.choice(DAYS))
    slots = LEAD + days * DAY + AFTER
    gpus, blocks = _fleet(rng)
    off = np.zeros(slots // DAY + 1, np.bool_)
    if rng.random() < 0.4:  # a holiday of the whole site
        first = LEAD // DAY + int(rng.integers(5, days))
        off[first : first + int(rng.integers(3, 11))] = True
    stays = [stay for number, block in enumerate(blocks) for stay in _tenants(rng, number, block, slots, off)]
    return _filled(rng, gpus, sorted(stays, key=lambda stay: stay.first), days, slots)


@dataclass(frozen=True)
class _Block:
    pool: str
    gpus: tuple[int, ...]
    use: str


def _fleet(rng: Rng) -> tuple[tuple[Gpu, ...], list[_Block]]:
    """Return two or three pools of whole hosts, of one model or two, and the first users of the GPUs."""
    pools = list(rng.permutation(list(POOLS)))[: int(rng.integers(2, 4))]
    shares = rng.multinomial(HOSTS - 3 * len(pools), rng.dirichlet(np.ones(len(pools)))) + 3
    gpus, blocks = list[Gpu](), list[_Block]()
    for pool, hosts in zip(pools, shares, strict=True):
        cards = [(H100, A100, L40S)[index] for index in rng.permutation(3)[: 1 + (rng.random() < 0.3)]]
        uses, weights = list(POOLS[pool]), np.array(list(POOLS[pool].values()))
        rows = []
        for number in range(hosts):
            card, host = cards[number * len(cards) // hosts], f"{pool}-{number:02}"
            first = len(gpus)
            gpus += [Gpu(f"GPU-{host}-{index}", host, str(pool), card, index) for index in range(PER_HOST)]
            while first < len(gpus):
                use = str(rng.choice(uses, p=weights / weights.sum()))
                if use == "queue" and len(gpus) - first == PER_HOST:
                    rows.append(range(first, first + PER_HOST))
                    break
                if use == "queue":
                    continue
                sizes = USES[use][1] if use in USES else (1, 2, 4, 8)
                size = min(int(rng.choice(sizes)), len(gpus) - first)
                blocks.append(_Block(str(pool), tuple(range(first, first + size)), use))
                first += size
        if rows:
            blocks.append(_Block(str(pool), tuple(gpu for row in rows for gpu in row), "queue"))
    return tuple(gpus), blocks


def _tenants(rng: Rng, number: int, block: _Block, slots: int, off: Mask) -> Iterator[Stay]:
    """Yield the stays of the block's users in sequence; between two users it is free for days or weeks."""
    if block.use == "queue":
        yield from queue_stays(rng, np.array(block.gpus).reshape(-1, PER_HOST), slots, off)
        return
    at, use = int(rng.uniform(-20, 14) * DAY) + LEAD // 2, block.use
    if use == "nobody":
        at, use = int(rng.exponential(80) * DAY) + LEAD, "newcomer"
    at = max(at, 0)
    others = {name: weight for name, weight in POOLS[block.pool].items() if name in USES}
    tenant = 0
    while at < slots:
        person = Person(rng, block.gpus, at, slots, f"user-{number}-{tenant}", off, use)
        last = at
        for stay in USES[use][0](person):
            last = max(last, stay.last)
            yield stay
        at, tenant = last + int(rng.exponential(10) * DAY), tenant + 1
        use = str(rng.choice(list(others), p=np.array(list(others.values())) / sum(others.values())))


def _filled(rng: Rng, gpus: tuple[Gpu, ...], stays: list[Stay], days: int, slots: int) -> World:
    shape = (len(gpus), slots)
    util, memory = np.zeros(shape), np.zeros(shape)
    process, allocated, server, going_on = (np.zeros(shape, np.bool_) for _ in range(4))
    kinds: dict[int, set[str]] = defaultdict(set)
    for stay in stays:
        span = slice(stay.first, stay.last)
        for gpu in stay.gpus:
            kinds[gpu].add(stay.kind)
            worked = stay.util_pct * rng.uniform(0.85, 1) * (gpu not in stay.idle_gpus)
            util[gpu, span] = np.maximum(util[gpu, span], worked)
            process[gpu, span] |= stay.process
            server[gpu, span] |= stay.server
            allocated[gpu, span] |= bool(stay.scheduler)
            memory[gpu, span] = np.minimum(memory[gpu, span] + stay.mem_ratio * stay.process, 0.97)
            going_on[gpu, stay.first : stay.last if stay.over_from is None else stay.over_from] = True
    unseen = np.zeros((HOSTS, slots), np.bool_)
    for host in range(HOSTS):
        for _ in range(rng.poisson(0.6)):  # the agent was down
            first = int(rng.integers(0, slots))
            unseen[host, first : first + int(rng.lognormal(1.5, 1.0))] = True
    idle, context, limit = (
        np.array([getattr(gpu.card, name) for gpu in gpus])[:, None] for name in ("idle_w", "context_w", "limit_w")
    )
    drawn = context + util / 100 * (limit - context) * rng.uniform(0.4, 0.95, (len(gpus), 1))
    power = np.where(util > 0, drawn, np.where(process, context, idle)) + rng.normal(0, 1, shape)
    over = (process | allocated) & ~going_on
    return World(
        gpus,
        tuple(stays),
        days,
        util,
        process,
        allocated,
        over,
        server,
        memory,
        unseen,
        power,
        tuple(frozenset(kinds[gpu]) for gpu in range(len(gpus))),
    )


def time_ms(slots: Any) -> Any:
    return BEGIN_MS + np.asarray(slots, np.int64) * SLOT_MS


def write_week(world: World, lake: Lake, until: int) -> None:
    """Add the rows of agents and schedulers for the week that ends at the slot to the lake."""
    since = until - WEEK
    stays: dict[str, list[tuple[int, Stay]]] = defaultdict(list)
    for number, stay in enumerate(world.stays):
        if stay.first < until and stay.last > since:
            stays[world.gpus[stay.gpus[0]].host].append((number, stay))
    for host in range(HOSTS):
        own, rows = range(host * PER_HOST, (host + 1) * PER_HOST), np.arange(since, until)
        name, rows = world.gpus[own[0]].host, rows[~world.unseen[host, since:until]]
        parts: dict[LakeTable, list[pa.Table]] = {GPU: [_gpu_rows(world, gpu, rows) for gpu in own]}
        parts[DEVICE] = [_device_rows(world.gpus[gpu], rows) for gpu in own]
        for number, stay in stays[name]:
            seen = rows[(rows >= stay.first) & (rows < stay.last)]
            if stay.process:
                parts.setdefault(PROCESS, []).extend(_process_rows(world, number, stay, seen))
            if stay.server and number % 2:
                parts.setdefault(SERVING, []).extend(_serving_rows(world, number, stay, seen))
        for table, tables in parts.items():
            _put(lake, table, name, pa.concat_tables(tables))
        _put(
            lake,
            ALLOCATION,
            name,
            pa.concat_tables(list(_allocation_rows(world, stays[name], until)) or [table_of(ALLOCATION, {}, 0)]),
        )


def _put(lake: Lake, table: LakeTable, host: str, rows: pa.Table) -> None:
    """Write a file per day, and replace a file of the same name."""
    days = rows["time"].cast(pa.int64()).to_numpy() // DAY_MS
    for day in np.unique(days):
        file = LakeFile(table.name, utc_day(int(day) * DAY_MS), host, int(day), int(day))
        lake.put(file, parquet.encode(table, rows.filter(pa.array(days == day)).sort_by("time")))


def _gpu_rows(world: World, gpu: int, rows: Any) -> pa.Table:
    card, util, rng = world.gpus[gpu].card, world.util_pct[gpu, rows], np.random.default_rng([gpu, int(rows[0])])
    peak = np.where(util > 0, np.minimum(100, util * rng.uniform(1, 2.5, len(rows)) + 3), 0)
    columns = {
        "time": time_ms(rows),
        "gpu_util_pct": np.round(util, 2),
        "gpu_util_max_pct": np.ceil(peak),
        "gpu_util_p98_pct": np.ceil((util + peak) / 2),
        "gpu_util_zero_ratio": np.round(
            np.clip(1 - util / 100 * rng.uniform(1, 1.5, len(rows)), 0, 1 - 1e-3 * (util > 0)), 4
        ),
        "mem_used_bytes": (world.mem_ratio[gpu, rows] * card.mem_bytes).astype(np.int64),
        "power_w": np.round(world.power_w[gpu, rows], 1),
        "energy_mj": (np.cumsum(world.power_w[gpu]) * SLOT_MS)[rows].astype(np.int64),
        "temperature_c": (30 + 45 * world.power_w[gpu, rows] / card.limit_w).astype(np.int16),
        "sm_clock_mhz": (card.clock_mhz * np.where(util > 0, 1, 0.2)).astype(np.int16),
        "process_count": world.process[gpu, rows].astype(np.int16),
    }
    if card.gpm:
        columns |= {"sm_active_pct": np.round(util * 0.6, 1), "dram_active_pct": np.round(util * 0.3, 1)}
    constant = {
        "gpu": world.gpus[gpu].name,
        "interval_ms": SLOT_MS,
        "health": "ok",
        "util_source": "gpm" if card.gpm else "samples",
        "gpu_util_coverage_ratio": 1.0,
        "counters_since": BEGIN_MS - DAY_MS,
        "mem_reserved_bytes": 600 * 2**20,
    }
    return table_of(GPU, columns | constant, len(rows))


def _device_rows(gpu: Gpu, rows: Any) -> pa.Table:
    first = rows[np.unique(rows // DAY, return_index=True)[1]]
    card = gpu.card
    columns = {
        "time": time_ms(first),
        "gpu": gpu.name,
        "gpu_index": gpu.index,
        "model": card.model,
        "mem_total_bytes": card.mem_bytes,
        "power_limit_w": card.limit_w,
        "mig_enabled": False,
        "source": "nvml",
        "pool": gpu.pool,
    }
    return table_of(DEVICE, columns, len(first))


def _process_rows(world: World, number: int, stay: Stay, rows: Any) -> Iterator[pa.Table]:
    """Yield the list of processes at the start and every half hour."""
    listed = rows[(rows % LISTED == 0) | (rows == stay.first)]
    busy = stay.util_pct[listed - stay.first] > 0
    orphan = np.zeros(len(listed), np.bool_) if stay.orphan_from is None else listed >= stay.orphan_from
    pod = {"pod": f"{stay.kind.split()[0]}-{number}", "namespace": f"ns-{stay.user}"}
    for gpu in stay.gpus:
        columns = {
            "time": time_ms(listed),
            "gpu": world.gpus[gpu].name,
            "interval_ms": LISTED * SLOT_MS,
            "pid": 10_000 + number * 8 + gpu % 8,
            "started": int(time_ms(stay.first)) - 2000,
            "kind": "compute",
            "user": stay.user,
            "command": stay.command,
            "mem_used_bytes": int(stay.mem_ratio * world.gpus[gpu].card.mem_bytes),
            "parent_pid": np.where(orphan, 1, 4000).astype(np.int32),
            "cpu_util_pct": np.where(busy, 100.0, 0.5),
            "attribution": "proc+cgroup",
            **(
                {"slurm_job_id": str(100_000 + number), "slurm_account": f"acc-{stay.user}"}
                if stay.scheduler == "slurm"
                else {}
            ),
            **(pod if stay.scheduler == "kubernetes" else {}),
        }
        yield table_of(PROCESS, columns, len(listed))


def _serving_rows(world: World, number: int, stay: Stay, rows: Any) -> Iterator[pa.Table]:
    """Yield the server's own metrics of its requests, every ten minutes."""
    rate = np.round(stay.util_pct[rows - stay.first] / 25, 4)
    columns = {
        "time": time_ms(rows),
        "interval_ms": SLOT_MS,
        "endpoint": f"http://127.0.0.1:{8000 + number % 900}/metrics",
        "model": f"model-{number % 40}",
        "engine": "triton" if stay.command == "tritonserver" else "vllm",
        "health": "ok",
        "pid": 10_000 + number * 8 + stay.gpus[0] % 8,
        "requests_per_s": rate,
        "generated_tokens_per_s": 200 * rate,
        "running_requests": np.rint(3 * rate),
        "waiting_requests": 0.0,
        "kv_cache_used_ratio": np.minimum(0.2 * rate, 0.95),
    }
    for gpu in stay.gpus:
        yield table_of(SERVING, columns | {"gpu": world.gpus[gpu].name}, len(rows))


def _allocation_rows(world: World, stays: list[tuple[int, Stay]], until: int) -> Iterator[pa.Table]:
    """Yield the allocations of the stays, with an end if they have ended."""
    for number, stay in stays:
        if not stay.scheduler:
            continue
        first, asked = (
            max(stay.first, LEAD),
            None if stay.submitted is None or stay.submitted < LEAD else stay.submitted,
        )
        slurm = stay.scheduler == "slurm"
        for gpu in stay.gpus:
            columns = {
                "time": np.array([time_ms(first)]),
                "end": int(time_ms(stay.last)) if stay.last <= until else None,
                "gpu": world.gpus[gpu].name,
                "allocation_id": str(100_000 + number) if slurm else f"ns-{stay.user}/{stay.kind.split()[0]}-{number}",
                "scheduler": stay.scheduler,
                "user": stay.user if slurm else None,
                "account": f"{'acc' if slurm else 'ns'}-{stay.user}",
                "name": "work",
                "gpu_count": len(stay.gpus),
                "submitted": None if asked is None else int(time_ms(asked)),
            }
            yield table_of(ALLOCATION, columns, 1)
