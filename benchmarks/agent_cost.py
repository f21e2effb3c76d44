"""What the agent costs its host: CPU per tick and resident memory over 8 GPUs and 32 processes, 10 s rows.

The real agent runs over the test driver, whose calls cost almost nothing: the figures are the agent's own cost, to
which a real driver adds its calls (about 2.5 us for a rate, 0.1 ms for a round trip to the GPU's firmware).
"""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psutil

from benchmarks.gpu_host import FLEET, cpu_ms, gpu_host, memory_mib, resident
from benchmarks.measure import Figure
from fallow import parquet, schema

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from typing import Any

INTERVAL_S = 10
TICKS = int(os.environ.get("BENCH_TICKS", "13"))
WARM_S = 1.5 * INTERVAL_S
"""Starting up, importing and the first calls are over by then."""


@dataclass
class Costs:
    """What was seen from outside while the agent ran."""

    cpu_ms: list[float] = field(default_factory=list)
    rss_mib: float = 0.0
    pss_mib: float = 0.0
    publisher_cpu_ms: float = 0.0


def measure() -> Iterator[Figure]:
    """Runs the agent for two minutes and reads what its processes used, by the kernel's account and by its own."""
    with gpu_host() as host:
        with host.agent(INTERVAL_S) as agent:
            costs = _watch(agent)
        rows = parquet.read(host.lake.files("agent"), schema.AGENT).sort_by("time").to_pydict()
        driver_mib = host.driver_resident_mib()
    how = f"{len(costs.cpu_ms)} ticks of {INTERVAL_S} s, supervisor + worker, {FLEET}"
    yield Figure("agent_cpu_per_tick_mean", statistics.mean(costs.cpu_ms), "ms", how)
    yield Figure("agent_cpu_per_tick_median", statistics.median(costs.cpu_ms), "ms", how)
    yield Figure("agent_cpu_per_tick_own_account", statistics.mean(_own_cpu_ms(rows)), "ms", "mean of the agent table")
    yield Figure("agent_cpu_per_publishing", costs.publisher_cpu_ms, "ms", "a process of its own, every 5 minutes")
    yield Figure("agent_rss", costs.rss_mib, "MiB", f"sum of both processes, test driver's scenario included, {how}")
    yield Figure("agent_pss", costs.pss_mib, "MiB", "the same with shared pages counted once")
    yield Figure("test_driver_rss", driver_mib, "MiB", "the scenario inside the worker's memory, no part of the agent")
    busy_ms = statistics.median(rows["nvml_busy_ms"][1:])
    yield Figure("agent_nvml_busy_per_tick", busy_ms, "ms", "wall time inside driver calls")
    yield Figure("agent_nvml_calls_per_tick", statistics.median(rows["nvml_calls"][1:]), "1", "driver calls")
    yield Figure("agent_missed_intervals", sum(rows["missed_intervals"]), "1", how)


def _watch(agent: subprocess.Popen[bytes]) -> Costs:
    """Looks at supervisor and worker between two ticks, so that each look adds one whole tick."""
    wait_until_settled()
    costs = Costs()
    before = cpu_ms(resident(agent))
    for _ in range(TICKS - 1):
        time.sleep(INTERVAL_S)
        pids = resident(agent)
        now = cpu_ms(pids)
        costs.cpu_ms.append(now - before)
        before = now
        rss, pss = memory_mib(pids)
        costs.rss_mib, costs.pss_mib = max(costs.rss_mib, rss), max(costs.pss_mib, pss)
    times = psutil.Process(agent.pid).cpu_times()
    costs.publisher_cpu_ms = (times.children_user + times.children_system) * 1000
    return costs


def wait_until_settled() -> None:
    """Past the first tick, and then to a moment of the interval at which neither process has anything to do."""
    time.sleep(WARM_S)
    time.sleep((1.3 * INTERVAL_S - time.time() % INTERVAL_S) % INTERVAL_S)


def _own_cpu_ms(rows: dict[str, list[Any]]) -> list[float]:
    """CPU per tick by the agent's own account; the first tick pays for starting up."""
    pairs = zip(rows["supervisor_cpu_ms"], rows["worker_cpu_ms"], strict=True)
    return [supervisor + worker for supervisor, worker in pairs][1:]
