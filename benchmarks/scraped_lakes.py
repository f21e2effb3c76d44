"""The lakes of a week: the agent's rows, and the rows that an import makes of dcgm-exporter's scrapes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from analytics.mapping.mapping_file import load_exporters
from analytics.scraped.lake_writer import LakeWriter, WriterSettings
from analytics.scraped.rows.model import RowSettings
from analytics.scraped.rows.scraped_rows import host_rows
from analytics.scraped.samples import SAMPLE_SCHEMA, Labels, Samples
from analytics.scraped.totals import ReadTotals
from analytics.scraped.who.label_runs import Given
from analytics.simulation.tables import table_of
from benchmarks.recordings import TICK_MS
from benchmarks.worked_week import COLLECT_MS, START_MS, WorkedGpu, collect_phase
from fallow import parquet
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, utc_day
from fallow.lake import Lake, LakeFile
from fallow.schema import DEVICE, GPU, PROCESS, LakeTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from analytics.importers.model import Imported
    from benchmarks.recordings import Floats

_ROW_MS = 10 * SECOND_MS
_LISTED_MS = 30 * MINUTE_MS
_MODEL = "NVIDIA H100 80GB HBM3"
_MEMORY_MIB = 20_480


@dataclass(frozen=True)
class Scraping:
    """The scrape interval, the exporter's fields, and whether `--collect-interval` gives the exporter's interval."""

    every_ms: int
    profiling: bool = False
    told: bool = False
    counter: bool = True
    """Whether the energy counter is scraped."""

    @property
    def name(self) -> str:
        parts = [f"{self.every_ms // SECOND_MS} s scrapes"]
        parts += ["profiling fields"] * self.profiling + ["interval given"] * self.told
        return ", ".join([*parts, *["no energy counter"] * (not self.counter)])


SCRAPINGS = (
    *(Scraping(every * SECOND_MS, profiling) for profiling in (False, True) for every in (15, 30, 60)),
    *(Scraping(every * SECOND_MS, profiling=True, told=True) for every in (30, 60)),
)


@dataclass
class ScrapedHost:
    """The series of one host's exporter, and their samples."""

    labels: list[Labels] = field(default_factory=list)
    frames: list[pl.DataFrame] = field(default_factory=list)

    def add(self, labels: Labels, times: Any, values: Floats) -> None:
        """Add a series; a value of NaN ends it."""
        frame = pl.DataFrame({"series": len(self.labels), "time_ms": times, "value": values}, schema=SAMPLE_SCHEMA)
        self.labels.append(labels)
        self.frames.append(frame.with_columns(pl.col("value").fill_nan(None)))

    def samples(self) -> Samples:
        return Samples(tuple(self.labels), pl.concat(self.frames))


def write_agent_rows(lake: Lake, gpu: WorkedGpu) -> None:
    """Write the agent's rows: means of every 10 s, the energy counter, and the users of the GPU."""
    step = _ROW_MS // TICK_MS
    count = len(gpu.busy) // step
    busy = gpu.busy[: count * step].reshape(count, step)
    read = (np.arange(count) + 1) * step
    energy_mj, occupied = _energy_mj(gpu), gpu.occupied[read - 1]
    _put(lake, GPU, gpu, {
        "time": START_MS + np.arange(count, dtype=np.int64) * _ROW_MS, "gpu": gpu.uuid, "interval_ms": _ROW_MS,
        "health": "ok", "util_source": "samples", "gpu_util_pct": 100.0 * busy.mean(axis=1),
        "gpu_util_max_pct": 100.0 * busy.max(axis=1), "gpu_util_zero_ratio": 1.0 - busy.mean(axis=1),
        "gpu_util_coverage_ratio": 1.0, "process_count": occupied.astype(np.int16),
        "mem_used_bytes": np.where(occupied, _MEMORY_MIB * 2**20, 0), "power_w": _mean_w(energy_mj, read),
        "energy_mj": energy_mj[read].astype(np.int64), "counters_since": START_MS - HOUR_MS,
    })  # fmt: skip
    _put(lake, DEVICE, gpu, {"time": np.array([START_MS]), "gpu": gpu.uuid, "model": _MODEL, "source": "nvml"})
    for number, stay in enumerate(gpu.stays):
        times = START_MS + np.arange(stay.first * TICK_MS, stay.after * TICK_MS, _LISTED_MS)
        _put(lake, PROCESS, gpu, {
            "time": times, "gpu": gpu.uuid, "interval_ms": _LISTED_MS, "pid": 1000 + 100 * gpu.number + number,
            "started": int(times[0]), "kind": "compute", "user": _namespace(gpu), "command": "python",
            "mem_used_bytes": _MEMORY_MIB * 2**20, "pod": stay.pod, "namespace": _namespace(gpu),
            "attribution": "proc+pod_resources",
        }, number)  # fmt: skip


