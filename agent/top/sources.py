"""Where `fallow top` looks: at the running agent's newest interval, or, without one, at the driver itself."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Protocol

from agent.supervise.control import ask
from agent.supervise.snapshot import Snapshot
from agent.top.driver_source import DriverSource
from fallow.clock import SECOND_MS
from fallow.errors import FallowError

if TYPE_CHECKING:
    from fallow.config import Config

_ANSWER_S = 5.0
_LAG_MS = 600  # the agent closes an interval a little after its end


class Source(Protocol):
    """One place to look at; used by one thread."""

    name: str
    """What the view says that it shows."""

    def look(self) -> Snapshot:
        """The next interval, once it is over; raises FallowError where nothing can be seen any more."""
        ...

    def stop(self) -> None:
        """Lets `look` return early; safe from another thread."""
        ...

    def close(self) -> None:
        """Lets go of everything, after the last `look`."""
        ...


class AgentSource:
    """Asks the agent once per interval of its own: looking costs the host next to nothing."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._next_ms = 0
        self._stopping = threading.Event()
        self.name = "agent"

    def look(self) -> Snapshot:
        """The agent's newest interval, not before there can be a newer one than the last."""
        self._stopping.wait(max(0, self._next_ms - _now_ms()) / SECOND_MS)
        snapshot = Snapshot.from_json(ask(self._folder, "snapshot", _ANSWER_S))
        self.name = f"agent {snapshot.version}"
        due_ms = snapshot.time_ms + snapshot.interval_ms + _LAG_MS
        # an agent that is late is asked again every second
        self._next_ms = min(max(due_ms, _now_ms() + SECOND_MS), _now_ms() + snapshot.interval_ms)
        return snapshot

    def stop(self) -> None:
        """Lets `look` return early."""
        self._stopping.set()

    def close(self) -> None:
        """Nothing is held."""


def find_source(config: Config, interval_ms: int) -> tuple[Source, str]:
    """The agent where one answers, else the driver; and a remark on why it is not the agent, empty where that is plain.

    Raises DriverError where neither can be looked at.
    """
    remark = ""
    if folder := config.text("agent.spool"):
        try:
            ask(folder, "snapshot", _ANSWER_S)
        except FallowError as error:
            remark = error.message
        else:
            return AgentSource(folder), ""
    return DriverSource(config, interval_ms), remark


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
