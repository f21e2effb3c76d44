"""What the agent costs its host: CPU per tick and resident memory over 8 GPUs and 32 processes, 10 s rows.

The real agent runs over the test driver, whose calls cost almost nothing: the figures are the agent's own cost, to
which a real driver adds its calls (about 2.5 us for a rate, 0.1 ms for a round trip to the GPU's firmware).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from benchmarks.measure import Figure
from fallow import parquet, schema
from fallow.lake import Lake
from tests.fakes.nvml import library_folder, ms_ago, standard_fleet

if TYPE_CHECKING:
    from collections.abc import Iterator

INTERVAL_S = 10
TICKS = int(os.environ.get("BENCH_TICKS", "13"))
PROCESSES = 32


def measure() -> Iterator[Figure]:
    """Runs the agent for two minutes and reads what its processes used."""
    sleepers = [subprocess.Popen(["sleep", "3600"]) for _ in range(PROCESSES)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            yield from _run(Path(folder), [sleeper.pid for sleeper in sleepers])
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()


def _run(folder: Path, pids: list[int]) -> Iterator[Figure]:
    scenario = standard_fleet(ms_ago(60), pids)
    environment = os.environ | scenario.environment(library_folder(), scenario.write(folder / "scenario"))
    lake = Lake.at(str(folder / "lake"))
    agent = subprocess.Popen(
        [
            sys.executable, "-m", "fallow", "agent", "run", "--lake", lake.root, "--spool", str(folder / "spool"),
            "--interval", f"{INTERVAL_S}s", "--for", f"{TICKS * INTERVAL_S}s",
        ],
        env=environment,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    memory = _watch(agent, until_s=time.monotonic() + (TICKS - 1) * INTERVAL_S)
    agent.wait()
    data = parquet.read(lake.files("agent"), schema.AGENT).sort_by("time").to_pydict()
    # the first tick pays for imports and first calls
    ticks = [sum(pair) for pair in zip(data["supervisor_cpu_ms"], data["worker_cpu_ms"], strict=True)][1:]
    how = f"{len(ticks)} ticks of {INTERVAL_S} s, 8 GPUs, {PROCESSES} processes, supervisor + worker, test driver"
    yield Figure("agent_cpu_per_tick_mean", statistics.mean(ticks), "ms", how)
    yield Figure("agent_cpu_per_tick_median", statistics.median(ticks), "ms", how)
    yield Figure("agent_rss", memory["rss"], "MiB", f"sum of both processes' resident memory, {how}")
    yield Figure("agent_pss", memory["pss"], "MiB", f"the same with shared pages counted once, {how}")
    yield Figure(
        "agent_nvml_busy_per_tick", statistics.median(data["nvml_busy_ms"][1:]), "ms", "wall time inside driver calls"
    )
    yield Figure("agent_missed_intervals", sum(data["missed_intervals"]), "1", how)


def _watch(agent: subprocess.Popen[bytes], until_s: float) -> dict[str, float]:
    """The largest memory of supervisor and worker together; the short-lived publisher is not resident."""
    most = {"rss": 0.0, "pss": 0.0}
    while time.monotonic() < until_s and agent.poll() is None:
        time.sleep(2)
        process = psutil.Process(agent.pid)
        both = [process, *(child for child in process.children() if _is_worker(child))]
        full = [each.memory_full_info() for each in both]
        for name, largest in most.items():
            most[name] = max(largest, sum(getattr(info, name) for info in full) / 2**20)
    return most


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "agent.worker" in process.cmdline()
    except psutil.Error:  # a publisher that has just ended
        return False
