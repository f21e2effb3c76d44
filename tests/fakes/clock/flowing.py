"""A clock that runs like the machine's, and skips time in which the processes that live by it have nothing to do."""

from __future__ import annotations

import mmap
import time
from pathlib import Path

import numpy as np

from tests.fakes.nvml.build import CLOCK

_HEAD = np.dtype([("wall_us", "i8"), ("steady_us", "i8"), ("flows", "i8"), ("look_ns", "i8")])
_SLOT = np.dtype([("tid", "i4"), ("pid", "i4"), ("waits_in", "i8"), ("until_us", "i8")])
_SLOTS = 1024


class FlowingClock:
    """One host's clocks. Timeouts of its programs mean what they say, and days pass in minutes, as `skip` is told."""

    def __init__(self, path: Path, library: Path, now_ms: int, look_ms: float) -> None:
        """`path` becomes the page that the processes share; their waits end up to `look_ms` late."""
        path.write_bytes(bytes(_HEAD.itemsize + _SLOTS * _SLOT.itemsize))
        with path.open("r+b") as file:
            memory = mmap.mmap(file.fileno(), 0)
        self._head = np.frombuffer(memory, _HEAD, 1)[0]
        self._slots = np.frombuffer(memory, _SLOT, _SLOTS, _HEAD.itemsize)
        self._head["wall_us"] = now_ms * 1000 - time.time_ns() // 1000
        self._head["flows"], self._head["look_ns"] = 1, round(look_ms * 1e6)
        self.environment = {"LD_PRELOAD": str(library / CLOCK), "FALLOW_FAKE_CLOCK": str(path)}
        """For processes that are to live by this clock."""

    def follow(self, other: FlowingClock) -> None:
        """Shows the other's time from now on."""
        self._head["wall_us"] = other._head["wall_us"]

    def now_ms(self) -> int:
        return int(self._head["wall_us"] + time.time_ns() // 1000) // 1000

    def skip(self, seconds: float) -> None:
        """Lets so much time pass at once."""
        for clock in ("wall_us", "steady_us"):
            self._head[clock] += round(seconds * 1e6)

    def step(self, seconds: float) -> None:
        """Puts the wall clock: no time passes."""
        self._head["wall_us"] += round(seconds * 1e6)

    def processes(self) -> set[int]:
        """Those that have begun to live by this clock."""
        return {int(pid) for pid in self._slots["pid"][self._slots["tid"] != 0]}

    def threads(self) -> set[int]:
        """Those that have waited by this clock."""
        return {int(tid) for tid in self._slots["tid"][self._slots["tid"] != 0]}

    def is_idle(self, for_s: float) -> bool:
        """Whether every thread that has ever waited waits for a moment further away than that."""
        now_us = int(self._head["steady_us"]) + time.monotonic_ns() // 1000
        waits = (self._slots["waits_in"] != 0) & (self._slots["until_us"] > now_us + round(for_s * 1e6))
        busy = np.flatnonzero((self._slots["tid"] != 0) & ~waits)
        return not [number for number in busy if not self._freed(number)]

    def free_slots(self) -> None:
        """Gives the places of threads that have ended to others."""
        for number in np.flatnonzero(self._slots["tid"] != 0):
            self._freed(number)

    def _freed(self, number: int) -> bool:
        """Whether the slot was a thread's that has ended; it is then free."""
        slot = self._slots[number]
        if slot["pid"] == 0 or Path("/proc", str(slot["pid"]), "task", str(slot["tid"])).exists():
            return slot["pid"] != 0 and _is_dead(int(slot["pid"])) and self._free(number)
        return self._free(number)

    def _free(self, number: int) -> bool:
        self._slots["waits_in"][number] = self._slots["until_us"][number] = self._slots["pid"][number] = 0
        self._slots["tid"][number] = 0
        return True


def _is_dead(pid: int) -> bool:
    try:
        return Path("/proc", str(pid), "stat").read_bytes().rpartition(b")")[2].split()[0] in (b"Z", b"X")
    except OSError:
        return True
