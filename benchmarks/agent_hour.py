"""An hour of the deployed agent by the real clock: rows of 10 s, publisher, compaction at the hour's end, probes.

The benchmark reads every process of the agent twenty times a second, so that it observes publishing and not only quiet
moments. The Kubernetes probes run as often as in the chart. Every minute it writes its observations to
`benchmarks/hour.json`, so that an interrupted run keeps them. BENCH_HOUR_S is the length.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.agent_cost import INTERVAL_S, WARM_S
from benchmarks.agent_processes import AgentProcesses, Memory, memory, peak_rss_mib, pss_alone_mib
from benchmarks.gpu_host import FLEET, GPUS, MIB, gpu_host
from benchmarks.health_probes import Probes, free_port
from benchmarks.measure import Figure, machine
from fallow import parquet, schema
from tests.deploy.kube_tools import charted, named

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.gpu_host import GpuHost

LENGTH_S = float(os.environ.get("BENCH_HOUR_S", "3600"))
SERIES = Path(__file__).parent / "hour.json"
_LOOK_EVERY_S = 0.05
_EXACT_EVERY_S = 5.0  # reading every mapping of every process takes milliseconds
_MINUTE_S = 60.0


@dataclass
class Minute:
    """Observations of one minute: CPU by the kernel's clocks, the maximum of memory, and the state at its end."""

    began_s: float
    ended: str = ""
    length_s: float = 0.0
    cpu_ms: float = 0.0
    rss_mib: float = 0.0
    pss_mib: float = 0.0
    pss_alone_mib: float = 0.0
    quiet_rss_mib: float = 0.0
    """The minimum, when only supervisor and worker ran."""
    descriptors: int = 0
    spool_mib: float = 0.0
    by_process: dict[str, Memory] = field(default_factory=dict)
    """By process, at the moment with the most memory."""


@dataclass
class Hour:
    """All observations, minute by minute."""

    minutes: list[Minute] = field(default_factory=list)
    peak_rss_mib: dict[str, float] = field(default_factory=dict)
    """The kernel's own maximum, by kind of process."""


def measure() -> Iterator[Figure]:
    """Run the agent for LENGTH_S and read its processes, its lake and its own account."""
    with gpu_host() as host:
        hour, probes = _run(host)
        driver_mib = host.driver_resident_mib()
        yield from _costs(hour, probes, driver_mib)
        yield from _kept(host, hour)


def _run(host: GpuHost) -> tuple[Hour, Probes]:
    hour, probes = Hour(), _probes(host)
    with host.agent(INTERVAL_S) as agent:
        time.sleep(WARM_S)
        processes = AgentProcesses(agent.pid)
        end_s = time.monotonic() + LENGTH_S
        while time.monotonic() < end_s - 1:
            if agent.poll() is not None:
                raise RuntimeError(f"the agent ended with exit code {agent.returncode}")
            _add_minute(hour, processes, probes, host, min(end_s, time.monotonic() + _MINUTE_S))
            _store(hour, probes)
    return hour, probes


def _add_minute(hour: Hour, processes: AgentProcesses, probes: Probes, host: GpuHost, until_s: float) -> None:
    minute = Minute(time.monotonic())
    cpu_ms, exact_s = processes.cpu_ms(), 0.0
    while (now_s := time.monotonic()) < until_s:
        pids = processes.pids()
        probes.go_on()
        seen = memory(pids)
        total = sum(seen.values(), Memory())
        if len(pids) == 2 and set(seen) == {"supervisor", "worker"}:
            minute.quiet_rss_mib = min(minute.quiet_rss_mib or total.rss_mib, total.rss_mib)
        if total.pss_mib > minute.pss_mib or now_s >= exact_s:
            minute.pss_alone_mib = max(minute.pss_alone_mib, pss_alone_mib(pids))
            exact_s = now_s + _EXACT_EVERY_S
        if total.pss_mib > minute.pss_mib:
            minute.by_process = seen
        minute.rss_mib, minute.pss_mib = max(minute.rss_mib, total.rss_mib), max(minute.pss_mib, total.pss_mib)
        for role, peak_mib in peak_rss_mib(pids).items():
            hour.peak_rss_mib[role] = max(hour.peak_rss_mib.get(role, 0.0), peak_mib)
        time.sleep(_LOOK_EVERY_S)
    minute.cpu_ms = processes.cpu_ms() - cpu_ms
    minute.length_s = time.monotonic() - minute.began_s
    minute.descriptors = processes.descriptors()
    minute.spool_mib = sum(path.stat().st_size for path in (host.folder / "spool").glob("spool.sqlite*")) / MIB
    minute.ended = datetime.now(UTC).isoformat(timespec="seconds")
    hour.minutes.append(minute)


