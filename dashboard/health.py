"""`/healthz` on a port and in a process of its own: no computation of the pages, however long, delays it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

from dashboard.front import Front, Limits
from dashboard.protection import HEALTH

_PATIENCE_S = 60.0
"""A computation may keep a process from everything else for seconds; one that is silent for longer is stuck."""


class Pulse:
    """When a process of the pages last gave a sign of life, for all that are forked from this one."""

    def __init__(self) -> None:
        self._last_s = multiprocessing.get_context("fork").RawValue("d", 0.0)

    def beat(self) -> None:
        self._last_s.value = time.monotonic()

    @property
    def is_heard(self) -> bool:
        return time.monotonic() - self._last_s.value < _PATIENCE_S if self._last_s.value else False


def health_application(pulse: Pulse) -> Callable[[dict[str, Any], Any], list[bytes]]:
    """200 while a process of the pages answers, 503 before the first one does and when all are stuck."""

    def answer(environ: dict[str, Any], start: Any) -> list[bytes]:
        if environ["PATH_INFO"] != HEALTH:
            status, content = "404 Not Found", b"fallow: there is nothing here but /healthz\n"
        elif pulse.is_heard:
            status, content = "200 OK", b"ok\n"
        else:
            status, content = "503 Service Unavailable", b"fallow: the pages do not answer\n"
        start(
            status,
            [
                ("Content-Type", "text/plain; charset=utf-8"),
                ("Content-Length", str(len(content))),
                ("Cache-Control", "no-store"),
            ],
        )
        return [content]

    return answer


def serve_health(listening: socket.socket, pulse: Pulse, pages: socket.socket) -> None:
    """Starts the process, which ends with this one, and takes the socket over; `pages` stays this one's."""
    parent = os.getpid()
    if os.fork():
        listening.close()
        return
    try:
        pages.close()
        for number in (signal.SIGINT, signal.SIGHUP):  # of a terminal, they reach all; the first process decides
            signal.signal(number, signal.SIG_IGN)
        front = Front(health_application(pulse), listening, Limits(threads=1))
        while os.getppid() == parent:
            front.turn()
    finally:
        os._exit(0)
