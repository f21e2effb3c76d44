"""The agent's cost for its host, with all processes, threads, publishing and probes: 8 GPUs, 32 processes, 10 s rows.

The real agent runs over the test driver, whose calls cost almost nothing, so the figures are the agent's own cost. A
real driver adds its calls (about 2.5 us for a rate, 0.1 ms for a round trip to the GPU's firmware).
"""

from __future__ import annotations

import os
import statistics
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from agent.supervise.stalled import StalledWatch
from benchmarks.agent_processes import AgentProcesses, Memory, memory, pss_alone_mib
from benchmarks.gpu_host import FLEET, gpu_host
from benchmarks.health_probes import Probes, free_port
from benchmarks.measure import Figure
from fallow import parquet, schema
from fallow.stall_evidence import ACTIVITY_MOST

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.gpu_host import GpuHost
    from tests.fakes.nvml import Steps

INTERVAL_S = 10
TICKS = int(os.environ.get("BENCH_TICKS", "13"))
TICKS_A_PUBLISHING = 30
"""`agent.publish_every`, five minutes."""
CYCLE_TICKS = int(os.environ.get("BENCH_CYCLE_TICKS", "38"))
"""A publishing begins at most six minutes after the last."""
WARM_S = 1.5 * INTERVAL_S
"""Startup, imports and the first calls are over by then."""

_LOOK_EVERY_S = 0.02  # a publishing takes a tenth of a second
_QUIET_LOOK_EVERY_S = 2.0  # a look reads all memory, so the agent's caches are cold after it
_EXACT_EVERY_S = 0.02  # what a publishing maps changes several times within a tenth of a second


@dataclass
class AgentBill:
    """External observations of all processes of one agent, tick by tick."""

    host: GpuHost
    processes: AgentProcesses
    probes: Probes
    quiet_ms: list[float] = field(default_factory=list)
    """CPU of each tick without publishing."""
    publishing_ms: list[float] = field(default_factory=list)
    """CPU of each tick with publishing."""
    resting_mib: list[float] = field(default_factory=list)
    """Between two ticks, without a publishing, as if no other program shared pages."""
    rss_mib: float = 0.0
    pss_mib: float = 0.0
    pss_alone_mib: float = 0.0
    """Maximum at any moment: per process, with shared pages counted once, and as if no other program shared them."""
    most: dict[str, Memory] = field(default_factory=dict)
    """By process, at the moment with the largest `pss_mib`."""
    _before_ms: float = 0.0
    _files: int = 0

    def look(self) -> None:
        """Add the last tick, and ask for the agent's health; the first look only starts the count."""
        now_ms, files = self.processes.cpu_ms(), sum(1 for _ in Path(self.host.lake.root).rglob("*.parquet"))
        if self._before_ms:
            (self.quiet_ms if files == self._files else self.publishing_ms).append(now_ms - self._before_ms)
        self._before_ms, self._files = now_ms, files
        self.resting_mib.append(pss_alone_mib(self.processes.pids()))
        self.probes.go_on()

    def watch_memory(self, until_s: float) -> None:
        """Look continuously while more threads run than in quiet moments, otherwise every two seconds."""
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
        """Return the cost of a publishing; RuntimeError where there was none."""
        if not self.publishing_ms:
            raise RuntimeError(f"nothing was published in {len(self.quiet_ms)} ticks: raise BENCH_CYCLE_TICKS")
        return statistics.mean(self.publishing_ms) - statistics.mean(self.quiet_ms)

    def amortised_ms(self, publishing_ms: float) -> float:
        """Return the CPU of a tick, with its share of a publishing's cost."""
        return statistics.mean(self.quiet_ms) + publishing_ms / TICKS_A_PUBLISHING


def measure() -> Iterator[Figure]:
    """Yield a whole publishing cycle with the sample ring; then, in parallel, shorter runs over other drivers."""
    with ExitStack() as stack:
        bill = stack.enter_context(billed_agent())
        _follow(bill, CYCLE_TICKS, with_memory=True)
        rows = parquet.read(bill.host.lake.files("agent"), schema.AGENT).sort_by("time").to_pydict()
        driver_mib = bill.host.driver_resident_mib()
    with ExitStack() as stack:
        others = {name: stack.enter_context(billed_agent(**given)) for name, (_, given) in _OTHERS.items()}
        _follow_all(list(others.values()), TICKS)
    yield from _cpu(bill, others, rows)
    yield from _memory(bill, driver_mib)
    resting = f"the same {_OTHERS['with_metrics'][0]}"
    yield Figure(
        "agent_pss_resting_with_metrics", statistics.median(others["with_metrics"].resting_mib), "MiB", resting
    )
    yield from _calls(rows)
    yield stalled_suspects()


