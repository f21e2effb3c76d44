"""The pages in one or several processes, which gunicorn starts and a reload replaces without a gap.

The first process reads no lake, since the libraries' threads for that would not survive the fork. `/healthz` can have a
port and a process of its own, so that no computation of the pages delays it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

from gunicorn.app.base import BaseApplication  # type: ignore[import-untyped]
from gunicorn.arbiter import Arbiter  # type: ignore[import-untyped]
from gunicorn.workers.base import Worker  # type: ignore[import-untyped]

from dashboard.front import Front, Limits
from dashboard.protection import HEALTH
from dashboard.serving import announce

_PATIENCE_S = 60.0
"""A computation may block a process for seconds; a process that is silent for longer is stuck."""


class Pulse:
    """The last sign of life of any process of the pages, shared by all forked processes."""

    def __init__(self) -> None:
        self._last_s = multiprocessing.get_context("fork").RawValue("d", 0.0)

    def beat(self) -> None:
        self._last_s.value = time.monotonic()

    @property
    def is_heard(self) -> bool:
        return time.monotonic() - self._last_s.value < _PATIENCE_S if self._last_s.value else False


def health_application(pulse: Pulse) -> Callable[[dict[str, Any], Any], list[bytes]]:
    """Return a WSGI application: 200 while a process of the pages runs, 503 before the first or if all are stuck."""

    def answer(environ: dict[str, Any], start: Any) -> list[bytes]:
        if environ["PATH_INFO"] != HEALTH:
            status, content = "404 Not Found", b"fallow: this port serves /healthz only\n"
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
    """Start a process that takes over `listening`, serves `/healthz`, and ends with this one, which keeps `pages`."""
    parent = os.getpid()
    if os.fork():
        listening.close()
        return
    try:
        pages.close()
        for number in (signal.SIGINT, signal.SIGHUP):  # a terminal sends them to all; the first process decides
            signal.signal(number, signal.SIG_IGN)
        front = Front(health_application(pulse), listening, Limits(threads=1))
        while os.getppid() == parent:
            front.turn()
    finally:
        os._exit(0)


class _Worker(Worker):  # type: ignore[misc]  # gunicorn is untyped
    """One process: gunicorn starts, watches and ends it; the front serves HTTP."""

    def run(self) -> None:
        front = self.app.front(self.sockets[0].sock)
        while self.alive and self.ppid == os.getppid():
            self.notify()
            self.app.pulse.beat()
            front.turn()
        front.drain(self.cfg.graceful_timeout, self.notify)


_FIXED = {
    "worker_class": _Worker,
    # a worker without a sign of life for this long is replaced; the first reading of a large lake takes minutes
    "timeout": 900,
    "graceful_timeout": 30,
    "loglevel": "warning",
    "proc_name": "fallow dashboard",
    "control_socket_disable": True,
}


class Pages(BaseApplication):  # type: ignore[misc]
    """The gunicorn application: `make` builds the app in a worker; `renew` reads the settings again before a reload."""

    def __init__(
        self,
        make: Callable[[], Any],
        renew: Callable[[], None],
        limits: Callable[[], Limits],
        pulse: Pulse,
        settings: dict[str, Any],
    ) -> None:
        self._make, self._renew, self._limits, self._settings = make, renew, limits, settings
        self.pulse = pulse
        self._warm: set[int] = set()
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        super().__init__()

    def load_config(self) -> None:
        """Use our settings instead of a file and gunicorn's own variables."""
        for name, value in self._settings.items():
            if name in self.cfg.settings:  # older versions have fewer settings
                self.cfg.set(name, value)

    def load(self) -> Any:
        """Return the WSGI application, ready to answer."""
        return self._make().server

    def front(self, listening: socket.socket) -> Front:
        """Return a worker's HTTP server, with the current limits."""
        return Front(self.wsgi(), listening, self._limits())

    def reload(self) -> None:
        """Start new workers with new settings, on SIGHUP; the old workers end after their last answer."""
        self._renew()
        super().reload()

    def run(self) -> None:
        """Run until a signal stops the process, which raises SystemExit."""
        _Arbiter(self).run()

    def report_warm(self, age: int) -> None:
        """Report from a worker, which gunicorn knows by its age, that it can answer."""
        os.write(self._write, b"%d " % age)

    def are_warm(self, ages: set[int]) -> bool:
        """Return, in the first process, whether all these workers can answer."""
        with contextlib.suppress(BlockingIOError):  # nothing new
            self._warm |= {int(each) for each in os.read(self._read, 65536).split()}
        return ages <= self._warm


class _Arbiter(Arbiter):  # type: ignore[misc]
    """Keeps the old workers until the new workers can answer, which takes as long as reading the lake."""

    def manage_workers(self) -> None:
        while len(self.WORKERS) > self.num_workers and self.SIG_QUEUE.empty():
            newest = sorted(worker.age for worker in self.WORKERS.values())[-self.num_workers :]
            if self.app.are_warm(set(newest)):
                break
            time.sleep(0.1)
        super().manage_workers()


def serve_workers(
    make: Callable[[], Any],
    renew: Callable[[], None],
    limits: Callable[[], Limits],
    listening: socket.socket,
    *,
    workers: int,
    health: socket.socket | None = None,
) -> int:
    """Serve the app of `make` until Ctrl-C or SIGTERM; print the address once a worker is ready. Return the exit code.

    `health` is a socket for `/healthz` only. Takes over both sockets.
    """
    is_announced = multiprocessing.get_context("fork").Value("b", 0)
    host, port = listening.getsockname()[:2]

    def ready(worker: Any) -> None:
        worker.app.pulse.beat()
        worker.app.report_warm(worker.age)
        with is_announced.get_lock():
            if not is_announced.value:
                announce(host, port)
                is_announced.value = 1

    pulse = Pulse()
    if health is not None:
        serve_health(health, pulse, listening)
    # gunicorn closes it
    own = {"bind": f"fd://{listening.detach()}", "workers": workers, "post_worker_init": ready}
    try:
        Pages(make, renew, limits, pulse, _FIXED | own).run()
    except SystemExit as stop:  # gunicorn ends every process with it
        return int(stop.code or 0)
    return 0
