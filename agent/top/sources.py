"""The sources of `fallow top` and `fallow agent once`: the running agent's newest interval, or the driver itself."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, TypeAlias

from agent.attribution import AttributionSettings, ProcessOwners
from agent.snapshot import SinceClock, Snapshot, is_idle
from agent.supervise.control import ask
from agent.supervise.fleet import DriverDownError, HostGpus
from agent.supervise.known_gpus import MissingGpus
from fallow import __version__
from fallow.clock import SECOND_MS, SystemClock
from fallow.errors import FallowError

if TYPE_CHECKING:
    from agent.rows import DeviceRow, GpuRow, ProcessRow
    from fallow.config import Config

_LAG_MS = 300
"""Delay between an interval's end and its query, so that the driver's samples cover the interval."""
_LIST_EVERY_MS = 3_000
_FIRST_LISTS = 2  # the second list comes soon after the first, for the CPU use
_OWNERS_S = 0.5
_LONGEST_CALL_S = 5.0
"""The time before a GPU counts as wedged; shorter than the agent's, because a person waits."""

_now_ms = SystemClock().now_ms


class DriverSource:
    """Queries the driver directly, and leaves no trace except the driver's own."""

    name = "driver"

    def __init__(self, config: Config, interval_ms: int) -> None:
        """Load the driver; raises DriverError where it is unusable."""
        self._interval_ms = interval_ms
        self._host = config.text("agent.host") or socket.gethostname()
        self._owners = ProcessOwners(AttributionSettings.from_config(config))
        timeout_s = min(config.integer("agent.call_timeout") / SECOND_MS, _LONGEST_CALL_S)
        # the expected GPUs by setting and PCI bus, because without a spool there is no inventory
        missing = MissingGpus(self._host, expected=config.integer("agent.expected_gpus"), sys=config.text("agent.sys"))
        self._fleet = HostGpus(timeout_s, missing)
        self._fleet.start(may_wait=False)
        self._idle = SinceClock(is_idle)
        self._devices: dict[str, DeviceRow] = {}
        self._processes: dict[str, list[ProcessRow]] = {}
        self._lists, self._listed_ms = 0, 0
        self._started_ms = self._from_ms = _now_ms()
        self._stopping = threading.Event()

    def look(self) -> Snapshot:
        """Return the next interval, once it is over; a longer interval after a driver call has blocked."""
        if not self._lists:
            self._look(_LAG_MS)  # from here on there are earlier counters of GPUs and processes to compare with
        return self._look(self._interval_ms)

    def stop(self) -> None:
        self._stopping.set()

    def close(self) -> None:
        self._fleet.close()

    def _look(self, length_ms: int) -> Snapshot:
        start_ms, end_ms = self._next_interval(length_ms)
        listed = self._lists < _FIRST_LISTS or not 0 <= end_ms - self._listed_ms < _LIST_EVERY_MS
        try:
            answer = self._fleet.rows(start_ms, end_ms, list_processes=listed, devices="none", errors=False)
        except DriverDownError:
            answer = None
        rows = self._fleet.complete(answer, start_ms, end_ms - start_ms)
        if listed:
            self._lists, self._listed_ms = self._lists + 1, end_ms
        if answer is not None:
            self._take_lists(answer["process"], rows, end_ms, listed=listed)
        self._devices.update({row["gpu"]: row for row in self._fleet.take_devices()})
        self._fleet.take_incidents()
        self._owners.take_incidents()
        self._fleet.take_errors()
        return Snapshot(
            host=self._host,
            version=__version__,
            pool="",
            interval_ms=self._interval_ms,
            started_ms=self._started_ms,
            time_ms=end_ms,
            mode="running",
            gpus=tuple(rows),
            idle_since_ms=self._idle.feed(rows),
            devices=dict(self._devices),
            processes=tuple(row for each in self._processes.values() for row in each),
        )

    def _next_interval(self, length_ms: int) -> tuple[int, int]:
        """Return the next interval, once it is over and its samples have arrived."""
        self._stopping.wait(max(0, self._from_ms + length_ms + _LAG_MS - _now_ms()) / SECOND_MS)
        start_ms, end_ms = self._from_ms, _now_ms() - _LAG_MS
        if not end_ms - start_ms > 0:  # the clock was set back, or the user quits
            start_ms = end_ms - length_ms
        self._from_ms = end_ms
        return start_ms, end_ms

    def _take_lists(self, processes: list[ProcessRow], rows: list[GpuRow], end_ms: int, *, listed: bool) -> None:
        """Store the newest list per GPU; a list without processes is an empty list."""
        described = self._owners.describe(processes, end_ms)
        if self._lists == 1:
            self._owners.wait(_OWNERS_S)  # a single look has no second try
            described = self._owners.describe(processes, end_ms)
        for row in rows:
            if listed or row.get("process_count") == 0:
                self._processes[row["gpu"]] = []
            if not self._owners.sees_all_processes:
                row.pop("process_count", None)
        for gpu in {row["gpu"] for row in described}:
            self._processes[gpu] = [row for row in described if row["gpu"] == gpu]


_ANSWER_S = 5.0
_AGENT_LAG_MS = 600  # the agent closes an interval a little after its end


class AgentSource:
    """Queries the agent once per agent's interval, which costs the host almost nothing."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._next_ms = 0
        self._stopping = threading.Event()
        self.name = "agent"

    def look(self) -> Snapshot:
        """Return the agent's newest interval, once a newer one is due; FallowError where it does not answer."""
        self._stopping.wait(max(0, self._next_ms - _now_ms()) / SECOND_MS)
        snapshot = Snapshot.from_json(ask(self._folder, "snapshot", _ANSWER_S))
        self.name = f"agent {snapshot.version}"
        due_ms = snapshot.time_ms + snapshot.interval_ms + _AGENT_LAG_MS
        # a late agent is queried every second
        self._next_ms = min(max(due_ms, _now_ms() + SECOND_MS), _now_ms() + snapshot.interval_ms)
        return snapshot

    def stop(self) -> None:
        self._stopping.set()

    def close(self) -> None:
        """Do nothing, because nothing is open."""


TopSource: TypeAlias = DriverSource | AgentSource
"""One source of looks, used by one thread; the view shows its name."""


def find_source(config: Config, interval_ms: int) -> tuple[TopSource, str]:
    """Return the agent if it answers, else the driver, and a notice why it is not the agent; empty if there is none.

    Raises DriverError where neither is usable.
    """
    notice = ""
    if folder := config.text("agent.spool"):
        try:
            ask(folder, "snapshot", _ANSWER_S)
        except FallowError as error:
            notice = error.message
        else:
            return AgentSource(folder), ""
    return DriverSource(config, interval_ms), notice