def stalled_suspects(ticks: int = 500) -> Figure:
    """Return what the watch for stalled suspects costs a tick: eight GPUs whose every witness has to be read."""
    gpus = [f"GPU-{number}" for number in range(8)]
    values: dict[str, Any] = dict.fromkeys(ACTIVITY_MOST, 0.0) | {
        "gpu_util_pct": 100.0,
        "gpu_util_coverage_ratio": 1.0,
        "health": "ok",
    }
    values |= {"power_w": 120.0, "process_count": 1, "counters_since": 0, "interval_ms": INTERVAL_S * 1000}
    counters = ("energy_mj", "throttled_power_cap_ms", "throttled_sw_thermal_ms")
    devices: Any = {gpu: {"model": "NVIDIA H100 80GB HBM3", "power_limit_w": 700.0} for gpu in gpus}
    watch, rows = StalledWatch(after_ms=420_000), list[Any]()
    for tick in range(ticks):
        own = values | {"time": tick * INTERVAL_S * 1000} | dict.fromkeys(counters, tick)
        rows.append([own | {"gpu": gpu} for gpu in gpus])
    before_s = time.process_time()
    suspects = [watch.feed(each, devices) for each in rows]
    cost_ms = 1000 * (time.process_time() - before_s) / ticks
    if not all(suspects[-1].values()):
        raise RuntimeError("the GPUs are no suspects, so the watch did less than it may have to")
    return Figure("agent_stalled_suspects_per_tick", cost_ms, "ms", f"8 GPUs that stall, mean of {ticks} ticks", 0.1)


_OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "without_ring": ("over a driver without the ring", {"ring": False}),
    "without_ring_and_gpm": ("over a driver without ring and GPM", {"ring": False, "gpm": False}),
    "polling": ("over a driver whose wait for events looks every 10 ms", {"event_poll_ms": 10}),
    "with_metrics": ("with /metrics, scraped once a tick", {"page": "/metrics"}),
}
"""Ends of figures' names; what differs, in words and as arguments of `billed_agent`."""


_SETTINGS = {"/healthz": "FALLOW_METRICS_HEALTH_LISTEN", "/metrics": "FALLOW_METRICS_LISTEN"}


@contextmanager
def billed_agent(
    first_gpu_util: Steps | None = None, page: Literal["/healthz", "/metrics"] = "/healthz", **driver: Any
) -> Iterator[AgentBill]:
    """Yield a started agent that answers `page`, on its own host over `driver`, as `gpu_host` takes it."""
    address = f"127.0.0.1:{free_port()}"
    with gpu_host(first_gpu_util, **driver) as host:
        host.environment[_SETTINGS[page]] = address
        with host.agent(INTERVAL_S) as agent:
            yield AgentBill(host, AgentProcesses(agent.pid), Probes(address, page, INTERVAL_S / 2))


def _follow(bill: AgentBill, ticks: int, *, with_memory: bool = False) -> None:
    _follow_all([bill], ticks, with_memory=with_memory)


def _follow_all(bills: Sequence[AgentBill], ticks: int, *, with_memory: bool = False) -> None:
    """Look between two ticks, so that each look adds one whole tick."""
    wait_until_settled()
    for _ in range(ticks):
        for bill in bills:
            bill.look()
        next_s = time.monotonic() + (1.3 * INTERVAL_S - time.time() % INTERVAL_S)
        if with_memory:
            for bill in bills:
                bill.watch_memory(next_s)
        time.sleep(max(0.0, next_s - time.monotonic()))


def _cpu(bill: AgentBill, others: dict[str, AgentBill], rows: dict[str, list[Any]]) -> Iterator[Figure]:
    how = f"{len(bill.quiet_ms) + len(bill.publishing_ms)} ticks of {INTERVAL_S} s, {FLEET}"
    publishing_ms = bill.publishing_extra_ms
    whole = "all processes and threads, publisher and one probe a tick included"
    yield Figure("agent_cpu_per_tick", bill.amortised_ms(publishing_ms), "ms", f"{whole}, {how}")
    for name, other in others.items():
        same = f"the same {_OTHERS[name][0]}, {TICKS - 1} ticks"
        yield Figure(f"agent_cpu_per_tick_{name}", other.amortised_ms(publishing_ms), "ms", same)
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
    worst = (
        f"all processes at the worst moment of a publishing cycle, looked at every {1000 * _LOOK_EVERY_S:g} ms while"
        " publishing"
    )
    yield Figure(
        "agent_pss", bill.pss_mib, "MiB", f"{worst}, shared pages once: {split}; test driver's scenario included"
    )
    yield Figure("agent_pss_alone", bill.pss_alone_mib, "MiB", "the same where no other program runs this Python")
    resting = "supervisor and worker between publishings, where no other program runs this Python, median"
    yield Figure("agent_pss_resting", statistics.median(bill.resting_mib), "MiB", resting)
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
    """Wait past the first tick, and then for a moment of the interval at which both processes are idle."""
    time.sleep(WARM_S)
    time.sleep((1.3 * INTERVAL_S - time.time() % INTERVAL_S) % INTERVAL_S)


def _own_cpu_ms(rows: dict[str, list[Any]]) -> list[float]:
    """Return CPU per tick by the agent's own account, without the first tick, which includes the startup."""
    pairs = zip(rows["supervisor_cpu_ms"], rows["worker_cpu_ms"], strict=True)
    return [supervisor + worker for supervisor, worker in pairs][1:]
