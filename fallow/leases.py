"""Leases: one writer at a time for writers that read files of the lake and replace them.

A writer stores a ticket, a small file under a unique name, and then lists the tickets. The writer holds the lease if
its ticket is the only one. Of two writers that see each other, the later removes its ticket and waits. Later writers
see the holder's ticket. A store therefore needs no lock, rename or condition, only a listing that shows earlier files.
Names are never reused, so that removing an expired ticket cannot harm another writer.

A holder renews its ticket regularly. A ticket expires if a waiting writer has seen it unchanged for the expiry time by
its own clock, so that clocks need not agree; or at once if its process ran on this host and has ended. A holder that
could not renew its ticket for part of the expiry time stops writing. It checks the clock before and after a file gets
its name: a process that was suspended in between may have overwritten another writer's file, and reports that.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import secrets
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from fallow.clock import SystemClock, format_duration, format_ms
from fallow.errors import LakeError
from fallow.lake import Lake, LakeFile, SameLake
from fallow.os_user import os_user
from fallow.output import say
from fallow.outside_text import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FOLDER = ".leases"
"""Folder of the tickets in the lake; no table has this name."""

_FIRST_PAUSE_S = 0.02
_FAR_OFF_MS = 10**14
"""The year 5138; a name with a later time is not fallow's."""


@dataclass(frozen=True)
class LeaseTimes:
    """Times of a lease: a store's slowest request (90 s with its retries) ends between `sure_s` and `expiry_s`."""

    wait_s: float = 600
    """How long a writer waits for the lease."""
    renew_s: float = 10
    sure_s: float = 30
    """A holder whose ticket is older than this starts no write."""
    expiry_s: float = 120
    """A ticket without a change for this time has expired."""
    pause_s: float = 1
    """Longest time between two listings of the tickets."""


DEFAULT_TIMES = LeaseTimes()


class LeaseClock:
    """A clock that cannot be set, and that runs while the host sleeps, if the system has such a clock."""

    def now_s(self) -> float:
        return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


_CLOCK = LeaseClock()


@contextlib.contextmanager
def leased(
    lake: Lake,
    name: str,
    what: str,
    *,
    times: LeaseTimes = DEFAULT_TIMES,
    clock: LeaseClock = _CLOCK,
    tell: Callable[[str], None] = say,
) -> Iterator[Lake]:
    """Return the lake for the only writer that may change it; waits for the lease.

    Args:
        lake: the lake to change.
        name: writers with the same name wait for each other.
        what: the work of the writer, such as `an import of gpu-7`, for messages of waiting writers.
        times: the times of the lease.
        clock: the clock that measures them.
        tell: gets a message about the writer that this writer waits for.

    Raises LakeError if tickets cannot be stored or if the wait is too long. The lake's `put` and `delete` raise
    LakeError once another writer may have the lease.
    """
    queue = _Queue(lake, f"{FOLDER}/{quote(name, safe='-')}", times, clock)
    lease = _Lease(lake, _Ticket.new(queue.folder), times, clock)
    try:
        _wait_for_turn(queue, lease, what, tell)
        with lease.renewed():
            yield _LeasedLake(lake, lease)
    finally:
        # the ticket of a process that dies before this expires, or its end is detected
        with contextlib.suppress(LakeError):
            lease.withdraw()


@dataclass(frozen=True, order=True)
class _Ticket:
    """A writer that wants a lease, from the name of its ticket."""

    key: str
    started_ms: int
    user: str
    host: str
    pid: str
    born: str
    place: str

    @classmethod
    def new(cls, folder: str) -> _Ticket:
        pid = str(os.getpid())
        parts = (os_user()[:40], (socket.gethostname() or "unnamed")[:64], pid, _born(pid) or "", _place())
        key = f"{SystemClock().now_ms():015d}{secrets.token_hex(4)}," + ",".join(quote(each, safe="") for each in parts)
        return cls.read(f"{folder}/{key}")

    @classmethod
    def read(cls, key: str) -> _Ticket:
        """Return the ticket with a name; another name gives a ticket of an unknown writer."""
        first, *rest = key.rpartition("/")[2].split(",")
        known = [*(plain(unquote(each), 64) for each in rest), "", "", "", "", ""][:5]
        started_ms = int(first[:15]) if first[:15].isdecimal() else 0
        return cls(key, started_ms if started_ms < _FAR_OFF_MS else 0, *known)

    @property
    def is_dead(self) -> bool:
        """Return whether the process has ended; only processes of this host and PID namespace can be checked."""
        if not self.place or self.place != _place() or not self.pid.isdecimal():
            return False
        try:
            os.kill(int(self.pid), 0)
        except ProcessLookupError:
            return True
        except (OSError, OverflowError):
            pass  # another user's process may be hidden in /proc
        born = _born(self.pid)
        return born is not None and born != self.born

    def description(self) -> str:
        who = f"{self.user or 'an unknown user'} on {self.host or 'an unknown host'} (process {self.pid or '?'})"
        return who + (f" since {format_ms(self.started_ms)}" if self.started_ms else "")


