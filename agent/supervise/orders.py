"""What a person tells the running agent through its control socket: look at it, release the driver, use it again.

Requests come in the control thread; what touches the workers is done by the sampling loop, between two of its own
requests, because a worker answers one question at a time.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
from queue import SimpleQueue
from threading import Event
from typing import TYPE_CHECKING, Any

from agent.spool.spool import read_fact
from agent.supervise.control import AgentStatus, Blocked, count_health
from fallow import __version__
from fallow.errors import FallowError, UsageError

if TYPE_CHECKING:
    from agent.settings import AgentSettings
    from agent.snapshot import SnapshotBoard
    from agent.spool.spool import Spool
    from agent.supervise.fleet import HostGpus
    from agent.supervise.recorder import Recorder
    from fallow.clock import Clock

_PATIENCE_S = 8.0  # the client waits for ten

log = logging.getLogger("fallow.agent")


class Bell:
    """Rung by anyone, heard by the one loop that waits."""

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)

    def ring(self) -> None:
        """Ends the wait that is under way, or the next one."""
        with contextlib.suppress(OSError):  # closed already, or rung very often
            os.eventfd_write(self._fd, 1)

    def wait(self, seconds: float) -> bool:
        """Waits so long at most; whether the bell was rung."""
        if not self._poll.poll(max(0.0, seconds) * 1000):
            return False
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._fd)
        return True

    def close(self) -> None:
        os.close(self._fd)


class Orders:
    """Keeps whether the driver is released, also over restarts within one boot of the machine."""

    def __init__(
        self, settings: AgentSettings, fleet: HostGpus, board: SnapshotBoard, bell: Bell, clock: Clock
    ) -> None:
        self.settings = settings
        self._fleet = fleet
        self._board = board
        self._bell = bell
        self._clock = clock
        self._started_ms = clock.now_ms()
        self._asked: SimpleQueue[tuple[str, int | None, Event]] = SimpleQueue()
        self._until_ms: int | None = None
        self._releasing = False
        self._blocked: tuple[Blocked, ...] = ()
        self.missed_at_start: int | None = None

    def remember(self, spool: Spool, boot_id: str) -> bool:
        """Whether an earlier run of this boot released the driver, and it is still to be left alone."""
        known = read_fact(spool, "released", dict, {})
        until_ms = known.get("until_ms")
        over = isinstance(until_ms, int) and until_ms <= self._clock.now_ms()
        if known.get("boot_id") != boot_id or not boot_id or over:
            return False
        self._until_ms = until_ms
        return bool(known)

    def handle(self, verb: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Answers a verb, in the control thread; raises FallowError where it cannot."""
        if verb == "snapshot":
            snapshot = self._board.latest()
            if snapshot is None:
                raise FallowError("the agent has not closed an interval yet", "ask again after its first interval")
            return snapshot.as_json()
        if verb in ("release", "resume"):
            for_ms = arguments.get("for_ms")
            if for_ms is not None and (not isinstance(for_ms, int) or for_ms <= 0):
                raise UsageError(f"cannot release the driver for {for_ms!r} ms", "give a whole number above 0, or none")
            done = Event()
            self._releasing = self._releasing or verb == "release"
            self._asked.put((verb, for_ms, done))
            self._bell.ring()
            done.wait(_PATIENCE_S)  # a call that is under way is waited for; the client asks again
        return self._status().as_json()

    def obey(self, recorder: Recorder, boot_id: str) -> None:
        """Does what was asked since the last call, and resumes by itself when the time is over."""
        if self._fleet.released and self._until_ms is not None and self._clock.now_ms() >= self._until_ms:
            self._resume(recorder, "the time of the release is over")
        while not self._asked.empty():
            verb, for_ms, done = self._asked.get()
            if verb == "resume" and self._fleet.released:
                self._resume(recorder, "on request")
            elif verb == "release":
                self._until_ms = None if for_ms is None else self._clock.now_ms() + for_ms
                if not self._fleet.released:
                    self._blocked = tuple(
                        Blocked(pid, uuid, None if uuid is None else self._fleet.known.indexes.get(uuid), call)
                        for pid, uuid, call in self._fleet.release()
                    )
                    recorder.note("released", "the agent has released the driver on request")
                recorder.write_now({"released": json.dumps({"boot_id": boot_id, "until_ms": self._until_ms})})
            self._releasing = False
            done.set()

    def _resume(self, recorder: Recorder, why: str) -> None:
        self._fleet.resume()
        self._until_ms = None
        self._blocked = ()
        recorder.note("resumed", f"the agent uses the driver again: {why}")
        recorder.write_now({"released": "{}"})

    def _status(self) -> AgentStatus:
        snapshot = self._board.latest()
        mode = "releasing" if self._releasing else "released" if self._fleet.released else "running"
        status = AgentStatus(
            mode=mode,
            pid=os.getpid(),
            host=self.settings.host,
            version=__version__,
            started_ms=self._started_ms,
            interval_ms=self.settings.interval_ms if snapshot is None else snapshot.interval_ms,
            time_ms=None if snapshot is None else snapshot.time_ms,
            gpus=count_health(snapshot),
            missed_at_start=self.missed_at_start,
            released_until_ms=self._until_ms,
            blocked=tuple(each for each in self._blocked if _alive(each.pid)),
        )
        return status if snapshot is None else AgentStatus(**(vars(status) | {"publishing": snapshot.publishing}))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
