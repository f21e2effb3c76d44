"""The memory that this process may use for kept views, the memory that it uses, and its release."""

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
"""The share of the budget for kept views. The rest is for views in progress, whose need is known only at their end."""

_MOST_SHARE, _WORTH_WHILE = 7 / 8, 1.1
"""Nothing is evicted below both limits: this share of the budget; this multiple of memory that no eviction freed."""

_IN_A_ROW = 8
"""The most pages that may go before a waiting view: the number of threads that answer."""


class Budget:
    """Keeps a process within `bytes_` by eviction of the least recently used views. Thread-safe."""

    def __init__(
        self, bytes_: int, used: Callable[[], int] | None = None, most: Callable[[], int] | None = None
    ) -> None:
        """`used` returns the resident bytes, `most` the largest resident bytes so far."""
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
        """True where more memory is in use than kept views may take."""
        return self.used_bytes > self.bytes * _KEPT_SHARE

    @property
    def used_bytes(self) -> int:
        """Resident memory of this process."""
        return self._used()

    @contextmanager
    def making(self, evict: Callable[[], bool], patience_s: float | None = None) -> Iterator[None]:
        """Wait for room to make a page of a ready view, and measure it; raises TimeoutError after `patience_s`."""
        own = self._admit(self._pages, evict, patience_s)
        try:
            yield
        finally:
            self.release(own)

    def admit(self, evict: Callable[[], bool], patience_s: float | None = None) -> Making:
        """Return once the next view has room; raises TimeoutError after `patience_s`."""
        return self._admit(self._views, evict, patience_s)

    def _admit(self, line: list[object], evict: Callable[[], bool], patience_s: float | None) -> Making:
        own = object()
        with self._changed:
            line.append(own)
            try:
                if not self._changed.wait_for(lambda: self._next is own and self._has_room(evict), patience_s):
                    raise TimeoutError
                self._in_a_row = self._in_a_row + 1 if line is self._pages else 0
                making = Making(self._used(), self._most())
                self._making.append(making)
                for each in self._making:
                    each.at_once = max(each.at_once, len(self._making))
                return making
            finally:
                line.remove(own)
                self._changed.notify_all()

    @property
    def _next(self) -> object:
        """Return the next page or view: pages first, since a view would take their room; it waits for a few pages."""
        pages_wait = self._pages and (self._in_a_row < _IN_A_ROW or not self._views)
        return (self._pages if pages_wait else self._views)[0]

    def release(self, making: Making) -> None:
        """Record the growth of the memory; pages and views that were made at the same time share the growth."""
        with self._changed:
            self._making.remove(making)
            most_bytes = self._most()
            reached_bytes = most_bytes if most_bytes > making.most_bytes else self._used()
            need_bytes = (reached_bytes - making.used_bytes) // making.at_once
            self._need_bytes = max(self._need_bytes or 0, need_bytes)
            self._changed.notify_all()

    def _has_room(self, evict: Callable[[], bool]) -> bool:
        """Return whether one more fits beside those in progress, if every one takes the largest need so far.

        For the first, `evict` makes room, and it begins in any case. Another one waits: two at once finish no sooner
        than one after the other, and evicted views must be made again. Until a need is measured, one is made at a time.
        """
        if self._making and self._need_bytes is None:
            return False
        need_bytes = (self._need_bytes or 0) * (len(self._making) + 1)
        if self._making or self.used_bytes + need_bytes <= self.bytes:
            return self.used_bytes + need_bytes <= self.bytes
        release_unused_memory()
        while self.used_bytes + need_bytes > self.bytes and evict():
            release_unused_memory()
        return True

    def keep(self, evict: Callable[[], bool]) -> None:
        """Call `evict`, which returns whether it forgot anything, until the kept views fit."""
        # near the memory that no eviction frees, an eviction per page would recompute every page
        if self.used_bytes <= max(
            self.bytes * _KEPT_SHARE, min(self.bytes * _MOST_SHARE, self._stays_bytes * _WORTH_WHILE)
        ):
            return
        with self._changed:
            if self.is_exceeded:  # another thread may have done enough
                release_unused_memory()
            while self.is_exceeded:
                if not evict():
                    self._stays_bytes = self.used_bytes
                    break
                release_unused_memory()
            if self.used_bytes > self.bytes and not self._has_warned:
                self._has_warned = True
                _LOG.warning(
                    "%s are resident, more than the %s of dashboard.memory, while %d views and pages were being made:"
                    " beside the ledger and one window, one of them takes up to %s while it is made; give it more, or"
                    " fewer --workers",
                    format_bytes(self.used_bytes),
                    format_bytes(self.bytes),
                    len(self._making),
                    format_bytes(self._need_bytes or 0),
                )


@dataclass(eq=False)
class Making:
    """A view or a page in progress.

    Attributes:
        used_bytes: the resident memory at its start.
        most_bytes: the largest resident memory up to its start.
        at_once: the largest number in progress at the same time.
    """

    used_bytes: int
    most_bytes: int
    at_once: int = 1


def _resident_bytes() -> int:
    return int(psutil.Process().memory_info().rss)


def _most_resident_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def release_unused_memory() -> None:
    """Return unused memory of the allocators to the system; glibc does so by itself only at the end of a heap."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    trim_memory()


def budget_bytes(setting: int, workers: int, groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the bytes that one worker may use: its share of `setting`; for 0, of half of the machine's limit."""
    return (setting or limit_bytes(groups) // 2) // workers


def limit_bytes(groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """Return the bytes that the container or unit may use: the lowest limit of its control groups and the machine."""
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
            # inside a container the path may be the host's; the container's own group is then the root
            found += [_limit(each / name) for each in (group, *group.parents) if each.is_relative_to(groups)]
    return [each for each in found if each]


def _limit(file: Path) -> int:
    """Return the limit in a file, 0 without a limit."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # no such group, or "max"
        return 0
