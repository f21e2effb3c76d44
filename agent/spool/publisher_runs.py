"""The two ways to run a publisher beside the sampling: in a thread of the agent, and as a process of its own."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
from typing import TYPE_CHECKING, Protocol

from agent.child_process import module_command
from agent.own_memory import trim_memory
from agent.spool.outcome import EXIT_KILLED, EXIT_LATE, Outcome

if TYPE_CHECKING:
    from agent.spool.publisher_arguments import PublisherArguments

_ENDED_S = 0.5
_LEFT_S = 0.2


class PublisherRun(Protocol):
    """A publisher at work; made by starting it."""

    def is_over(self) -> bool: ...

    def wait(self, seconds: float) -> None:
        """Until it is over, at most so long."""

    def end(self) -> Outcome:
        """How it ended; one that is not over is ended or, where that cannot be, left to itself."""
        ...


class ThreadRun:
    """In a daemon thread, for a lake in a folder: one that hangs in a mount holds up nothing, the agent's end included."""

    def __init__(self, arguments: PublisherArguments) -> None:
        """Raises RuntimeError where no thread can be started."""
        self.lake = arguments.lake
        self._outcome: Outcome | None = None
        self._is_wanted = True
        self._thread = threading.Thread(target=self._run, args=(arguments,), name="publisher", daemon=True)
        self._thread.start()

    def _run(self, arguments: PublisherArguments) -> None:
        from agent.spool.publisher import outcome_of  # arro3, which nothing else needs

        self._outcome = outcome_of(arguments, in_agent=True, is_wanted=lambda: self._is_wanted)
        trim_memory()

    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def wait(self, seconds: float) -> None:
        self._thread.join(seconds)

    def end(self) -> Outcome:
        late = not self.is_over()
        self._is_wanted = False
        self._thread.join(_LEFT_S)  # between two files it sees that nobody waits, and ends in good order
        outcome = self._outcome
        return Outcome(EXIT_LATE) if outcome is None or (late and outcome.exit_code) else outcome


class ProcessRun:
    """As `python -m agent.spool.publisher`, for an object store, and where a thread might end the agent."""

    def __init__(self, arguments: PublisherArguments) -> None:
        """Raises OSError where no process can be started."""
        self._process = subprocess.Popen(
            module_command("agent.spool.publisher", *arguments.as_texts()),
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
