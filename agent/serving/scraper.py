"""Asks the configured inference servers beside the supervisor's own work, and hands their rows to it."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.serving.endpoint import parse_endpoints
from agent.serving.relatives import families
from agent.serving.server import Holders, Server

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from agent.serving.server import Row

log = logging.getLogger("fallow.agent")

_LAST_WAIT_S = 2.5
"""At the end of the run for an answer under way; a thread that still waits then ends with the process."""


@dataclass(frozen=True)
class ServingSettings:
    """What a scraper is told."""

    endpoints: tuple[str, ...]
    interval_ms: int
    proc: str = "/proc"


@dataclass(frozen=True)
class _Order:
    """To ask all servers now: the interval that ends, and who is on the GPUs."""

    end_ms: int
    interval_ms: int
    gpu_pids: Mapping[str, Collection[int]]


class ServingScraper:
    """Runs one thread, and none where no endpoint is configured.

    `rows` never waits for a server: it orders a round when an interval of `settings.interval_ms` has ended, and returns
    what earlier rounds have brought.
    """

    def __init__(self, settings: ServingSettings) -> None:
        """Raises UsageError where an endpoint is no loopback http(s) address."""
        self._interval_ms = settings.interval_ms
        self._proc = settings.proc
        self._servers = [Server(endpoint, settings.proc) for endpoint in parse_endpoints(settings.endpoints)]
        self._lock = threading.Condition()
        self._order: _Order | None = None
        self._ordered: int | None = None
        self._idle = True
        self._closed = False
        self._rows: list[Row] = []
        self._incidents: list[dict[str, str]] = []
        self._thread = threading.Thread(target=self._work, name="fallow-serving", daemon=True)
        if self._servers:
            self._thread.start()

    def rows(self, start_ms: int, interval_ms: int, gpu_pids: Mapping[str, Collection[int]]) -> list[Row]:
        """Rows of the `serving` table from rounds that have ended since the last call, usually none.

        Called once for each interval of the agent, with the processes that are on each GPU (by UUID). A row's interval is
        the scrape interval (or the agent's if that is longer) at whose end the servers were asked.
        """
        span_ms = max(self._interval_ms, interval_ms)
        end_ms = (start_ms + interval_ms) // span_ms * span_ms
        with self._lock:
            first = self._ordered is None and end_ms <= start_ms  # wait for the end of a whole interval
            if self._servers and self._idle and not first and end_ms != self._ordered:
                self._ordered = end_ms
                self._idle = False
                self._order = _Order(end_ms, span_ms, {gpu: tuple(pids) for gpu, pids in gpu_pids.items()})
                self._lock.notify()
            rows, self._rows = self._rows, []
        return rows

    def take_incidents(self) -> list[dict[str, str]]:
        """What went wrong since the last call, as columns of the `event` table without time and GPU."""
        with self._lock:
            incidents, self._incidents = self._incidents, []
        return incidents

    def close(self) -> None:
        """Ends the thread."""
        with self._lock:
            self._closed = True
            self._lock.notify()
        if self._servers:
            self._thread.join(_LAST_WAIT_S)

    def _work(self) -> None:
        while (order := self._next()) is not None:
            rows: list[Row] = []
            incidents: list[dict[str, str]] = []
            try:
                self._ask_all(order, rows, incidents)
            except Exception as error:
                # a thread that died would leave the rest of the run without rows and without a word
                log.exception("asking the inference servers failed")
                incidents.append(
                    {"kind": "serving_failed", "detail": f"asking the inference servers failed: {error!r}"}
                )
            with self._lock:
                self._rows += rows
                self._incidents += incidents
                self._idle = True

    def _next(self) -> _Order | None:
        with self._lock:
            self._lock.wait_for(lambda: self._closed or self._order is not None)
            order, self._order = self._order, None
            return None if self._closed else order

    def _ask_all(self, order: _Order, rows: list[Row], incidents: list[dict[str, str]]) -> None:
        pids = {pid for group in order.gpu_pids.values() for pid in group}
        holders = Holders(order.gpu_pids, families(self._proc, pids))
        moment: Row = {"time": order.end_ms - order.interval_ms, "interval_ms": order.interval_ms}
        for server in self._servers:
            if self._closed:
                return
            rows.extend(moment | row for row in server.rows(holders))
            incidents.extend({"kind": "serving_failed", "detail": cause} for cause in server.take_causes())
