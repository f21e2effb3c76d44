"""What an attack is; attacks on the pages: new windows without end, requests that nobody waits for."""

from __future__ import annotations

import os
import socket
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING
from urllib.request import Request

from analytics.simulation import SimulatedFleet, write_fleet
from benchmarks.served_pages import USER_HEADER, Server, served
from dashboard.protection import HEALTH
from fallow.clock import DAY_MS, MINUTE_MS, format_ms, parse_day_ms
from tests.attacks.slow_clients import KINDS, slowest_answers
from tests.conftest import clean_environment
from tests.lakes import made_lake

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@dataclass(frozen=True)
class Outcome:
    """What was measured, and whether that holds the limit."""

    measured: str
    holds: bool


@dataclass(frozen=True)
class Attack:
    """One way to hurt fallow: what it measured before it was mended, what it may measure, and how to try it again."""

    name: str
    what: str
    before: str
    limit: str
    run: Callable[[Path], Outcome]
    """Given a folder of its own."""


MIB, DAY_MIN = 2**20, 24 * 60
_UNTIL_MS = parse_day_ms("2026-11-20")
_DAYS = int(os.environ.get("FALLOW_ATTACK_DAYS", "28"))
_GPUS = int(os.environ.get("FALLOW_ATTACK_GPUS", "64"))
_WINDOWS = int(os.environ.get("FALLOW_ATTACK_WINDOWS", "60"))
_MEMORY_MIB = int(os.environ.get("FALLOW_ATTACK_MEMORY_MIB", "900"))
_OF_ONE = 40
_ALONE = 60
_PROXIED = {
    "FALLOW_DASHBOARD_PROXY_HEADER": USER_HEADER,
    "FALLOW_DASHBOARD_PROXIES": "127.0.0.1",
    "FALLOW_DASHBOARD_DEFAULT_ROLE": "viewer",
}
"""Settings with which `user` is who asks."""

_ABANDONED = 200
_READERS = 4
_REST_S = 30
_PAGES = ("/", "/recommendations", "/timeline", "/findings", "/users", "/right-size", "/capacity", "/queue")
KNOWN = tuple((path, "?span=7d") for path in ("/", "/recommendations", "/findings"))
"""What honest readers look at meanwhile."""


@contextmanager
def site(folder: Path, environment: dict[str, str] | None = None, user: str = "") -> Iterator[tuple[Server, int]]:
    """The pages over a simulated fleet with a budget of memory, the known ones made, and the port that probes ask."""
    lake = made_lake(folder / "lake")
    write_fleet(lake, SimulatedFleet(until_ms=_UNTIL_MS, gpus=_GPUS, days=_DAYS, seed=1))
    environment = clean_environment({"FALLOW_DASHBOARD_MEMORY": f"{_MEMORY_MIB}MiB", **(environment or {})})
    with socket.create_server(("127.0.0.1", 0)) as free:
        health_port = free.getsockname()[1]
    with served(lake.root, "--health-port", str(health_port), environment=environment) as server:
        for known in KNOWN:
            server.ask(*known, user)
        yield server, health_port


def many_windows(folder: Path) -> Outcome:
    """Readers ask for new windows, long ones, and ever more of one, while another reader looks at known pages."""
    with (
        site(folder) as (server, health_port),
        _watching(server, health_port) as seen,
        ThreadPoolExecutor(_READERS) as readers,
    ):
        server.forget_largest()
        asked = [*(("/", _new(number)) for number in range(_WINDOWS)), *_long(), *map(_of_one, range(_OF_ONE))]
        for _ in readers.map(lambda each: server.ask(*each), asked):
            pass
        peak = server.largest_ever_bytes() // MIB
        time.sleep(_REST_S)
        stays = server.largest_bytes() // MIB
        p95_s = statistics.quantiles(seen.known_s, n=20)[-1]
    return Outcome(
        f"{_GPUS} GPUs x {_DAYS} days, {len(asked)} pages: at most {peak} of {_MEMORY_MIB} MiB resident, {stays} MiB "
        f"{_REST_S} s later; known pages p95 {p95_s * 1000:.0f} ms of {len(seen.known_s)}",
        holds=max(peak, stays) <= _MEMORY_MIB and p95_s < 0.3,
    )


