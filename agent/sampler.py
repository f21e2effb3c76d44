"""All GPUs of the host through the driver: drains, rows, process lists, and who is lost."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.collectors import COLLECTORS, Value
from agent.driver import Driver, Gpu, GpuGoneError, Incident
from agent.inventory import read_device
from agent.process_list import LIST_AGAIN_BYTES, read_processes
from agent.utilization import Clocks, UtilizationMeter

if TYPE_CHECKING:
    from collections.abc import Iterable

Row = dict[str, Value]

_LONGEST_BACKOFF = 6  # intervals: a lost GPU is looked at again at least once a minute at 10 s rows


@dataclass
class Watched:
    """One GPU and what is remembered of it between intervals."""

    gpu: Gpu
    meter: UtilizationMeter = field(default_factory=UtilizationMeter)
    health: str = "ok"
    retry_in: int = 0
    backoff: int = 1
    process_count: int | None = None
    listed_at_bytes: int | None = None
    device: Row | None = None


class Sampler:
    """Keeps every GPU apart from the others: what fails on one leaves the rest alone."""

    def __init__(self, driver: Driver, gpus: Iterable[Gpu], clocks: Clocks | None = None) -> None:
        self.driver = driver
        self._clocks = clocks or (lambda: (time.time_ns() // 1000, time.monotonic_ns() // 1000))
        self.watched = [Watched(gpu) for gpu in gpus]
        self._rows_until_retry = _LONGEST_BACKOFF

    def devices(self, *, all_of_them: bool) -> list[Row]:
        """Inventory entries: all of them, or those that are new or have changed since the last call."""
        found = []
        for each in self._reachable():
            each.gpu.off.clear()  # rights, modes and drivers change: what was refused is asked again
            try:
                entry = read_device(self.driver, each.gpu)
            except GpuGoneError as gone:
                self._lose(each, gone)
                continue
            if all_of_them or entry != each.device:
                found.append(entry)
            each.device = entry
        return found

    def drain(self) -> None:
        """Takes the new samples of every GPU that can be reached."""
        for each in self._reachable():
            try:
                each.meter.drain(self.driver, each.gpu, self._clocks)
            except GpuGoneError as gone:
                self._lose(each, gone)

    @property
    def drain_every_s(self) -> float:
        """How long the next drain may wait: the ring holds ten seconds, a bare rate only its own moment."""
        return 1.0 if any(each.meter.wants_every_second for each in self.watched) else 4.0

    def rows(self, start_ms: int, end_ms: int, *, list_processes: bool) -> tuple[list[Row], list[Row]]:
        """Rows of the `gpu` and `process` tables for the interval [start_ms, end_ms) that has just ended."""
        self._retry_missing()
        gpu_rows, process_rows = [], []
        for each in self.watched:
            row, processes = self._row(each, start_ms, end_ms, list_processes=list_processes)
            gpu_rows.append(row)
            process_rows.extend(processes)
        return gpu_rows, process_rows

    def _retry_missing(self) -> None:
        """GPUs that could not be opened are tried again every few intervals, and watched from then on."""
        self._rows_until_retry -= 1
        if self._rows_until_retry <= 0:
            self._rows_until_retry = _LONGEST_BACKOFF
            self.watched += [Watched(gpu) for gpu in self.driver.open_missing()]

    def _row(self, each: Watched, start_ms: int, end_ms: int, *, list_processes: bool) -> tuple[Row, list[Row]]:
        row: Row = {"gpu": each.gpu.uuid, "time": start_ms, "interval_ms": end_ms - start_ms, "offset_ms": 0}
        processes: list[Row] = []
        if self._may_look(each):
            try:
                each.meter.settle(self.driver, each.gpu, self._clocks)
                row["read_delay_ms"] = self._clocks()[0] // 1000 - end_ms
                for collector in COLLECTORS:
                    row = {**collector.read(self.driver, each.gpu), **row}
                processes = self._processes(each, row.get("mem_used_bytes"), list_processes=list_processes)
                row |= each.meter.take(start_ms * 1000, end_ms * 1000)
                row["process_count"] = each.process_count
                self._found(each)
            except GpuGoneError as gone:
                self._lose(each, gone)
        if each.health not in ("ok", "degraded"):
            # whatever was read before the GPU went is not the whole interval: the state says why it is missing
            row = {name: row[name] for name in ("gpu", "time", "interval_ms", "offset_ms")} | {"util_source": "none"}
            processes = []
        row["health"] = each.health
        return row, [{"time": start_ms} | process for process in processes]

    def _processes(self, each: Watched, mem_used: Value, *, list_processes: bool) -> list[Row]:
        """The process list, if it is due or memory moved; the count stays known until the next list."""
        moved = (
            isinstance(mem_used, int)
            and each.listed_at_bytes is not None
            and abs(mem_used - each.listed_at_bytes) > LIST_AGAIN_BYTES
        )
        if not (list_processes or moved or each.process_count is None):
            return []
        found = read_processes(self.driver, each.gpu)
        each.process_count = None if found is None else len({process["pid"] for process in found})
        each.listed_at_bytes = mem_used if isinstance(mem_used, int) else None
        return found or []

    def _reachable(self) -> list[Watched]:
        return [each for each in self.watched if each.retry_in == 0]

    def _may_look(self, each: Watched) -> bool:
        """A lost GPU is asked again after a growing number of intervals."""
        if each.retry_in > 0:
            each.retry_in -= 1
        return each.retry_in == 0

    def _lose(self, each: Watched, gone: GpuGoneError) -> None:
        each.retry_in = each.backoff
        each.backoff = min(2 * each.backoff, _LONGEST_BACKOFF)
        each.process_count = each.listed_at_bytes = None
        self._set_health(each, gone.health)

    def _found(self, each: Watched) -> None:
        each.backoff = 1
        self._set_health(each, "degraded" if each.gpu.degraded else "ok")

    def _set_health(self, each: Watched, health: str) -> None:
        if health != each.health:
            detail = f"GPU {each.gpu.index} went from {each.health} to {health}"
            if health == "degraded":
                detail += f": {', '.join(sorted(each.gpu.strikes))} failed repeatedly"
            self.driver.incidents.append(Incident(f"gpu_{health}", detail, each.gpu.uuid))
            each.health = health