def _probes(host: GpuHost) -> Probes:
    """Return the DaemonSet's repeating probes, and set the address at which the host's agent listens for them."""
    values = {"lake": {"path": "s3://bucket/fallow"}, "agent": {"image": {"repository": "fallow-agent"}}}
    daemon_set = named(charted(host.folder, values))["DaemonSet", "fallow-agent"]
    (container,) = daemon_set["spec"]["template"]["spec"]["containers"]
    repeated = [container[name] for name in ("readinessProbe", "livenessProbe") if name in container]
    address = f"127.0.0.1:{free_port()}"
    host.environment["FALLOW_METRICS_HEALTH_LISTEN"] = address
    return Probes(address, repeated[0]["httpGet"]["path"], 1 / sum(1 / each["periodSeconds"] for each in repeated))


def _store(hour: Hour, probes: Probes) -> None:
    """Write the observations so far, atomically."""
    seen = {
        "taken": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": machine(),
        "host": FLEET,
        "interval_s": INTERVAL_S,
        "probe": {"path": probes.path, "every_s": probes.every_s, "asked": probes.asked, "failed": probes.failed},
        "peak_rss_mib": hour.peak_rss_mib,
        "minutes": [asdict(minute) for minute in hour.minutes],
    }
    rounded = json.loads(json.dumps(seen), parse_float=lambda text: round(float(text), 2))
    partial = SERIES.with_suffix(".partial")
    partial.write_text(json.dumps(rounded, indent=1) + "\n", encoding="utf-8")
    partial.replace(SERIES)


def _costs(hour: Hour, probes: Probes, driver_mib: float) -> Iterator[Figure]:
    minutes = hour.minutes
    ticks = sum(each.length_s for each in minutes) / INTERVAL_S
    how = f"{len(minutes)} minutes of the real clock, rows of {INTERVAL_S} s, {FLEET}"
    own_ms = sum(each.cpu_ms for each in minutes)
    yield Figure(
        "hour_cpu_per_tick", own_ms / ticks, "ms", f"every process, publishing, compaction and probes included, {how}"
    )
    yield Figure("hour_probes", probes.asked, "1", f"GETs of {probes.path}, one every {probes.every_s:g} s")
    yield Figure("hour_probes_failed", probes.failed, "1", "of those")
    yield Figure("hour_rss_most", max(each.rss_mib for each in minutes), "MiB", f"every process at one moment, {how}")
    yield Figure("hour_pss_most", max(each.pss_mib for each in minutes), "MiB", "the same, shared pages counted once")
    most = max(each.pss_alone_mib for each in minutes)
    yield Figure("hour_pss_alone_most", most, "MiB", "as if nobody else on the machine ran the same Python")
    yield Figure("hour_driver_rss", driver_mib, "MiB", "the test driver's scenario, within the figures above")
    quiet = [each.quiet_rss_mib for each in minutes if each.quiet_rss_mib]
    first, last = _ends(quiet)
    yield Figure("hour_quiet_rss_first", first, "MiB", "supervisor and worker, median of the first tenth")
    yield Figure("hour_quiet_rss_last", last, "MiB", "supervisor and worker, median of the last tenth")
    first, last = _ends([each.descriptors for each in minutes])
    yield Figure("hour_descriptors_first", first, "1", "every process, median of the first tenth")
    yield Figure("hour_descriptors_last", last, "1", "every process, median of the last tenth")
    yield Figure("hour_spool_most", max(each.spool_mib for each in minutes), "MiB", "SQLite file and its log")
    for role, peak_mib in sorted(hour.peak_rss_mib.items()):
        yield Figure(f"hour_peak_rss_{role}", peak_mib, "MiB", "the kernel's own mark of the most resident memory")


def _kept(host: GpuHost, hour: Hour) -> Iterator[Figure]:
    """Yield what reached the lake: every interval once per GPU, and the number of files."""
    lake = host.lake
    columns = parquet.read(lake.files("gpu"), schema.GPU).select(["gpu", "time"]).to_pylist()
    seen = Counter((row["gpu"], row["time"]) for row in columns)
    times = sorted({time for _, time in seen})
    due = GPUS * (1 + round((times[-1] - times[0]).total_seconds() / INTERVAL_S))
    yield Figure("hour_rows_missing", due - len(seen), "1", f"of {due} intervals of {GPUS} GPUs from first to last")
    yield Figure("hour_rows_doubled", len(columns) - len(seen), "1", "rows of one GPU and one interval")
    own: list[dict[str, Any]] = parquet.read(lake.files("agent"), schema.AGENT).to_pylist()
    yield Figure("hour_missed_intervals", sum(row["missed_intervals"] for row in own), "1", "by the agent's account")
    files = sum(len(lake.files(table.name)) for table in schema.TABLES)
    yield Figure("hour_files", files, "1", f"visible files of all tables after {len(hour.minutes)} minutes")


def _ends(values: list[float]) -> tuple[float, float]:
    tenth = max(1, len(values) // 10)
    return statistics.median(values[:tenth]), statistics.median(values[-tenth:])
