"""The supervisor: keeps time, asks the worker, spools what it says and sends the publisher off.

Everything that may block on the driver is behind the worker; everything that needs much memory is behind the publisher.
"""

from __future__ import annotations

import json
import logging
import math
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.fleet import DriverDownError, Fleet
from agent.owners import Owners
from agent.publishing import Publishing
from fallow import __version__
from fallow.clock import DAY_MS, HOUR_MS, Clock, SystemClock, floor_ms, format_ms
from fallow.errors import FallowError, SpoolError

if TYPE_CHECKING:
    from agent.spool import Spool

LAG_MS = 250
"""An interval is closed a little after its end, when the driver's newest sample surely reaches over it."""

_LONGEST_DRAIN_S = 4.0  # the ring holds ten seconds; twice a ring is safe against a late tick

_EARLIEST_MS = 1_577_836_800_000  # 2020

log = logging.getLogger("fallow.agent")

Rows = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class AgentSettings:
    """What a run of the agent is told."""

    lake: str
    spool: str
    host: str
    pool: str
    interval_ms: int
    process_interval_ms: int
    publish_every_ms: int
    call_timeout_s: float
    run_for_ms: int | None = None


class Supervisor:
    """One run of the agent on one host."""

    def __init__(self, settings: AgentSettings, spool: Spool, clock: Clock | None = None) -> None:
        self._settings = settings
        self._spool = spool
        self._clock = clock or SystemClock()
        self._fleet = Fleet(settings.call_timeout_s, json.loads(spool.noted("gpus") or "{}"))
        self._owners = Owners()
        self._publishing = Publishing(settings, spool)
        self._stopping = threading.Event()
        self._missed = 0
        self._cpu_s = time.process_time()
        self._inventory_hour = self._clock.now_ms() // HOUR_MS

    def stop(self) -> None:
        """Asks the run to end after what it is doing; safe from a signal handler."""
        self._stopping.set()

    def run(self) -> None:
        """Samples until the time is over or `stop` is called; raises DriverError if the driver cannot be used at first."""
        self._check_clock()
        self._note_killed()
        self._fleet.start()
        settings = self._settings
        self._begin()
        start_ms = self._first_interval()
        left = math.inf if settings.run_for_ms is None else math.ceil(settings.run_for_ms / settings.interval_ms)
        try:
            while left > 0 and self._wait_for(start_ms + settings.interval_ms):
                start_ms = self._catch_up(start_ms)
                if self._clock.now_ms() < start_ms:  # the clock was put back: begin again where it is now
                    start_ms = floor_ms(self._clock.now_ms(), settings.interval_ms) + settings.interval_ms
                    continue
                self._tick(start_ms)
                start_ms += settings.interval_ms
                left -= 1
        finally:
            self._finish()

    def _check_clock(self) -> None:
        """A machine without a battery begins in 1970: rows of that time would stretch every gap by decades."""
        if self._clock.now_ms() < _EARLIEST_MS:
            raise FallowError(
                f"the clock of this host says {format_ms(self._clock.now_ms())}",
                "set it (NTP) and start the agent again",
            )

    def _first_interval(self) -> int:
        """The next whole interval, and none that an earlier run has written (the clock may have been put back)."""
        interval_ms = self._settings.interval_ms
        start_ms = floor_ms(self._clock.now_ms(), interval_ms) + interval_ms
        last = self._spool.noted("last_row_ms")
        if last is not None and start_ms <= int(last) < start_ms + HOUR_MS:
            return floor_ms(int(last), interval_ms) + interval_ms
        return start_ms

    def _note_killed(self) -> None:
        """Says so if the run before this one ended without a word: the gap explains itself."""
        if self._spool.noted("running") == "yes":
            last = self._spool.noted("last_row_ms")
            until = "before its first row" if last is None else f"after its row of {format_ms(int(last))}"
            self._event("agent_killed", f"the agent before this one ended without notice {until}")

    def _begin(self) -> None:
        self._spool.append({"device": self._device_rows()}, {"running": "yes", "gpus": json.dumps(self._fleet.indexes)})
        self._event("agent_start", f"fallow {__version__} watches {len(self._fleet.uuids)} GPUs every "
                    f"{self._settings.interval_ms} ms")  # fmt: skip
        self._spool_incidents()
        log.info("%d GPUs on %s, a row every %g s, into %s", len(self._fleet.uuids), self._settings.host,
                 self._settings.interval_ms / 1000, self._settings.lake)  # fmt: skip
        self._publishing.start_if_due(self._clock.monotonic_s(), waiting=self._spool.count())

    def _wait_for(self, end_ms: int) -> bool:
        """Waits until an interval can be closed, draining on the way; False when asked to stop.

        Returns early where the wall clock was put back so far that waiting for the interval makes no sense.
        """
        longest_s = (end_ms + LAG_MS - self._clock.now_ms()) / 1000
        while (left_s := (end_ms + LAG_MS - self._clock.now_ms()) / 1000) > 0:
            if left_s > longest_s + self._settings.interval_ms / 1000:
                self._record("clock_stepped", f"the wall clock was put back by about {left_s - longest_s:.0f} s")
                return not self._stopping.is_set()
            pause_s = min(left_s, self._fleet.drain_every_s, _LONGEST_DRAIN_S)
            if self._stopping.wait(pause_s):
                return False
            if left_s - pause_s > pause_s / 4:  # close to the end, closing the interval drains anyway
                self._fleet.drain()
        return not self._stopping.is_set()

    def _catch_up(self, start_ms: int) -> int:
        """Skips intervals that are over already (suspended machine, blocked driver): they stay unknown."""
        interval_ms = self._settings.interval_ms
        late = (self._clock.now_ms() - LAG_MS - start_ms) // interval_ms - 1
        if late > 0:
            self._missed += late
            self._record("missed_intervals", f"{late} intervals from {format_ms(start_ms)} on ended without a row")
            return start_ms + late * interval_ms
        return start_ms

    def _tick(self, start_ms: int) -> None:
        """Closes the interval [start, start + interval)."""
        settings = self._settings
        try:
            answer = self._fleet.rows(
                start_ms,
                start_ms + settings.interval_ms,
                list_processes=start_ms % settings.process_interval_ms < settings.interval_ms,
                devices=self._inventory_due(start_ms),
            )
        except DriverDownError as down:
            log.warning("%s", down)
            answer = None
        rows: Rows = {"gpu": self._fleet.complete(answer, start_ms, settings.interval_ms)}
        if answer is not None:
            described = self._owners.describe(answer["process"])
            rows["process"] = [row | {"interval_ms": settings.process_interval_ms} for row in described]
        else:
            self._missed += 0 if rows["gpu"] else 1
        rows["device"] = self._device_rows()
        waiting = self._spool.count()
        rows["agent"] = [self._agent_row(start_ms, answer, waiting)]
        rows["event"] = self._incident_rows()
        try:
            self._spool.append(rows, {"last_row_ms": str(start_ms)})
        except SpoolError as error:
            # a full disk: the interval is lost and counted, and publishing makes room
            log.error("%s", error)  # noqa: TRY400  # one line, no traceback
            self._missed += 1
        self._publishing.start_if_due(self._clock.monotonic_s(), waiting=waiting + 1)

    def _agent_row(self, start_ms: int, answer: dict[str, Any] | None, waiting: int) -> dict[str, Any]:
        cpu_s, before_s = time.process_time(), self._cpu_s
        self._cpu_s = cpu_s
        missed, self._missed = self._missed, 0
        row: dict[str, Any] = {
            "time": start_ms,
            "interval_ms": self._settings.interval_ms,
            "version": __version__,
            "supervisor_cpu_ms": round((cpu_s - before_s) * 1000, 1),
            "supervisor_rss_bytes": _own_rss_bytes(),
            "missed_intervals": missed,
            "spool_rows": waiting,
        }
        if answer is not None:
            costs = answer["costs"]
            row |= {
                "worker_cpu_ms": answer["worker_cpu_ms"],
                "worker_rss_bytes": answer["rss_bytes"],
                "nvml_calls": costs["calls"],
                "nvml_busy_ms": round(costs["busy_s"] * 1000, 2),
                "nvml_slowest_ms": round(costs["slowest_s"] * 1000, 2),
                "nvml_slowest_call": costs["slowest_call"],
            }
        return row

    def _inventory_due(self, start_ms: int) -> str:
        """All entries once a day, so that no day's partition lacks them; changed ones are looked for every hour."""
        hour, before = start_ms // HOUR_MS, self._inventory_hour
        if hour == before:
            return "none"
        self._inventory_hour = hour
        return "all" if hour * HOUR_MS // DAY_MS != before * HOUR_MS // DAY_MS else "changed"

    def _device_rows(self) -> list[dict[str, Any]]:
        now_ms = self._clock.now_ms()
        devices = self._fleet.take_devices()
        return [{"time": now_ms, "pool": self._settings.pool or None} | device for device in devices]

    def _incident_rows(self) -> list[dict[str, Any]]:
        now_ms = self._clock.now_ms()
        incidents = self._fleet.take_incidents()
        for incident in incidents:
            log.warning("%s", incident["detail"])
        return [{"time": now_ms} | incident for incident in incidents]

    def _spool_incidents(self) -> None:
        self._spool.append({"event": self._incident_rows()})

    def _event(self, kind: str, detail: str) -> None:
        self._spool.append({"event": [{"time": self._clock.now_ms(), "gpu": None, "kind": kind, "detail": detail}]})

    def _record(self, kind: str, detail: str) -> None:
        """An event in the middle of the run: a spool that cannot take it now must not end the run."""
        log.warning("%s", detail)
        try:
            self._event(kind, detail)
        except SpoolError as error:
            log.error("%s", error)  # noqa: TRY400  # one line, no traceback

    def _finish(self) -> None:
        """Says goodbye, publishes what there is and lets the worker go; one failing keeps none of the others back."""
        try:
            self._event("agent_stop", "the agent was asked to end" if self._stopping.is_set() else "the run is over")
            self._spool.note("running", "no")
        finally:
            try:
                self._fleet.close()
            finally:
                self._publishing.finish()


def _own_rss_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
