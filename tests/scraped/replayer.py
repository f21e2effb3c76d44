"""An exporter that serves pages by a script, and keeps what it exposed and when."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Self

from tests.scraped.exposed import page_of, parsed
from tests.scraped.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.scraped.exposed import Exposed


@dataclass(frozen=True)
class Exposure:
    """One scrape that was answered whole: when (epoch, ms), and with which samples."""

    at_ms: int
    samples: tuple[Exposed, ...]


class Replayer:
    """Serves `/metrics` on loopback; `pages` gives the text of the n-th page that is answered."""

    def __init__(self, pages: Callable[[int], str]) -> None:
        self.exposures: list[Exposure] = []
        self.scrapes = 0
        """How often it was asked, also while it was away."""
        self._away = False
        self._pages = pages
        self._turn = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.target = f"127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Scrapes are cut off without an answer."""
        with self._turn:
            self._away = True
        yield
        with self._turn:
            self._away = False

    def wait_for(self, scrapes: int) -> None:
        """Returns when it was asked so many times more."""
        until = self.scrapes + scrapes
        wait_until(lambda: self.scrapes >= until, lambda: "nobody scrapes")

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """One scrape at a time, so that exposures have an order."""
        with self._turn:
            self.scrapes += 1
            at_ms = time.time_ns() // 1_000_000
            if self._away:
                request.close_connection = True
                return
            page = self._pages(len(self.exposures))
            request.send_response(200)
            request.send_header("Content-Type", "text/plain; version=0.0.4")
            request.send_header("Content-Length", str(len(page.encode())))
            request.end_headers()
            request.wfile.write(page.encode())
            self.exposures.append(Exposure(at_ms, parsed(page)))

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        answer = self.answer

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer(self)

            def log_message(self, *_: object) -> None:
                """Scrapes are kept, not told."""

        return Handler


def replayed(
    page: str, script: Callable[[Exposed, int], float | None], relabel: Mapping[str, str] | None = None
) -> Callable[[int], str]:
    """A recorded page with the script's values (None leaves a sample out), under other labels where `relabel` has some."""
    recorded = [sample.labelled(**(relabel or {})) for sample in parsed(page)]
    return lambda number: page_of(replace(sample, value=script(sample, number)) for sample in recorded)
