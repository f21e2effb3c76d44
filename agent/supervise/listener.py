"""One address that the agent answers on: started, tried again and moved as its settings say."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from agent.supervise.pushing import PUSHED
from fallow.errors import FallowError

if TYPE_CHECKING:
    from agent.metrics import MetricsEndpoint, MetricsSettings
    from agent.snapshot import SnapshotBoard
    from fallow.config import Config

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
                self._back()
            raise
        self.close()
        self._server, self._serves = server, server is not None

    def _back(self) -> None:
        """Serves by the former settings again; where even that fails, `start` is left to do it."""
        with contextlib.suppress(FallowError):  # the former token file may be gone by now
            self._server = self._built(self._loaded)
            self.start()

    def _built(self, loaded: Config) -> MetricsEndpoint | None:
        settings = self._settings(loaded)
        if settings is None:
            return None
        from agent.metrics import MetricsEndpoint  # only where it is switched on

        return MetricsEndpoint(settings, self._board)

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
