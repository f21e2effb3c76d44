"""The supervisor's end of the workers: starts them, asks them, and leaves alone for a while what hangs or crashes.

A worker that has ended is replaced at once as a rule, without a GPU that crashes it, and never in a hot loop. A GPU whose call
blocked or ended a worker counts as healthy again once that call has returned.
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
"""A process starts within a second, on a host without a free CPU within several; the driver has no part in that."""
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_LOOKS = 4  # at the progress within a timeout: a call that blocks is noticed at most a quarter late


class WorkerHungError(Exception):
    """No answer, and no driver call begun or ended for so long.

    Names the GPU (`#index` before its UUID is known, empty for none in particular) and the driver call that blocks; no
    call means that the worker itself did not get to run, which says nothing of any GPU.
    """

    def __init__(self, uuid: str, call: str) -> None:
        super().__init__(f"{call or 'the worker'} does not return")
        self.uuid = uuid
        self.call = call


class StoppedError(Exception):
    """The run is to end, and nobody waits for the answer any more."""


class WorkerGoneError(Exception):
    """The process ended: a crash inside the driver's library, or somebody killed it.

    Names how it ended (`signal 11 (SIGSEGV)`), and the GPU and the driver call that crashed, as WorkerHungError does; both
    are empty where none did.
    """

    def __init__(self, how: str, uuid: str = "", call: str = "", *, never_ran: bool = False) -> None:
        super().__init__(f"the NVML worker ended with {how}" + (f" in {call}" if call else ""))
        self.how = how
        self.uuid = uuid
        self.call = call
        self.never_ran = never_ran


class DriverLostError(Exception):
    """The worker has lost the driver: its code and message, and what happened before, which often is the reason."""

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
        """Starts it, without the GPUs to skip; raises OSError where no process can be started.

        `alive` is called while an answer is waited for; False gives up waiting (StoppedError).
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
        """Has the worker load the driver, and say of each call in `trials` when it returns; raises as `interval` does."""
        answer: OpenAnswer = self._request({"op": "open", "trials": list(trials)}, timeout_s)
        return answer

    def interval(self, wanted: IntervalRequest, timeout_s: float) -> IntervalAnswer:
        """The rows of an interval; raises WorkerGoneError where the worker has ended, DriverLostError where the driver is lost.

        Raises WorkerHungError after `timeout_s` without an answer and without progress from one call to the next, of a
        process that has made no call yet after the time that a busy host may take to start one.
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
        """The GPU and the name of the driver call that is being made; empty where none is."""
        return self._page.current()

    def answered_late(self) -> bool:
        """Whether a worker that was given up has come back (or ended): its GPU can be tried again."""
        try:
            return self._process.poll() is not None or self._read_line(0.0) is not None
        except WorkerGoneError:
            return True

    def close(self) -> None:
        """Lets the worker end by itself: its input ends, and it ends when the driver lets it."""
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()

    def end(self, patience_s: float) -> bool:
        """Closes and waits; a worker that is stuck in the driver gets SIGTERM, never SIGKILL (it has frozen GPUs).

        Returns whether the process has ended.
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
        if (
            -code in _FROM_OUTSIDE
        ):  # the kernel for want of memory, or a person: whatever call was being made is not to blame
            return WorkerGoneError(how)
        return WorkerGoneError(how, uuid, call)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "real-time"  # those have no names


_SHORTEST_WAIT_S = 0.05  # a signal needs a moment to be delivered


class Stuck:
    """Workers that were given up, each with the GPUs (UUID or `#index`) that it blocks on, "" for the driver as a whole.

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
        """Whether some worker blocks in a call about the driver as a whole, such as loading it."""
        return "" in self._blocked

    def freed(self, patience_s: float) -> frozenset[str]:
        """Ends the workers whose call has returned; what they, and no other, blocked on ("" for the driver)."""
        freed: set[str] = set()
        for worker in [each for each in self._workers if each.answered_late()]:
            freed.update(self._workers.pop(worker))
            worker.end(patience_s)
        return frozenset(freed - self._blocked)

    def end(self, patience_s: float) -> list[tuple[int, str, str]]:
        """Asks every worker to end; pid, target and call of those that do not, which are forgotten.

        All share the patience: they are asked at once, and one that ends early leaves its part to the others.
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


_CRASHES = 2  # in a row on one GPU: once may be chance
_CALM = 60  # whole intervals without a crash after which nothing is held against a GPU any more
_FIRST_REST = 6  # intervals for which such a GPU is left alone; doubled with each further crash
_LONGEST_REST = 360

