"""The collector that the agent pushes its metrics to: begun, ended and changed as its settings say."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.metrics.otlp_push import OtlpPush
    from agent.snapshot import SnapshotBoard
    from fallow.config import Config

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
        from agent.metrics.otlp_push import OtlpPush, OtlpSettings  # only where it is switched on

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
