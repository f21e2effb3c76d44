"""What systemd is told: that the agent is up, what it does, that it is alive, that it reloads and that it ends.

The protocol is one datagram of `NAME=value` lines to the socket in `NOTIFY_SOCKET`, see sd_notify(3). Where nobody asked
for it (a terminal, a container) every method does nothing, and none of them ever raises: to report must not end the run.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import MutableMapping

_SHARE = 3
"""A sign of life each third of the watchdog's time: one that gets lost or comes late does no harm."""

_PATIENCE_S = 1.0  # the socket's queue is full only while systemd itself hangs, and then the agent must not

_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


@dataclass
class Notifier:
    """The service manager's ear; without an address there is none."""

    address: str | None = None
    """The socket as systemd writes it: a path, or `@` and a name in the abstract namespace."""
    watchdog_s: float | None = None
    """How long systemd waits for a sign of life; None where it does not watch."""
    _next_s: float = field(default=0.0, repr=False)

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str] = os.environ) -> Notifier:
        """What this process was told by systemd; one that tells nobody where it was told nothing.

        Takes the three variables out of the environment, so that neither the NVML worker nor the publisher inherits an
        address that is not theirs. (systemd would not listen to them either: `NotifyAccess=main`.)
        """
        address, period_us, pid = (environment.pop(name, "") for name in _VARIABLES)
        if not address.startswith(("/", "@")):
            return cls()
        watched = period_us.isdecimal() and int(period_us) > 0 and pid in ("", str(os.getpid()))
        return cls(address, int(period_us) / 1_000_000 if watched else None)

    def ready(self, status: str) -> None:
        """The agent is up, or up again after `reloading`; with what `systemctl status` shall show."""
        self._tell("READY=1", _status(status))

    def status(self, text: str) -> None:
        """What `systemctl status` shows from now on."""
        self._tell(_status(text))

    def watchdog(self) -> None:
        """A sign of life, for every round of a loop: it is sent no more often than systemd needs it."""
        now_s = time.monotonic()
        if self.watchdog_s is not None and now_s >= self._next_s:
            self._next_s = now_s + self.watchdog_s / _SHARE
            self._tell("WATCHDOG=1")

    def reloading(self) -> None:
        """The settings are read again; `ready` says when that is done."""
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """The agent ends: it was asked to, or its time is over."""
        self._tell("STOPPING=1")

    def _tell(self, *lines: str) -> None:
        if self.address is None:
            return
        name = f"\0{self.address[1:]}" if self.address.startswith("@") else self.address
        with contextlib.suppress(OSError, ValueError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
            ear.settimeout(_PATIENCE_S)
            ear.sendto("\n".join(lines).encode(errors="replace"), name)


def _status(text: str) -> str:
    """One line: a line end in it would begin another field."""
    return f"STATUS={' '.join(text.split())}"