class _Queue:
    """The tickets for a lease, and the time since which each is unchanged."""

    def __init__(self, lake: Lake, folder: str, times: LeaseTimes, clock: LeaseClock) -> None:
        self.folder, self.times, self.clock = folder, times, clock
        self._lake = lake
        self._seen: dict[str, tuple[str, float]] = {}

    def tickets(self) -> list[_Ticket]:
        """Return the valid tickets, the earliest first; removes expired tickets. Raises LakeError."""
        now_s = self.clock.now_s()
        seen = {}
        for stored in list(self._lake.store.list(self.folder)):
            if stored.fault:  # a folder or a pipe is not a ticket
                continue
            version, since_s = self._seen.get(stored.key, ("", now_s))
            since_s = since_s if version == stored.version else now_s
            if now_s - since_s >= self.times.expiry_s or _Ticket.read(stored.key).is_dead:
                self._lake.store.delete(stored.key)
            else:
                seen[stored.key] = (stored.version, since_s)
        self._seen = seen
        return [_Ticket.read(key) for key in sorted(seen)]


class _Lease:
    """A ticket that is stored, renewed while the lease is needed, and removed."""

    def __init__(self, lake: Lake, ticket: _Ticket, times: LeaseTimes, clock: LeaseClock) -> None:
        self.ticket = ticket
        self._lake, self._times, self._clock = lake, times, clock
        self._count = 0
        self._stored_s = 0.0
        self._is_stored = False

    def store(self) -> None:
        """Raises LakeError."""
        now_s = self._clock.now_s()  # before the write: a late write counts from its start
        self._count += 1
        self._is_stored = True  # also after an error: the store may have the ticket
        self._lake.store.put(self.ticket.key, f"{self._count}\n".encode())
        self._stored_s = now_s

    def withdraw(self) -> None:
        if self._is_stored:
            self._lake.store.delete(self.ticket.key)
            self._is_stored = False

    @property
    def is_sure(self) -> bool:
        return self._clock.now_s() - self._stored_s < self._times.sure_s

    def require(self) -> None:
        """Raise LakeError if another writer may have the lease now."""
        if not self.is_sure:
            raise LakeError(
                f"this command lost its lease on {self._lake.root}: it could not renew the lease for "
                f"{format_duration(round(1000 * self._times.sure_s))}",
                "run it again; its files are complete, and nothing is duplicated",
            )

    def require_kept(self) -> None:
        """Raise LakeError if another writer may have had the lease during the write."""
        if self._clock.now_s() - self._stored_s >= self._times.expiry_s:
            raise LakeError(
                f"this command may have written to {self._lake.root} after it lost its lease",
                "run it again, and then again what has written there since: one may have overwritten the other",
            )

    @contextlib.contextmanager
    def renewed(self) -> Iterator[None]:
        """Renew the ticket in a thread inside the context."""
        over = threading.Event()

        def renew() -> None:
            # a lease that another writer may have is never resumed
            while not over.wait(self._times.renew_s) and self.is_sure:
                with contextlib.suppress(LakeError):  # the next renewal may succeed; `require` reports the failure
                    self.store()

        thread = threading.Thread(target=renew, name="lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


class _LeasedLake(SameLake):
    def __init__(self, lake: Lake, lease: _Lease) -> None:
        super().__init__(lake)
        self._lease = lease

    def put(self, file: LakeFile, data: bytes) -> LakeFile:
        written = super().put(file, data)
        self._lease.require_kept()
        return written

    def _before_put(self) -> None:
        super()._before_put()
        self._lease.require()

    def delete(self, file: LakeFile) -> None:
        self._lease.require()
        super().delete(file)
        self._lease.require_kept()


def _wait_for_turn(queue: _Queue, lease: _Lease, what: str, tell: Callable[[str], None]) -> None:
    """Return when this ticket is the only one; raises LakeError if that takes too long."""
    clock, mine = queue.clock, lease.ticket
    began_s, pause_s, named_key = clock.now_s(), _FIRST_PAUSE_S, ""
    while True:
        others = [each for each in queue.tickets() if each.key != mine.key]
        if not others or mine.key < others[0].key:
            lease.store()
            tickets = queue.tickets()
            if [each.key for each in tickets] == [mine.key] and lease.is_sure:
                return
            others = [each for each in tickets if each.key != mine.key]
        if others and others[0].key < mine.key:
            lease.withdraw()
        if clock.now_s() - began_s >= queue.times.wait_s:
            waited = format_duration(round(1000 * queue.times.wait_s))
            if not others:
                raise LakeError(f"{what} has waited {waited} for {queue.folder}", "check why the lake is slow")
            raise LakeError(
                f"{what} has waited {waited} for another writer: {others[0].description()}",
                "run it again when the other writer has ended",
            )
        if others and named_key != others[0].key and pause_s > 10 * _FIRST_PAUSE_S:
            named_key = others[0].key
            tell(f"{what} waits for another writer: {others[0].description()}")
        # random, so that two writers do not list at the same times
        clock.sleep(pause_s * random.uniform(0.5, 1))  # noqa: S311  # not a secret
        pause_s = min(2 * pause_s, queue.times.pause_s)


def _place() -> str:
    """Return a hash of the host's boot and PID namespace, equal for processes that see each other; empty: unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        namespace = Path("/proc/self/ns/pid").readlink()
    except OSError:
        return ""
    return hashlib.sha256(f"{boot}{namespace}".encode()).hexdigest()[:12]


def _born(pid: str) -> str | None:
    """Return the start of a process in ticks since the boot; empty for an ended process, None if unknown."""
    try:
        fields = Path("/proc", pid, "stat").read_bytes().rpartition(b")")[2].split()
        return "" if fields[0] in (b"Z", b"X") else fields[19].decode()
    except (OSError, IndexError):
        return None
