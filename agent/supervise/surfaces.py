"""What the outside sees of the run beside its rows: /metrics and /healthz, and what systemd is told."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from agent.supervise.systemd_notify import Notifier
from fallow.errors import FallowError

if TYPE_CHECKING:
    from agent.metrics import MetricsServer, MetricsSettings
    from agent.supervise.snapshot import Board
    from fallow.config import Config


class Surfaces:
    """Starts, tells and ends them."""

    def __init__(self, loaded: Config, board: Board) -> None:
        """Raises ConfigError where /metrics can never be served as the settings say; nothing listens yet."""
        self._loaded = loaded
        self._board = board
        self._metrics = self._built(loaded)
        self._serves = False
        self._notifier = Notifier.from_environment()

    def start(self) -> str | None:
        """Serves /metrics where it is switched on.

        Returns why it is not served where the address cannot be had, in one sentence; `retry` tries it again.
        """
        if self._metrics is not None and not self._serves:
            try:
                self._metrics.start()
            except FallowError as error:
                return str(error)
            self._serves = True
        return None

    def retry(self) -> str | None:
        """Tries again to serve what is switched on and not served; returns why it still is not, or None."""
        return self.start()

    def reload(self, loaded: Config) -> None:
        """Serves as other settings say; raises FallowError where that fails, and goes on as before then."""
        names = [name for name in loaded.values if name.startswith("metrics.")]
        if any(loaded.values[name] != self._loaded.values[name] for name in names):
            self._switch(loaded)
        self._loaded = loaded

    def ready(self, status: str) -> None:
        """Says that the agent samples."""
        self._notifier.ready(status)

    def alive(self) -> None:
        """Says that the loop goes round."""
        self._notifier.watchdog()

    def reloading(self) -> None:
        """Says that the settings are being read."""
        self._notifier.reloading()

    def stopping(self) -> None:
        """Says that the run ends."""
        self._notifier.stopping()

    def close(self) -> None:
        """Stops serving."""
        if self._metrics is not None and self._serves:
            self._metrics.close()
        self._metrics, self._serves = None, False

    def _switch(self, loaded: Config) -> None:
        """The new server listens before the old one ends, except where both want one port."""
        server = self._built(loaded)
        blocks = self._serves and _port(loaded) == _port(self._loaded) != 0
        if blocks:
            self.close()
        try:
            if server is not None:
                server.start()
        except FallowError:
            if blocks:
                self._back()
            raise
        self.close()
        self._metrics, self._serves = server, server is not None

    def _back(self) -> None:
        """Serves by the former settings again; where even that fails, `retry` is left to do it."""
        with contextlib.suppress(FallowError):  # the former token file may be gone by now
            self._metrics = self._built(self._loaded)
            self.start()

    def _built(self, loaded: Config) -> MetricsServer | None:
        settings = _settings(loaded)
        if settings is None:
            return None
        from agent.metrics import MetricsServer  # only where it is switched on

        return MetricsServer(settings, self._board)


def _settings(loaded: Config) -> MetricsSettings | None:
    """The settings of /metrics; None where it is off."""
    if not loaded.text("metrics.listen"):
        return None
    from agent.metrics import MetricsSettings  # only where it is switched on

    return MetricsSettings.from_config(loaded)


def _port(loaded: Config) -> int | None:
    """The port alone decides whether two can listen at once: 0.0.0.0 takes it on every address."""
    settings = _settings(loaded)
    return None if settings is None else settings.port
