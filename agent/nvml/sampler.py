"""All GPUs of the host through the driver: drains, rows, process lists, inventory, and lost GPUs.

Every drain reads the utilization rings. Every interval reads the other columns of a row and the MIG slots. Process
lists are read every few intervals or when memory changes, error counters every few minutes, the inventory every hour.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pynvml

from agent.collectors import UNKNOWN, CollectorRuns
from agent.kernel_files import kernel_address, read_text
from agent.nvml.gpu import DriverGoneError, DriverGpu, GpuGoneError
from agent.nvml.inventory import InventoryCollector
from agent.nvml.readings import (
    LIST_AGAIN_BYTES,
    ClockCollector,
    CollectedSpan,
    GpuCollector,
    MemoryCollector,
    PowerCollector,
    TemperatureCollector,
    VideoCollector,
    read_errors,
    read_processes,
    say_what_changed,
)
from agent.nvml.utilization import GpmMeter, UtilizationMeter, with_gpm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from agent.nvml.driver import Driver
    from agent.nvml.readings import Clocks
    from agent.rows import DeviceRow, GpuRow, ProcessRow, Rows
    from agent.snapshot import GpuErrors


@dataclass
class Watched:
    gpu: DriverGpu
    collectors: tuple[GpuCollector, ...]
    since_us: int
    """When watching it began, by the monotonic clock."""
    health: str = "ok"
    blind: bool = False
    rows: int = 0
    """Number of intervals so far."""
    retry_in: int = 0
    backoff: int = 1
    process_count: int | None = None
    listed_at_bytes: int | None = None
    device: DeviceRow | None = None
    errors: GpuErrors | None = None
    instances: dict[str, Watched] = field(default_factory=dict)
    """MIG instances by UUID."""
    _sleep_file: str | None = None

    @property
    def wants_every_second(self) -> bool:
        """Return whether one of its collectors gets more data from more frequent drains."""
        return any(collector.wants_every_second for collector in self.collectors)

    def began_after(self, moment_us: int, clocks: Clocks) -> bool:
        wall_us, steady_us = clocks()
        return wall_us - (steady_us - self.since_us) > moment_us

    def may_look(self) -> bool:
        """Count one interval. Return whether to query a lost GPU again, after a growing number of intervals."""
        if self.retry_in > 0:
            self.retry_in -= 1
        return self.retry_in == 0

    def wants_list(self, mem_used_bytes: int | None) -> bool:
        """Return whether to read the process list early: it is unknown, or memory has changed."""
        if self.process_count is None:
            return True
        known = self.listed_at_bytes
        return mem_used_bytes is not None and known is not None and abs(mem_used_bytes - known) > LIST_AGAIN_BYTES

    def listed(self, found: Sequence[ProcessRow] | None, mem_used_bytes: int | None) -> None:
        """Note a process list; None for an unknown list."""
        self.process_count = None if found is None else len({process["pid"] for process in found})
        self.listed_at_bytes = mem_used_bytes

    def forget(self) -> None:
        """Drop state that is invalid after a GPU was lost or asleep."""
        self.process_count = self.listed_at_bytes = None
        for each in (self, *self.instances.values()):
            for collector in each.collectors:
                collector.forget()

    def find_sleep(self, sys: str, pci_bus_id: str | None) -> None:
        """Find the kernel's file for the GPU's power state; only GPUs with automatic power-down have it."""
        self._sleep_file = None
        if pci_bus_id is None:
            return
        power = f"{sys}/bus/pci/devices/{kernel_address(pci_bus_id)}/power"
        if read_text(f"{power}/control") == "auto":
            self._sleep_file = f"{power}/runtime_status"

    def is_asleep(self) -> bool:
        """Return whether the GPU is powered down: no program uses it, and a query would wake it."""
        return self._sleep_file is not None and read_text(self._sleep_file) == "suspended"


def is_split(driver: Driver, gpu: DriverGpu) -> bool | None:
    """Return whether MIG is on; None where the driver does not report it. Raises as `Driver.ask` does."""
    mode = driver.ask(gpu, pynvml.nvmlDeviceGetMigMode)
    return None if mode is None else mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE


def find_instances(driver: Driver, gpu: DriverGpu, known: dict[str, DriverGpu]) -> dict[str, DriverGpu] | None:
    """Return the current instances by UUID, with the state of those in `known`; None where they are unknown.

    Empty slots are skipped. If an instance does not report its UUID or its number, the result is
    unknown, so that an error does not look like a removal. Raises as `Driver.ask` does.
    """
    slots = driver.ask(gpu, pynvml.nvmlDeviceGetMaxMigDeviceCount)
    if slots is None:
        return None
    found: dict[str, DriverGpu] = {}
    for slot in range(slots):
        handle = driver.ask_slot(gpu, slot)
        if handle is None:
            continue
        uuid = driver.ask_with(gpu, pynvml.nvmlDeviceGetUUID, handle)
        instance_id = driver.ask_with(gpu, pynvml.nvmlDeviceGetGpuInstanceId, handle)
        if uuid is None or instance_id is None:
            return None
        instance = known.get(uuid) or DriverGpu(handle, uuid, gpu.index, parent=gpu)
        instance.handle, instance.gpu_instance_id = handle, instance_id
        found[uuid] = instance
    return found


COLLECTORS: tuple[type[GpuCollector], ...] = (
    MemoryCollector,
    PowerCollector,
    TemperatureCollector,
    ClockCollector,
    VideoCollector,
    UtilizationMeter,
    GpmMeter,
)
"""The collectors of a GPU's row, in the order of its columns. A later collector may correct an earlier column."""