BURST = 10
"""Workers that may be started one after the other in place of ones that ended."""
EVERY_S = 5.0
"""After that one in so many seconds: a start takes 0.05 to 0.1 s of CPU time, so that this is 2 % of a core at most."""


class RestartBudget:
    """How many workers may still be started in place of ones that ended by nobody's fault."""

    def __init__(self) -> None:
        self._left = float(BURST)
        self._at_s: float | None = None

    def take(self, now_s: float) -> bool:
        """Takes one start, by a clock that never steps; False where there is none for now."""
        passed_s = 0.0 if self._at_s is None else now_s - self._at_s
        self._left, self._at_s = min(BURST, self._left + passed_s / EVERY_S), now_s
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Crashes:
    """Counts ends of workers by the GPU whose call was under way, so that no crash repeats at every interval."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._resting: dict[str, int] = {}
        self._rest: dict[str, int] = {}
        self._calm = 0

    def count(self, target: str) -> bool:
        """Counts one crash in a call of this GPU; whether it is to be left alone now."""
        self._calm = 0
        self._counts[target] = self._counts.get(target, 0) + 1
        if self._counts[target] >= _CRASHES:
            rest = self._rest.get(target, _FIRST_REST)
            self._resting[target] = rest
            self._rest[target] = min(2 * rest, _LONGEST_REST)
            self._counts[target] = _CRASHES - 1  # after the rest, a single crash suffices
            return True
        return False

    def survived(self) -> None:
        """A whole interval was answered; after many of them all is forgotten."""
        self._calm += 1
        if self._calm == _CALM:
            self._counts.clear()
            self._rest = {target: rest for target, rest in self._rest.items() if target in self._resting}

    def avoided(self) -> frozenset[str]:
        return frozenset(self._resting)

    def due(self) -> frozenset[str]:
        """Counts one interval; the GPUs whose rest is over."""
        over = frozenset(target for target, left in self._resting.items() if left <= 1)
        self._resting = {target: left - 1 for target, left in self._resting.items() if left > 1}
        return over


@dataclass
class _Trial:
    """What is held against one GPU."""

    calls: dict[str, str]
    """What each call did that is on trial."""
    health: str = "ok"
    """The GPU's health by the newest event."""
    returned: set[str] = field(default_factory=set)
    intervals: int = 0
    """Answered since the newest call was held against it."""


class Trials:
    """Driver calls that blocked or ended a worker: their GPU is healthy again once each of them has returned.

    A GPU goes by its UUID, or by `#index` before that is known; the driver as a whole by an empty text.
    """

    def __init__(self) -> None:
        self._trials: dict[str, _Trial] = {}

    def hold(self, target: str, call: str, did: str, health: str | None = None) -> bool:
        """Holds a call against a GPU that now has this health, None for the one it had; whether that is another one."""
        trial = self._trials.setdefault(target, _Trial({}))
        trial.calls[call] = did
        trial.returned.discard(call)
        trial.intervals = 0
        before, trial.health = trial.health, health or trial.health
        return trial.health != before

    def open_calls(self, avoided: Collection[str]) -> list[tuple[str, str]]:
        """GPU and call of those that have not returned yet, without the GPUs that are not read."""
        return [
            (target, call)
            for target, trial in self._trials.items()
            if target not in avoided
            for call in trial.calls
            if call not in trial.returned
        ]

    def returned(self, target: str, call: str) -> None:
        """Takes note that a call has returned in the worker of now."""
        if target in self._trials:
            self._trials[target].returned.add(call)

    def settle(self, avoided: Collection[str]) -> list[tuple[str, str, str]]:
        """Counts an answered interval of the GPUs that are read; those whose health is another one now.

        Returns GPU, health and why: what follows its name.

        A GPU is degraded while a call is on trial. One that was not needed for long enough is no longer held against it.
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
    """Why a health is another one now, behind a word for the GPU or the driver; `left` are the calls still on trial."""
    named = [call for call in trial.calls if not left or call in left]
    calls = " and ".join(f"{call}, which {trial.calls[call]}," for call in named)
    have = "has" if len(named) == 1 else "have"
    if not left:
        return f"answers again: {calls} {have} returned"
    if trial.intervals < _CALM:
        return f"is read again, but {calls} {have} not been called since"
    return f"has answered for {trial.intervals} intervals; {calls} {have} not been needed"
