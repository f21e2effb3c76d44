"""Connections on which the head of an answer has to come within the time for silence, though its bytes may drip for ever.

`urllib3` counts that time anew with every byte; of the body, who reads it keeps count.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.response import HTTPResponse


class GuardedHttp(HTTPConnection):
    def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # as in urllib3 itself
        """Raises TimeoutError, which urllib3 makes a ReadTimeoutError of."""
        with _cut_after(self.sock, self.timeout):
            return super().getresponse()


class GuardedHttps(GuardedHttp, HTTPSConnection):
    """The same with TLS."""


class _HttpPool(HTTPConnectionPool):
    ConnectionCls = GuardedHttp


class _HttpsPool(HTTPSConnectionPool):
    ConnectionCls = GuardedHttps


def guard(manager: PoolManager) -> PoolManager:
    """The manager, whose connections are guarded from now on."""
    manager.pool_classes_by_scheme = {"http": _HttpPool, "https": _HttpsPool}
    return manager


@contextlib.contextmanager
def _cut_after(sock: socket.socket, seconds: float | None) -> Iterator[None]:
    over = threading.Event()

    def cut() -> None:
        over.set()
        with contextlib.suppress(OSError):
            # not the method of a TLS socket, which would take its state away from under the reader
            socket.socket.shutdown(sock, socket.SHUT_RDWR)

    timer = threading.Timer(seconds or 0, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception as error:
        if over.is_set():
            raise TimeoutError from error
        raise
    finally:
        timer.cancel()
