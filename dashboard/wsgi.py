"""The pages as gunicorn serves them: threads in one or several processes, which a reload replaces without a gap.

The process that starts the others reads no lake: the threads with which the libraries do that would not outlive the fork.
"""

from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING, Any

from gunicorn.app.base import BaseApplication  # type: ignore[import-untyped]

from dashboard.serving import announce

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

_FIXED = {
    "worker_class": "gthread",
    "threads": 8,
    "keepalive": 30,  # a page is a dozen requests, and a reader changes something every few seconds
    # a worker that gives no sign of life for this long is replaced; reading a large lake for the first time takes minutes
    "timeout": 900,
    "graceful_timeout": 30,
    "loglevel": "warning",
    "proc_name": "fallow dashboard",
    "forwarded_allow_ips": "",  # nobody's word on scheme or address is taken
    "control_socket_disable": True,
}


class Pages(BaseApplication):  # type: ignore[misc]  # gunicorn is untyped
    """What gunicorn runs: `make` builds the app in each worker, `renew` reads the settings again before new ones start."""

    def __init__(self, make: Callable[[], Any], renew: Callable[[], None], settings: dict[str, Any]) -> None:
        self._make, self._renew, self._settings = make, renew, settings
        super().__init__()

    def load_config(self) -> None:
        """Our settings in place of a file and of gunicorn's own variables."""
        for name, value in self._settings.items():
            if name in self.cfg.settings:  # older ones know fewer
                self.cfg.set(name, value)

    def load(self) -> Any:
        """The WSGI application, warm."""
        return self._make().server

    def reload(self) -> None:
        """SIGHUP: new workers with new settings; the old ones end when they have answered."""
        self._renew()
        super().reload()


def serve_workers(make: Callable[[], Any], renew: Callable[[], None], listening: socket.socket, *, workers: int) -> int:
    """Serves what `make` makes until Ctrl-C or SIGTERM, and says where as soon as it can answer; returns the exit code.

    Takes the socket over.
    """
    said = multiprocessing.get_context("fork").Value("b", 0)
    host, port = listening.getsockname()[:2]

    def ready(_: Any) -> None:
        with said.get_lock():
            if not said.value:
                announce(host, port)
                said.value = 1

    # gunicorn closes it
    own = {"bind": f"fd://{listening.detach()}", "workers": workers, "post_worker_init": ready}
    try:
        Pages(make, renew, _FIXED | own).run()
    except SystemExit as stop:  # in every process: how gunicorn ends
        return int(stop.code or 0)
    return 0
