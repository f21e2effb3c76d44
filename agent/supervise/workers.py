"""The supervisor's side of the workers: starts and queries them, and skips for a while what hangs or crashes.

A worker that has ended is usually replaced at once, without a GPU that crashes it, at a limited rate. A GPU whose call
blocked or ended a worker counts as healthy again after that call has returned.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent.nvml.gpu import PAGE_BYTES, StatusPage
from agent.own_process import module_command
from fallow.clock import Clock, SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from agent.nvml.gpu import DriverGoneAnswer, IntervalAnswer, IntervalRequest, OpenAnswer, OpenRequest

_LONGEST_LOOK_S = 0.5
_STARTING_S = 20.0
"""Time for a process to start, without the driver's part: one second, or several on a host without a free CPU."""
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_LOOKS = 4  # looks at the progress per timeout: a blocked call is noticed at most a quarter of the timeout late


class WorkerHungError(Exception):
    """The worker gave no answer, and neither began nor ended a driver call, within the timeout.

    Names the GPU (`#index` before its UUID is known, empty for no GPU in particular) and the driver call that blocks.
    An empty call means that the worker process itself did not run, which is no fault of a GPU.
    """

    def __init__(self, uuid: str, call: str) -> None:
        super().__init__(f"{call or 'the worker'} does not return")
        self.uuid = uuid
        self.call = call


class StoppedError(Exception):
    """The run is to end, so the wait for the answer was given up."""


class WorkerGoneError(Exception):
    """The worker process ended: it crashed in the driver's library, or was killed.

    Names how it ended (`signal 11 (SIGSEGV)`), and, like WorkerHungError, the GPU and the driver call that crashed;
    both are empty where no call did.
    """

    def __init__(self, how: str, uuid: str = "", call: str = "", *, never_ran: bool = False) -> None:
        super().__init__(f"the NVML worker ended with {how}" + (f" in {call}" if call else ""))
        self.how = how
        self.uuid = uuid
        self.call = call
        self.never_ran = never_ran


class DriverLostError(Exception):
    """The worker has lost the driver. Holds NVML's code and message, and the events before it, often the cause."""

    def __init__(self, answer: DriverGoneAnswer) -> None:
        super().__init__(answer["message"])
        self.code = answer["gone_code"]
        self.incidents = answer["incidents"]


class WorkerClient:
    def __init__(
        self,
        skip: frozenset[str] = frozenset(),
        sys_path: str = "/sys",
        alive: Callable[[], bool] = lambda: True,
        clock: Clock | None = None,
    ) -> None:
        """Start a worker that skips the given GPUs; raises OSError where no process can be started.

        `alive` is called while this waits for an answer; False ends the wait (StoppedError).
        """
        self._alive = alive
        self._clock = clock or SystemClock()
        descriptor = os.memfd_create("fallow-status")
        try:
            os.ftruncate(descriptor, PAGE_BYTES)
            self._memory = mmap.mmap(descriptor, PAGE_BYTES)
            self._process = subprocess.Popen(
                module_command("agent.nvml.worker", str(descriptor), sys_path, *sorted(skip)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                pass_fds=(descriptor,),
            )
        finally:
            os.close(descriptor)
        self._page = StatusPage(self._memory)
        self._pending = b""
        assert self._process.stdout is not None  # noqa: S101  # a pipe was asked for
        self._answers = self._process.stdout
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._answers, selectors.EVENT_READ)

    def open(self, timeout_s: float, trials: Iterable[tuple[str, str]] = ()) -> OpenAnswer:
        """Let the worker load the driver, and report when each call in `trials` returns; raises as `interval` does."""
        answer: OpenAnswer = self._request({"op": "open", "trials": list(trials)}, timeout_s)
        return answer

    def interval(self, wanted: IntervalRequest, timeout_s: float) -> IntervalAnswer:
        """Return an interval's rows. Raises WorkerGoneError if the worker has ended, DriverLostError without a driver.

        Raises WorkerHungError after `timeout_s` without an answer and without progress to the next call. A process that
        has made no call yet gets the time in addition that a busy host may need to start it.
        """
        answer: IntervalAnswer = self._request(wanted, timeout_s)
        return answer

    def _request(self, wanted: OpenRequest | IntervalRequest, timeout_s: float) -> Any:
        line = json.dumps(wanted).encode() + b"\n"
        assert self._process.stdin is not None  # noqa: S101  # a pipe was asked for
        try:
            self._process.stdin.write(line)
        except (BrokenPipeError, ValueError):
            raise self._gone() from None
        progress, moved_s = self._page.progress(), self._clock.monotonic_s()
        while (answer := self._read_line(min(_LONGEST_LOOK_S, timeout_s / _LOOKS))) is None:
            if not self._alive():
                raise StoppedError
            before, progress = progress, self._page.progress()
            if progress != before:
                moved_s = self._clock.monotonic_s()
            elif self._clock.monotonic_s() - moved_s >= (timeout_s if progress else max(timeout_s, _STARTING_S)):
                raise WorkerHungError(*self._page.current())
        result = json.loads(answer)
        if "gone_code" in result:
            raise DriverLostError(result)
        return result

    @property
    def pid(self) -> int:
        return self._process.pid

    def current(self) -> tuple[str, str]:
        """Return the GPU and the name of the current driver call; empty texts where there is none."""
        return self._page.current()

    def answered_late(self) -> bool:
        """Return whether an abandoned worker has answered or ended, so that its GPU can be tried again."""
        try:
            return self._process.poll() is not None or self._read_line(0.0) is not None
        except WorkerGoneError:
            return True

    def close(self) -> None:
        """Close the worker's input, so that it ends as soon as the driver allows."""
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()

    def end(self, patience_s: float) -> bool:
        """Close the worker and wait. One stuck in the driver gets SIGTERM, never SIGKILL, which has frozen GPUs.

        Return whether the process has ended.
        """
        self.close()
        for stop in (None, self._process.terminate):
            if stop is not None:
                stop()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(patience_s / 2)
                break
        self._selector.close()
        self._answers.close()
        self._memory.close()
        return self._process.returncode is not None

    def _read_line(self, within_s: float) -> bytes | None:
        deadline_s = time.monotonic() + within_s
        while b"\n" not in self._pending:
            if not self._selector.select(max(0.0, deadline_s - time.monotonic())):
                return None
            part = self._answers.read(1 << 16)
            if not part:
                raise self._gone()
            self._pending += part
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _gone(self) -> WorkerGoneError:
        uuid, call = self._page.current()
        try:
            code = self._process.wait(1)
        except subprocess.TimeoutExpired:
            return WorkerGoneError("its pipes closed", uuid, call)
        how = f"exit code {code}" if code >= 0 else f"signal {-code} ({_signal_name(-code)})"
        if code > 0 and not self._page.progress():
            return WorkerGoneError(how, never_ran=True)
        if -code in _FROM_OUTSIDE:  # the kernel (out of memory) or a person sent it: the current call is not the cause
            return WorkerGoneError(how)
        return WorkerGoneError(how, uuid, call)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "real-time"  # these signals have no names


