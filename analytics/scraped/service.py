"""Shared parts of services that follow a source: /metrics and /healthz, and the end at a signal."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import ExitStack
from types import FrameType

from fallow.bell import Bell
from fallow.clock import MINUTE_MS
from fallow.config import Config
from fallow.exposition import ExposedSamples
from fallow.http_server import HttpServer, MetricsPages, parse_listen


def patience_ms(every_ms: int) -> int:
    """Return how long a service that works `every_ms` may have finished nothing before a restart may help."""
    return max(15 * MINUTE_MS, 3 * every_ms)


def open_pages(
    opened: ExitStack,
    settings: Config,
    metrics: Callable[[], ExposedSamples],
    health: Callable[[], tuple[int, dict[str, object]]],
) -> None:
    """Serve the pages at follow.listen, if it is set, until `opened` ends. Many threads call `metrics` and `health`."""
    if not settings.text("follow.listen"):
        return
    address = parse_listen(settings.text("follow.listen"), "follow.listen")
    pages = MetricsPages("fallow follow", health, metrics)
    remedy = "set follow.listen to an address of this host with a free port, or to nothing"
    server = HttpServer(address, pages.respond, "/metrics and /healthz", remedy)
    server.start()
    opened.callback(server.close)


class Stop:
    """The wish to end, from the first SIGINT or SIGTERM on; a second one ends the work at once."""

    def __init__(self) -> None:
        self._asked, self._bell = False, Bell()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    def _ask(self, number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.default_int_handler)
        self._asked = True
        self._bell.ring()

    def is_asked(self) -> bool:
        return self._asked

    def wait(self, seconds: float) -> bool:
        """Wait at most this long. Return whether the end is asked for."""
        return self._asked or self._bell.wait(seconds)
