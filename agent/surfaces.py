"""What the outside sees of the run beside its rows: /metrics and /healthz, and what systemd is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.notify import Notifier

if TYPE_CHECKING:
    from agent.metrics import MetricsServer
    from agent.snapshot import Board
    from fallow.config import Config


class Surfaces:
    """Starts, tells and ends them."""

    def __init__(self, loaded: Config, board: Board) -> None:
        self._loaded = loaded
        self._board = board
        self._metrics: MetricsServer | None = None
        self._notifier = Notifier.from_environment()

    def start(self) -> None:
        """Serves /metrics where it is switched on; its code is loaded only there."""
        if not self._loaded.text("metrics.listen"):
            return
        from agent.metrics import MetricsServer, MetricsSettings  # noqa: PLC0415

        self._metrics = MetricsServer(MetricsSettings.from_config(self._loaded), self._board)
        self._metrics.start()

    def reload(self, loaded: Config) -> None:
        """Serves as other settings say; raises as `start` does."""
        names = [name for name in loaded.values if name.startswith("metrics.")]
        changed = any(loaded.values[name] != self._loaded.values[name] for name in names)
        self._loaded = loaded
        if changed:
            self._close_metrics()
            self.start()

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
        self._close_metrics()

    def _close_metrics(self) -> None:
        if self._metrics is not None:
            self._metrics.close()
            self._metrics = None