Result = TypeVar("Result")

_LONGEST_BACKOFF = 6  # intervals: with 10 s rows a lost GPU is queried at least once a minute
_DRAIN_EVERY_S = 5.2
_EAGER_EVERY_S = 1.0
_DRAIN_BUDGET_S = 1.5  # of one GPU; a healthy one takes a millisecond
_GONE = (GpuGoneError, DriverGoneError)


class Sampler:
    """Samples all GPUs independently: a fault of one GPU does not affect the others."""

    def __init__(
        self, driver: Driver, gpus: Sequence[DriverGpu], sys: str = "/sys", clocks: Clocks | None = None
    ) -> None:
        self.driver = driver
        self.runs = CollectorRuns()
        self._sys = sys
        self._clocks = clocks or (lambda: (time.time_ns() // 1000, time.monotonic_ns() // 1000))
        self._inventory = InventoryCollector(sys)
        self.watched = [self._watched(gpu) for gpu in gpus]
        self._rows_until_retry = _LONGEST_BACKOFF
        self._drained_s = -math.inf

    def _watched(self, gpu: DriverGpu) -> Watched:
        collectors = tuple(make() for make in COLLECTORS if gpu.parent is None or make.of_instances)
        return Watched(gpu, collectors, self._clocks()[1])

    def devices(self, *, all_of_them: bool) -> list[DeviceRow]:
        """Return the inventory of GPUs and MIG instances without times: all entries, or the new and changed ones."""
        self.driver.begin_round()
        if all_of_them:
            with self.driver.quietly():
                self._inventory.find_islands(self.driver, [each.gpu for each in self._reachable()])
        found = []
        for each in self._reachable():
            each.gpu.ask_again()
            for known, entry in self._entries(each):
                if all_of_them or entry != known.device:
                    found.append(entry)
                known.device = entry
        return found

    def _entries(self, each: Watched) -> Iterator[tuple[Watched, DeviceRow]]:
        try:
            with self.driver.quietly():
                entry = self._describe(each.gpu)
                if entry is None:
                    return
                each.find_sleep(self._sys, entry["pci_bus_id"])
                if entry["mig_enabled"] is not None:
                    each.gpu.split = entry["mig_enabled"]
                yield each, entry
                for instance in each.instances.values():
                    if (entry := self._describe(instance.gpu)) is not None:
                        yield instance, entry
        except GpuGoneError as gone:
            self._lose(each, gone)

    def _describe(self, gpu: DriverGpu) -> DeviceRow | None:
        return self._run(self._inventory.name, partial(self._inventory.collect, self.driver, gpu), None)

    def _run(self, name: str, collect: Callable[[], Result], fallback: Result) -> Result:
        """Return a collector's result. Raises GpuGoneError, DriverGoneError; another error costs only its columns."""
        return self.runs.run(name, collect, fallback, _GONE)

    def errors(self) -> list[GpuErrors]:
        """Return the error counters; increases become events."""
        found = []
        self.driver.begin_round()
        for each in self._reachable():
            try:
                with self.driver.quietly():
                    entry = self._run("errors", partial(read_errors, self.driver, each.gpu), None)
            except GpuGoneError as gone:
                self._lose(each, gone)
                continue
            if entry is None:
                continue
            say_what_changed(self.driver, each.gpu, each.errors, entry)
            found.append(entry)
            each.errors = entry
        return found

    def drain(self) -> None:
        """Read new samples of every reachable GPU; between two full rounds only of those that need it every second."""
        self.driver.begin_round(_DRAIN_BUDGET_S)
        now_s = self._clocks()[1] / 1e6
        all_of_them = now_s - self._drained_s > _DRAIN_EVERY_S - _EAGER_EVERY_S / 2
        if all_of_them:
            self._drained_s = now_s
        for each in self._reachable():
            if not (all_of_them or each.wants_every_second):
                continue
            try:
                for collector in each.collectors:
                    self._run(collector.name, partial(collector.drain, self.driver, each.gpu, self._clocks), None)
            except GpuGoneError as gone:
                self._lose(each, gone)

    @property
    def drain_every_s(self) -> float:
        """Return how long the next drain may wait: a ring holds ten seconds, a rate only a moment."""
        eager = any(each.retry_in == 0 and each.wants_every_second for each in self.watched)
        return _EAGER_EVERY_S if eager else _DRAIN_EVERY_S

    def rows(self, start_ms: int, end_ms: int, *, list_processes: bool) -> Rows:
        """Return the gpu, process and new device rows of the interval [start_ms, end_ms) that has just ended."""
        sampled: Rows = {"gpu": [], "process": [], "device": []}
        self._retry_missing(sampled)
        self.driver.begin_round(max(_DRAIN_BUDGET_S, (end_ms - start_ms) / 4000))
        span = CollectedSpan(start_ms * 1000, end_ms * 1000, self._clocks)
        for each in self.watched:
            self._sample(sampled, each, span, list_processes=list_processes)
        return sampled

    def _retry_missing(self, sampled: Rows) -> None:
        """Try GPUs that could not be opened again every few intervals, and watch them once they open."""
        self._rows_until_retry -= 1
        if self._rows_until_retry <= 0:
            self._rows_until_retry = _LONGEST_BACKOFF
            found = [self._watched(gpu) for gpu in self.driver.open_missing()]
            self.watched += found
            for each in found:
                for known, entry in self._entries(each):
                    known.device = entry
                    sampled["device"].append(entry)

    def _sample(self, sampled: Rows, each: Watched, span: CollectedSpan, *, list_processes: bool) -> None:
        """Add the rows of a GPU and of its MIG instances."""
        row: GpuRow | None = None
        processes: list[ProcessRow] = []
        if each.is_asleep():
            each.forget()
            self._set_health(each, "asleep")
        elif each.may_look():
            try:
                row, processes = self._read(each, span, list_processes=list_processes)
            except GpuGoneError as gone:
                # values from before the GPU's loss do not cover the interval; the state shows why they are missing
                row, processes = None, []
                self._lose(each, gone)
        each.rows += 1
        # a change of MIG mode after the end of an interval does not concern that interval
        health = UNKNOWN if row is None and each.began_after(span.end_us, span.clocks) else each.health
        whole: GpuRow = {"health": health, **(row or _bare_row(each.gpu, span, util_source="none"))}
        sampled["gpu"].append(whole)
        if not each.gpu.split:
            if each.instances:
                self._note_reshape(each, (), sorted(each.instances))
                each.instances = {}
            sampled["process"] += processes
            return
        # a handle may belong to another instance by now: query only the instances found in this interval
        found = row is not None and self._find_instances(sampled, each)
        health = whole["health"] if whole["health"] == UNKNOWN else each.health
        for instance in each.instances.values():
            self._sample_instance(sampled, health, instance, span, found=found, list_processes=list_processes)
        # the driver's list for a split GPU depends on rights; the lists of its instances are complete
        if row is not None and health != UNKNOWN:
            counts = [instance.process_count for instance in each.instances.values()]
            known = [count for count in counts if count is not None]
            whole["process_count"] = sum(known) if found and len(known) == len(counts) else None

    def _read(self, each: Watched, span: CollectedSpan, *, list_processes: bool) -> tuple[GpuRow, list[ProcessRow]]:
        """Return the row and the processes of a whole GPU; raises GpuGoneError.

        Of an interval that began before the GPU was watched, only the ring is a source; without it the row is unknown.
        """
        gpu = each.gpu
        if list_processes and (split := is_split(self.driver, gpu)) is not None:  # unknown: keep the former value
            gpu.split = split
        for collector in each.collectors:
            self._run(collector.name, partial(collector.settle, self.driver, gpu, self._clocks), None)
        row = self._collect(each, span)
        if not row.get("gpu_util_coverage_ratio") and each.began_after(span.start_us, span.clocks):
            self._found(each, row)
            return {**_bare_row(gpu, span, util_source="none"), "health": UNKNOWN}, []
        processes = self._list_processes(each, span, row.get("mem_used_bytes"), list_processes=list_processes)
        row["process_count"] = each.process_count
        self._found(each, row)
        return row, processes

    def _collect(self, each: Watched, span: CollectedSpan) -> GpuRow:
        row = _bare_row(each.gpu, span)
        row["read_delay_ms"] = (self._clocks()[0] - span.end_us) // 1000
        nothing: GpuRow = {}
        for collector in each.collectors:
            found = self._run(collector.name, partial(collector.collect, self.driver, each.gpu, span), nothing)
            row = with_gpm(row, found) if found.get("util_source") == "gpm" else row | found
        for collector in each.collectors:
            collector.hear(row)
        return row

    def _find_instances(self, sampled: Rows, each: Watched) -> bool:
        """Add new MIG instances and drop removed ones. Return whether the current instances are known."""
        known = {uuid: instance.gpu for uuid, instance in each.instances.items()}
        try:
            found = find_instances(self.driver, each.gpu, known)
        except GpuGoneError as gone:
            self._lose(each, gone)
            return False
        if found is None or found.keys() == known.keys():
            return found is not None
        added = sorted(found.keys() - known.keys())
        removed = sorted(known.keys() - found.keys())
        each.instances = {uuid: each.instances.get(uuid) or self._watched(gpu) for uuid, gpu in found.items()}
        for uuid in added if each.device is not None else []:
            instance = each.instances[uuid]
            if (entry := self._describe(instance.gpu)) is not None:
                instance.device = entry
                sampled["device"].append(entry)
        if each.rows > 1 or removed:  # instances that exist at the start are no change
            self._note_reshape(each, added, removed)
        return True

    def _note_reshape(self, each: Watched, added: Sequence[str], removed: Sequence[str]) -> None:
        changes = (("gained", added), ("lost", removed))
        change = " and ".join(f"{verb} {', '.join(uuids)}" for verb, uuids in changes if uuids)
        self.driver.say("mig_changed", f"GPU {each.gpu.index} {change}", each.gpu)

    def _sample_instance(
        self, sampled: Rows, health: str, each: Watched, span: CollectedSpan, *, found: bool, list_processes: bool
    ) -> None:
        """Add a MIG instance's rows: memory, processes and GPM; other columns, `health` too, belong to its parent."""
        row = _bare_row(each.gpu, span, util_source="none")
        try:
            if found:
                collected = self._collect(each, span)
                if health != UNKNOWN:
                    processes = self._list_processes(
                        each, span, collected.get("mem_used_bytes"), list_processes=list_processes
                    )
                    row |= collected | {"process_count": each.process_count}
                    sampled["process"] += processes
            else:
                each.forget()
        except GpuGoneError:
            each.forget()
        sampled["gpu"].append({"health": health, **row})

    def _list_processes(
        self, each: Watched, span: CollectedSpan, mem_used_bytes: int | None, *, list_processes: bool
    ) -> list[ProcessRow]:
        """Return the process list, if it is due or memory changed. The count stays valid until the next list."""
        if not (list_processes or each.wants_list(mem_used_bytes)):
            return []
        found = self._run("processes", partial(read_processes, self.driver, each.gpu), None)
        each.listed(found, mem_used_bytes)
        return [{"time": span.start_us // 1000, **process} for process in found or []]

    def _reachable(self) -> list[Watched]:
        """Return the GPUs to query between rows: neither lost nor asleep, because a query would wake them."""
        return [each for each in self.watched if each.retry_in == 0 and not each.is_asleep()]

    def _lose(self, each: Watched, gone: GpuGoneError) -> None:
        each.retry_in = each.backoff
        each.backoff = min(2 * each.backoff, _LONGEST_BACKOFF)
        each.forget()
        self._set_health(each, gone.health, gone.reason)

    def _found(self, each: Watched, row: GpuRow) -> None:
        each.backoff = 1
        each.gpu.next_row()
        blind = row.get("util_source", "none") == "none" and not any(row.get(name) is not None for name in _SIGNS)
        each.blind = blind
        if blind:  # an earlier list is not valid for a GPU that does not answer
            each.process_count = row["process_count"] = None
        self._set_health(each, "degraded" if blind or each.gpu.degraded else "ok")

    def _set_health(self, each: Watched, health: str, reason: str = "") -> None:
        if health == each.health:
            return
        detail = f"GPU {each.gpu.index} went from {each.health} to {health}"
        if health == "degraded":
            calls = ", ".join(sorted({key.partition("(")[0] for key in each.gpu.strikes}))
            why = "none of its values may be read" if each.blind else f"{calls} failed repeatedly"
            detail += f": {reason or why}"
        self.driver.say(f"gpu_{health}", detail, each.gpu)
        each.health = health


_SIGNS = ("mem_used_bytes", "power_w", "temperature_c", "energy_mj", "sm_clock_mhz")


def _bare_row(gpu: DriverGpu, span: CollectedSpan, util_source: str | None = None) -> GpuRow:
    start_ms = span.start_us // 1000
    row: GpuRow = {"gpu": gpu.uuid, "time": start_ms, "interval_ms": span.end_us // 1000 - start_ms, "offset_ms": 0}
    if util_source is not None:
        row["util_source"] = util_source
    return row
