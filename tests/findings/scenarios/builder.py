"""Real lakes, or recordings in memory, from a few lines: a fleet, its GPUs' users over time, and the GPUs' load.

    fleet = Fleet(days=15)                                     # ends at T_END, one row every 5 minutes
    first, second = fleet.host("h1", H100, 2)                  # a list of GPUs; one call for each host
    fleet.run(first, "ann", fleet.between(-4), mem_gb=40)      # holds it for the last 4 days, no kernel runs
    fleet.run(second, "bob", util=fleet.wave(92, period_h=3, on_h=2.5), mem_gb=60, slurm_job_id="77")
    fleet.write(lake)                                          # or fleet.recording(), which needs no files

*When* is a boolean mask over the grid: `fleet.between`, `fleet.daily`, `fleet.weekdays`, `fleet.every`, `fleet.always`,
combined with `& | ~`. A *level* is a number or an array over the grid: `fleet.wave`, `fleet.noise`,
`np.where(mask, 90, 0)`. Days count from the fleet's start, negative ones from its end: `between(-2, -1)` is the day
before the last.

Values that are not given are those of a healthy GPU: power, SM activity, clocks, temperature and the energy counter
follow utilization, and the largest utilization, its percentile and the share of zeros agree with the mean.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from analytics.simulation.catalog import H100, L40S, V100, SimulatedCard
from fallow.clock import SECOND_MS
from tests.findings.scenarios.parts import A30, A100_40, A100_80, L4, T4, T_END, Gpu, Grid, Host, Level, Mask, Stay
from tests.findings.scenarios.writing import record_fleet

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fallow.lake import Lake
    from tests.findings.scenarios.parts import Column
    from tests.ledger.recording import Recording

__all__ = [
    "A30",
    "A100_40",
    "A100_80",
    "GB",
    "H100",
    "L4",
    "L40S",
    "T4",
    "T_END",
    "V100",
    "Fleet",
    "Gpu",
    "Host",
    "Level",
    "Mask",
    "SimulatedCard",
]

GB = 1_000_000_000

Row = dict[str, object]


class Fleet(Grid):
    """Hosts and GPUs over one grid of time."""

    def __init__(self, days: float = 15, *, interval_s: float = 300, process_interval_s: float = 600) -> None:
        """A fleet of no hosts yet, from `days` before T_END to T_END, one gpu row each `interval_s`.

        Process lists are written every `process_interval_s`, and when a process starts or ends.
        """
        super().__init__(days, interval_s)
        self.process_interval_ms = round(process_interval_s * SECOND_MS)
        self.hosts: list[Host] = []
        self.gpus: list[Gpu] = []
        self.extra: dict[tuple[str, str], list[Row]] = {}  # rows of other tables by (table, host)
        self._pids = count(4711, 13)

    # --- hosts and GPUs ---------------------------------------------------------------------------------------------

    def host(self, name: str, card: SimulatedCard, gpus: int, *, pool: str = "train", **device: object) -> list[Gpu]:
        """A host with this many GPUs; `device` sets further columns of their inventory entries."""
        calm = {"cpu_util_pct": 8.0, "cpu_pressure_pct": 0.2, "mem_pressure_pct": 0.0, "io_pressure_pct": 0.3}
        calm |= {"disk_read_bytes_per_s": 2e6, "disk_write_bytes_per_s": 1e6, "net_receive_bytes_per_s": 1e6}
        calm |= {"net_transmit_bytes_per_s": 1e6, "cpu_count": 64, "mem_used_bytes": 60 * GB}
        calm |= {"mem_total_bytes": 512 * GB, "swap_used_bytes": 0}
        host = Host(name, pool, {key: np.full(self.rows, float(value)) for key, value in calm.items()}, self.always)
        self.hosts.append(host)
        added = [Gpu.idle(f"GPU-{name}-{number}", card, number, host) for number in range(gpus)]
        for gpu in added:
            gpu.device.update(device)
        self.gpus += added
        return added

    def split(self, gpu: Gpu, *profiles: str) -> list[Gpu]:
        """Splits a GPU into MIG instances such as "1g.10gb"; the GPU keeps power and energy and has no utilization."""
        gpu.device["mig_enabled"] = True
        instances = []
        for number, profile in enumerate(profiles):
            slices, memory = profile.split("g.")
            instance = Gpu.idle(f"MIG-{gpu.uuid[4:]}-{number}", gpu.card, None, gpu.host)
            instance.parent = gpu
            instance.device |= {"model": f"{gpu.card.model} MIG {profile}", "parent_gpu": gpu.uuid}
            instance.device |= {"mig_profile": profile, "mig_gpu_slices": int(slices), "gpu_instance_id": number + 1}
            instance.device |= {"mem_total_bytes": int(memory.removesuffix("gb")) * GB}
            instances.append(instance)
        self.gpus += instances
        return instances

    # --- what happens -----------------------------------------------------------------------------------------------

    def run(
        self,
        gpus: Gpu | Sequence[Gpu],
        user: str | None,
        when: Mask | None = None,
        *,
        util: Level | Sequence[Level] = 0.0,
        mem_gb: Level = 10.0,
        zero: Level | None = None,
        sm: Level | None = None,
        power_w: Level | None = None,
        one_process: bool = False,
        **columns: object,
    ) -> None:
        """A user's work on one or more GPUs; every unbroken segment of `when` (default: always) is a separate process.

        Args:
            gpus: one GPU, or several that the work is spread over.
            user: login name; None where the agent could not tell.
            when: the intervals in which the processes are there.
            util: utilization in %, a level for all of the GPUs or one for each; 0: it is held and no kernel runs.
                Work of several calls on one GPU adds up.
            mem_gb: device memory of the process on each GPU, in 10^9 bytes.
            zero: share of each interval without a kernel, for bursts shorter than a row; by default 0 while util > 0.
            sm: SM activity in % (default on cards with GPM: 0.8 times util; null on others).
            power_w: board power while it is there (default: follows SM activity or utilization).
            one_process: one process on all of the GPUs instead of one on each.
            columns: further columns of the process table as values or levels: command, arguments, kind, parent_pid,
                slurm_job_id, slurm_account, pod, namespace, container_id, ray_job_id, cpu_util_pct, started (epoch ms).
        """
        those = [gpus] if isinstance(gpus, Gpu) else list(gpus)
        levels: list[Level] = (
            list(util) if isinstance(util, list | tuple) else [util] * len(those)  # type: ignore[list-item]
        )
        whole = self.always if when is None else when
        shared = {number: next(self._pids) for number, _ in enumerate(_segments(whole))} if one_process else {}
        for gpu, level in zip(those, levels, strict=True):
            pct = self.level(level) * whole
            _work(gpu, whole, pct, zero=zero, sm=sm, power_w=power_w)
            memory = np.where(whole, self.level(mem_gb) * GB, 0)
            gpu.mem += memory
            busy_cpu = np.where(pct > 0, 110.0, 0.3)
            for number, segment in enumerate(_segments(whole)):
                pid = shared.get(number) or next(self._pids)
                own: Row = {"kind": "compute", "command": "python3", "user": user, "pid": pid, "parent_pid": pid - 1}
                own |= {"cpu_util_pct": busy_cpu, "host_mem_bytes": 3 * GB, "attribution": "proc"}
                own |= {"started": int(self.times_ms[np.argmax(segment)]) - 2 * SECOND_MS}
                gpu.stays.append(Stay(segment, memory, own | columns))

    def allocation(
        self,
        gpus: Sequence[Gpu] | Host,
        user: str | None,
        first_day: float,
        last_day: float | None = None,
        *,
        allocation_id: str,
        count: int | None = None,
        **columns: object,
    ) -> None:
        """An allocation on these GPUs, or on `count` unnamed ones of a host; days as in `between`, None: it runs on.

        `columns` are further columns of the allocation table (`scheduler` is slurm unless it says otherwise).
        """
        end = None if last_day is None else self.moment(last_day)
        base: Row = {
            "time": self.moment(first_day),
            "end": end,
            "allocation_id": allocation_id,
            "user": user,
            "scheduler": "slurm",
        }
        if isinstance(gpus, Host):
            row = base | {"gpu": None, "gpu_count": count, "host_gpu_count": count} | columns
            self.note("allocation", gpus, row)
            return
        for gpu in gpus:
            self.note("allocation", gpu.host, base | {"gpu": gpu.uuid, "gpu_count": len(gpus)} | columns)

    def serving(
        self, gpu: Gpu, when: Mask | None = None, *, model: str = "llm", pid: int = 1, **columns: object
    ) -> None:
        """An inference server's own metrics on one GPU, as levels: kv_cache_used_ratio, running_requests, and so on."""
        host = gpu.host
        whole = (self.always if when is None else when) & host.seen
        given: Any = columns
        levels = {
            name: each if each is None or isinstance(each, str) else self.level(each) for name, each in given.items()
        }
        for row in np.flatnonzero(whole):
            values = {
                name: float(value[row]) if isinstance(value, np.ndarray) else value for name, value in levels.items()
            }
            said = {"endpoint": f"http://127.0.0.1:{8000 + (gpu.index or 0)}/metrics", "model": model, "engine": "vllm"}
            said |= {"time": int(self.times_ms[row]), "interval_ms": self.interval_ms, "health": "ok", "gpu": gpu.uuid}
            self.note("serving", host, said | {"pid": pid} | values)

    def event(self, host: Host, day: float, kind: str, detail: str = "", **columns: object) -> None:
        """A row of the event table; `gpu` and `code` as columns."""
        self.note("event", host, {"time": self.moment(day), "kind": kind, "detail": detail or kind, **columns})

    def note(self, table: str, host: Host, row: Row) -> None:
        """A row of any other table, as it is."""
        self.extra.setdefault((table, host.name), []).append(row)

    def write(self, lake: Lake) -> Lake:
        """Puts everything into the lake, one file per table, host and day, and returns it."""
        return self.recording().write(lake)

    def recording(self) -> Recording:
        """Everything in memory."""
        return record_fleet(self)


