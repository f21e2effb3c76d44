"""The NVML worker process: reads requests from standard input, one JSON object a line, and answers on standard output.

It only talks to the driver. If a call blocks for ever or crashes the process, the supervisor lives on; the status page,
a few bytes of memory that both share, tells it which call on which GPU it was.
"""

from __future__ import annotations

import json
import mmap
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.driver import Costs, Driver, DriverGoneError
from agent.sampler import Sampler
from agent.status_page import PAGE_BYTES, StatusPage

if TYPE_CHECKING:
    from collections.abc import Callable


class Worker:
    """Answers requests; `open` comes first."""

    def __init__(self, page: StatusPage, skip: frozenset[str]) -> None:
        self._driver = Driver(page.announce)
        self._skip = skip
        self._sampler: Sampler | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request; a lost driver is an answer too, after which the worker is of no more use."""
        operations: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "open": self._open,
            "drain": self._drain,
            "row": self._row,
        }
        try:
            answer = operations[request["op"]](request)
        except DriverGoneError as gone:
            return {"driver_gone": {"code": gone.code, "message": str(gone)}}
        incidents, self._driver.incidents = self._driver.incidents, []
        return answer | {"incidents": [asdict(incident) for incident in incidents]}

    def _open(self, _: dict[str, Any]) -> dict[str, Any]:
        self._sampler = Sampler(self._driver, self._driver.open(self._skip))
        devices = self._sampler.devices(all_of_them=True)
        self._sampler.drain()  # from here on nothing of the ring is missed
        return {
            "devices": devices,
            "gpus": [each.gpu.uuid for each in self._sampler.watched],
            "missing": self._driver.missing,
            "drain_every_s": self._sampler.drain_every_s,
        }

    def _drain(self, _: dict[str, Any]) -> dict[str, Any]:
        sampler = self._opened()
        sampler.drain()
        return {"drain_every_s": sampler.drain_every_s}

    def _row(self, request: dict[str, Any]) -> dict[str, Any]:
        sampler = self._opened()
        rows, processes = sampler.rows(request["start_ms"], request["end_ms"], list_processes=request["list_processes"])
        costs, self._driver.costs = self._driver.costs, Costs()
        return {
            "gpu": rows,
            "gpus": [each.gpu.uuid for each in sampler.watched],
            "missing": self._driver.missing,
            "process": processes,
            "devices": _devices(sampler, request["devices"]),
            "drain_every_s": sampler.drain_every_s,
            "costs": asdict(costs),
            "cpu_s": time.process_time(),
            "rss_bytes": int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * mmap.PAGESIZE,
        }

    def _opened(self) -> Sampler:
        if self._sampler is None:
            raise RuntimeError("the first request has to be `open`")
        return self._sampler


def _devices(sampler: Sampler, which: str) -> list[dict[str, Any]]:
    """The inventory as asked for: `all`, `changed` or `none`."""
    return [] if which == "none" else sampler.devices(all_of_them=which == "all")


def main() -> None:
    """Serves until standard input ends: when the supervisor goes, however it goes, so does the worker."""
    page_fd, *skip = sys.argv[1:]
    # the supervisor decides when to end: a Ctrl-C in the terminal reaches the whole group
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with mmap.mmap(int(page_fd), PAGE_BYTES) as memory:
        worker = Worker(StatusPage(memory), frozenset(skip))
        for line in sys.stdin.buffer:
            sys.stdout.buffer.write(json.dumps(worker.answer(json.loads(line))).encode() + b"\n")
            sys.stdout.buffer.flush()
        worker = None  # type: ignore[assignment]  # lets go of the page before it is unmapped


if __name__ == "__main__":
    main()
