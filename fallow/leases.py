"""Leases: one writer at a time where a writer reads what the lake holds and puts something else in its place.

Who wants a lease stores a ticket, a small file under a name that nobody else can choose, and then lists the tickets. It holds
the lease once its ticket is the only one; of two that see each other the later one takes its ticket back and waits. Whoever
comes later sees the holder's ticket. So no store needs a lock, a rename or a condition: only a list that shows what was stored
before. Names are never used twice, so that removing a void ticket cannot hurt another writer.

A holder stores its ticket again and again. A ticket is void once a waiting writer has seen it unchanged for the time of expiry by
its own clock, so that clocks need not agree, or at once if its process ran on this host and is gone. A holder that could not
store its ticket for a fraction of that time writes no more. It looks at the clock right before a file gets its name, and once
more afterwards: a process that was stopped just between may have overwritten another's file, and says so.
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
"""Where tickets lie in the lake: no table has this name."""

_FIRST_PAUSE_S = 0.02
_FAR_OFF_MS = 10**14
"""The year 5138: a name with a later moment is not fallow's."""


@dataclass(frozen=True)
class LeaseTimes:
    """How long things take: a store's slowest request (90 s with its retries) ends between `sure_s` and `expiry_s`."""

    wait_s: float = 600
    """How long a writer waits for its turn."""
    renew_s: float = 10
    sure_s: float = 30
    """A holder that stored its ticket so long ago begins no other write."""
    expiry_s: float = 120
    """A ticket that did not change for so long is void."""
    pause_s: float = 1
    """The longest time between two looks at the tickets."""


DEFAULT_TIMES = LeaseTimes()


class LeaseClock:
    """A clock that nobody can put, and that goes on while the host sleeps where there is such a one."""

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
    """The lake as one writer alone may change it, once it is this one's turn.

    Args:
        lake: what is written to.
        name: writers of one name wait for each other.
        what: what the writer does, such as `an import of gpu-7`, for those who wait.
        times: bounds.
        clock: what they are measured by.
        tell: is told for whom this writer waits.

    Raises LakeError where tickets cannot be stored, where the turn does not come in time, and from the lake's `put` and
    `delete` once the lease may be another's.
    """
    queue = _Queue(lake, f"{FOLDER}/{quote(name, safe='-')}", times, clock)
    lease = _Lease(lake, _Ticket.new(queue.folder), times, clock)
    try:
        _wait_for_turn(queue, lease, what, tell)
        with lease.renewed():
            yield _LeasedLake(lake, lease)
    finally:
        # whoever dies before is known to be dead, or its ticket expires
        with contextlib.suppress(LakeError):
            lease.withdraw()


@dataclass(frozen=True, order=True)
class _Ticket:
    """Who wants a lease, as the ticket's name says it."""

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
        """The ticket of a name; one that is no ticket's is of somebody unknown."""
        first, *rest = key.rpartition("/")[2].split(",")
        known = [*(plain(unquote(each), 64) for each in rest), "", "", "", "", ""][:5]
        started_ms = int(first[:15]) if first[:15].isdecimal() else 0
        return cls(key, started_ms if started_ms < _FAR_OFF_MS else 0, *known)

    @property
    def is_dead(self) -> bool:
        """Whether its process is known to be gone: only one of this host and this namespace can be looked for."""
        if not self.place or self.place != _place() or not self.pid.isdecimal():
            return False
        try:
            os.kill(int(self.pid), 0)
        except ProcessLookupError:
            return True
        except (OSError, OverflowError):
            pass  # another user's; /proc may hide it
        born = _born(self.pid)
        return born is not None and born != self.born

    def said(self) -> str:
        who = f"by {self.user or 'somebody'} on {self.host or 'an unknown host'} (process {self.pid or '?'})"
        return who + (f" since {format_ms(self.started_ms)}" if self.started_ms else "")


class _Queue:
    """The tickets for one lease, and since when each was seen unchanged."""

    def __init__(self, lake: Lake, folder: str, times: LeaseTimes, clock: LeaseClock) -> None:
        self.folder, self.times, self.clock = folder, times, clock
        self._lake = lake
        self._seen: dict[str, tuple[str, float]] = {}

    def tickets(self) -> list[_Ticket]:
        """Those that count, the earliest first; void ones are removed. Raises LakeError."""
        now_s = self.clock.now_s()
        seen = {}
        for stored in list(self._lake.store.list(self.folder)):
            if stored.fault:  # a folder or a pipe is nobody's ticket
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
    """A ticket that is stored, stored again while it is wanted, and taken back."""

    def __init__(self, lake: Lake, ticket: _Ticket, times: LeaseTimes, clock: LeaseClock) -> None:
        self.ticket = ticket
        self._lake, self._times, self._clock = lake, times, clock
        self._count = 0
        self._stored_s = 0.0
        self._is_stored = False

    def store(self) -> None:
        """Raises LakeError."""
        now_s = self._clock.now_s()  # before: what was stored late is as old as the wish to store it
        self._count += 1
        self._is_stored = True  # also where an error is told: the store may have taken it
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
        """Raises LakeError unless nobody else can have the lease now."""
        if not self.is_sure:
            raise LakeError(
                f"this command has lost its turn to write to {self._lake.root}: it could not renew its lease for "
                f"{format_duration(round(1000 * self._times.sure_s))}",
                "run it again; what it has written is whole, and nothing is doubled",
            )

    def require_kept(self) -> None:
        """Raises LakeError where another may have had the lease by now, who cannot know of what was written just before."""
        if self._clock.now_s() - self._stored_s >= self._times.expiry_s:
            raise LakeError(
                f"this command may have written to {self._lake.root} after it had lost its turn",
                "run it again, and then again what has written there since: one may have overwritten the other",
            )

    @contextlib.contextmanager
    def renewed(self) -> Iterator[None]:
        """Stores the ticket again and again in a thread of its own."""
        over = threading.Event()

        def renew() -> None:
            # a lease that may be another's is never taken up again
            while not over.wait(self._times.renew_s) and self.is_sure:
                with contextlib.suppress(LakeError):  # tried again; `require` says so if that does not help
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
    """Returns when this ticket is the only one; raises LakeError when that takes too long."""
    clock, mine = queue.clock, lease.ticket
    began_s, pause_s, told = clock.now_s(), _FIRST_PAUSE_S, ""
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
                raise LakeError(f"{what} has waited {waited} for {queue.folder}", "look why the lake is so slow")
            raise LakeError(
                f"{what} has waited {waited} for another one {others[0].said()}", "run it again when that one has ended"
            )
        if others and told != others[0].key and pause_s > 10 * _FIRST_PAUSE_S:
            told = others[0].key
            tell(f"{what} waits for another one {others[0].said()}")
        # whoever looks at the same moments would meet again
        clock.sleep(pause_s * random.uniform(0.5, 1))  # noqa: S311  # no secret
        pause_s = min(2 * pause_s, queue.times.pause_s)


def _place() -> str:
    """What processes that can see one another have in common: the host's boot and the namespace of process ids; "" unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        namespace = Path("/proc/self/ns/pid").readlink()
    except OSError:
        return ""
    return hashlib.sha256(f"{boot}{namespace}".encode()).hexdigest()[:12]


def _born(pid: str) -> str | None:
    """When a process began, in ticks since the boot; "" where it has ended and only its parent has not asked; None unknown."""
    try:
        fields = Path("/proc", pid, "stat").read_bytes().rpartition(b")")[2].split()
        return "" if fields[0] in (b"Z", b"X") else fields[19].decode()
    except (OSError, IndexError):
        return None
