"""Closes intervals: schedules readings, collects the rows of all sources, spools them and publishes the snapshot."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from agent.collectors import CollectorRuns, Interval
from agent.own_process import resident_bytes
from agent.snapshot import WATCHED, SinceClock, Snapshot, Xid, is_idle
from agent.supervise.fleet import DriverDownError
from agent.supervise.stalled import StalledWatch
from fallow import __version__
from fallow.clock import DAY_MS, HOUR_MS, SECOND_MS, format_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.collectors import Collector
    from agent.nvml.gpu import Entries, IntervalAnswer
    from agent.rows import AgentRow, AnyRow, DeviceRow, EventRow, ProcessRow, Rows, ServingRow
    from agent.settings import AgentSettings
    from agent.snapshot import GpuErrors, SnapshotBoard
    from agent.supervise.fleet import HostGpus
    from agent.supervise.sources import Parts
    from fallow.clock import Clock


@dataclass(frozen=True)
class Due:
    """The readings that are due besides the row itself."""

    list_processes: bool
    devices: Entries
    errors: bool
    kernel: bool
    """Whether to look for GPUs of the kernel that the driver's library, loaded earlier, does not list."""


_KERNEL_MS = 30_000  # an added GPU appears within a minute


class LanePlan:
    """Schedules the lanes on the wall clock's grid, so that the hosts of a fleet write comparable rows."""

    def __init__(self, settings: AgentSettings, now_ms: int) -> None:
        self._settings = settings
        self._seen_ms = now_ms

    def due(self, start_ms: int, end_ms: int) -> Due:
        """Return the lanes that are due in the interval. Call it once per interval.

        The first interval of an hour looks for changed inventory; the first of a day writes all entries, so that every
        day's partition has them. A clock that is set back begins a new hour or day too. A reading too many costs
        little, but the old time may return only after days.
        """
        before_ms, self._seen_ms = self._seen_ms, start_ms
        new_day = start_ms // DAY_MS != before_ms // DAY_MS
        new_hour = start_ms // HOUR_MS != before_ms // HOUR_MS
        slow_ms, process_ms = self._settings.slow_interval_ms, self._settings.process_interval_ms
        return Due(
            list_processes=start_ms % process_ms < end_ms - start_ms,
            devices="all" if new_day else "changed" if new_hour else "none",
            errors=start_ms // slow_ms != before_ms // slow_ms,
            kernel=start_ms // _KERNEL_MS != before_ms // _KERNEL_MS,
        )


_FACTORS = (1, 6, 30)  # by pressure: 10 s rows become rows of one minute, then of five


class Thinning:
    """The length of the next interval, by the spool's pressure."""

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        self._factor = 1

    def end_of(self, start_ms: int) -> int:
        """Return the end of the interval that starts at this time, on the grid of the current length."""
        length_ms = self._interval_ms * self._factor
        return start_ms // length_ms * length_ms + length_ms

    def adapt(self, pressure: int) -> list[tuple[str, str]]:
        """Follow the spool's pressure (0 to 2). Return kind and detail of an event where the length changes."""
        factor = _FACTORS[pressure]
        if factor == self._factor:
            return []
        before, self._factor = self._factor, factor
        length = format_duration(self._interval_ms * factor)
        if factor > before:
            return [("sampling_thinned", f"the spool has little space left: one row in {length}")]
        return [("sampling_restored", f"the spool has space again: one row in {length}")]


log = logging.getLogger("fallow.agent")

_SERVING_LASTS_MS = 120_000  # how long the newest answers of inference servers stay in the snapshot


class TakesIncidents(Protocol):
    def take_incidents(self) -> Sequence[EventRow]: ...


