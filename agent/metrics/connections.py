"""The connections that are open, and which of them has to go where there are too many: never the one that asks."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

MOST = 8
"""Connections at a time; each has a thread of its own."""
SHARE = 4
"""Of those, for one address."""
SLOW_S = 2.0
"""How long an answer may take to be read before its connection has to go for another's sake."""


@dataclass(eq=False)
class OpenConnection:
    """One connection; `asked` once its request is whole."""

    socket: socket.socket
    """What is read and written: another object once it is encrypted."""
    address: str
    since_s: float
    asked: bool = False
    let_go: bool = field(default=False, repr=False)


class Connections:
    """Admits connections up to a limit, and lets those go that keep others out: idle ones first, then slow readers.

    A scrape sends its request at once. So the connection that has not sent one and has waited longest is nobody's loss.
    """

    def __init__(self, most: int = MOST, share: int = SHARE, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._share = share
        self._monotonic_s = monotonic_s
        self._open: list[OpenConnection] = []  # oldest first
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many are open."""
        return len(self._open)

    def has_room(self) -> bool:
        """Whether another can be admitted, now that those who keep it out were let go."""
        with self._lock:
            return len(self._open) < self._most or self._let_one_go(self._open)

    def admit(self, connection: socket.socket, address: str) -> OpenConnection | None:
        """Takes a connection up; None where its address has its share and uses all of it.

        The caller has asked `has_room` and is the only one who admits.
        """
        with self._lock:
            own = [each for each in self._open if each.address == address]
            if len(own) >= self._share and not self._let_one_go(own):
                return None
            admitted = OpenConnection(connection, address, self._monotonic_s())
            self._open.append(admitted)
            return admitted

    def end(self, connection: OpenConnection) -> None:
        with self._lock:
            if not connection.let_go:
                self._open.remove(connection)

    def _let_one_go(self, among: list[OpenConnection]) -> bool:
        """Shuts one of them, in the middle of whatever its thread waits for; whether there was one to let go."""
        slow_s = self._monotonic_s() - SLOW_S
        leaves = next((each for each in among if not each.asked), None)
        leaves = leaves or next((each for each in among if each.since_s < slow_s), None)
        if leaves is None:
            return False
        leaves.let_go = True
        self._open.remove(leaves)
        with contextlib.suppress(OSError):  # it has just gone by itself
            # not the encrypted socket's own method, which would take its state away from the thread that uses it
            socket.socket.shutdown(leaves.socket, socket.SHUT_RDWR)
        return True
