"""What the agent costs its host, every process and thread of it, publishing and probes included: 8 GPUs, 32 processes, 10 s rows.

The real agent runs over the test driver, whose calls cost almost nothing: the figures are the agent's own cost, to
which a real driver adds its calls (about 2.5 us for a rate, 0.1 ms for a round trip to the GPU's firmware).
"""

from __future__ import annotations

import os
import statistics
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.agent_processes import AgentProcesses, Memory, memory, pss_alone_mib
from benchmarks.gpu_host import FLEET, gpu_host
from benchmarks.health_probes import Probes, free_port
from benchmarks.measure import Figure
from fallow import parquet, schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from benchmarks.gpu_host import GpuHost
    from tests.fakes.nvml import Steps

INTERVAL_S = 10
TICKS = int(os.environ.get("BENCH_TICKS", "13"))
TICKS_A_PUBLISHING = 30
"""`agent.publish_every`, five minutes."""
CYCLE_TICKS = int(os.environ.get("BENCH_CYCLE_TICKS", "38"))
"""A publishing begins at most six minutes after the one before."""
WARM_S = 1.5 * INTERVAL_S
"""Starting up, importing and the first calls are over by then."""

_LOOK_EVERY_S = 0.02  # a publishing takes a tenth of a second
_QUIET_LOOK_EVERY_S = 2.0  # a look walks through all memory, and the agent then finds the caches cold
_EXACT_EVERY_S = 0.1  # reading every mapping of every process takes milliseconds


@dataclass
class AgentBill:
    """What was seen from outside of all processes of one agent, tick by tick."""

    host: GpuHost
    processes: AgentProcesses
    probes: Probes
    quiet_ms: list[float] = field(default_factory=list)
    """CPU of each tick in which nothing was published."""
    publishing_ms: list[float] = field(default_factory=list)
    """CPU of each tick in which something was."""
    rss_mib: float = 0.0
    pss_mib: float = 0.0
    pss_alone_mib: float = 0.0
    """The most at any moment: as processes, with shared pages once, and as if nobody else had those pages."""
    most: dict[str, Memory] = field(default_factory=dict)
    """By process, at the moment with the most of `pss_mib`."""
    _before_ms: float = 0.0
    _files: int = 0

    def look(self) -> None:
        """Adds the tick that is over, and asks for the agent's health; the first look only begins."""
        now_ms, files = self.processes.cpu_ms(), sum(1 for _ in Path(self.host.lake.root).rglob("*.parquet"))
        if self._before_ms:
            (self.quiet_ms if files == self._files else self.publishing_ms).append(now_ms - self._before_ms)
        self._before_ms, self._files = now_ms, files
        self.probes.go_on()

    def watch_memory(self, until_s: float) -> None:
        """Looks all the time while there are more threads or processes than in quiet moments, and else now and then."""
        quiet, look_s, exact_s = self.processes.threads(), 0.0, 0.0
        while (now_s := time.monotonic()) < until_s:
            time.sleep(_LOOK_EVERY_S)
            if now_s < look_s and self.processes.threads() <= quiet:
                continue
            look_s = now_s + _QUIET_LOOK_EVERY_S
            pids = self.processes.pids()
            seen = memory(pids)
            total = sum(seen.values(), Memory())
            self.rss_mib = max(self.rss_mib, total.rss_mib)
            if total.pss_mib > self.pss_mib or now_s >= exact_s:
                self.pss_alone_mib = max(self.pss_alone_mib, pss_alone_mib(pids))
                exact_s = now_s + _EXACT_EVERY_S
            if total.pss_mib > self.pss_mib:
                self.pss_mib, self.most = total.pss_mib, seen

    @property
    def publishing_extra_ms(self) -> float:
        """What a publishing costs; RuntimeError where there was none."""
        if not self.publishing_ms:
            raise RuntimeError(f"nothing was published in {len(self.quiet_ms)} ticks: raise BENCH_CYCLE_TICKS")
        return statistics.mean(self.publishing_ms) - statistics.mean(self.quiet_ms)

    def amortised_ms(self, publishing_ms: float) -> float:
        """CPU of a tick, with its share of a publishing that costs so much."""
        return statistics.mean(self.quiet_ms) + publishing_ms / TICKS_A_PUBLISHING


def measure() -> Iterator[Figure]:
    """A whole cycle of publishing with the sample ring; then, at the same time, a driver without it, and one without GPM too."""
    with ExitStack() as stack:
        bill = stack.enter_context(billed_agent())
        _follow(bill, CYCLE_TICKS, with_memory=True)
        rows = parquet.read(bill.host.lake.files("agent"), schema.AGENT).sort_by("time").to_pydict()
        driver_mib = bill.host.driver_resident_mib()
    with ExitStack() as stack:
        ringless = {name: stack.enter_context(billed_agent(ring=False, gpm=gpm)) for name, gpm in _WITHOUT_RING.items()}
        _follow_all(list(ringless.values()), TICKS)
    yield from _cpu(bill, ringless, rows)
    yield from _memory(bill, driver_mib)
    yield from _calls(rows)