def _work(gpu: Gpu, when: Mask, pct: Column, *, zero: Level | None, sm: Level | None, power_w: Level | None) -> None:
    """Adds the work to the GPU's levels."""
    on = pct > 0
    share = np.where(on, 1.0 - np.broadcast_to(0.0 if zero is None else zero, len(pct)), 0.0)
    gpu.busy = 1 - (1 - gpu.busy) * (1 - share)
    gpu.util = np.minimum(gpu.util + pct, 100)
    most = pct / np.maximum(share, 0.01)
    gpu.p98 = np.maximum(gpu.p98, np.where(share > 0.02, np.minimum(most, 100), 0))
    highest = np.minimum(100, np.ceil(most * 1.1))
    gpu.peak = np.maximum(gpu.peak, np.where(on, highest, 0))
    gpu.processes = gpu.processes + when
    if sm is not None or gpu.card.gpm:
        active = np.where(when, 0.8 * pct if sm is None else np.broadcast_to(sm, len(pct)), 0.0)
        gpu.sm = np.minimum(np.nan_to_num(gpu.sm) + active, 100)
        gpu.dram, gpu.tensor = 0.5 * gpu.sm, 0.4 * gpu.sm
    if power_w is not None:
        gpu.power = np.where(when, np.broadcast_to(power_w, len(pct)), gpu.power)


def _segments(when: Mask) -> Iterator[Mask]:
    """Each unbroken segment as a mask of its own."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], when, [False]])))
    for first, last in edges.reshape(-1, 2):
        segment = np.zeros(len(when), np.bool_)
        segment[first:last] = True
        yield segment