def _put(lake: Lake, table: LakeTable, gpu: WorkedGpu, columns: Mapping[str, Any], part: int = 0) -> None:
    """Write a file per day."""
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
    """Return the driver's reading: the mean of the last second."""
    first = np.maximum(read - SECOND_MS // TICK_MS, 0)
    drawn: Floats = np.round(
        (energy_mj[np.maximum(read, 1)] - energy_mj[first]) / np.maximum((read - first) * TICK_MS, TICK_MS), 1
    )
    return drawn


def add_scrapes(host: ScrapedHost, gpu: WorkedGpu, scraping: Scraping) -> None:
    """Add the samples of dcgm-exporter's scrapes: each has the newest collection, with the labels of the GPU's pod."""
    phase, length_ms = collect_phase(gpu.host), len(gpu.busy) * TICK_MS
    times = np.arange(1_234 + 777 * gpu.host, length_ms, scraping.every_ms)
    read = (times - phase * TICK_MS) // COLLECT_MS * (COLLECT_MS // TICK_MS) + phase
    times, read = times[read > 0], read[read > 0]
    values = _collected(gpu, read, scraping)
    user = np.zeros(len(read), np.int64)
    for number, stay in enumerate(gpu.stays, 1):
        user[(read >= stay.first) & (read < stay.after)] = number
    for number in np.unique(user):
        own = user == number
        # a series that is missing from the page ends at the next scrape
        end = np.flatnonzero(np.diff(own.astype(np.int8)) == -1) + 1
        at = np.concatenate((times[own], times[end])) + START_MS
        order = np.argsort(at, kind="stable")
        pod = {"namespace": _namespace(gpu), "pod": gpu.stays[number - 1].pod, "container": "work"} if number else {}
        for name, all_values in values.items():
            series = np.concatenate((all_values[own], np.full(len(end), np.nan)))
            host.add(_labels(name, gpu) | pod, at[order], series[order])


def _collected(gpu: WorkedGpu, read: Any, scraping: Scraping) -> dict[str, Any]:
    """Return the values of each metric at the ticks at which the exporter read the driver."""
    ran = np.concatenate(([0.0], np.cumsum(gpu.busy)))
    window = 2 if gpu.host % 2 else SECOND_MS // TICK_MS
    energy_mj = _energy_mj(gpu)
    values = {
        "DCGM_FI_DEV_GPU_UTIL": np.rint(100 * (ran[read] - ran[np.maximum(read - window, 0)]) / window),
        "DCGM_FI_DEV_FB_USED": np.where(gpu.occupied[read], float(_MEMORY_MIB), 0.0),
        "DCGM_FI_DEV_POWER_USAGE": _mean_w(energy_mj, read),
    }
    if scraping.counter:
        values["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"] = np.floor(energy_mj[read])
    if scraping.profiling:
        before = np.maximum(read - COLLECT_MS // TICK_MS, 0)
        values["DCGM_FI_PROF_GR_ENGINE_ACTIVE"] = np.round((ran[read] - ran[before]) / np.maximum(read - before, 1), 6)
    return values


def _labels(name: str, gpu: WorkedGpu) -> dict[str, str]:
    return {
        "__name__": name, "gpu": str(gpu.number % 4), "UUID": gpu.uuid, "device": f"nvidia{gpu.number % 4}",
        "modelName": _MODEL, "Hostname": _host(gpu), "instance": f"10.0.0.{gpu.host}:9400", "job": "dcgm-exporter",
    }  # fmt: skip


class ScrapedLake:
    """A lake that is filled like by `fallow import prometheus`, one host at a time."""

    def __init__(self, lake: Lake, scraping: Scraping, length_ms: int) -> None:
        self.lake, self.scraping = lake, scraping
        self._settings = RowSettings(START_MS, START_MS + length_ms, COLLECT_MS if scraping.told else None)
        self._writer, self._exporters = LakeWriter(lake, WriterSettings(), ReadTotals()), load_exporters()
        self._rows: list[Imported] = []
        self._writer.begin_window()

    def add(self, gpus: list[WorkedGpu]) -> None:
        """Add the GPUs of one host."""
        host = ScrapedHost()
        for gpu in gpus:
            add_scrapes(host, gpu, self.scraping)
        for rows in host_rows(host.samples(), self._exporters, self._settings):
            self._writer.write(self._writer.imported(rows))
            self._rows.append(rows)

    def finish(self) -> Lake:
        """Return the lake, after adding the allocations of all hosts."""
        self._writer.write_allocations(Given.of(self._rows), None, self._settings.until_ms)
        return self.lake
