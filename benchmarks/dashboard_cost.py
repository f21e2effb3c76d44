"""What the pages cost: bytes on the wire, layout shift, answers of the server cold and cached, sixteen readers, memory."""

from __future__ import annotations

import shutil
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from analytics.simulation import SimulatedFleet
from benchmarks.fleet_lake import UNTIL_MS, simulated
from benchmarks.measure import Figure
from benchmarks.served_pages import Server, served
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
    with simulated(fleet) as of, served(of.lake.root) as server:
        yield Figure(f"{name}_start", server.start_s, "s", f"until the address is printed, ledger built, {how}")
        yield from _answers(server, name, how)
        yield from _new_windows(server, name, how)
        yield from _crowd(server, name, how)
        yield Figure(f"{name}_memory", server.resident_bytes() / MIB, "MiB", f"resident after all of it, {how}")
        if chromium := shutil.which("chromium"):
            yield from _in_a_browser(server, chromium, name, how)


def _answers(server: Server, name: str, how: str) -> Iterator[Figure]:
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


def _new_windows(server: Server, name: str, how: str) -> Iterator[Figure]:
    """The overview of windows that nobody has looked at: the rules run over each, and over the week before it."""
    times = []
    for day in (2, 3, 4):
        until = format_ms(UNTIL_MS - day * DAY_MS)
        times.append(server.ask("/", f"?since={format_ms(UNTIL_MS - (day + 2) * DAY_MS)}&until={until}").spent_s)
    yield Figure(f"{name}_new_window", max(times), "s", f"longest of three overviews of a window of two days, {how}")


def _crowd(server: Server, name: str, how: str) -> Iterator[Figure]:
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


def _in_a_browser(server: Server, chromium: str, name: str, how: str) -> Iterator[Figure]:
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


def _percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