class Recorder:
    def __init__(
        self, settings: AgentSettings, fleet: HostGpus, parts: Parts, board: SnapshotBoard, clock: Clock
    ) -> None:
        self._settings = settings
        self._fleet = fleet
        self._parts = parts
        self._board = board
        self._clock = clock
        self._runs = CollectorRuns()
        self._started_ms = clock.now_ms()
        self._missed = 0
        self._cpu_s = time.process_time()
        self._incidents: list[EventRow] = []
        self._idle = SinceClock(is_idle)
        self._stalled_watch = StalledWatch(settings.stalled_after_ms)
        self._stalled: dict[str, bool | None] = {}
        self._devices: dict[str, DeviceRow] = {}
        self._errors: dict[str, GpuErrors] = {}
        self._pids: dict[str, list[int]] = {}
        self._processes: dict[str, list[ProcessRow]] = {}
        self._xids: dict[str, Xid] = {}
        self._serving: tuple[ServingRow, ...] = ()
        self._served_ms = 0

    def configure(self, settings: AgentSettings, parts: Parts) -> None:
        self._settings, self._parts = settings, parts
        self._stalled_watch.after_ms = settings.stalled_after_ms

    def note(self, kind: str, detail: str) -> None:
        """Store an event of the agent itself, for the next rows."""
        self._incidents.append({"kind": kind, "detail": detail, "time": self._clock.now_ms()})

    def miss(self, count: int) -> None:
        self._missed += count

    def write_now(self, facts: dict[str, str]) -> None:
        """Spool inventory and events outside an interval, at the start and the end of a run."""
        self._parts.backlog.append({**self._entries(), "event": self._events()}, facts)

    def log_costs(self) -> None:
        for name, costs in self._runs.costs.items():
            mean_ms = costs.wall_s / costs.runs * SECOND_MS
            log.debug("collector %s: %d runs, %d failures, %.2f ms each", name, costs.runs, costs.failures, mean_ms)

    def close_interval(self, start_ms: int, end_ms: int, due: Due) -> None:
        """Write the rows of the interval [start_ms, end_ms), which has just ended."""
        answer = self._ask_worker(start_ms, end_ms, due)
        rows: Rows = {"gpu": self._fleet.complete(answer, start_ms, end_ms - start_ms)}
        self._incidents += self._fleet.take_incidents()  # first the events, then their consequences
        self._incidents += self._parts.epochs.mark(rows["gpu"])
        self._missed += 0 if self._fleet.account.has_all_rows(rows["gpu"]) else 1
        rows |= self._entries()
        self._collect(rows, [] if answer is None else answer["process"], start_ms, end_ms)
        self._remember(rows, end_ms)
        self._stalled = self._stalled_watch.feed(rows["gpu"], self._devices)
        rows["agent"] = [self._agent_row(start_ms, end_ms - start_ms, answer)]
        rows["event"] = self._events()
        facts = {"last_row_ms": str(end_ms - self._settings.interval_ms), "epochs": self._parts.epochs.as_text()}
        if rows["allocation"]:
            facts["pod_allocations"] = self._parts.allocations.as_text()
        self._parts.backlog.append(rows, facts)
        self._publish_snapshot(rows, end_ms)

    def _ask_worker(self, start_ms: int, end_ms: int, due: Due) -> IntervalAnswer | None:
        try:
            return self._fleet.rows(
                start_ms, end_ms, list_processes=due.list_processes, devices=due.devices, errors=due.errors
            )
        except DriverDownError as down:
            log.debug("%s", down)
            return None

    def _collect(self, rows: Rows, processes: list[ProcessRow], start_ms: int, end_ms: int) -> None:
        """Add the rows of every source besides the driver. A source that fails costs only its own columns."""
        watched = {row["gpu"] for row in rows["gpu"] if row["health"] in WATCHED and row.get("process_count")}
        self._pids = {gpu: pids for gpu, pids in self._pids.items() if gpu in watched}
        self._pids |= _by_gpu(processes)
        self._processes = {gpu: listed for gpu, listed in self._processes.items() if gpu in watched}
        interval = Interval(start_ms, end_ms, processes, self._pids)
        by_table = cast("dict[str, list[AnyRow]]", rows)
        for each in self._parts.collectors:
            by_table.setdefault(each.table, []).extend(self._rows_of(each, interval))
        listed_for_ms = max(self._settings.process_interval_ms, interval.length_ms)
        for row in rows["process"]:
            row["interval_ms"] = listed_for_ms

    def _rows_of(self, collector: Collector, interval: Interval) -> list[AnyRow]:
        """Return the collector's rows; its rows of unknown values where it fails, and none where that fails too."""
        found: list[AnyRow] | None = self._runs.run(collector.name, lambda: list(collector.collect(interval)), None)
        if found is not None:
            return found
        return self._runs.run(f"{collector.name} (stand-in)", lambda: list(collector.unknown(interval)), [])

    def _remember(self, rows: Rows, end_ms: int) -> None:
        """Store what the snapshot shows for longer than an interval, without unknown counts."""
        listed: dict[str, list[ProcessRow]] = {}
        for row in rows["process"]:
            listed.setdefault(row["gpu"], []).append(row)
        self._processes |= listed
        serving = rows.get("serving", [])
        if serving or end_ms - self._served_ms > _SERVING_LASTS_MS:
            self._serving, self._served_ms = tuple(serving), end_ms
        # in its own PID namespace the agent sees only some processes, at most
        if not self._parts.owners.sees_all_processes:
            for gpu in rows["gpu"]:
                gpu.pop("process_count", None)

    def _entries(self) -> Rows:
        now_ms, pool = self._clock.now_ms(), self._settings.pool or None
        devices: list[DeviceRow] = [{"time": now_ms, "pool": pool, **entry} for entry in self._fleet.take_devices()]
        self._devices.update({row["gpu"]: row for row in devices})
        self._errors.update({each["gpu"]: each for each in self._fleet.take_errors()})
        return {"device": devices}

    def _events(self) -> list[EventRow]:
        parts, now_ms = self._parts, self._clock.now_ms()
        host: tuple[TakesIncidents, ...] = (self._fleet, *parts.collectors, parts.publishing, parts.backlog)
        for source in (*host, self._stalled_watch):
            self._incidents += source.take_incidents()
        self._incidents += [{"kind": "part_failed", "detail": detail} for detail in self._runs.take_details()]
        events: list[EventRow] = []
        for incident in self._incidents:
            event = cast("EventRow", {name: value for name, value in incident.items() if value is not None})
            event["time"] = incident.get("time") or now_ms
            events.append(event)
            level = logging.INFO if incident["kind"] in _GOOD_NEWS else logging.WARNING
            log.log(level, "%s", self._text(incident), extra={"kind": incident["kind"], "gpu": incident.get("gpu")})
        self._incidents.clear()
        return events

    def _text(self, incident: EventRow) -> str:
        """Return the detail for people, with the GPU's position where the detail does not name it."""
        detail, gpu = str(incident["detail"]), incident.get("gpu")
        index = self._fleet.known.indexes.get(gpu) if gpu is not None else None
        if gpu is None or detail.startswith("GPU "):
            return detail
        return f"GPU {gpu if index is None else index}: {detail}"

    def _agent_row(self, start_ms: int, length_ms: int, answer: IntervalAnswer | None) -> AgentRow:
        cpu_s, before_s = time.process_time(), self._cpu_s
        self._cpu_s = cpu_s
        missed, self._missed = self._missed, 0
        status = self._parts.publishing.status
        row: AgentRow = {
            "time": start_ms,
            "interval_ms": length_ms,
            "version": __version__,
            "supervisor_cpu_ms": round((cpu_s - before_s) * SECOND_MS, 1),
            "supervisor_rss_bytes": resident_bytes(),
            "missed_intervals": missed,
            "spool_rows": status.waiting_rows,
            "spool_bytes": status.spool_bytes,
            "memory_rows": self._parts.backlog.memory_rows,
            "sees_all_processes": self._parts.owners.sees_all_processes,
        }
        if answer is not None:
            row |= {"worker_cpu_ms": self._fleet.worker_cpu_ms, **answer["costs"]}
        return row

    def _publish_snapshot(self, rows: Rows, end_ms: int) -> None:
        for event in rows["event"]:
            gpu, code, time_ms = event.get("gpu"), event.get("code"), event["time"]
            if event["kind"] == "xid" and gpu and code is not None and time_ms is not None:
                self._xids[gpu] = Xid(code, time_ms)
        self._board.publish(
            Snapshot(
                host=self._settings.host,
                version=__version__,
                pool=self._settings.pool,
                interval_ms=rows["agent"][0]["interval_ms"],
                started_ms=self._started_ms,
                time_ms=end_ms,
                mode="released" if self._fleet.released else "running",
                gpus=tuple(rows["gpu"]),
                idle_since_ms=self._idle.feed(rows["gpu"]),
                stalled=self._stalled,
                devices=dict(self._devices),
                processes=tuple(row for processes in self._processes.values() for row in processes),
                host_row=next(iter(rows["host"]), None),
                serving=self._serving,
                agent_row=rows["agent"][0],
                errors=tuple(self._errors.values()),
                xids=dict(self._xids),
                publishing=self._parts.publishing.status,
            )
        )


_GOOD_NEWS = frozenset(
    [
        "agent_start",
        "agent_stop",
        "gpu_ok",
        "gpu_added",
        "driver_up",
        "released",
        "resumed",
        "config_reloaded",
        "store_up",
        "sampling_restored",
        "lake_repaired",
        "call_unsupported",
        "counters_restarted",
        "stalled_over",
    ]
)


def _by_gpu(processes: list[ProcessRow]) -> dict[str, list[int]]:
    pids: dict[str, list[int]] = {}
    for row in processes:
        pids.setdefault(row["gpu"], []).append(row["pid"])
    return pids
