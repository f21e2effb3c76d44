"""Questions that are asked off the tick, and failures that are reported once per cause."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")


@dataclass(frozen=True)
class Answer(Generic[Result]):
    """What came back: a result, or the error that stood in its way."""

    result: Result | None = None
    error: Exception | None = None


class Background(Generic[Result]):
    """Runs a question in a short-lived thread; a thread that hangs holds up nothing but its own question.

    Threads are daemons: the end of the agent waits for none of them.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: threading.Thread | None = None
        self._answers: list[Answer[Result]] = []
        self._asked_s = 0.0

    @property
    def busy(self) -> bool:
        """Whether a question is out, or its answer has not been taken."""
        return self._thread is not None

    @property
    def busy_s(self) -> float:
        """Seconds since the question went out; 0 where none is out."""
        return 0.0 if self._thread is None else time.monotonic() - self._asked_s

    def ask(self, question: Callable[[], Result]) -> None:
        """Begins to work on a question; only while not busy."""
        self._asked_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, args=(question,), name=self._name, daemon=True)
        self._thread.start()

    def take(self, wait_s: float = 0.0) -> Answer[Result] | None:
        """The answer if it is there, or comes within the wait; each answer is handed out once."""
        if self._thread is None:
            return None
        if wait_s > 0:
            self._thread.join(wait_s)
        if not self._answers:
            return None
        self._thread = None
        return self._answers.pop()

    def _run(self, question: Callable[[], Result]) -> None:
        try:
            self._answers.append(Answer(result=question()))
        except Exception as error:  # noqa: BLE001  # whatever went wrong is the answer: nobody catches it in a thread
            self._answers.append(Answer(error=error))


class Failures:
    """Collects the incidents that become rows of the `event` table."""

    def __init__(self) -> None:
        self._failing: set[str] = set()
        self._incidents: list[dict[str, str]] = []

    def failed(self, cause: str, detail: str) -> None:
        """Notes an incident, unless this cause has been failing already."""
        if cause not in self._failing:
            self._failing.add(cause)
            self._incidents.append({"kind": "attribution_failed", "detail": detail})

    def worked(self, cause: str) -> None:
        """The cause is over: its next failure is news again."""
        self._failing.discard(cause)

    def take(self) -> list[dict[str, str]]:
        """Incidents since the last call, each with `kind` and `detail`."""
        taken, self._incidents = self._incidents, []
        return taken
