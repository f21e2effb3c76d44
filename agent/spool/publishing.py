"""Starts publishers, in a thread or a process. Where one fails, the rows stay in the spool for the next."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from agent.own_process import module_command
from agent.snapshot import PublishingStatus
from agent.spool.publisher_arguments import (
    EXIT_DAMAGED,
    EXIT_KILLED,
    EXIT_LATE,
    EXIT_NAME_TAKEN,
    EXIT_SPOOL,
    LONGEST_S,
    NAME_CONFLICT,
    Outcome,
    PublisherArguments,
)
from fallow.clock import MINUTE_MS, SECOND_MS, Clock, SystemClock, floor_ms, format_duration
from fallow.errors import SpoolError
from fallow.process_memory import release_code, trim_memory

if TYPE_CHECKING:
    from agent.rows import EventRow
    from agent.settings import AgentSettings
    from agent.spool.spool import Spool

_ENDED_S = 0.5
_LEFT_S = 0.2


class ThreadRun:
    """A publisher in a daemon thread, for a lake in a folder. A hung mount delays nothing, not even the agent's end."""

    def __init__(self, arguments: PublisherArguments) -> None:
        """Start the thread; raises RuntimeError where none can be started."""
        self.lake = arguments.lake
        self._outcome: Outcome | None = None
        self._is_wanted = True
        self._thread = threading.Thread(target=self._run, args=(arguments,), name="publisher", daemon=True)
        self._thread.start()

    def _run(self, arguments: PublisherArguments) -> None:
        from agent.spool.publisher import outcome_of  # arro3, which nothing else needs

        self._outcome = outcome_of(arguments, in_agent=True, is_wanted=lambda: self._is_wanted)
        trim_memory()
        release_code("arro3")  # 12 MiB, until the next publishing

    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def wait(self, seconds: float) -> None:
        """Wait until the publisher has ended, at most `seconds`."""
        self._thread.join(seconds)

    def end(self) -> Outcome:
        """Return the outcome. A publisher that still runs is abandoned."""
        late = not self.is_over()
        self._is_wanted = False
        self._thread.join(_LEFT_S)  # it notices between two files that it is abandoned, and ends cleanly
        outcome = self._outcome
        return Outcome(EXIT_LATE) if outcome is None or (late and outcome.exit_code) else outcome


