"""A TCP proxy in front of a store that can be told to misbehave, as networks and stores do."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import ssl

_DROPPED_AFTER_BYTES = 200  # in the middle of a request's head
_PIECE_BYTES = {"slow": 512, "drop": 100}

WAYS = ("pass", "refuse", "hang", "drop", "drop_answer", "slow")
"""Whole connections: passed on, reset at once, never answered, cut after the request's first bytes, cut after the
request reached the store but before its answer, passed on at a trickle."""


class FaultyProxy:
    """Listens on loopback and passes connections on to a port, in the way that `way` says at that moment."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.way = "pass"
        self.connections = 0
        self._target = port
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        self._listener.close()
        self.cut()

    def behave(self, way: str) -> None:
        """Treats connections so from now on; those that are open are cut."""
        self.way = way
        self.cut()

    def cut(self) -> None:
        """Cuts every connection that is open."""
        for each in list(self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(client, self.way), daemon=True).start()

    def _serve(self, client: socket.socket, way: str) -> None:
        self._open.add(client)
        server: socket.socket | None = None
        try:
            if way == "refuse":
                # a reset, as from a port that nobody listens on
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
                return
            if self._tls is not None:
                client = self._tls.wrap_socket(client, server_side=True)
                self._open.add(client)
            if way == "hang":
                while client.recv(1 << 16):
                    pass
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            self._open.add(server)
            answers = threading.Thread(target=_pass_on, args=(server, client, "cut" if way == "drop_answer" else way))
            answers.start()
            _pass_on(client, server, way)
            answers.join()
        except OSError:
            pass
        finally:
            for each in (client, server):
                if each is not None:
                    self._open.discard(each)
                    each.close()


def _pass_on(source: socket.socket, target: socket.socket, way: str) -> None:
    """Passes bytes on until one side ends, or until it is time to cut the connection."""
    passed = 0
    try:
        while (piece := source.recv(_PIECE_BYTES.get(way, 1 << 16))) and way != "cut":
            if way == "slow":
                time.sleep(0.02)
            target.sendall(piece)
            passed += len(piece)
            if way == "drop" and passed >= _DROPPED_AFTER_BYTES:
                break
    except OSError:
        pass
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
