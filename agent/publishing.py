"""When the publisher runs, and what happens if it fails: the rows stay in the spool and the next try takes them."""

from __future__ import annotations

import contextlib
import logging
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.spool import Spool
    from agent.supervisor import AgentSettings

log = logging.getLogger("fallow.agent")

_PATIENCE_S = 600.0  # a publisher that takes longer hangs in the store
_LAST_TRY_S = 20.0  # at the end of the run
_KILLED_S = 5.0


class Publishing:
    """Starts one publisher at a time."""

    def __init__(self, settings: AgentSettings, spool: Spool) -> None:
        self._settings = settings
        self._spool = spool
        self._running: subprocess.Popen[str] | None = None
        self._next_s = 0.0
        self._deadline_s = 0.0

    def start_if_due(self, now_s: float, *, waiting: int) -> None:
        """Collects a publisher that has ended, and starts the next one when its time has come."""
        if self._running is not None:
            if self._running.poll() is None and now_s < self._deadline_s:
                return
            self._collect()
        if waiting and now_s >= self._next_s:
            self._next_s = now_s + self._settings.publish_every_ms / 1000
            self._deadline_s = now_s + _PATIENCE_S
            self._running = self._start()

    def finish(self) -> bool:
        """Waits for a running publisher, then publishes the rest; False (and a log line) where rows stay behind."""
        self._wait()
        if self._spool.count():
            self._running = self._start()
            self._wait()
        left = self._spool.count()
        if left:
            log.warning("%d rows stay in the spool %s; the next start publishes them", left, self._settings.spool)
        return not left

    def _start(self) -> subprocess.Popen[str]:
        settings = self._settings
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "agent.publisher", settings.spool, settings.lake, settings.host],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )

    def _wait(self) -> None:
        if self._running is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._running.wait(_LAST_TRY_S)
            self._collect()

    def _collect(self) -> None:
        """Takes note of how the publisher ended, and ends one that hangs: unlike the worker it holds no GPU."""
        if self._running is None:
            return
        hung = self._running.poll() is None
        if hung:
            self._running.kill()
        errors = ""
        with contextlib.suppress(subprocess.TimeoutExpired):
            _, errors = self._running.communicate(timeout=_KILLED_S)
        lines = errors.strip().splitlines()
        if hung or self._running.returncode != 0:
            reason = "it did not end in time" if hung else (lines[-1] if lines else "no reason given")
            log.warning("publishing failed, the rows stay in the spool: %s", reason)
        else:
            for line in lines:
                log.warning("publishing: %s", line)
        self._running = None