class ProcessRun:
    """A publisher as `python -m agent.spool.publisher`, for an object store, and where a thread might end the agent."""

    def __init__(self, arguments: PublisherArguments) -> None:
        """Start the process; raises OSError where none can be started."""
        self._process = subprocess.Popen(
            module_command("agent.spool.publisher", arguments.as_text()),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C is for the agent, which ends its publisher by itself
        )

    def is_over(self) -> bool:
        return self._process.poll() is not None

    def wait(self, seconds: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def kill(self) -> None:
        self._process.kill()  # unlike the worker it holds no GPU

    def end(self) -> Outcome:
        late = not self.is_over()
        if late:
            self.kill()
        errors = ""
        with contextlib.suppress(subprocess.TimeoutExpired):
            _, errors = self._process.communicate(timeout=_ENDED_S)
        code = self._process.returncode
        if late or code is None or code == -signal.SIGALRM:
            return Outcome(EXIT_LATE)
        if code < 0:
            return Outcome(EXIT_KILLED, (f"the publisher was ended by signal {-code}",))
        return Outcome(code, tuple(errors.strip().splitlines()))


LONGEST_PAUSE_MS = 15 * MINUTE_MS
"""Pause between two tries while the store is down; `publish_every` where that is longer."""

FINISH_S = 3.0
"""Time for publishing at the end of the run: the whole agent has to end within five seconds."""

_JITTER = 0.2  # of a pause, either way: ten thousand hosts must not come back to a store at the same moment
_PATIENCE_S = LONGEST_S + 10.0  # a process ends by itself before

_NOT_THE_STORE = (EXIT_SPOOL, EXIT_DAMAGED, EXIT_KILLED, EXIT_NAME_TAKEN)
"""Exit codes that are no sign of a fault of the store. For a taken name the publisher itself spools an event."""

log = logging.getLogger("fallow.agent")


class Publishing:
    """Starts one publisher at a time: a thread where the lake is a folder, a process for an object store.

    The library for object stores has its own threads and keeps tens of megabytes. The publisher is a process too after
    an agent ended while its own process wrote files. So a library's fault cannot end one agent after another.
    """

    def __init__(self, settings: AgentSettings, spool: Spool, clock: Clock | None = None) -> None:
        self.status = PublishingStatus()
        """The state of publishing; a new object after every change."""
        self._settings = settings
        self._spool = spool
        self._clock = clock or SystemClock()
        self._running: ThreadRun | ProcessRun | None = None
        self._left: ThreadRun | None = None
        """A publisher that hangs in the lake; while it hangs, no other starts for that lake."""
        self._apart = self._ended_in_agent()
        self._next_s = 0.0
        self._started_s = 0.0
        self._failures = 0
        self._store_down = False
        self._incidents: list[EventRow] = []

    def configure(self, settings: AgentSettings) -> None:
        """Take new settings. A running publisher finishes with the old ones, and the next starts at once."""
        if (settings.lake, settings.lake_id) != (self._settings.lake, self._settings.lake_id):
            self._failures = 0
        self._settings = settings
        self._next_s = 0.0

    def take_incidents(self) -> list[EventRow]:
        """Return the events since the last call: kind (store_down, store_up, spool_failed) and detail."""
        taken, self._incidents = self._incidents, []
        return taken

    def start_if_due(self, now_s: float) -> None:
        """Collect a publisher that has ended, and start the next when it is due and rows wait."""
        if self._running is not None and (self._running.is_over() or now_s > self._started_s + _PATIENCE_S):
            self._collect()
            # a failed try may have taken long, so the pause begins now
            self._next_s = (now_s if self._failures else self._started_s) + self._pause_s()
        self._look()
        if self._running is None and self.status.waiting_rows and now_s >= self._next_s and not self._hangs():
            self._started_s = now_s
            self._next_s = now_s + self._pause_s()
            self._start()

    def _hangs(self) -> bool:
        """Return whether an abandoned publisher still hangs in the lake."""
        if self._left is not None and self._left.is_over():
            self._left = None
        return self._left is not None and self._left.lake == self._settings.lake

    def finish(self, within_s: float = FINISH_S) -> bool:
        """Publish the remaining rows at the run's end. Return False where rows stay in the spool for the next start.

        Returns in time whatever the store does: a publisher that still runs is ended or abandoned, which is safe at any
        moment.
        """
        deadline_s = time.monotonic() + within_s
        self._wait(deadline_s)
        self._look()
        # also where no rows wait: the last publisher releases the host name
        if time.monotonic() < deadline_s and not self._hangs() and self._start(is_last=True):
            self._wait(deadline_s)
            self._look()
        if self.status.waiting_rows:
            log.warning(
                "%d rows stay in the spool %s; the next start publishes them",
                self.status.waiting_rows,
                self._spool.folder,
            )
        return not self.status.waiting_rows

    def _look(self) -> None:
        waiting = None
        with contextlib.suppress(SpoolError):
            waiting = self._spool.count()
        self.status = replace(self.status, waiting_rows=waiting, spool_bytes=self._spool.size_bytes())

    def _start(self, *, is_last: bool = False) -> bool:
        settings = self._settings
        arguments = PublisherArguments(
            str(self._spool.folder),
            settings.lake,
            settings.host,
            settings.keep_published_ms,
            settings.publish_every_ms,
            settings.lake_id,
            is_last=is_last,
            compaction=settings.compaction,
        )
        try:
            self._running = ProcessRun(arguments) if self._needs_process() else ThreadRun(arguments)
        except (OSError, RuntimeError) as error:  # no memory, or no more processes or threads, just now
            self._failed(f"no publisher can be started: {getattr(error, 'strerror', None) or error}", is_store=False)
            return False
        return True

    def _needs_process(self) -> bool:
        from fallow.stores import is_folder  # known at the first publishing, not before the first row

        if self._apart or not is_folder(self._settings.lake):
            return True
        with contextlib.suppress(SpoolError):
            return self._spool.is_oversized()  # compacting the spool takes much memory
        return False

    def _ended_in_agent(self) -> bool:
        with contextlib.suppress(SpoolError):
            return self._spool.ended_in_agent()
        return False

    def _wait(self, deadline_s: float) -> None:
        if self._running is not None:
            self._running.wait(max(0.0, deadline_s - time.monotonic()))
            self._collect()

    def _collect(self) -> None:
        """Note the publisher's outcome. A publisher that still runs is ended or abandoned."""
        running, self._running = self._running, None
        if running is None:
            return
        outcome = running.end()
        with contextlib.suppress(SpoolError):
            self.status = replace(self.status, name_conflict=self._spool.noted(NAME_CONFLICT) or None)
        if isinstance(running, ThreadRun) and not running.is_over():
            self._left = running
        if outcome.exit_code == 0:
            self._apart = False
            now_ms = self._clock.now_ms()
            if self._store_down and self.status.failing_since_ms is not None:
                span = format_duration(floor_ms(max(0, now_ms - self.status.failing_since_ms), SECOND_MS))
                self._tell("store_up", f"rows reach {self._settings.lake} again after {span}")
            self._failures, self._store_down = 0, False
            self.status = replace(self.status, last_success_ms=now_ms, failing_since_ms=None, last_error=None)
            for line in outcome.lines:
                log.warning("publishing: %s", line)
            return
        reason = outcome.lines[-1] if outcome.lines else f"the publisher ended with exit code {outcome.exit_code}"
        if outcome.exit_code == EXIT_LATE:
            reason = "the store did not take the rows in time"
        self._failed(reason, is_store=outcome.exit_code not in _NOT_THE_STORE)
        if outcome.exit_code == EXIT_DAMAGED:
            # sampling continues with a new spool; the damaged one is kept for repair
            try:
                self._tell("spool_failed", self._spool.quarantine())
            except SpoolError as error:
                log.error("%s", error)  # noqa: TRY400  # one line, no traceback

    def _failed(self, reason: str, *, is_store: bool) -> None:
        self._failures += 1
        if is_store and not self._store_down:
            self._store_down = True
            self._tell("store_down", f"rows stay in the spool: {reason}")
        elif reason != self.status.last_error:
            log.warning("publishing failed, the rows stay in the spool: %s", reason)
        since_ms = self.status.failing_since_ms
        self.status = replace(
            self.status, failing_since_ms=self._clock.now_ms() if since_ms is None else since_ms, last_error=reason
        )

    def _pause_s(self) -> float:
        """Return the pause until the next start: longer after each failure in a row, and random, so hosts differ."""
        pause_ms = self._settings.publish_every_ms
        if self._failures:
            longest_ms = max(pause_ms, LONGEST_PAUSE_MS)
            pause_ms = min(longest_ms, pause_ms << min(self._failures - 1, 20))
        # the random module would take memory for this alone
        chance = int.from_bytes(os.urandom(2), "big") / 0xFFFF
        return pause_ms / SECOND_MS * (1 - _JITTER + 2 * _JITTER * chance)

    def _tell(self, kind: str, detail: str) -> None:
        self._incidents.append({"kind": kind, "detail": detail})
