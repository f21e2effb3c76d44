"""What the outside sees of the run beside its rows: /metrics and /healthz, what is pushed, and what systemd is told."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from fallow.errors import FallowError

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from agent.snapshot import SnapshotBoard
    from fallow.config import Config

PUSHED = ("metrics.otlp_endpoint", "metrics.otlp_headers_file", "metrics.otlp_ca_file")
METRICS = ("metrics.listen", "metrics.token_file", "metrics.tls_certificate", "metrics.tls_key")
HEALTH = ("metrics.health_listen",)
"""Settings of each surface; the first is its address, and empty switches it off."""


class Server(Protocol):
    def start(self) -> None:
        """Raises FallowError where it cannot be had now; then it may be called again."""

    def close(self) -> None: ...


# imported only where they are switched on
def _pushing(loaded: Config, board: SnapshotBoard) -> Server:
    from agent.metrics.otlp import OtlpPush, OtlpSettings

    return OtlpPush(OtlpSettings.from_config(loaded), board)


def _metrics(loaded: Config, board: SnapshotBoard) -> Server:
    from agent.metrics import MetricsSettings, metrics_server

    return metrics_server(MetricsSettings.from_config(loaded), board)


def _health(loaded: Config, board: SnapshotBoard) -> Server:
    from agent.metrics import MetricsSettings, metrics_server

    return metrics_server(MetricsSettings.for_health(loaded), board)


class Surface:
    def __init__(
        self,
        names: tuple[str, ...],
        make: Callable[[Config, SnapshotBoard], Server],
        loaded: Config,
        board: SnapshotBoard,
    ) -> None:
        """`names` are its settings. Raises ConfigError where they can never be served; nothing begins yet."""
        self._names, self._make, self._loaded, self._board = names, make, loaded, board
        self._server = self._made(loaded)
        self._serves = False

    def start(self) -> str | None:
        """Serves where that is switched on and not done yet; returns why it cannot, in one sentence."""
        if self._server is not None and not self._serves:
            try:
                self._server.start()
            except FallowError as error:
                return str(error)
            self._serves = True
        return None

    def reload(self, loaded: Config) -> None:
        """Serves as other settings say; raises FallowError where that fails, and goes on as before then."""
        if any(loaded.values[name] != self._loaded.values[name] for name in self._names):
            self._switch(loaded)
        self._loaded = loaded

    def close(self) -> None:
        if self._server is not None and self._serves:
            self._server.close()
        self._server, self._serves = None, False

    def _switch(self, loaded: Config) -> None:
        """The new server begins before the old one ends, except where both want one port."""
        server = self._made(loaded)
        # the port alone decides whether two can listen at once: 0.0.0.0 takes it on every address
        blocks = self._serves and self._port(loaded) == self._port(self._loaded) != "0"
        if blocks:
            self.close()
        try:
            if server is not None:
                server.start()
        except FallowError:
            if blocks:
                # serves by the former settings again; where even that fails, `start` is left to do it
                with contextlib.suppress(FallowError):  # the former token file may be gone by now
                    self._server = self._made(self._loaded)
                    self.start()
            raise
        self.close()
        self._server, self._serves = server, server is not None

    def _made(self, loaded: Config) -> Server | None:
        return self._make(loaded, self._board) if loaded.text(self._names[0]) else None

    def _port(self, loaded: Config) -> str:
        return loaded.text(self._names[0]).rpartition(":")[2]


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
        one_line = " ".join(status.split())  # a line end in it would begin another field
        self._tell("READY=1", f"STATUS={one_line}")

    def watchdog(self) -> None:
        """A sign of life, for every round of a loop: it is sent no more often than systemd needs it."""
        now_s = time.monotonic()
        if self.watchdog_s is not None and now_s >= self._next_s:
            self._next_s = now_s + self.watchdog_s / _SHARE
            self._tell("WATCHDOG=1")

    def reloading(self) -> None:
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        self._tell("STOPPING=1")

    def _tell(self, *lines: str) -> None:
        if self.address is None:
            return
        name = f"\0{self.address[1:]}" if self.address.startswith("@") else self.address
        with contextlib.suppress(OSError, ValueError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
            ear.settimeout(_PATIENCE_S)
            ear.sendto("\n".join(lines).encode(errors="replace"), name)


class Surfaces:
    def __init__(self, loaded: Config, board: SnapshotBoard) -> None:
        """Raises ConfigError where what is switched on can never be served as the settings say; nothing listens yet."""
        self._loaded = loaded
        self._surfaces = tuple(
            Surface(names, make, loaded, board)
            for names, make in ((PUSHED, _pushing), (METRICS, _metrics), (HEALTH, _health))
        )

    def start(self) -> str | None:
        """Begins what is switched on and not done yet; may be called again.

        Returns why it cannot where an address cannot be had, in one sentence each.
        """
        return "; ".join(reason for each in self._surfaces if (reason := each.start())) or None

    def reload(self, loaded: Config) -> None:
        """Serves as other settings say; raises FallowError where that fails, and goes on as before then."""
        moved: list[Surface] = []
        try:
            for each in self._surfaces:
                each.reload(loaded)
                moved.append(each)
        except FallowError:
            for each in moved:
                with contextlib.suppress(FallowError):  # another program may have taken the port; `start` asks for it
                    each.reload(self._loaded)
            raise
        self._loaded = loaded

    def close(self) -> None:
        for each in self._surfaces:
            each.close()