_SHORTEST_WAIT_S = 0.05  # the delivery of a signal takes a moment


class Stuck:
    """Abandoned workers, each with the GPUs (UUID or `#index`) that it blocks on; "" is the driver as a whole.

    They are never killed: SIGKILL in the middle of a driver call has frozen GPUs.
    """

    def __init__(self) -> None:
        self._workers: dict[WorkerClient, tuple[str, ...]] = {}

    def add(self, worker: WorkerClient, blocked: tuple[str, ...]) -> None:
        self._workers[worker] = blocked

    @property
    def targets(self) -> frozenset[str]:
        return self._blocked - {""}

    @property
    def driver_blocks(self) -> bool:
        """Return whether a worker blocks in a call to the driver as a whole, such as loading it."""
        return "" in self._blocked

    def freed(self, patience_s: float) -> frozenset[str]:
        """End workers whose call has returned. Return the targets that no worker blocks any more ("": the driver)."""
        freed: set[str] = set()
        for worker in [each for each in self._workers if each.answered_late()]:
            freed.update(self._workers.pop(worker))
            worker.end(patience_s)
        return frozenset(freed - self._blocked)

    def end(self, patience_s: float) -> list[tuple[int, str, str]]:
        """Ask every worker to end. Return pid, target and call of those that do not end, and forget them.

        All workers are asked at once and share one time limit.
        """
        deadline_s = time.monotonic() + patience_s
        for worker in self._workers:
            worker.close()
        alive = []
        for done, worker in enumerate(self._workers):
            target, call = worker.current()
            share_s = (deadline_s - time.monotonic()) / (len(self._workers) - done)
            if not worker.end(max(_SHORTEST_WAIT_S, share_s)):
                alive.append((worker.pid, target, call))
        self._workers.clear()
        return alive

    @property
    def _blocked(self) -> frozenset[str]:
        return frozenset(target for blocked in self._workers.values() for target in blocked)


_CRASHES = 2  # crashes in a row on one GPU: a single crash may be chance
_CALM = 60  # whole intervals without a crash after which a GPU's crashes no longer count
_FIRST_PAUSE = 6  # intervals for which such a GPU is skipped; doubled with each further crash
_LONGEST_PAUSE = 360

BURST = 10
"""Number of workers that may immediately replace workers that ended."""
EVERY_S = 5.0
"""Later one worker per this time in s: a start takes 0.05 to 0.1 s of CPU time, so this is 2 % of a core at most."""


