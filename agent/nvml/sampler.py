"""All GPUs of the host through the driver: drains, rows, process lists, inventory, and who is lost.

What is asked when: utilization rings at every drain, the rest of a row and the MIG slots at every interval, process lists
every few intervals or when memory moves, error counters every few minutes, the inventory every hour.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.collectors import Value
from agent.nvml.error_counters import incidents_between, read_errors
from agent.nvml.gpu import Gpu, GpuGoneError, Incident
from agent.nvml.inventory import Islands, read_device, read_instance, read_islands
from agent.nvml.process_list import read_processes
from agent.nvml.readings import COLLECTORS, Memory
from agent.nvml.watched_gpu import Watched, find_instances, is_split

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agent.nvml.driver import Driver
    from agent.nvml.utilization import Clocks

Row = dict[str, Value]

_LONGEST_BACKOFF = 6  # intervals: a lost GPU is looked at again at least once a minute at 10 s rows
_DRAIN_BUDGET_S = 1.5  # of one GPU; a healthy one takes a millisecond


@dataclass
class Sampled:
    """Rows of one interval, by table."""

    gpu: list[Row] = field(default_factory=list)
    process: list[Row] = field(default_factory=list)
    device: list[Row] = field(default_factory=list)


class Sampler:
    """Keeps every GPU apart from the others: what fails on one leaves the rest alone."""

    def __init__(self, driver: Driver, gpus: Sequence[Gpu], sys: str = "/sys", clocks: Clocks | None = None) -> None:
        self.driver = driver
        self._sys = sys
        self._clocks = clocks or (lambda: (time.time_ns() // 1000, time.monotonic_ns() // 1000))
        self.watched = [Watched(gpu) for gpu in gpus]
        self._islands = Islands({}, {})
        self._rows_until_retry = _LONGEST_BACKOFF

    def devices(self, *, all_of_them: bool) -> list[Row]:
        """Inventory entries of GPUs and MIG instances: all of them, or those that are new or have changed."""
        self.driver.begin_round()
        if all_of_them:
            with self.driver.quietly():
                self._islands = read_islands(self.driver, [each.gpu for each in self._reachable()])
        found = []
        for each in self._reachable():
            each.gpu.ask_again()
            for known, entry in self._entries(each):
                if all_of_them or entry != known.device:
                    found.append(entry)
                known.device = entry
        return found

    def _entries(self, each: Watched) -> Iterator[tuple[Watched, Row]]:
        try:
            with self.driver.quietly():
                entry = read_device(self.driver, each.gpu, self._islands, self._sys)
                each.find_sleep(self._sys, entry["pci_bus_id"])
                if entry["mig_enabled"] is not None:
                    each.split = bool(entry["mig_enabled"])
                yield each, entry
                for instance in each.instances.values():
                    yield instance, read_instance(self.driver, instance.gpu, entry)
        except GpuGoneError as gone:
            self._lose(each, gone)

    def errors(self, *, all_of_them: bool) -> list[Row]:
        """Entries of the `health` table: all of them, or those that have changed; changes for the worse are incidents."""
        found = []
        self.driver.begin_round()
        for each in self._reachable():
            try:
                with self.driver.quietly():
                    entry = read_errors(self.driver, each.gpu)
            except GpuGoneError as gone:
                self._lose(each, gone)
                continue
            if entry is None:
                continue
            self.driver.incidents += incidents_between(each.errors, entry)
            if all_of_them or entry != each.errors:
                found.append(entry)
            each.errors = entry
        return found

    def drain(self) -> None:
        """Takes the new samples of every GPU that can be reached."""
        self.driver.begin_round(_DRAIN_BUDGET_S)
        for each in self._reachable():
            try:
                each.meter.drain(self.driver, each.gpu, self._clocks)
                if each.rows == 0:  # the first averages begin as near to the first interval as there is a drain
                    each.gpm.mark(self.driver, each.gpu, self._clocks)
            except GpuGoneError as gone:
                self._lose(each, gone)

    @property
    def drain_every_s(self) -> float:
        """How long the next drain may wait: the ring holds ten seconds, a bare rate only its own moment."""
        return 1.0 if any(each.meter.wants_every_second for each in self.watched) else 5.2

    def rows(self, start_ms: int, end_ms: int, *, list_processes: bool) -> Sampled:
        """What happened in the interval [start_ms, end_ms) that has just ended."""
        sampled = Sampled()
        self._retry_missing(sampled)
        self.driver.begin_round(max(_DRAIN_BUDGET_S, (end_ms - start_ms) / 4000))
        for each in self.watched:
            self._sample(sampled, each, start_ms, end_ms, list_processes=list_processes)
        return sampled

    def _retry_missing(self, sampled: Sampled) -> None:
        """GPUs that could not be opened are tried again every few intervals, and watched from then on."""
        self._rows_until_retry -= 1
        if self._rows_until_retry <= 0:
            self._rows_until_retry = _LONGEST_BACKOFF
            found = [Watched(gpu) for gpu in self.driver.open_missing()]
            self.watched += found
            for each in found:
                for known, entry in self._entries(each):
                    known.device = entry
                    sampled.device.append(entry)

    def _sample(self, sampled: Sampled, each: Watched, start_ms: int, end_ms: int, *, list_processes: bool) -> None:
        """Adds the rows of a GPU and of its MIG instances."""
        bare: Row = {"gpu": each.gpu.uuid, "time": start_ms, "interval_ms": end_ms - start_ms, "offset_ms": 0}
        row: Row | None = None
        processes: list[Row] = []
        if each.is_asleep():
            self._fall_asleep(each)
        elif each.may_look():
            try:
                row, processes = self._read(each, bare, end_ms, list_processes=list_processes)
                self._found(each, row)
            except GpuGoneError as gone:
                # what was read before the GPU went is not the whole interval: the state says why it is missing
                row, processes = None, []
                self._lose(each, gone)
        each.rows += 1
        whole: Row = {"health": each.health, **(row or bare | {"util_source": "none"})}
        sampled.gpu.append(whole)
        if not each.split:
            if each.instances:
                self._note_reshape(each, (), sorted(each.instances))
                each.instances = {}
            sampled.process += [{"time": start_ms, **process} for process in processes]
            return
        # a handle may be another instance's by now: only what was found in this interval is asked
        found = row is not None and self._find_instances(sampled, each)
        for instance in each.instances.values():
            self._sample_instance(sampled, each, instance, bare, end_ms, found=found, list_processes=list_processes)
        if row is not None:  # the driver's list for a split GPU depends on rights; its instances' lists add up
            counts = [instance.process_count for instance in each.instances.values()]
            known = [count for count in counts if count is not None]
            whole["process_count"] = sum(known) if found and len(known) == len(counts) else None

    def _read(self, each: Watched, bare: Row, end_ms: int, *, list_processes: bool) -> tuple[Row, list[Row]]:
        """The row and the processes of a whole GPU; raises GpuGoneError."""
        gpu, clocks = each.gpu, self._clocks
        start_us, end_us = int(bare["time"] or 0) * 1000, end_ms * 1000
        each.meter.settle(self.driver, gpu, clocks)
        row: Row = {**bare, "read_delay_ms": clocks()[0] // 1000 - end_ms}
        for collector in COLLECTORS:
            row.update(collector.read(self.driver, gpu))
        if list_processes:
            split = is_split(self.driver, gpu)
            each.split = each.split if split is None else split  # unknown: as it was
        processes = self._processes(each, row.get("mem_used_bytes"), list_processes=list_processes)
        row.update(each.meter.take(start_us, end_us))
        if not each.split:  # a split GPU's utilization is that of its instances: the driver has none for the whole
            row.update(each.gpm.read(self.driver, gpu, clocks, start_us, end_us))
        row["process_count"] = each.process_count
        return row, processes

    def _find_instances(self, sampled: Sampled, each: Watched) -> bool:
        """Takes up new MIG instances and drops those that are gone; whether it is known which there are."""
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
        each.instances = {uuid: each.instances.get(uuid) or Watched(gpu) for uuid, gpu in found.items()}
        for uuid in added if each.device is not None else []:
            instance = each.instances[uuid]
            instance.device = read_instance(self.driver, instance.gpu, each.device or {})
            sampled.device.append(instance.device)
        if each.rows > 1 or removed:  # instances that were there from the start are no change
            self._note_reshape(each, added, removed)
        return True

    def _note_reshape(self, each: Watched, added: Sequence[str], removed: Sequence[str]) -> None:
        changes = (("gained", added), ("lost", removed))
        change = " and ".join(f"{verb} {', '.join(uuids)}" for verb, uuids in changes if uuids)
        self.driver.incidents.append(Incident("mig_changed", f"GPU {each.gpu.index} {change}", each.gpu.uuid))

    def _sample_instance(
        self,
        sampled: Sampled,
        parent: Watched,
        each: Watched,
        bare: Row,
        end_ms: int,
        *,
        found: bool,
        list_processes: bool,
    ) -> None:
        """Adds the rows of a MIG instance: memory, processes and GPM; everything else belongs to its parent."""
        row: Row = {**bare, "gpu": each.gpu.uuid, "util_source": "none"}
        start_us = int(bare["time"] or 0) * 1000
        try:
            if found:
                row["read_delay_ms"] = self._clocks()[0] // 1000 - end_ms
                row.update(Memory().read(self.driver, each.gpu))
                processes = self._processes(each, row.get("mem_used_bytes"), list_processes=list_processes)
                sampled.process += [{"time": bare["time"], **process} for process in processes]
                row.update(each.gpm.read(self.driver, each.gpu, self._clocks, start_us, end_ms * 1000))
                if row.get("gpu_util_pct") == 0:  # an average of 0 leaves no room for anything else
                    row.update(gpu_util_max_pct=0, gpu_util_zero_ratio=1.0)
                row["process_count"] = each.process_count
            else:
                each.forget()
        except GpuGoneError:
            each.forget()
            row = {**bare, "gpu": each.gpu.uuid, "util_source": "none"}
        sampled.gpu.append({"health": parent.health, **row})

    def _processes(self, each: Watched, mem_used: Value, *, list_processes: bool) -> list[Row]:
        """The process list, if it is due or memory moved; the count stays known until the next list."""
        if not (list_processes or each.wants_list(mem_used)):
            return []
        found = read_processes(self.driver, each.gpu)
        each.listed(found, mem_used)
        return found or []

    def _reachable(self) -> list[Watched]:
        """GPUs that may be asked between rows: neither lost nor asleep, which asking would end."""
        return [each for each in self.watched if each.retry_in == 0 and not each.is_asleep()]

    def _lose(self, each: Watched, gone: GpuGoneError) -> None:
        each.retry_in = each.backoff
        each.backoff = min(2 * each.backoff, _LONGEST_BACKOFF)
        each.forget()
        self._set_health(each, gone.health, gone.reason)

    def _fall_asleep(self, each: Watched) -> None:
        each.forget()
        self._set_health(each, "asleep")

    def _found(self, each: Watched, row: Row) -> None:
        each.backoff = 1
        each.gpu.next_row()
        blind = row["util_source"] == "none" and not any(row.get(name) is not None for name in _SIGNS)
        each.blind = blind
        if blind:  # a list of some intervals ago says nothing of a GPU that does not answer
            each.process_count = row["process_count"] = None
        self._set_health(each, "degraded" if blind or each.gpu.degraded else "ok")

    def _set_health(self, each: Watched, health: str, reason: str = "") -> None:
        if health == each.health:
            return
        detail = f"GPU {each.gpu.index} went from {each.health} to {health}"
        if health == "degraded":
            calls = ", ".join(sorted({key.partition("(")[0] for key in each.gpu.strikes}))
            why = "nothing of it may be read" if each.blind else f"{calls} failed repeatedly"
            detail += f": {reason or why}"
        self.driver.incidents.append(Incident(f"gpu_{health}", detail, each.gpu.uuid))
        each.health = health


_SIGNS = ("mem_used_bytes", "power_w", "temperature_c", "energy_mj", "sm_clock_mhz")
