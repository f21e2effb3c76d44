"""What findings over a fleet cost: from raw samples, from a finished ledger, and for one more day.

Beside it, in the same run, DuckDB reads the columns that the ledger needs once.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.fleet_lake import FleetLake, fleet_of, forget_derived, simulated, without_last_day
from benchmarks.fleet_steps import cost_of
from benchmarks.measure import Figure

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 2**20


def measure() -> Iterator[Figure]:
    """An eighth of the fleet that the docs speak of, in a few minutes, and hosts whose files are not compacted."""
    yield from _measure(gpus=125, days=7, name="fleet")
    yield from _small_files()


def measure_full() -> Iterator[Figure]:
    """1,000 GPUs for a week at 10 s: 60 million rows."""
    yield from _measure(gpus=1000, days=7, name="fleet_full")


def _measure(*, gpus: int, days: int, name: str) -> Iterator[Figure]:
    with simulated(fleet_of(gpus, days)) as of:
        root = of.lake.root
        how = f"{of.gpu_rows:,} gpu and {of.process_rows:,} process rows, {gpus} GPUs x {days} days at 10 s"
        yield Figure(f"{name}_bytes_per_row", of.size_bytes / of.gpu_rows, "bytes", f"all tables over gpu rows, {how}")
        with without_last_day(of):
            cost_of("build", root)
        one_more = cost_of("build", root)
        kept = cost_of("build", root)
        page = cost_of("report", root)
        forget_derived(Path(root))
        read = cost_of("read", root)
        built = cost_of("build", root)
        again = cost_of("read", root)
    reading_s = (read.cpu_s + again.cpu_s) / 2
    found = f"{built.said['findings']} findings"
    yield Figure(f"{name}_build_cpu", built.cpu_s, "s", f"ledger, hourly tables and {found} from raw samples, {how}")
    yield Figure(f"{name}_build_wall", built.wall_s, "s", f"the same on {_processors()}, {how}")
    yield Figure(f"{name}_build_peak", built.peak_bytes / MIB, "MiB", f"resident, all its processes at most, {how}")
    yield Figure(f"{name}_read_cpu", reading_s, "s", f"DuckDB reads the needed columns once, before and after, {how}")
    yield Figure(f"{name}_read_wall", (read.wall_s + again.wall_s) / 2, "s", f"the same on two threads, {how}")
    yield Figure(f"{name}_build_over_read_cpu", built.cpu_s / reading_s, "ratio", f"CPU over CPU, {how}")
    yield Figure(f"{name}_build_over_read_wall", 2 * built.wall_s / (read.wall_s + again.wall_s), "ratio", how)
    yield Figure(f"{name}_findings_cpu", kept.cpu_s, "s", f"all findings from a finished ledger, {how}")
    yield Figure(f"{name}_findings_wall", kept.wall_s, "s", f"the same by the clock, {how}")
    yield Figure(f"{name}_findings_process_wall", kept.process_wall_s, "s", f"with the start of Python, {how}")
    yield Figure(f"{name}_findings_peak", kept.peak_bytes / MIB, "MiB", f"resident, {how}")
    yield Figure(f"{name}_report_cpu", page.cpu_s, "s", f"the HTML report from a finished ledger, {how}")
    yield Figure(f"{name}_report_wall", page.wall_s, "s", f"the same by the clock, {how}")
    yield Figure(f"{name}_report_size", page.said["bytes"] / 1000, "kB", f"of that page, {how}")
    yield Figure(f"{name}_one_more_day_cpu", one_more.cpu_s, "s", f"a day later, over the finished ledger, {how}")
    share = (one_more.cpu_s - kept.cpu_s) / ((built.cpu_s - kept.cpu_s) / days)
    yield Figure(f"{name}_one_more_day_share", share, "ratio", f"its CPU over a day's share, findings left out, {how}")


def _small_files() -> Iterator[Figure]:
    """The same few hosts in one file a day and in files of five minutes."""
    fleet = fleet_of(24, 2)
    costs = {}
    for small in (False, True):
        with simulated(fleet, small_files=small) as of:
            costs[small] = cost_of("build", of.lake.root)
            files, rows = _gpu_files(of), of.gpu_rows
    how = f"{files:,} gpu files of five minutes, {rows:,} rows, 24 GPUs x 2 days at 10 s"
    yield Figure("fleet_small_files_build_cpu", costs[True].cpu_s, "s", how)
    yield Figure("fleet_small_files_ratio", costs[True].cpu_s / costs[False].cpu_s, "ratio", f"over whole days, {how}")
    added_ms = 1000 * (costs[True].cpu_s - costs[False].cpu_s) / files
    yield Figure(
        "fleet_small_files_cpu_per_file", added_ms, "ms", f"what each of them adds, process files included, {how}"
    )


def _gpu_files(of: FleetLake) -> int:
    return len(of.lake.files("gpu"))


def _processors() -> str:
    count = len(os.sched_getaffinity(0))
    return f"{count} processor{'s' if count > 1 else ''}"
