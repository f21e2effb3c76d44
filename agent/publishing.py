"""When the publisher runs, and what happens if it fails: the rows stay in the spool and the next try takes them."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.spool import Spool
    from agent.supervisor import AgentSettings

log = logging.getLogger("fallow.agent")

_LAST_TRY_S = 60.0


class Publishing:
    """Starts one publisher at a time."""

    def __init__(self, settings: AgentSettings, spool: Spool) -> None:
        self._settings = settings
        self._spool = spool
        self._running: subprocess.Popen[str] | None = None
        self._next_s = 0.0

    def start_if_due(self, now_s: float, *, waiting: int) -> None:
        """Collects a publisher that has ended, and starts the next one when its time has come."""
        if self._running is not None:
            if self._running.poll() is None:
                return
            self._collect()
        if waiting and now_s >= self._next_s:
            self._next_s = now_s + self._settings.publish_every_ms / 1000
            self._running = self._start()

    def finish(self) -> bool:
        """Waits for a running publisher, then publishes the rest; False (and a log line) where rows stay behind."""
        if self._running is not None:
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
            [sys.executable, "-m", "agent.publisher", settings.spool, settings.lake, settings.host],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _wait(self) -> None:
        if self._running is not None:
            try:
                self._running.wait(_LAST_TRY_S)
            except subprocess.TimeoutExpired:
                self._running.terminate()
            self._collect()

    def _collect(self) -> None:
        if self._running is None:
            return
        _, errors = self._running.communicate()
        if self._running.returncode != 0:
            lines = errors.strip().splitlines()
            log.warning("publishing failed, the rows stay in the spool: %s", lines[-1] if lines else "no reason given")
        self._running = None