class RestartBudget:
    """Limits how often a worker is replaced that ended without a GPU's fault."""

    def __init__(self) -> None:
        self._left = float(BURST)
        self._at_s: float | None = None

    def take(self, now_s: float) -> bool:
        """Use one start, by a monotonic clock. Return False where none is available now."""
        passed_s = 0.0 if self._at_s is None else now_s - self._at_s
        self._left, self._at_s = min(BURST, self._left + passed_s / EVERY_S), now_s
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Crashes:
    """Counts crashes by the GPU of the current call, so that a crash does not repeat at every interval."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._paused: dict[str, int] = {}
        self._pauses: dict[str, int] = {}
        self._calm = 0

    def count(self, target: str) -> bool:
        """Count a crash in a call to this GPU. Return whether to skip the GPU now."""
        self._calm = 0
        self._counts[target] = self._counts.get(target, 0) + 1
        if self._counts[target] >= _CRASHES:
            pause = self._pauses.get(target, _FIRST_PAUSE)
            self._paused[target] = pause
            self._pauses[target] = min(2 * pause, _LONGEST_PAUSE)
            self._counts[target] = _CRASHES - 1  # after the pause, a single crash suffices
            return True
        return False

    def survived(self) -> None:
        """Count an answered interval. After many, the crashes no longer count."""
        self._calm += 1
        if self._calm == _CALM:
            self._counts.clear()
            self._pauses = {target: pause for target, pause in self._pauses.items() if target in self._paused}

    def avoided(self) -> frozenset[str]:
        return frozenset(self._paused)

    def due(self) -> frozenset[str]:
        """Count one interval. Return the GPUs whose pause is over."""
        over = frozenset(target for target, left in self._paused.items() if left <= 1)
        self._paused = {target: left - 1 for target, left in self._paused.items() if left > 1}
        return over


@dataclass
class _Trial:
    calls: dict[str, str]
    """The fault of each call on trial, by name."""
    health: str = "ok"
    """The GPU's health in the newest event."""
    returned: set[str] = field(default_factory=set)
    intervals: int = 0
    """Number of answered intervals since the newest call was put on trial."""


class Trials:
    """Driver calls that blocked or ended a worker. Their GPU is healthy again after all these calls have returned.

    A GPU is named by its UUID, or by `#index` before that is known; the driver as a whole by an empty text.
    """

    def __init__(self) -> None:
        self._trials: dict[str, _Trial] = {}

    def hold(self, target: str, call: str, did: str, health: str | None = None) -> bool:
        """Put a GPU's call on trial. `health`: the GPU's new health, None: as before. Return whether it changed."""
        trial = self._trials.setdefault(target, _Trial({}))
        trial.calls[call] = did
        trial.returned.discard(call)
        trial.intervals = 0
        before, trial.health = trial.health, health or trial.health
        return trial.health != before

    def open_calls(self, avoided: Collection[str]) -> list[tuple[str, str]]:
        """Return GPU and call of the trials that have not returned yet, without the GPUs that are not read."""
        return [
            (target, call)
            for target, trial in self._trials.items()
            if target not in avoided
            for call in trial.calls
            if call not in trial.returned
        ]

    def returned(self, target: str, call: str) -> None:
        """Note that a call has returned in the current worker."""
        if target in self._trials:
            self._trials[target].returned.add(call)

    def settle(self, avoided: Collection[str]) -> list[tuple[str, str, str]]:
        """Count an answered interval of the read GPUs. Return GPU, new health and reason where the health changed.

        The reason continues a sentence that begins with the GPU's name. A GPU is degraded while a call is on trial. The
        trial of a call that was not needed for long enough ends.
        """
        found = []
        for target, trial in [each for each in self._trials.items() if each[0] not in avoided]:
            trial.intervals += 1
            left = [call for call in trial.calls if call not in trial.returned]
            over = not left or trial.intervals >= _CALM
            health = "ok" if over else "degraded"
            if health != trial.health:
                found.append((target, health, _reason(trial, left)))
            trial.health = health
            if over:
                del self._trials[target]
        return found


def _reason(trial: _Trial, left: Collection[str]) -> str:
    """Return why the health changed, to follow the GPU's or the driver's name; `left` are the calls still on trial."""
    named = [call for call in trial.calls if not left or call in left]
    calls = " and ".join(f"{call}, which {trial.calls[call]}," for call in named)
    have = "has" if len(named) == 1 else "have"
    if not left:
        return f"answers again: {calls} {have} returned"
    if trial.intervals < _CALM:
        return f"is read again, but {calls} {have} not been called since"
    return f"has answered for {trial.intervals} intervals; {calls} {have} not been needed"
