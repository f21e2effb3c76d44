"""A clock that stands still until a test moves it, for the test and for the processes that it starts."""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.fakes.nvml.build import CLOCK

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

_SLOTS = 1024
_RUNNING, _SLEEPING, _POLLING = range(3)
_FOREVER = (1 << 63) - 1
_BROKEN_S = 240.0  # no machine is so busy that a process gets nothing done in this time
_PAUSE_S = 0.0002
_AHEAD_US = 3_600_000_000  # a lock's deadline by this clock never lies in the machine's past


class _Slot(ctypes.Structure):
    _fields_ = (
        ("tid", ctypes.c_int32),
        ("pid", ctypes.c_int32),
        ("waits_in", ctypes.c_int64),
        ("until_us", ctypes.c_int64),
    )


class _Page(ctypes.Structure):
    _fields_ = (
        ("wall_us", ctypes.c_int64),
        ("steady_us", ctypes.c_int64),
        ("flows", ctypes.c_int64),
        ("look_ns", ctypes.c_int64),
        ("slots", _Slot * _SLOTS),
    )


class FakeClock:
    """A `fallow.clock.Clock`; time goes on in `sleep` and `while_blocked` only.

    It never passes a moment that a thread of a started process waits for before that thread has done its work, so that
    a run is the same on every machine, however busy.
    """

    def __init__(self, folder: Path, library: Path, now_ms: int) -> None:
        """`folder` gets the page that the processes share; `library` is where `library_folder` compiled the clock."""
        self._path = folder / "clock"
        self._path.write_bytes(b"\0" * ctypes.sizeof(_Page))
        with self._path.open("r+b") as file:
            self._page = _Page.from_buffer(mmap.mmap(file.fileno(), 0))
        self._page.wall_us = now_ms * 1000
        self._page.steady_us = time.monotonic_ns() // 1000 + _AHEAD_US
        self.environment = {"LD_PRELOAD": str(library / CLOCK), "FALLOW_FAKE_CLOCK": str(self._path)}
        """For processes that are to live by this clock."""
        self._planned: list[tuple[int, Callable[[], None]]] = []

    def now_ms(self) -> int:
        return int(self._page.wall_us // 1000)

    def monotonic_s(self) -> float:
        return float(self._page.steady_us / 1e6)

    @contextmanager
    def for_new_processes(self) -> Iterator[None]:
        """Processes that are started meanwhile live by this clock."""
        os.environ.update(self.environment)
        try:
            yield
        finally:
            for name in self.environment:
                del os.environ[name]

    def step(self, seconds: float) -> None:
        """Puts the wall clock: no time passes."""
        self._page.wall_us += round(seconds * 1e6)

    def at(self, now_ms: int, action: Callable[[], None]) -> None:
        """Does something as soon as the wall clock says so, if time passes in `sleep`."""
        self._planned.append((now_ms, action))

    def sleep(self, seconds: float, is_over: Callable[[], bool] = lambda: False) -> None:
        """Lets so much time pass, or less where something ends it."""
        end_us = self._page.steady_us + max(0, round(seconds * 1e6))
        self._settle()
        while not is_over() and self._page.steady_us < end_us:
            until_us = min([end_us, self._next_planned_us(), *(slot.until_us for slot in self._waiting())])
            self._pass(until_us - self._page.steady_us)
            self._settle()
            self._do_planned()

    def until_ended(self, process: subprocess.Popen[Any]) -> None:
        """Lets time pass from one moment for which the process waits to the next, until it has ended."""
        while process.poll() is None:
            waited_for = min((slot.until_us for slot in self._waiting()), default=_FOREVER)
            if self._busy() or waited_for == _FOREVER:
                time.sleep(_PAUSE_S)
            else:
                self._pass(waited_for - self._page.steady_us)

    def while_blocked(self, seconds: float) -> None:
        """Lets so much time pass if the newest process sleeps and so will not answer before; else none."""
        newest = [slot for slot in self._alive() if slot.tid == slot.pid][-1:]
        busy = [slot for slot in self._busy() if slot.pid == 0 or _is_alive(slot.pid, slot.tid)]
        if any(slot.waits_in == _SLEEPING for slot in newest) and not busy:
            next_us = min(slot.until_us for slot in self._waiting())
            self._pass(min(next_us - self._page.steady_us, round(seconds * 1e6)))

    def _pass(self, us: int) -> None:
        self._page.wall_us += us
        self._page.steady_us += us

    def _next_planned_us(self) -> int:
        wall_us = self._page.wall_us
        return min(
            (self._page.steady_us + max(0, at_ms * 1000 - wall_us) for at_ms, _ in self._planned), default=_FOREVER
        )

    def _do_planned(self) -> None:
        due = [each for each in self._planned if each[0] <= self.now_ms()]
        self._planned = [each for each in self._planned if each not in due]
        for _, action in due:
            action()

    def _slots(self) -> Iterator[_Slot]:
        for slot in self._page.slots:
            if slot.tid == 0:
                return
            yield slot

    def _alive(self) -> list[_Slot]:
        return [slot for slot in self._slots() if slot.pid == 0 or _is_alive(slot.pid, slot.tid)]

    def _waiting(self) -> list[_Slot]:
        now_us = self._page.steady_us
        return [slot for slot in self._slots() if slot.waits_in != _RUNNING and slot.until_us > now_us]

    def _busy(self) -> list[_Slot]:
        now_us = self._page.steady_us
        return [slot for slot in self._slots() if slot.waits_in == _RUNNING or slot.until_us <= now_us]

    def _settle(self) -> None:
        """Waits until every thread that lives waits for a later moment."""
        deadline_s, checked_s = time.monotonic() + _BROKEN_S, time.monotonic()
        while busy := self._busy():
            now_s = time.monotonic()
            assert now_s < deadline_s, f"threads that never wait again: {[(slot.pid, slot.tid) for slot in busy]}"
            if now_s > checked_s + 0.005:
                checked_s = now_s
                for slot in busy:
                    if slot.pid and not _is_alive(slot.pid, slot.tid):
                        slot.waits_in, slot.until_us = _POLLING, _FOREVER
            time.sleep(_PAUSE_S)


def _is_alive(pid: int, tid: int) -> bool:
    try:
        with open(f"/proc/{pid}/task/{tid}/stat", "rb") as file:  # noqa: PTH123  # asked some thousand times
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False
