"""fallow's agent, gpustat, nvitop-exporter and gpu-usage-audit side by side: same driver, same GPUs, same six minutes.

The six minutes include a publishing, which is part of fallow's cost. All tools look every 10 s. The first GPU is active
for 200 ms in every 7 s, which shows how much of the time a tool observes. A tool that reads the driver's short average
observes one moment, 1.7 to 10 % of the time.
"""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.nvml.ring import PERIOD_US
from benchmarks.agent_cost import CYCLE_TICKS, INTERVAL_S, billed_agent, wait_until_settled
from benchmarks.agent_processes import memory
from benchmarks.gpu_host import FLEET, cpu_ms
from benchmarks.measure import Figure
from benchmarks.peer_tools import (
    AUDIT_PINS,
    PINS,
    Look,
    NoPeersError,
    NvitopExporter,
    audit_installed,
    gpustat_once,
    installed,
)
from fallow import parquet, schema
from tests.fakes.nvml import Steps

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from benchmarks.agent_cost import AgentBill
    from benchmarks.gpu_host import GpuHost

_BURST_S, _EVERY_S = 0.2, 7
_BURSTS = Steps(tuple(point for n in range(200) for point in ((n * _EVERY_S, 100.0), (n * _EVERY_S + _BURST_S, 0.0))))
_TRUE_PCT = 100 * _BURST_S / _EVERY_S
_HOW = f"{CYCLE_TICKS - 1} samples, one every {INTERVAL_S} s, side by side, {FLEET}"


@dataclass
class Resident:
    """A tool that stays resident, and its CPU between looks."""

    pid: int
    cpu_ms: list[float] = field(default_factory=list)
    rss_mib: float = 0.0
    pss_mib: float = 0.0
    _before_ms: float = 0.0

    def look(self) -> None:
        """Add the CPU since the last look; the first look only starts the count."""
        now_ms = cpu_ms([self.pid])
        if self._before_ms:
            self.cpu_ms.append(now_ms - self._before_ms)
        self._before_ms = now_ms
        for now in memory({self.pid: "peer"}).values():
            self.rss_mib, self.pss_mib = max(self.rss_mib, now.rss_mib), max(self.pss_mib, now.pss_mib)


@dataclass
class Tools:
    """The tools that run together, and the answers of the tools that are started for each look."""

    fallow: AgentBill
    nvitop: Resident
    gpustat_loop: Resident
    audit: Resident | None
    """None where gpu-usage-audit cannot be installed."""
    gpustat: list[Look] = field(default_factory=list)
    scrapes: list[Look] = field(default_factory=list)

    def look(self) -> None:
        """Add the interval that has just ended to every resident tool."""
        for tool in (self.fallow, self.nvitop, self.gpustat_loop, self.audit):
            if tool is not None:
                tool.look()


def measure() -> Iterator[Figure]:
    """Run all tools together. Where the other tools cannot be installed, print that and measure nothing."""
    try:
        commands = installed()
    except NoPeersError as reason:
        print(f"skipped: {', '.join(PINS)} cannot be installed ({reason})")
        return
    with billed_agent(first_gpu_util=_BURSTS) as bill:
        yield from _side_by_side(bill, commands)


def _side_by_side(bill: AgentBill, commands: Path) -> Iterator[Figure]:
    host, exporter = bill.host, NvitopExporter(commands, INTERVAL_S)
    with ExitStack() as stack:
        nvitop = stack.enter_context(host.running(*exporter.command))
        loop = stack.enter_context(host.running(str(commands / "gpustat"), "-i", str(INTERVAL_S)))
        audit = _started_audit(host, stack)
        wait_until_settled()
        tools = Tools(
            fallow=bill,
            nvitop=Resident(nvitop.pid),
            gpustat_loop=Resident(loop.pid),
            audit=audit,
        )
        for number in range(CYCLE_TICKS):
            tools.look()
            tools.gpustat.append(gpustat_once(commands, host.environment))
            if number % 2:
                tools.scrapes.append(exporter.scrape())
            bill.watch_memory(time.monotonic() + INTERVAL_S - time.time() % INTERVAL_S + 0.3 * INTERVAL_S)
    yield from _costs(tools)
    yield from _seen(tools, host)


def _started_audit(host: GpuHost, stack: ExitStack) -> Resident | None:
    try:
        command = audit_installed() / "gpu-usage-audit"
    except NoPeersError as reason:
        print(f"left out: {', '.join(AUDIT_PINS)} cannot be installed ({reason})")
        return None
    places = ["--db", str(host.folder / "audit.db"), "--interval", f"{INTERVAL_S}s"]
    return Resident(stack.enter_context(host.running(str(command), "daemon", *places)).pid)


