"""The run's outputs besides its rows: /metrics, /healthz, pushed metrics, and messages to systemd."""

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
"""Settings of each surface. The first is its address; an empty address switches it off."""


class Server(Protocol):
    def start(self) -> None:
        """Begin to serve. Raises FallowError where that is impossible now; it may be called again."""

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
        """Check the settings `names`, without serving yet. Raises ConfigError for settings that can never work."""
        self._names, self._make, self._loaded, self._board = names, make, loaded, board
        self._server = self._new_server(loaded)
        self._serves = False

    def start(self) -> str | None:
        """Begin to serve if switched on and not serving. Return the reason of a failure, as one sentence."""
        if self._server is not None and not self._serves:
            try:
                self._server.start()
            except FallowError as error:
                return str(error)
            self._serves = True
        return None

    def reload(self, loaded: Config) -> None:
        """Serve by new settings; raises FallowError where that fails, and keeps the old settings then."""
        if any(loaded.values[name] != self._loaded.values[name] for name in self._names):
            self._switch(loaded)
        self._loaded = loaded

    def close(self) -> None:
        if self._server is not None and self._serves:
            self._server.close()
        self._server, self._serves = None, False

    def _switch(self, loaded: Config) -> None:
        """Start the new server before the old server ends, except where both use the same port."""
        server = self._new_server(loaded)
        # two servers cannot share a port even on different addresses, because 0.0.0.0 takes it on every address
        blocks = self._serves and self._port(loaded) == self._port(self._loaded) != "0"
        if blocks:
            self.close()
        try:
            if server is not None:
                server.start()
        except FallowError:
            if blocks:
                # serve by the old settings again; where that fails too, a later `start` does it
                with contextlib.suppress(FallowError):  # the old token file may be gone by now
                    self._server = self._new_server(self._loaded)
                    self.start()
            raise
        self.close()
        self._server, self._serves = server, server is not None

    def _new_server(self, loaded: Config) -> Server | None:
        return self._make(loaded, self._board) if loaded.text(self._names[0]) else None

    def _port(self, loaded: Config) -> str:
        return loaded.text(self._names[0]).rpartition(":")[2]


_SHARE = 3
"""A sign of life is sent every third of the watchdog's time, so that one may be late or lost."""

_PATIENCE_S = 1.0  # the socket's queue is full only while systemd itself hangs, and the agent must not hang with it

_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


@dataclass
class Notifier:
    """Sends messages to the service manager; without an address it sends none."""

    address: str | None = None
    """The socket in systemd's form: a path, or `@` and a name in the abstract namespace."""
    watchdog_s: float | None = None
    """How long systemd waits for a sign of life, in s; None without a watchdog."""
    _next_s: float = field(default=0.0, repr=False)

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str] = os.environ) -> Notifier:
        """Return a notifier by systemd's variables; one that sends nothing where they are not set.

        Removes the three variables from the environment, so that neither the NVML worker nor the publisher inherits the
        address. (systemd would ignore their messages: `NotifyAccess=main`.)
        """
        address, period_us, pid = (environment.pop(name, "") for name in _VARIABLES)
        if not address.startswith(("/", "@")):
            return cls()
        watched = period_us.isdecimal() and int(period_us) > 0 and pid in ("", str(os.getpid()))
        return cls(address, int(period_us) / 1_000_000 if watched else None)

    def ready(self, status: str) -> None:
        """Report that the agent is ready, also after `reloading`, with the text for `systemctl status`."""
        one_line = " ".join(status.split())  # a line end would begin another field
        self._tell("READY=1", f"STATUS={one_line}")

    def watchdog(self) -> None:
        """Send a sign of life, at most as often as systemd needs it. Call it in every round of a loop."""
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
        """Check all surfaces' settings, without listening yet. Raises ConfigError for settings that can never work."""
        self._loaded = loaded
        self._surfaces = tuple(
            Surface(names, make, loaded, board)
            for names, make in ((PUSHED, _pushing), (METRICS, _metrics), (HEALTH, _health))
        )

    def start(self) -> str | None:
        """Begin to serve all surfaces that are switched on and not serving; may be called again.

        Return a sentence for each address that is not available.
        """
        return "; ".join(reason for each in self._surfaces if (reason := each.start())) or None

    def reload(self, loaded: Config) -> None:
        """Serve by new settings; raises FallowError where that fails, and keeps the old settings then."""
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
