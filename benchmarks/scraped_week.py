"""The same week once through the agent and once through a Prometheus that scrapes dcgm-exporter: what differs.

The agent's rows are exact means of every 10 s. dcgm-exporter reads the driver every 30 s and repeats what it read: GPU_UTIL of the
0.2 s or the second before, or with profiling fields the mean of the 30 s. Raw samples of 15, 30 and 60 s scrapes go through
`host_rows` and the publisher of `fallow import prometheus`. `python -m benchmarks scraped-week` prints the table and stores it in
benchmarks/scraped_week.json; docs/prometheus.md has it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from analytics.decide.review import review
from analytics.scraped.lake_writer import LakeWriter, WriterSettings
from analytics.scraped.mapping.loading import load_exporters
from analytics.scraped.rows.row_settings import RowSettings
from analytics.scraped.rows.scraped_rows import host_rows
from analytics.scraped.samples import SAMPLE_SCHEMA, Labels, Samples
from analytics.scraped.totals import Totals
from analytics.scraped.who.given import Given
from analytics.simulation.tables import table_of
from analytics.states import IN_USE
from analytics.window import load_window_ledger, open_inputs
from benchmarks.measure import Figure, between_marks
from benchmarks.recordings import TICK_MS
from benchmarks.worked_week import COLLECT_MS, START_MS, WorkedGpu, collect_phase, worked_gpus
from fallow import parquet
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, WEEK_MS, utc_day
from fallow.lake import Lake, LakeFile
from fallow.schema import DEVICE, GPU, PROCESS, Table
from tests.lakes import made_lake

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from analytics.ledger.summary import Summary
    from analytics.workloads.model import Finding
    from benchmarks.recordings import Floats

STORED = Path(__file__).parent / "scraped_week.json"
PAGE = Path(__file__).parent.parent / "docs" / "prometheus.md"

_ROW_MS = 10 * SECOND_MS
_LISTED_MS = 30 * MINUTE_MS
_MODEL = "NVIDIA H100 80GB HBM3"
_MEMORY_MIB = 20_480


@dataclass(frozen=True)
class Scraping:
    """How often a server scrapes, and whether the exporter has profiling fields."""

    every_ms: int
    profiling: bool = False

    @property
    def name(self) -> str:
        return f"{self.every_ms // SECOND_MS} s scrapes{', profiling fields' * self.profiling}"


SCRAPINGS = tuple(Scraping(every * SECOND_MS, profiling) for profiling in (False, True) for every in (15, 30, 60))


@dataclass
class ScrapedHost:
    """The series of one host as its exporter tells them, and the samples of each."""

    labels: list[Labels] = field(default_factory=list)
    frames: list[pl.DataFrame] = field(default_factory=list)

    def add(self, labels: Labels, times: Any, values: Floats) -> None:
        """A series; a value of NaN ends it."""
        frame = pl.DataFrame({"series": len(self.labels), "time_ms": times, "value": values}, schema=SAMPLE_SCHEMA)
        self.labels.append(labels)
        self.frames.append(frame.with_columns(pl.col("value").fill_nan(None)))

    def samples(self) -> Samples:
        return Samples(tuple(self.labels), pl.concat(self.frames))


def write_agent_rows(lake: Lake, gpu: WorkedGpu) -> None:
    """What the agent would have written: means of all of each 10 s, the energy counter, and who is on the GPU."""
    step = _ROW_MS // TICK_MS
    count = len(gpu.busy) // step
    busy = gpu.busy[: count * step].reshape(count, step)
    read = (np.arange(count) + 1) * step
    energy_mj, occupied = _energy_mj(gpu), gpu.occupied[read - 1]
    _put(lake, GPU, gpu, {
        "time": START_MS + np.arange(count, dtype=np.int64) * _ROW_MS, "gpu": gpu.uuid, "interval_ms": _ROW_MS, "health": "ok",
        "util_source": "samples", "gpu_util_pct": 100.0 * busy.mean(axis=1), "gpu_util_max_pct": 100.0 * busy.max(axis=1),
        "gpu_util_zero_ratio": 1.0 - busy.mean(axis=1), "gpu_util_coverage_ratio": 1.0, "process_count": occupied.astype(np.int16),
        "mem_used_bytes": np.where(occupied, _MEMORY_MIB * 2**20, 0), "power_w": _mean_w(energy_mj, read),
        "energy_mj": energy_mj[read].astype(np.int64), "counters_since": START_MS - HOUR_MS,
    })  # fmt: skip
    _put(lake, DEVICE, gpu, {"time": np.array([START_MS]), "gpu": gpu.uuid, "model": _MODEL, "source": "nvml"})
    for number, stay in enumerate(gpu.stays):
        times = START_MS + np.arange(stay.first * TICK_MS, stay.after * TICK_MS, _LISTED_MS)
        _put(lake, PROCESS, gpu, {
            "time": times, "gpu": gpu.uuid, "interval_ms": _LISTED_MS, "pid": 1000 + 100 * gpu.number + number, "started": int(times[0]),
            "kind": "compute", "user": _namespace(gpu), "command": "python", "mem_used_bytes": _MEMORY_MIB * 2**20, "pod": stay.pod,
            "namespace": _namespace(gpu), "attribution": "proc+pod_resources",
        }, number)  # fmt: skip


def _put(lake: Lake, table: Table, gpu: WorkedGpu, columns: Mapping[str, Any], part: int = 0) -> None:
    """A file for each day."""
    times = columns["time"]
    for day_ms in range(START_MS, int(times[-1]) + 1, DAY_MS):
        own = (times >= day_ms) & (times < day_ms + DAY_MS)
        rows = {name: values[own] if isinstance(values, np.ndarray) else values for name, values in columns.items()}
        first = 1 + 1000 * gpu.number + part
        file = LakeFile(table.name, utc_day(day_ms), _host(gpu), first, first)
        if own.any():
            lake.put(file, parquet.encode(table, table_of(table, rows, int(own.sum()))))


def _host(gpu: WorkedGpu) -> str:
    return f"gn{gpu.host:03}"


def _namespace(gpu: WorkedGpu) -> str:
    return gpu.kind.replace(",", "").replace(" ", "-")


def _energy_mj(gpu: WorkedGpu) -> Floats:
    return np.concatenate(([0.0], np.cumsum(gpu.power_w * TICK_MS)))


def _mean_w(energy_mj: Floats, read: Any) -> Floats:
    """The driver's reading: the mean of the second before."""
    first = np.maximum(read - SECOND_MS // TICK_MS, 0)
    drawn: Floats = np.round((energy_mj[np.maximum(read, 1)] - energy_mj[first]) / np.maximum((read - first) * TICK_MS, TICK_MS), 1)
    return drawn


def add_scrapes(host: ScrapedHost, gpu: WorkedGpu, scraping: Scraping) -> None:
    """What scrapes of dcgm-exporter find: at each the newest collection, under the labels of who has the GPU."""
    phase, length_ms = collect_phase(gpu.host), len(gpu.busy) * TICK_MS
    times = np.arange(1_234 + 777 * gpu.host, length_ms, scraping.every_ms)
    read = (times - phase * TICK_MS) // COLLECT_MS * (COLLECT_MS // TICK_MS) + phase
    times, read = times[read > 0], read[read > 0]
    values = _collected(gpu, read, scraping)
    holder = np.zeros(len(read), np.int64)
    for number, stay in enumerate(gpu.stays, 1):
        holder[(read >= stay.first) & (read < stay.after)] = number
    for number in np.unique(holder):
        own = holder == number
        # a series that the page no longer has ends at the next scrape
        end = np.flatnonzero(np.diff(own.astype(np.int8)) == -1) + 1
        at = np.concatenate((times[own], times[end])) + START_MS
        order = np.argsort(at, kind="stable")
        pod = {"namespace": _namespace(gpu), "pod": gpu.stays[number - 1].pod, "container": "work"} if number else {}
        for name, all_values in values.items():
            said = np.concatenate((all_values[own], np.full(len(end), np.nan)))
            host.add(_labels(name, gpu) | pod, at[order], said[order])


def _collected(gpu: WorkedGpu, read: Any, scraping: Scraping) -> dict[str, Any]:
    """The values of each metric at the ticks at which the exporter read the driver."""
    ran = np.concatenate(([0.0], np.cumsum(gpu.busy)))
    window = 2 if gpu.host % 2 else SECOND_MS // TICK_MS
    energy_mj = _energy_mj(gpu)
    values = {
        "DCGM_FI_DEV_GPU_UTIL": np.rint(100 * (ran[read] - ran[np.maximum(read - window, 0)]) / window),
        "DCGM_FI_DEV_FB_USED": np.where(gpu.occupied[read], float(_MEMORY_MIB), 0.0),
        "DCGM_FI_DEV_POWER_USAGE": _mean_w(energy_mj, read),
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": np.floor(energy_mj[read]),
    }
    if scraping.profiling:
        before = np.maximum(read - COLLECT_MS // TICK_MS, 0)
        values["DCGM_FI_PROF_GR_ENGINE_ACTIVE"] = np.round((ran[read] - ran[before]) / np.maximum(read - before, 1), 6)
    return values


def _labels(name: str, gpu: WorkedGpu) -> dict[str, str]:
    return {
        "__name__": name, "gpu": str(gpu.number % 4), "UUID": gpu.uuid, "device": f"nvidia{gpu.number % 4}", "modelName": _MODEL,
        "Hostname": _host(gpu), "instance": f"10.0.0.{gpu.host}:9400", "job": "dcgm-exporter",
    }  # fmt: skip


class ScrapedLake:
    """A lake that is filled as `fallow import prometheus` fills it, a host at a time."""

    def __init__(self, lake: Lake, scraping: Scraping, length_ms: int) -> None:
        self.lake, self.scraping = lake, scraping
        self._settings = RowSettings(START_MS, START_MS + length_ms)
        self._writer, self._exporters, self._rows = LakeWriter(lake, WriterSettings(), Totals()), load_exporters(), []
        self._writer.begin_window()

    def add(self, gpus: list[WorkedGpu]) -> None:
        """The GPUs of one host."""
        host = ScrapedHost()
        for gpu in gpus:
            add_scrapes(host, gpu, self.scraping)
        for rows in host_rows(host.samples(), self._exporters, self._settings):
            self._writer.write(self._writer.imported(rows))
            self._rows.append(rows)

    def finish(self) -> Lake:
        """The lake with the allocations of all hosts."""
        self._writer.write_allocations(Given.of(self._rows), None, self._settings.until_ms)
        return self.lake


@dataclass(frozen=True)
class WeekSeen:
    """What fallow says of the week by one source; hours are GPU-hours, pairs are bounds. `findings`: rule and GPU."""

    name: str
    in_use: float
    held: float
    held_between: tuple[float, float]
    unoccupied: float
    unknown: float
    idle: float
    idle_between: tuple[float, float]
    findings: frozenset[tuple[str, str]]

    @classmethod
    def of(cls, name: str, summary: Summary, findings: list[Finding]) -> WeekSeen:
        totals, idle, hour = summary.totals, summary.samples.idle, HOUR_MS
        held = totals.bound("held")
        return cls(
            name=name,
            in_use=sum(totals.state_ms[state] for state in IN_USE) / hour,
            held=totals.state_ms["held"] / hour,
            held_between=(held.low_ms / hour, held.high_ms / hour),
            unoccupied=(totals.state_ms["free"] + totals.state_ms["reserved"]) / hour,
            unknown=totals.state_ms["unknown"] / hour,
            idle=summary.idle.zero_ms / totals.observed_ms,
            idle_between=(idle.low_ms / totals.observed_ms, idle.high_ms / totals.observed_ms),
            findings=frozenset((each.rule, gpu) for each in findings for gpu in each.gpus),
        )


@dataclass
class Truth:
    """Ticks of all GPUs."""

    held: int = 0
    occupied: int = 0
    busy: int = 0
    ticks: int = 0

    def add(self, gpu: WorkedGpu) -> None:
        self.held += gpu.held_ticks()
        self.occupied += int(gpu.occupied.sum())
        self.busy += int(gpu.busy.sum())
        self.ticks += len(gpu.busy)

    def seen(self) -> WeekSeen:
        held, idle = self.held * TICK_MS / HOUR_MS, 1 - self.busy / self.ticks
        return WeekSeen(
            name="truth",
            in_use=(self.occupied - self.held) * TICK_MS / HOUR_MS,
            held=held,
            held_between=(held, held),
            unoccupied=(self.ticks - self.occupied) * TICK_MS / HOUR_MS,
            unknown=0,
            idle=idle,
            idle_between=(idle, idle),
            findings=frozenset(),
        )


def looked_at(name: str, lake: Lake) -> WeekSeen:
    inputs = open_inputs(argparse.Namespace(lake=lake.root, since=None, until=None, config=None))
    ledger = load_window_ledger(inputs)
    return WeekSeen.of(name, ledger.summary, list(review(inputs, ledger).findings))


def weeks_seen(folder: Path, length_ms: int = WEEK_MS, scrapings: tuple[Scraping, ...] = SCRAPINGS) -> list[WeekSeen]:
    """The truth, the agent's week and each scraped one."""
    agent = made_lake(folder / "agent")
    scraped = [ScrapedLake(made_lake(folder / f"scraped-{n}"), each, length_ms) for n, each in enumerate(scrapings)]
    truth = Truth()
    for _, gpus in groupby(worked_gpus(length_ms), key=lambda gpu: gpu.host):
        of_host = list(gpus)
        for gpu in of_host:
            write_agent_rows(agent, gpu)
            truth.add(gpu)
        for lake in scraped:
            lake.add(of_host)
    seen = [looked_at(lake.scraping.name, lake.finish()) for lake in scraped]
    return [truth.seen(), looked_at("agent, 10 s rows", agent), *seen]


def measure() -> Iterator[Figure]:
    """Stores the table; the figures are how much of the agent's findings scraping loses and adds."""
    with tempfile.TemporaryDirectory() as folder:
        found = weeks_seen(Path(folder))
    STORED.write_text(json.dumps(as_json(found), indent=2) + "\n", encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    agent = found[1]
    for each in found[2:]:
        print(each, flush=True)
        yield Figure(
            f"scraped_week_findings_{each.name.replace(' ', '_').replace(',', '')}",
            100 * len(agent.findings & each.findings) / len(agent.findings), "%",
            f"of the agent's {len(agent.findings)} findings by GPU; {len(each.findings - agent.findings)} that the agent has not",
        )  # fmt: skip


def as_json(found: list[WeekSeen]) -> list[dict[str, Any]]:
    """Each week with its findings beside the agent's, by rule."""
    raise NotImplementedError


def page(text: str) -> str:
    raise NotImplementedError
