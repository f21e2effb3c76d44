"""Whether the agent stays as small as at its start: memory, descriptors and spool over 10,000 ticks.

The real agent runs with an interval of 25 ms instead of 10 s: 28 hours of ticks in under five minutes. Rows, commits,
process lists and driver queries are as many as in 28 hours. The periods of process lists, error counters and kept rows
shrink with the interval. The publisher, which takes a second, runs every 10 s.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psutil

from benchmarks.gpu_host import FLEET, MIB, gpu_host, resident
from benchmarks.measure import Figure
from fallow import parquet, schema

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from typing import Any

    from benchmarks.gpu_host import GpuHost

INTERVAL_MS = 25
TICKS = int(os.environ.get("BENCH_ENDURANCE_TICKS", "10000"))
_MARKS = (100, 1_000, 10_000)
_SPARE = 1.02
"""On a busy machine the agent misses some of the short intervals, so more intervals run than are read."""


@dataclass
class Seen:
    """External counts, once a second."""

    descriptors: list[int] = field(default_factory=list)
    spool_mib: list[float] = field(default_factory=list)


def measure() -> Iterator[Figure]:
    """Run all ticks and read the agent's own rows."""
    with gpu_host() as host:
        seen = _run(host)
        rows = parquet.read(host.lake.files("agent"), schema.AGENT).sort_by("time").to_pylist()
    how = f"{len(rows)} ticks of {INTERVAL_MS} ms, supervisor + worker, {FLEET}"
    for mark in _MARKS:
        if mark <= len(rows):
            yield Figure(f"endurance_rss_at_{mark}", _rss_mib(rows[mark - 1]), "MiB", how)
    first, last = _ends(seen.descriptors)
    yield Figure("endurance_descriptors_first", first, "1", "both processes, median of the first tenth of the run")
    yield Figure("endurance_descriptors_last", last, "1", "both processes, median of the last tenth of the run")
    yield Figure("endurance_spool_most", max(seen.spool_mib), "MiB", "SQLite file and its log")
    yield Figure("endurance_spool_last", seen.spool_mib[-1], "MiB", "SQLite file and its log")
    missed = sum(row["missed_intervals"] for row in rows)
    yield Figure("endurance_missed_intervals", missed, "1", how)


def _run(host: GpuHost) -> Seen:
    spool = host.folder / "spool"
    ticks = str(round(TICKS * _SPARE))
    fast_agent = (sys.executable, "-m", "tests.agent.fast_agent", host.lake.root, str(spool), str(INTERVAL_MS), ticks)
    seen = Seen()
    with host.running(*fast_agent) as agent:
        while agent.poll() is None:
            time.sleep(1)
            _look(agent, spool, seen)
    if agent.returncode != 0:
        raise RuntimeError(f"the agent ended with exit code {agent.returncode}")
    return seen


def _look(agent: subprocess.Popen[bytes], spool: Path, seen: Seen) -> None:
    try:
        pids = resident(agent)
        descriptors = sum(psutil.Process(pid).num_fds() for pid in pids)
    except psutil.Error:  # it has just ended
        return
    if len(pids) == 2:
        seen.descriptors.append(descriptors)
        seen.spool_mib.append(sum(path.stat().st_size for path in spool.glob("spool.sqlite*")) / MIB)


def _ends(values: Sequence[int]) -> tuple[float, float]:
    """Return the medians of the first and the last tenth."""
    tenth = max(1, len(values) // 10)
    return statistics.median(values[:tenth]), statistics.median(values[-tenth:])


def _rss_mib(row: dict[str, Any]) -> float:
    resident_bytes: int = row["supervisor_rss_bytes"] + row["worker_rss_bytes"]
    return resident_bytes / MIB