def heavy_reader(folder: Path) -> Outcome:
    """One reader asks for new windows, four at a time, while another looks at known pages, first alone, then beside."""
    with (
        site(folder, _PROXIED, user="innocent") as (server, _),
        ThreadPoolExecutor(_READERS) as readers,
        ThreadPoolExecutor(1) as other,
    ):
        alone = [server.ask(*KNOWN[place % len(KNOWN)], "innocent").spent_s for place in range(_ALONE)]
        end = threading.Event()
        beside = other.submit(list, _known_until(end, server, "innocent"))
        try:
            list(readers.map(lambda number: server.ask("/", _new(number), "heavy"), range(_WINDOWS)))
        finally:
            end.set()
        waited = beside.result()
    before_s, p95_s = statistics.quantiles(alone, n=20)[-1], statistics.quantiles(waited, n=20)[-1]
    return Outcome(
        f"known pages p95 {p95_s * 1000:.0f} ms, at most {max(waited):.1f} s of {len(waited)}; alone p95 "
        f"{before_s * 1000:.0f} ms, at most {max(alone):.1f} s of {len(alone)}",
        holds=p95_s < 0.5 and max(waited) < 10,
    )


def _known_until(end: threading.Event, server: Server, user: str) -> Iterator[float]:
    """Seconds that known pages take, one after the other."""
    for page in cycle(KNOWN):
        if end.wait(0.2):
            return
        yield server.ask(*page, user).spent_s


def abandoned(folder: Path) -> Outcome:
    """Requests for new windows whose senders hang up at once."""
    with site(folder) as (server, health_port), _watching(server, health_port) as seen:
        for number in range(_ABANDONED):
            server.request("/", _new(10_000 + number)).close()
        time.sleep(20)
        slowest_s, probe_s, known_s = max(seen.health_s), max(seen.probe_s), max(seen.known_s)
        before = time.perf_counter()
        server.ask("/", _new(20_000))
        new_s = time.perf_counter() - before
    return Outcome(
        f"{HEALTH} at most {probe_s * 1000:.0f} ms on the probes' port, {slowest_s * 1000:.0f} ms on the pages', "
        f"known pages at most {known_s * 1000:.0f} ms, then a new window {new_s:.1f} s",
        holds=probe_s < 0.1 and known_s < 1 and new_s < 30,
    )


def slow_clients(folder: Path) -> Outcome:
    """64 slow clients of each kind, before any sign-in."""
    with site(folder) as (server, _):
        address = f"http://127.0.0.1:{server.port}/"
        found = [slowest_answers(address, kind, Request(address)) for kind in KINDS]  # loopback
    slowest = max(found, key=lambda each: max(each.health_s, each.page_s))
    return Outcome(
        f"others wait at most {max(each.page_s for each in found) * 1000:.0f} ms, {HEALTH} at most "
        f"{max(each.health_s for each in found) * 1000:.0f} ms (slowest: {slowest.kind})",
        holds=max(slowest.health_s, slowest.page_s) < 1,
    )


def _new(number: int) -> str:
    """A window that nobody has asked for: a few days that begin on a minute of their own."""
    since_ms = _UNTIL_MS - (3 + number % 7) * DAY_MS + number % DAY_MIN * MINUTE_MS
    return f"?since={format_ms(since_ms)}&until={format_ms(since_ms + 2 * DAY_MS)}"


def _long() -> list[tuple[str, str]]:
    """Pages of long windows, the longest of them the whole lake."""
    return [(path, f"?span={span}") for path in _PAGES for span in ("3d", "7d", "28d")]


def _of_one(number: int) -> tuple[str, str]:
    """A page of one window that nobody has asked for: a part of its time on the timeline, or another zone."""
    if number % 2:
        return "/quality", f"?span=28d&zone=Etc/GMT%2B{number // 2 % 12}"
    since_ms = _UNTIL_MS - 10 * DAY_MS + number * MINUTE_MS
    return "/timeline", f"?span=28d&start={format_ms(since_ms)}&end={format_ms(since_ms + DAY_MS)}"


class Seen:
    """What an honest reader sees meanwhile, in seconds."""

    def __init__(self) -> None:
        self.health_s: list[float] = []
        self.probe_s: list[float] = []
        self.known_s: list[float] = []


@contextmanager
def _watching(server: Server, health_port: int) -> Iterator[Seen]:
    """Poll the health on both ports and a known page, each on a thread of its own, until the block ends."""
    seen, end = Seen(), threading.Event()

    def health() -> None:
        while not end.wait(0.05):
            seen.health_s.append(server.get(HEALTH))

    def probe() -> None:
        while not end.wait(0.05):
            seen.probe_s.append(server.get(HEALTH, health_port))

    def known() -> None:
        for spent_s in _known_until(end, server, ""):
            seen.known_s.append(spent_s)  # those who watch read it before the end

    with ThreadPoolExecutor(3) as watchers:
        running = [watchers.submit(each) for each in (health, probe, known)]
        try:
            yield seen
        finally:
            end.set()
        for each in running:
            each.result()
