"""What the pages cost: bytes on the wire, layout shift, answers of the server cold and cached, sixteen readers, memory."""

from __future__ import annotations

import gzip
import http.client
import json
import re
import shutil
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from analytics.simulation import SimulatedFleet
from benchmarks.fleet_lake import UNTIL_MS, simulated
from benchmarks.measure import Figure
from dashboard.frame import OUTPUTS
from dashboard.pages import PAGES
from fallow.clock import DAY_MS, format_ms

if TYPE_CHECKING:
    from collections.abc import Iterator

READERS = 16
KB, MIB = 1000, 2**20
_MINUTE_MS = 60_000
_FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
          "--disable-background-networking", "--disable-component-update")  # fmt: skip


def measure() -> Iterator[Figure]:
    """512 GPUs over a week."""
    yield from _measure(
        SimulatedFleet(gpus=512, days=7, seed=1, interval_ms=_MINUTE_MS, until_ms=UNTIL_MS), "dashboard"
    )


def measure_full() -> Iterator[Figure]:
    """5,000 GPUs over four weeks."""
    fleet = SimulatedFleet(gpus=5000, days=28, seed=1, interval_ms=10 * _MINUTE_MS, until_ms=UNTIL_MS)
    yield from _measure(fleet, "dashboard_full")


def _measure(fleet: SimulatedFleet, name: str) -> Iterator[Figure]:
    how = f"{fleet.gpus} GPUs x {fleet.days} days in rows of {fleet.interval_ms // 1000} s"
    with simulated(fleet) as of, _served(of.lake.root) as server:
        yield Figure(f"{name}_start", server.start_s, "s", f"until the address is printed, ledger built, {how}")
        yield from _answers(server, name, how)
        yield from _new_windows(server, name, how)
        yield from _crowd(server, name, how)
        yield Figure(f"{name}_memory", server.resident_bytes() / MIB, "MiB", f"resident after all of it, {how}")
        if chromium := shutil.which("chromium"):
            yield from _in_a_browser(server, chromium, name, how)


def _answers(server: _Server, name: str, how: str) -> Iterator[Figure]:
    """Each page under questions that nobody has asked before, then again."""
    first, cached, sizes = [], [], {}
    figures: dict[str, int] = {}
    for page in (each for each in PAGES if each.listed):
        for zone in ("UTC", "Europe/Paris", "Asia/Tokyo"):
            search = f"?span=7d&zone={zone}&lang=fr"
            answer = server.ask(page.path, search)
            first.append(1000 * answer.spent_s)
            sizes[page.path] = answer.wire_bytes
            figures |= {f"{page.path} {name}": size for name, size in answer.figures().items()}
            cached += [1000 * server.ask(page.path, search).spent_s for _ in range(5)]
    pages = f"all pages, three time zones, {how}"
    for share, label in ((50, "p50"), (95, "p95")):
        yield Figure(f"{name}_first_{label}", _percentile(first, share), "ms", f"first answer, {pages}")
        yield Figure(f"{name}_cached_{label}", _percentile(cached, share), "ms", f"again, {pages}")
    largest = max(sizes, key=lambda each: sizes[each])
    yield Figure(f"{name}_largest_page", sizes[largest] / KB, "kB", f"gzip, of {largest}, {how}")
    heaviest = max(figures, key=lambda each: figures[each])
    yield Figure(f"{name}_largest_figure", figures[heaviest] / KB, "kB", f"gzip, of {heaviest}, {how}")


def _new_windows(server: _Server, name: str, how: str) -> Iterator[Figure]:
    """The overview of windows that nobody has looked at: the rules run over each, and over the week before it."""
    times = []
    for day in (2, 3, 4):
        until = format_ms(UNTIL_MS - day * DAY_MS)
        times.append(server.ask("/", f"?since={format_ms(UNTIL_MS - (day + 2) * DAY_MS)}&until={until}").spent_s)
    yield Figure(f"{name}_new_window", max(times), "s", f"longest of three overviews of a window of two days, {how}")


def _crowd(server: _Server, name: str, how: str) -> Iterator[Figure]:
    """Readers who all ask for pages at once, each page cached."""

    def reader(number: int) -> list[float]:
        pages = [page.path for page in PAGES if page.listed]
        order = pages[number % len(pages) :] + pages[: number % len(pages)]
        return [1000 * server.ask(path, "?span=7d&zone=UTC").spent_s for path in order]

    reader(0)
    with ThreadPoolExecutor(READERS) as crowd:
        times = [each for own in crowd.map(reader, range(READERS)) for each in own]
    for share, label in ((50, "p50"), (95, "p95")):
        yield Figure(
            f"{name}_crowd_{label}", _percentile(times, share), "ms", f"{READERS} readers at once, cached, {how}"
        )


