"""Closes intervals: gathers what every source says of one, spools the rows and puts up the snapshot."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from agent.own_memory import resident_bytes
from agent.snapshot import WATCHED, IdleClock, Snapshot, Xid
from agent.supervise.fleet import DriverDownError
from fallow import __version__
from fallow.clock import SECOND_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agent.settings import AgentSettings
    from agent.snapshot import Board
    from agent.spool.backlog import Backlog
    from agent.supervise.fleet import Fleet
    from agent.supervise.schedule import Due
    from agent.supervise.sources import Parts
    from fallow.clock import Clock

log = logging.getLogger("fallow.agent")

_SERVING_LASTS_MS = 120_000  # the newest answers of inference servers stand that long in the snapshot

Value = TypeVar("Value")
Row = dict[str, Any]
Rows = dict[str, list[Row]]


class TellsIncidents(Protocol):
    """A source that has something to say from time to time."""

    def take_incidents(self) -> Sequence[Row]:
        """What happened since the last call: kind, detail and perhaps gpu, code and time_ms."""
        ...


class Recorder:
    """The rows of one host, interval after interval."""

    def __init__(self, settings: AgentSettings, fleet: Fleet, parts: Parts, board: Board, clock: Clock) -> None:
        self._settings = settings
        self._fleet = fleet
        self._parts = parts
        self._backlog: Backlog = parts.backlog
        self._board = board
        self._clock = clock
        self._started_ms = clock.now_ms()
        self._missed = 0
        self._cpu_s = time.process_time()
        self._incidents: list[Row] = []
        self._idle = IdleClock()
        self._devices: dict[str, Row] = {}
        self._health: dict[str, Row] = {}
        self._processes: dict[str, list[Row]] = {}
        self._xids: dict[str, Xid] = {}
        self._serving: tuple[Row, ...] = ()
        self._served_ms = 0
        self._failing: set[str] = set()

    def configure(self, settings: AgentSettings, parts: Parts) -> None:
        """Goes on with other settings."""
        self._settings, self._parts = settings, parts

    def note(self, kind: str, detail: str) -> None:
        """Remembers something of the agent itself, to be written with the next rows."""
        self._incidents.append({"kind": kind, "detail": detail, "time_ms": self._clock.now_ms()})

    def miss(self, count: int) -> None:
        """Counts intervals that ended without a row."""
        self._missed += count

    def write_now(self, facts: dict[str, str]) -> None:
        """Spools inventory and events without an interval: at the start and at the end of a run."""
        self._backlog.append(self._entries() | {"event": self._events()}, facts)

    def close_interval(self, start_ms: int, end_ms: int, due: Due) -> None:
        """Writes the rows of the interval [start_ms, end_ms), which has just ended."""
        settings, parts = self._settings, self._parts
        length_ms = end_ms - start_ms
        try:
            answer: Row | None = self._fleet.rows(
                start_ms, end_ms, list_processes=due.list_processes, devices=due.devices, errors=due.errors
            )
        except DriverDownError as down:
            log.debug("%s", down)
            answer = None
        rows: Rows = {"gpu": self._fleet.complete(answer, start_ms, length_ms)}
        processes = [] if answer is None else answer["process"]
        self._incidents += self._fleet.take_incidents()  # first what happened, then what follows from it
        self._incidents += parts.epochs.mark(rows["gpu"])
        if answer is None:
            self._missed += 0 if rows["gpu"] else 1
        else:
            lasting = {"interval_ms": max(settings.process_interval_ms, length_ms)}
            described = self._guarded(lambda: parts.owners.describe(processes, end_ms), processes)
            rows["process"] = [row | lasting for row in described]
        rows |= self._entries()
        bare_host = {"time": start_ms, "interval_ms": length_ms}
        rows["host"] = [self._guarded(lambda: parts.host.row(start_ms, length_ms), bare_host)]
        self._remember(rows)
        self._hide_counts(rows["gpu"])
        serving = parts.serving
        if serving is not None:
            rows["serving"] = self._guarded(lambda: serving.rows(start_ms, length_ms, self._pids()), [])
            if rows["serving"] or end_ms - self._served_ms > _SERVING_LASTS_MS:
                self._serving, self._served_ms = tuple(rows["serving"]), end_ms
        rows["claim"] = self._guarded(lambda: parts.claims.rows(parts.owners.allocation(end_ms), end_ms), [])
        rows["agent"] = [self._agent_row(start_ms, length_ms, answer)]
        rows["event"] = self._events()
        facts = {"last_row_ms": str(end_ms - settings.interval_ms), "epochs": parts.epochs.as_text()}
        if rows["claim"]:
            facts["pod_claims"] = parts.claims.as_text()
        self._backlog.append(rows, facts)
        self._publish_snapshot(rows, end_ms)

    def _guarded(self, call: Callable[[], Value], otherwise: Value) -> Value:
        """What a part beside the driver says; whatever goes wrong in it costs its own columns and nothing else."""
        try:
            return call()
        except Exception as error:  # noqa: BLE001  # the sampling goes on; the event says what to mend
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            if reason not in self._failing:
                self._failing.add(reason)
                self.note("part_failed", f"a part of the agent failed, and its columns are unknown: {reason}")
            return otherwise

    def _hide_counts(self, rows: list[Row]) -> None:
        """In a PID namespace of its own the agent sees some processes at most: their number is unknown."""
        if not self._parts.owners.sees_all_processes:
            for row in rows:
                row.pop("process_count", None)

    def _entries(self) -> Rows:
        """New inventory and error counters."""
        now_ms, pool = self._clock.now_ms(), self._settings.pool or None
        devices: list[Row] = [{"time": now_ms, "pool": pool} | entry for entry in self._fleet.take("device")]
        health: list[Row] = [{"time": now_ms} | entry for entry in self._fleet.take("health")]
        self._devices.update({row["gpu"]: row for row in devices})
        self._health.update({row["gpu"]: row for row in health})
        return {"device": devices, "health": health}

    def _events(self) -> list[Row]:
        parts, now_ms = self._parts, self._clock.now_ms()
        sources: tuple[TellsIncidents | None, ...] = (
            self._fleet, parts.owners, parts.serving, parts.publishing, self._backlog,
        )  # fmt: skip
        for source in sources:
            self._incidents += [] if source is None else source.take_incidents()
        events = []
        for incident in self._incidents:
            event = {name: value for name, value in incident.items() if name != "time_ms" and value is not None}
            events.append(event | {"time": incident.get("time_ms") or now_ms})
            level = logging.INFO if incident["kind"] in _GOOD_NEWS else logging.WARNING
            log.log(level, "%s", self._told(incident), extra={"kind": incident["kind"], "gpu": incident.get("gpu")})
        self._incidents.clear()
        return events

    def _told(self, incident: Row) -> str:
        """The detail for people, with the GPU's position where it does not name it."""
        detail, gpu = str(incident["detail"]), incident.get("gpu")
        index = self._fleet.known.indexes.get(gpu) if gpu is not None else None
        if gpu is None or detail.startswith("GPU "):
            return detail
        return f"GPU {gpu if index is None else index}: {detail}"

    def _remember(self, rows: Rows) -> None:
        """Keeps the newest process lists for the snapshot."""
        watched = {row["gpu"] for row in rows["gpu"] if row["health"] in WATCHED and row.get("process_count")}
        self._processes = {gpu: listed for gpu, listed in self._processes.items() if gpu in watched}
        listed: dict[str, list[Row]] = {}
        for row in rows.get("process", ()):
            listed.setdefault(row["gpu"], []).append(row)
        self._processes.update(listed)

    def _pids(self) -> dict[str, list[int]]:
        return {gpu: [row["pid"] for row in processes] for gpu, processes in self._processes.items()}

    def _agent_row(self, start_ms: int, length_ms: int, answer: Row | None) -> Row:
        cpu_s, before_s = time.process_time(), self._cpu_s
        self._cpu_s = cpu_s
        missed, self._missed = self._missed, 0
        status = self._parts.publishing.status
        row: Row = {
            "time": start_ms,
            "interval_ms": length_ms,
            "version": __version__,
            "supervisor_cpu_ms": round((cpu_s - before_s) * SECOND_MS, 1),
            "supervisor_rss_bytes": resident_bytes(),
            "missed_intervals": missed,
            "spool_rows": status.waiting_rows,
            "spool_bytes": status.spool_bytes,
            "memory_rows": self._backlog.memory_rows,
            "sees_all_processes": self._parts.owners.sees_all_processes,
        }
        if answer is not None:
            costs = answer["costs"]
            row |= {
                "worker_cpu_ms": answer["worker_cpu_ms"],
                "worker_rss_bytes": answer["rss_bytes"],
                "nvml_calls": costs["calls"],
                "nvml_busy_ms": round(costs["busy_s"] * SECOND_MS, 2),
                "nvml_slowest_ms": round(costs["slowest_s"] * SECOND_MS, 2),
                "nvml_slowest_call": costs["slowest_call"],
            }
        return row

    def _publish_snapshot(self, rows: Rows, end_ms: int) -> None:
        for event in rows["event"]:
            if event["kind"] == "xid" and event.get("gpu"):
                self._xids[event["gpu"]] = Xid(event["code"], event["time"])
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
                devices=dict(self._devices),
                processes=tuple(row for processes in self._processes.values() for row in processes),
                host_row=rows["host"][0],
                serving=self._serving,
                agent_row=rows["agent"][0],
                health=tuple(self._health.values()),
                xids=dict(self._xids),
                publishing=self._parts.publishing.status,
            )
        )


_GOOD_NEWS = (
    "agent_start", "agent_stop", "gpu_ok", "gpu_added", "driver_up", "released", "resumed", "config_reloaded", "store_up",
    "sampling_restored", "lake_repaired", "call_unsupported", "counters_restarted",
)  # fmt: skip
