"""The measurements of `benchmarks/hardware.sh DIR`, beside the true load: `python -m benchmarks.hardware DIR`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import mean, median
from typing import Any

import polars as pl

from tests.fakes.nvml.capture import Capture
from tests.fakes.nvml.load_phases import LoadPhase, load_phases

_SETTLED_S = 1.0
"""A value that covers the last second does not count in the first second of a phase."""


def main(folder: Path) -> None:
    """Print a table of each part of the measurement."""
    phases = load_phases(folder / "phases.jsonl")
    rows = lake_rows(folder / "lake/gpu")
    print("Agent's rows: utilization %, SM activity %, power W, beside the share of time in which a kernel ran")
    for phase in phases:
        own = rows.filter(pl.col("time").is_between(phase.begin, phase.end, closed="left"))
        print(f"  {phase.name:45} {phase.busy_pct:6.2f}  " + "  ".join(f"{mean_of(own, name):6.2f}" for name in _SHOWN))
    free = rows.filter(pl.col("mem_used_bytes") == 0)
    print(f"  {'nobody holds it':45} {0:6.2f}  " + "  ".join(f"{mean_of(free, name):6.2f}" for name in _SHOWN))
    costs = lake_rows(folder / "lake/agent").filter(pl.col("worker_cpu_ms") < _STARTING_MS)
    for name in ("supervisor_cpu_ms", "worker_cpu_ms", "nvml_busy_ms"):
        print(f"{name} a tick: median {costs[name].median():.1f}, most {costs[name].max():.1f}")
    _print_recording(Capture.read(folder / "capture.jsonl"), load_phases(folder / "recorded-phases.jsonl"))
    calls = json.loads((folder / "calls.json").read_text())
    print(
        "waiting for events: {cpu_ms} ms CPU, {switches} switches in {returned_after_s} s".format(**calls["event_wait"])
    )
    print("reading events at once: median {} us, p99 {} us, most {} us".format(*calls["events_at_once"]))
    jitter = [json.loads(line) for line in (folder / "jitter.jsonl").read_text().splitlines()]
    for with_agent in ("no", "yes"):
        seen = [each["seen"] for each in jitter if each["agent"] == with_agent]
        print(
            f"launch to end, agent {with_agent}: " + ", ".join(f"{k} {median(e[k] for e in seen)} us" for k in _SHARES)
        )


_SHOWN = ("gpu_util_pct", "sm_active_pct", "power_w")
_SHARES = ("p50", "p99", "p99.9", "max")
_STARTING_MS = 100.0
"""Return the CPU of the interval in which the worker loads the driver."""


def lake_rows(folder: Path) -> pl.DataFrame:
    """Return the rows of a lake's table, in the order of time."""
    files = sorted(folder.glob("date=*/host=*/*.parquet"))
    return pl.concat([pl.read_parquet(file) for file in files], how="diagonal_relaxed").sort("time")


def mean_of(rows: pl.DataFrame, name: str) -> float:
    """Return the mean of a column, NaN without a value."""
    values: Any = rows[name].mean()
    return float("nan") if values is None else float(values)


def _print_recording(capture: Capture, phases: list[LoadPhase]) -> None:
    print("Driver's raw answers: busy time, ring, GPM, rates read once a second, %")
    for phase in phases:
        begin_s, end_s = phase.within(capture)
        ring = [value for t_s, value in capture.ring(0, 1) if begin_s + 0.2 < t_s <= end_s]
        gpm = [v["1"] for t_s, v in capture.values("nvmlGpmMetricsGet", 0) if begin_s + _SETTLED_S < t_s <= end_s]
        rates = [
            gpu
            for t_s, (gpu, _) in capture.values("nvmlDeviceGetUtilizationRates", 0)
            if begin_s + _SETTLED_S < t_s <= end_s
        ]
        print(f"  {phase.name:45} {phase.busy_pct:6.2f} {mean(ring):6.2f} {mean(gpm):6.2f}  {rates}")
    costs = sorted(capture.result("latency_us", None).items(), key=lambda each: -each[1][0] * each[1][2])
    for call, (usual_us, most_us, calls) in costs[:10]:
        print(f"  {call:45} median {usual_us:8.1f} us, most {most_us:8.1f} us, {calls} calls")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