def _costs(tools: Tools) -> Iterator[Figure]:
    fallow, nvitop, loop = tools.fallow, tools.nvitop, tools.gpustat_loop
    whole_ms = fallow.amortised_ms(fallow.publishing_extra_ms)
    yield Figure("peers_fallow_cpu", whole_ms, "ms", f"agent: all processes, publisher and probes included, {_HOW}")
    yield Figure("peers_nvitop_cpu", statistics.mean(nvitop.cpu_ms[0::2]), "ms", "nvitop-exporter, nobody scrapes it")
    yield Figure("peers_nvitop_scraped_cpu", statistics.mean(nvitop.cpu_ms[1::2]), "ms", "one scrape for each sample")
    yield Figure("peers_gpustat_loop_cpu", statistics.mean(loop.cpu_ms), "ms", "gpustat -i, one process that stays")
    if (audit := tools.audit) is not None:
        yield Figure("peers_audit_cpu", statistics.mean(audit.cpu_ms), "ms", "gpu-usage-audit daemon, one process")
        yield Figure(
            "peers_audit_rss", audit.rss_mib, "MiB", "gpu-usage-audit daemon, by another Python than the others"
        )
        yield Figure("peers_audit_pss", audit.pss_mib, "MiB", "gpu-usage-audit daemon, shared pages divided")
    once = [look.cpu_ms for look in tools.gpustat]
    yield Figure("peers_gpustat_json_cpu", statistics.mean(once), "ms", "gpustat --json, a process for each sample")
    yield Figure(
        "peers_fallow_rss", fallow.rss_mib, "MiB", "all processes while publishing, test driver included in all"
    )
    yield Figure("peers_fallow_pss", fallow.pss_mib, "MiB", "the same, shared pages divided among all that run here")
    yield Figure("peers_nvitop_rss", nvitop.rss_mib, "MiB", "nvitop-exporter")
    yield Figure("peers_nvitop_pss", nvitop.pss_mib, "MiB", "nvitop-exporter, shared pages divided")
    yield Figure("peers_gpustat_loop_rss", loop.rss_mib, "MiB", "gpustat -i")
    yield Figure("peers_gpustat_loop_pss", loop.pss_mib, "MiB", "gpustat -i, shared pages divided")
    most = max(look.rss_mib for look in tools.gpustat)
    yield Figure("peers_gpustat_json_rss", most, "MiB", "gpustat --json, while it runs")


def _seen(tools: Tools, host: GpuHost) -> Iterator[Figure]:
    """Yield every tool's mean utilization of the first GPU, and its number of known values of GPUs and processes."""
    rows = parquet.read(host.lake.files("gpu"), schema.GPU).sort_by([("time", "ascending"), ("gpu", "ascending")])
    gpus = [row for row in rows.to_pylist() if row["gpu_util_pct"] is not None]
    first = [row["gpu_util_pct"] for row in gpus if row["gpu"] == gpus[0]["gpu"]]
    coverage = statistics.mean(row["gpu_util_coverage_ratio"] for row in gpus)
    burst = f"mean utilization of a GPU that works {_BURST_S:g} s in every {_EVERY_S} s; the truth is {_TRUE_PCT:.2f}"
    yield Figure("peers_fallow_burst", statistics.mean(first), "%", burst)
    yield Figure("peers_nvitop_burst", _mean_first(tools.scrapes), "%", burst)
    yield Figure("peers_gpustat_burst", _mean_first(tools.gpustat), "%", burst)
    yield Figure("peers_fallow_observed", 100 * coverage, "%", "share of the time that the utilization covers")
    covered = 100 * PERIOD_US / 1e6 / INTERVAL_S
    yield Figure(
        "peers_others_observed", covered, "%", "one read of the driver's average, over the test driver's period"
    )
    values = "values that are not null, GPUs and processes, one sample"
    yield Figure("peers_fallow_values", _values(host), "1", values)
    yield Figure("peers_nvitop_values", tools.scrapes[-1].values, "1", values)
    yield Figure("peers_gpustat_values", tools.gpustat[-1].values, "1", values)


def _mean_first(looks: Sequence[Look]) -> float:
    return statistics.mean(look.first_gpu_util_pct for look in looks)


def _values(host: GpuHost) -> int:
    """Return the number of known values in the agent's newest rows of each table."""
    total = 0
    for table in (schema.GPU, schema.PROCESS):
        rows = parquet.read(host.lake.files(table.name), table).to_pylist()
        newest = max(row["time"] for row in rows)
        total += sum(value is not None for row in rows if row["time"] == newest for value in row.values())
    return total
