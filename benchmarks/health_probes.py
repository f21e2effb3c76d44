"""Health checks of the agent over HTTP, as a kubelet sends them."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection


@dataclass
class Probes:
    """The kubelet's health checks of the agent; the agent's own CPU includes the answers."""

    address: str
    path: str
    every_s: float
    due_s: float = 0.0
    failed: int = 0
    asked: int = 0

    def go_on(self) -> None:
        """Send the checks that are due."""
        if time.monotonic() >= self.due_s:
            self.due_s = time.monotonic() + self.every_s
            self.asked += 1
            self.failed += not self._is_well()

    def _is_well(self) -> bool:
        asking = HTTPConnection(self.address, timeout=10)
        try:
            asking.request("GET", self.path)
            return asking.getresponse().status == HTTPStatus.OK
        except OSError:
            return False
        finally:
            asking.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])