def _in_a_browser(server: _Server, chromium: str, name: str, how: str) -> Iterator[Figure]:
    from playwright.sync_api import sync_playwright  # only where there is a browser

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(_FLAGS))
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        page = context.new_page()
        wire = [0.0]
        session = context.new_cdp_session(page)
        session.send("Network.enable")
        session.on("Network.loadingFinished", lambda said: wire.append(said["encodedDataLength"]))
        page.add_init_script(_SHIFT)

        def load() -> float:
            del wire[1:]
            page.goto(f"http://127.0.0.1:{server.port}/?span=7d")
            page.wait_for_selector("#page h1", timeout=60_000)
            page.wait_for_load_state("networkidle")
            time.sleep(1)
            return sum(wire)

        cold, shift = load(), page.evaluate("window.shifted")
        warm = load()
        browser.close()
    yield Figure(f"{name}_wire_cold", cold / KB, "kB", f"first visit of the overview, {how}")
    yield Figure(f"{name}_wire_warm", warm / KB, "kB", f"second visit, {how}")
    yield Figure(f"{name}_layout_shift", shift, "score", f"cumulative, first visit of the overview, {how}")


_SHIFT = """
window.shifted = 0;
new PerformanceObserver(list => {
    for (const each of list.getEntries()) if (!each.hadRecentInput) window.shifted += each.value;
}).observe({type: "layout-shift", buffered: true});
"""


@dataclass(frozen=True)
class _Answer:
    """Seconds until a page was there, its compressed bytes, and what it says."""

    spent_s: float
    wire_bytes: int
    text: bytes

    def figures(self) -> dict[str, int]:
        """Compressed bytes of each figure, and of the words that some keep beside it, by their ids."""
        found: dict[str, int] = {}

        def walk(part: object) -> None:
            if isinstance(part, list):
                for each in part:
                    walk(each)
            elif isinstance(part, dict) and "props" in part:
                own = part["props"].get({"Graph": "figure", "Store": "data"}.get(part["type"], ""))
                if own is not None:
                    name = str(part["props"].get("id", part["type"]))
                    found[name] = len(gzip.compress(json.dumps(own).encode(), 6))
                walk(part["props"].get("children"))

        walk(json.loads(self.text)["response"]["page"]["children"])
        return found


@dataclass(frozen=True)
class _Server:
    process: psutil.Process
    port: int
    start_s: float

    def ask(self, path: str, search: str) -> _Answer:
        """A page; fails for anything else."""
        before = time.perf_counter()
        while True:
            content = self._answer(path, search)
            spent_s = time.perf_counter() - before
            text = gzip.decompress(content)
            if b'"data-again"' in text:  # said to take longer
                continue
            if b'"className":"heading"' not in text:
                raise RuntimeError(f"{path}{search} is no page: {text[:300]!r}")
            return _Answer(spent_s, len(content), text)

    def _answer(self, path: str, search: str) -> bytes:
        body = json.dumps(_question(path, search))
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request("POST", "/_dash-update-component", body, {
            "Content-Type": "application/json", "Accept-Encoding": "gzip", "Origin": f"http://127.0.0.1:{self.port}",
        })  # fmt: skip
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        if answer.status != http.client.OK:
            raise RuntimeError(f"{path}{search}: {answer.status}")
        return content

    def resident_bytes(self) -> int:
        """Of the server and its children."""
        return sum(each.memory_info().rss for each in (self.process, *self.process.children(recursive=True)))


def _question(path: str, search: str) -> dict[str, object]:
    outputs = [("page", "children"), ("nav", "children"), ("version", "data")]
    outputs += [(each.component_id, each.component_property) for each in OUTPUTS]
    asked = [
        ("scheme", "data", "light"),
        ("url", "pathname", path),
        ("url", "search", search),
        ("again", "n_clicks", None),
    ]
    return {
        "output": "..{}..".format("...".join(f"{name}.{kind}" for name, kind in outputs)),
        "outputs": [{"id": name, "property": kind} for name, kind in outputs],
        "inputs": [{"id": name, "property": kind, "value": value} for name, kind, value in asked],
        "changedPropIds": ["url.search"],
    }


@contextmanager
def _served(root: str) -> Iterator[_Server]:
    """`fallow dashboard` over a lake, on a port of its own."""
    before = time.perf_counter()
    command = [sys.executable, "-m", "fallow", "dashboard", "--lake", root, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield _Server(psutil.Process(process.pid), _port(process), time.perf_counter() - before)
        finally:
            process.terminate()


def _port(process: subprocess.Popen[str]) -> int:
    said = []
    for line in process.stdout or ():
        said.append(line)
        if found := re.search(r"http://[^/ ]+:(\d+)", line):
            return int(found[1])
    raise RuntimeError("no address: " + "".join(said))


def _percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
