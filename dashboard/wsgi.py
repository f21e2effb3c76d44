"""The pages in one or several processes, which gunicorn starts and a reload replaces without a gap.

The process that starts the others reads no lake: the threads with which the libraries do that would not outlive the fork.
`/healthz` can have a port and a process of its own, so that no computation of the pages, however long, delays it.
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


class _Worker(Worker):  # type: ignore[misc]  # gunicorn is untyped
    """One process: gunicorn starts, watches and ends it, and the front speaks HTTP."""

    def run(self) -> None:
        front = self.app.front(self.sockets[0].sock)
        while self.alive and self.ppid == os.getppid():
            self.notify()
            self.app.pulse.beat()
            front.turn()
        front.drain(self.cfg.graceful_timeout, self.notify)


_FIXED = {
    "worker_class": _Worker,
    # a worker that gives no sign of life for this long is replaced; reading a large lake for the first time takes minutes
    "timeout": 900,
    "graceful_timeout": 30,
    "loglevel": "warning",
    "proc_name": "fallow dashboard",
    "control_socket_disable": True,
}


class Pages(BaseApplication):  # type: ignore[misc]
    """What gunicorn runs: `make` builds the app in each worker, `renew` reads the settings again before new ones start."""

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
        """Our settings in place of a file and of gunicorn's own variables."""
        for name, value in self._settings.items():
            if name in self.cfg.settings:  # older ones know fewer
                self.cfg.set(name, value)

    def load(self) -> Any:
        """The WSGI application, warm."""
        return self._make().server

    def front(self, listening: socket.socket) -> Front:
        """In a worker: what answers, with the limits as they are now."""
        return Front(self.wsgi(), listening, self._limits())

    def reload(self) -> None:
        """SIGHUP: new workers with new settings; the old ones end when they have answered."""
        self._renew()
        super().reload()

    def run(self) -> None:
        """Until it is told to stop, which raises SystemExit."""
        _Arbiter(self).run()

    def say_warm(self, age: int) -> None:
        """In a worker, which gunicorn knows by its age: it can answer."""
        os.write(self._write, b"%d " % age)

    def are_warm(self, ages: set[int]) -> bool:
        """In the first process: whether all of these can answer."""
        with contextlib.suppress(BlockingIOError):  # nothing new
            self._warm |= {int(each) for each in os.read(self._read, 65536).split()}
        return ages <= self._warm


class _Arbiter(Arbiter):  # type: ignore[misc]
    """Lets the old workers answer until the new ones can, which takes as long as reading the lake."""

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
    """Serves what `make` makes until Ctrl-C or SIGTERM, and says where as soon as it can answer; returns the exit code.

    `health` is a socket for `/healthz` alone. Takes the sockets over.
    """
    said = multiprocessing.get_context("fork").Value("b", 0)
    host, port = listening.getsockname()[:2]

    def ready(worker: Any) -> None:
        worker.app.pulse.beat()
        worker.app.say_warm(worker.age)
        with said.get_lock():
            if not said.value:
                announce(host, port)
                said.value = 1

    pulse = Pulse()
    if health is not None:
        serve_health(health, pulse, listening)
    # gunicorn closes it
    own = {"bind": f"fd://{listening.detach()}", "workers": workers, "post_worker_init": ready}
    try:
        Pages(make, renew, limits, pulse, _FIXED | own).run()
    except SystemExit as stop:  # in every process: how gunicorn ends
        return int(stop.code or 0)
    return 0
