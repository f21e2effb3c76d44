"""Shared parts of services that follow a source: /metrics and /healthz, and the end at a signal."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType

from fallow.clock import MINUTE_MS
from fallow.exposition import ExposedSamples
from fallow.http_server import HttpServer, MetricsPages


def patience_ms(every_ms: int) -> int:
    """Return how long a service that works `every_ms` may have finished nothing before a restart may help."""
    return max(15 * MINUTE_MS, 3 * every_ms)


def follower_server(
    address: tuple[str, int], metrics: Callable[[], ExposedSamples], health: Callable[[], tuple[int, dict[str, object]]]
) -> HttpServer:
    """Return the server of follow.listen, not started. Many threads call `metrics` and `health`."""
    pages = MetricsPages("fallow follow", health, metrics)
    remedy = "set follow.listen to an address of this host with a free port, or to nothing"
    return HttpServer(address, pages.respond, "/metrics and /healthz", remedy)


def stop_at_signals(stop: threading.Event) -> None:
    """End the work when it next checks the event; a second signal ends it at once."""

    def ask(number: int, _: FrameType | None) -> None:
        stop.set()
        signal.signal(number, signal.default_int_handler)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask)