_WITHOUT_RING = {"agent_cpu_per_tick_without_ring": True, "agent_cpu_per_tick_without_ring_and_gpm": False}
"""Figures, and whether the cards have GPM there."""


@contextmanager
def billed_agent(*, ring: bool = True, gpm: bool = True, first_gpu_util: Steps | None = None) -> Iterator[AgentBill]:
    """An agent on a host of its own that answers /healthz, past its start."""
    address = f"127.0.0.1:{free_port()}"
    with gpu_host(first_gpu_util, ring=ring, gpm=gpm) as host:
        host.environment["FALLOW_METRICS_HEALTH_LISTEN"] = address
        with host.agent(INTERVAL_S) as agent:
            yield AgentBill(host, AgentProcesses(agent.pid), Probes(address, "/healthz", INTERVAL_S / 2))


def _follow(bill: AgentBill, ticks: int, *, with_memory: bool = False) -> None:
    _follow_all([bill], ticks, with_memory=with_memory)


def _follow_all(bills: Sequence[AgentBill], ticks: int, *, with_memory: bool = False) -> None:
    """Looks between two ticks, so that each look adds one whole tick."""
    wait_until_settled()
    for _ in range(ticks):
        for bill in bills:
            bill.look()
        next_s = time.monotonic() + (1.3 * INTERVAL_S - time.time() % INTERVAL_S)
        if with_memory:
            for bill in bills:
                bill.watch_memory(next_s)
        time.sleep(max(0.0, next_s - time.monotonic()))


def _cpu(bill: AgentBill, ringless: dict[str, AgentBill], rows: dict[str, list[Any]]) -> Iterator[Figure]:
    how = f"{len(bill.quiet_ms) + len(bill.publishing_ms)} ticks of {INTERVAL_S} s, {FLEET}"
    publishing_ms = bill.publishing_extra_ms
    whole = "all processes and threads, publisher and one probe a tick included"
    yield Figure("agent_cpu_per_tick", bill.amortised_ms(publishing_ms), "ms", f"{whole}, {how}")
    for name, other in ringless.items():
        yield Figure(
            name, other.amortised_ms(publishing_ms), "ms", f"the same over a driver without it, {TICKS - 1} ticks"
        )
    yield Figure(
        "agent_cpu_per_tick_median", statistics.median(bill.quiet_ms), "ms", "without publishing, with a probe"
    )
    count = len(bill.publishing_ms)
    yield Figure(
        "agent_cpu_per_publishing", publishing_ms, "ms", f"a thread, every 5 minutes; mean of {count} in this run"
    )
    yield Figure("agent_cpu_per_tick_own_account", statistics.mean(_own_cpu_ms(rows)), "ms", "mean of the agent table")


def _memory(bill: AgentBill, driver_mib: float) -> Iterator[Figure]:
    split = ", ".join(f"{role} {each.pss_mib:.1f}" for role, each in sorted(bill.most.items()))
    worst = f"all processes at the worst moment of a publishing cycle, looked at every {1000 * _LOOK_EVERY_S:g} ms while publishing"
    yield Figure(
        "agent_pss", bill.pss_mib, "MiB", f"{worst}, shared pages once: {split}; test driver's scenario included"
    )
    yield Figure("agent_pss_alone", bill.pss_alone_mib, "MiB", "the same where nobody else runs this Python")
    yield Figure("agent_rss", bill.rss_mib, "MiB", "the same with shared pages in each process")
    yield Figure("test_driver_rss", driver_mib, "MiB", "the scenario inside the worker's memory, no part of the agent")


def _calls(rows: dict[str, list[Any]]) -> Iterator[Figure]:
    busy_ms = statistics.median(rows["nvml_busy_ms"][1:])
    yield Figure("agent_nvml_busy_per_tick", busy_ms, "ms", "wall time inside driver calls")
    yield Figure("agent_nvml_calls_per_tick", statistics.median(rows["nvml_calls"][1:]), "1", "driver calls")
    yield Figure(
        "agent_missed_intervals", sum(rows["missed_intervals"]), "1", f"{len(rows['time'])} rows of the agent table"
    )


def wait_until_settled() -> None:
    """Past the first tick, and then to a moment of the interval at which neither process has anything to do."""
    time.sleep(WARM_S)
    time.sleep((1.3 * INTERVAL_S - time.time() % INTERVAL_S) % INTERVAL_S)


def _own_cpu_ms(rows: dict[str, list[Any]]) -> list[float]:
    """CPU per tick by the agent's own account; the first tick pays for starting up."""
    pairs = zip(rows["supervisor_cpu_ms"], rows["worker_cpu_ms"], strict=True)
    return [supervisor + worker for supervisor, worker in pairs][1:]
