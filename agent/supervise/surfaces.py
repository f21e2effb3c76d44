"""What the outside sees of the run beside its rows: /metrics and /healthz, what is pushed, and what systemd is told."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fallow.errors import FallowError

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from agent.metrics import MetricsSettings
    from agent.metrics.otlp import OtlpPush
    from agent.snapshot import SnapshotBoard
    from fallow.config import Config
    from fallow.http_server import HttpServer

METRICS, HEALTH = "metrics.listen", "metrics.health_listen"


class Listener:
    def __init__(self, setting: str, loaded: Config, board: SnapshotBoard) -> None:
        """`setting` is METRICS or HEALTH. Raises ConfigError where the settings can never be served; nothing listens yet."""
        self._setting = setting
        self._board = board
        self._loaded = loaded
        self._server = self._built(loaded)
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
        if any(loaded.values[name] != self._loaded.values[name] for name in _names(self._setting, loaded)):
            self._switch(loaded)
        self._loaded = loaded

    def close(self) -> None:
        if self._server is not None and self._serves:
            self._server.close()
        self._server, self._serves = None, False

    def _switch(self, loaded: Config) -> None:
        """The new server listens before the old one ends, except where both want one port."""
        server = self._built(loaded)
        # the port alone decides whether two can listen at once: 0.0.0.0 takes it on every address
        blocks = self._serves and self._port(loaded) == self._port(self._loaded) != 0
        if blocks:
            self.close()
        try:
            if server is not None:
                server.start()
        except FallowError:
            if blocks:
                # serves by the former settings again; where even that fails, `start` is left to do it
                with contextlib.suppress(FallowError):  # the former token file may be gone by now
                    self._server = self._built(self._loaded)
                    self.start()
            raise
        self.close()
        self._server, self._serves = server, server is not None

    def _built(self, loaded: Config) -> HttpServer | None:
        settings = self._settings(loaded)
        if settings is None:
            return None
        from agent.metrics import metrics_server  # only where it is switched on

        return metrics_server(settings, self._board)

    def _settings(self, loaded: Config) -> MetricsSettings | None:
        if not loaded.text(self._setting):
            return None
        from agent.metrics import MetricsSettings  # only where it is switched on

        return MetricsSettings.for_health(loaded) if self._setting == HEALTH else MetricsSettings.from_config(loaded)

    def _port(self, loaded: Config) -> int | None:
        settings = self._settings(loaded)
        return None if settings is None else settings.port


def _names(setting: str, loaded: Config) -> list[str]:
    """The settings that an address is served by."""
    if setting == HEALTH:
        return [HEALTH]
    return [name for name in loaded.values if name.startswith("metrics.") and name != HEALTH and name not in PUSHED]


PUSHED = ("metrics.otlp_endpoint", "metrics.otlp_headers_file", "metrics.otlp_ca_file")


class Pushing:
    def __init__(self, loaded: Config, board: SnapshotBoard) -> None:
        """Raises ConfigError where the settings can never be used; nothing is pushed yet."""
        self._board = board
        self._loaded = loaded
        self._push = self.prepared(loaded)
        self._runs = False

    def prepared(self, loaded: Config) -> OtlpPush | None:
        """What pushes as these settings say, not begun yet; None where nothing does. Raises ConfigError."""
        if not loaded.text(PUSHED[0]):
            return None
        from agent.metrics.otlp import OtlpPush, OtlpSettings  # only where it is switched on

        return OtlpPush(OtlpSettings.from_config(loaded), self._board)

    def start(self) -> None:
        """Begins where that is switched on and not done yet."""
        if self._push is not None and not self._runs:
            self._push.start()
            self._runs = True

    def switch(self, loaded: Config, push: OtlpPush | None) -> None:
        """Goes on with what was prepared, where the settings changed."""
        if any(loaded.values[name] != self._loaded.values[name] for name in PUSHED):
            self.close()
            self._push, self._runs = push, False
            self.start()
        self._loaded = loaded

    def close(self) -> None:
        if self._push is not None and self._runs:
            self._push.close()


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


def _status(text: str) -> str:
    """One line: a line end in it would begin another field."""
    return f"STATUS={' '.join(text.split())}"


class Surfaces:
    def __init__(self, loaded: Config, board: SnapshotBoard) -> None:
        """Raises ConfigError where what is switched on can never be served as the settings say; nothing listens yet."""
        self._loaded = loaded
        self._listeners = tuple(Listener(setting, loaded, board) for setting in (METRICS, HEALTH))
        self._pushing = Pushing(loaded, board)
        self._notifier = Notifier.from_environment()

    def start(self) -> str | None:
        """Serves /metrics and /healthz where they are switched on.

        Returns why they are not served where an address cannot be had, in one sentence each; `retry` tries it again.
        """
        self._pushing.start()
        reasons = [reason for listener in self._listeners if (reason := listener.start())]
        return "; ".join(reasons) or None

    def retry(self) -> str | None:
        """Tries again to serve what is switched on and not served; returns why it still is not, or None."""
        return self.start()

    def reload(self, loaded: Config) -> None:
        """Serves as other settings say; raises FallowError where that fails, and goes on as before then."""
        moved: list[Listener] = []
        pushing = self._pushing.prepared(loaded)
        try:
            for listener in self._listeners:
                listener.reload(loaded)
                moved.append(listener)
        except FallowError:
            for listener in moved:
                with contextlib.suppress(FallowError):  # another program may have taken the port; `retry` asks for it
                    listener.reload(self._loaded)
            raise
        self._pushing.switch(loaded, pushing)
        self._loaded = loaded

    def ready(self, status: str) -> None:
        self._notifier.ready(status)

    def alive(self) -> None:
        self._notifier.watchdog()

    def reloading(self) -> None:
        self._notifier.reloading()

    def stopping(self) -> None:
        self._notifier.stopping()

    def close(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._pushing.close()
