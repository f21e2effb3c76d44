"""How much memory this process may use for what it keeps, how much it uses, and how it gives some back."""

from __future__ import annotations

import gc
import logging
import resource
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyarrow as pa

from fallow.process_memory import trim_memory
from fallow.units import format_bytes

_LOG = logging.getLogger(__name__)

_KEPT_SHARE = 3 / 4
"""Of the budget: the rest is for what is being made, which is measured only when it is there."""

_MOST_SHARE, _WORTH_WHILE = 7 / 8, 1.1
"""Of the budget, and times what was left when there was nothing more to let go of: less than both is left as it is."""

_IN_A_ROW = 8
"""Pages that go before a view that waits: as many as threads answer."""


class Budget:
    """Keeps a process within `bytes_` by letting go of what was used the longest ago. Safe to ask from many threads."""

    def __init__(
        self, bytes_: int, used: Callable[[], int] | None = None, most: Callable[[], int] | None = None
    ) -> None:
        """`used` is what is resident, `most` the most that ever was."""
        self.bytes = bytes_
        self._used, self._most = used or _resident_bytes, most or used or _most_resident_bytes
        self._changed = threading.Condition()
        self._pages: list[object] = []
        self._views: list[object] = []
        self._in_a_row = 0
        self._stays_bytes = 0
        self._has_warned = False
        self._making: list[Making] = []
        self._need_bytes: int | None = None

    @property
    def is_exceeded(self) -> bool:
        """Whether as much is in use as may be kept."""
        return self.used_bytes > self.bytes * _KEPT_SHARE

    @property
    def used_bytes(self) -> int:
        """Resident memory of this process."""
        return self._used()

    @contextmanager
    def making(self, let_go: Callable[[], bool], patience_s: float | None = None) -> Iterator[None]:
        """Wait for room to make a page of a view that is there, and measure its need; raises TimeoutError after `patience_s`."""
        own = self._admit(self._pages, let_go, patience_s)
        try:
            yield
        finally:
            self.release(own)

    def admit(self, let_go: Callable[[], bool], patience_s: float | None = None) -> Making:
        """Return once the next view has room; raises TimeoutError after `patience_s`."""
        return self._admit(self._views, let_go, patience_s)

    def _admit(self, line: list[object], let_go: Callable[[], bool], patience_s: float | None) -> Making:
        own = object()
        with self._changed:
            line.append(own)
            try:
                if not self._changed.wait_for(lambda: self._next is own and self._has_room(let_go), patience_s):
                    raise TimeoutError
                self._in_a_row = self._in_a_row + 1 if line is self._pages else 0
                made = Making(self._used(), self._most())
                self._making.append(made)
                for each in self._making:
                    each.at_once = max(each.at_once, len(self._making))
                return made
            finally:
                line.remove(own)
                self._changed.notify_all()

    @property
    def _next(self) -> object:
        """Pages come first, or room for the next view would take away theirs; a view waits for a few of them at most."""
        pages_wait = self._pages and (self._in_a_row < _IN_A_ROW or not self._views)
        return (self._pages if pages_wait else self._views)[0]

    def release(self, made: Making) -> None:
        """Note by how much memory grew; several that were made at once share the growth."""
        with self._changed:
            self._making.remove(made)
            most_bytes = self._most()
            reached_bytes = most_bytes if most_bytes > made.most_bytes else self._used()
            need_bytes = (reached_bytes - made.used_bytes) // made.at_once
            self._need_bytes = max(self._need_bytes or 0, need_bytes)
            self._changed.notify_all()

    def _has_room(self, let_go: Callable[[], bool]) -> bool:
        """Whether one more fits beside those being made, each with the largest need so far.

        The first has room made for it by `let_go` and begins in any case. Another one waits instead: two at once are no
        sooner there than one after the other, and what is let go of has to be made again. While no need was measured, one
        is made at a time.
        """
        if self._making and self._need_bytes is None:
            return False
        need_bytes = (self._need_bytes or 0) * (len(self._making) + 1)
        if self._making or self.used_bytes + need_bytes <= self.bytes:
            return self.used_bytes + need_bytes <= self.bytes
        give_back()
        while self.used_bytes + need_bytes > self.bytes and let_go():
            give_back()
        return True

    def keep(self, let_go: Callable[[], bool]) -> None:
        """Calls `let_go`, which says whether there was anything to let go of, until the rest fits."""
        # where little is left beside what stays, letting go for each page would make every page anew
        if self.used_bytes <= max(
            self.bytes * _KEPT_SHARE, min(self.bytes * _MOST_SHARE, self._stays_bytes * _WORTH_WHILE)
        ):
            return
        with self._changed:
            if self.is_exceeded:  # another thread may have done enough
                give_back()
            while self.is_exceeded:
                if not let_go():
                    self._stays_bytes = self.used_bytes
                    break
                give_back()
            if self.used_bytes > self.bytes and not self._has_warned:
                self._has_warned = True
                _LOG.warning(
                    "%s are resident, more than the %s of dashboard.memory, while %d views and pages were being made: beside the "
                    "ledger and one window, one of them takes up to %s while it is made; give it more, or fewer --workers",
                    format_bytes(self.used_bytes),
                    format_bytes(self.bytes),
                    len(self._making),
                    format_bytes(self._need_bytes or 0),
                )


@dataclass(eq=False)
class Making:
    """A view or a page that is being made: what was resident before, the most that ever had been, and how many are made at once."""

    used_bytes: int
    most_bytes: int
    at_once: int = 1


def _resident_bytes() -> int:
    return int(psutil.Process().memory_info().rss)


def _most_resident_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def give_back() -> None:
    """Has the allocators hand unused memory to the system, which glibc's does by itself only at the end of a heap."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    trim_memory()


def budget_bytes(setting: int, workers: int, groups: Path = Path("/sys/fs/cgroup")) -> int:
    """What one of the workers may use: its share of `setting`, or where that is 0 of half of what the machine allows."""
    return (setting or limit_bytes(groups) // 2) // workers


def limit_bytes(groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """What the container or the unit may use: the least limit of its control groups (v2 or v1), else the machine's memory."""
    return min([int(psutil.virtual_memory().total), *_limits(groups, own)])


def _limits(groups: Path, own: Path) -> list[int]:
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory"):
            name = "memory.limit_in_bytes" if controllers else "memory.max"
            group = (groups / controllers / path.lstrip("/")).resolve()
            # inside a container the path may be the host's, and the group of its own is the root
            found += [_limit(each / name) for each in (group, *group.parents) if each.is_relative_to(groups)]
    return [each for each in found if each]


def _limit(file: Path) -> int:
    """0 where there is none."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # no such group, or "max"
        return 0
