"""Speed of every page at 1,000 GPUs: its callback's answers, and the time until it is usable in a real browser.

`python -m benchmarks pages` prints p50 and p95 of each page and stores them in pages.json.
`python -m benchmarks.page_speed ADDRESS [PATH...]` measures pages that a server already shows: bytes on the wire, and
processor time of the browser's main thread, which other work on the machine hardly changes.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.fleet_lake import fleet_of, simulated
from benchmarks.measure import Figure
from benchmarks.served_pages import served
from dashboard.pages import PAGES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.served_pages import Server

KB = 1000
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
)
_TRACED = ["toplevel", "disabled-by-default-devtools.timeline"]
_REPEATS = 3
VISITS = 10
"""Visits of each page by new readers, and answers of it to queries that are new."""
READERS = 16
ZONES = ("UTC", "Europe/Paris", "Asia/Tokyo", "America/New_York", "Asia/Kolkata")
STORED = Path(__file__).parent / "pages.json"
_WATCH = """
window.seen = {shift: 0, usable: null};
new PerformanceObserver(list => {
    for (const each of list.getEntries()) if (!each.hadRecentInput) window.seen.shift += each.value;
}).observe({type: "layout-shift", buffered: true});
new MutationObserver((_, own) => {
    if (document.querySelector("#page:not(:has([data-again])) h1")) {
        own.disconnect();
        requestAnimationFrame(() => requestAnimationFrame(() => { window.seen.usable = performance.now();
            document.documentElement.classList.add("usable");
        }));
    }
}).observe(document, {childList: true, subtree: true});
"""


@dataclass(frozen=True)
class Visit:
    """What one visit of a page took.

    Attributes:
        usable_ms: time until the heading and all content below it are on the screen, by the clock.
        busy_ms: processor time of the browser's main thread.
        longest_ms: the longest task of it, in processor time: the browser answers no key and no click meanwhile.
        wire: compressed bytes by kind of file: `script`, `stylesheet`, `fetch` and others.
        shift: layout shift, as browsers score it.
    """

    usable_ms: float
    busy_ms: float
    longest_ms: float
    wire: dict[str, float]
    shift: float


@contextmanager
def browser() -> Iterator[Any]:
    """Chromium; None where there is none."""
    chromium = shutil.which("chromium")
    if chromium is None:
        yield None
        return
    from playwright.sync_api import sync_playwright  # only where there is a browser

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=list(_FLAGS))
        yield opened
        opened.close()


def visits(opened: Any, address: str, repeats: int) -> list[Visit]:
    """Return the first visit of a page by a new reader, then as many more as are asked for."""
    context = opened.new_context(viewport={"width": 1440, "height": 900})
    page, wire, kinds = context.new_page(), dict[str, float](), dict[str, str]()
    session = context.new_cdp_session(page)
    session.send("Network.enable")
    session.on("Network.responseReceived", lambda event: kinds.update({event["requestId"]: event["type"].lower()}))

    def count(event: dict[str, Any]) -> None:
        kind = kinds.get(event["requestId"], "other")
        wire[kind] = wire.get(kind, 0) + event["encodedDataLength"]

    session.on("Network.loadingFinished", count)
    page.add_init_script(_WATCH)
    found = []
    for _ in range(1 + repeats):
        wire.clear()
        opened.start_tracing(page=page, categories=_TRACED)
        page.goto(address)
        page.wait_for_selector("html.usable", timeout=120_000)
        page.wait_for_load_state("networkidle")
        time.sleep(1)
        seen = page.evaluate("window.seen")
        tasks = main_thread_tasks(opened.stop_tracing())
        found.append(Visit(seen["usable"], sum(tasks), max(tasks), dict(wire), seen["shift"]))
    context.close()
    return found


def main_thread_tasks(trace: bytes) -> list[float]:
    """Return the tasks of the page's main thread in ms of processor time: of the renderer that worked most."""
    events = json.loads(trace)["traceEvents"]
    mains = {
        (each["pid"], each["tid"])
        for each in events
        if each["name"] == "thread_name" and each["args"]["name"] == "CrRendererMain"
    }
    tasks: dict[tuple[int, int], list[float]] = {each: [0.0] for each in mains}
    for each in events:
        thread = (each["pid"], each["tid"])
        # a task that the trace cut off has no processor time
        if each["ph"] == "X" and each["name"] == "RunTask" and thread in mains and "tdur" in each:
            tasks[thread].append(each["tdur"] / 1000)
    return max(tasks.values(), key=sum)


def figures(opened: Any, address: str, name: str, how: str) -> Iterator[Figure]:
    """Return the figures of a page: medians of new readers, and of their second visits."""
    both = [visits(opened, address, 1) for _ in range(_REPEATS)]
    for place, kind in enumerate(("cold", "warm")):
        found = [each[place] for each in both]
        text = f"{kind}, median of {_REPEATS}, {how}"
        yield Figure(f"{name}_usable_{kind}", statistics.median(each.usable_ms for each in found), "ms", text)
        for key in ("busy", "longest"):
            spent_ms = statistics.median(getattr(each, f"{key}_ms") for each in found)
            yield Figure(f"{name}_{key}_{kind}", spent_ms, "ms", f"of processor time, {text}")
        yield Figure(f"{name}_wire_{kind}", sum(found[0].wire.values()) / KB, "kB", f"{kind}, {how}")
    first = both[0][0]
    yield Figure(f"{name}_scripts", first.wire.get("script", 0) / KB, "kB", f"compressed, first visit, {how}")
    yield Figure(f"{name}_shift", first.shift, "score", f"of the layout, first visit, {how}")


def measure() -> Iterator[Figure]:
    """Return the slowest page of each kind of figure, after printing and storing those of all pages."""
    fleet = fleet_of(1000, 7, 60)
    how = "1,000 GPUs x 7 days at 60 s"
    paths = [page.path for page in PAGES if page.listed]
    with simulated(fleet) as lake, served(lake.root) as server, browser() as opened:
        rows = {}
        print(f"{'p50 / p95 in ms':<20}" + "".join(f"{kind:>22}" for kind in ("first answer", "again", "browser")))
        for path in paths:
            rows[path] = _page(server, opened, path)
            print(
                f"{path:<20}" + "".join(f"{low:>12,.0f} /{high:>8,.0f}" for low, high in rows[path].values()),
                flush=True,
            )
        yield from _crowd(server, paths, how)
    STORED.write_text(json.dumps({"how": how, "pages": rows}, indent=1) + "\n", encoding="utf-8")
    for kind, goal_ms in (("first", 1000), ("again", None), ("browser", 1000)):
        path, (_, high) = max(
            ((path, row[kind]) for path, row in rows.items() if kind in row), key=lambda each: each[1][1]
        )
        yield Figure(f"pages_{kind}_p95", high, "ms", f"p95 of the slowest page, {path}, {how}", goal=goal_ms)


def _page(server: Server, opened: Any, path: str) -> dict[str, tuple[float, float]]:
    """Return p50 and p95 in ms: of new queries, of the same again, and of a browser's visits if there is one."""
    queries = [f"?span=7d&zone={zone}&lang={language}" for zone in ZONES for language in ("en", "fr")]
    found = {
        "first": [1000 * server.ask(path, query).spent_s for query in queries],
        "again": [1000 * server.ask(path, query).spent_s for query in queries],
    }
    if opened is not None:
        address = f"http://127.0.0.1:{server.port}{path}?span=7d"
        found["browser"] = [visits(opened, address, 0)[0].usable_ms for _ in range(VISITS)]
    return {kind: (_percentile(times, 50), _percentile(times, 95)) for kind, times in found.items()}


def _crowd(server: Server, paths: Sequence[str], how: str) -> Iterator[Figure]:
    """Yield the times of readers who request cached pages at once."""

    def reader(number: int) -> list[float]:
        first = number % len(paths)
        order = [*paths[first:], *paths[:first]]
        return [1000 * server.ask(path, f"?span=7d&zone={ZONES[0]}&lang=en").spent_s for path in order]

    with ThreadPoolExecutor(READERS) as crowd:
        times = [each for own in crowd.map(reader, range(READERS)) for each in own]
    for share in (50, 95):
        yield Figure(f"pages_crowd_p{share}", _percentile(times, share), "ms", f"{READERS} readers at once, {how}")


def _percentile(values: Sequence[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def main(address: str, paths: Sequence[str]) -> None:
    """Print the figures of pages."""
    with browser() as opened:
        for path in paths or ("/",):
            where = address.rstrip("/") + path
            visits(opened, where, 0)
            for each in figures(opened, where, path, where):
                print(f"{each.name:<32} {each.value:>10,.1f} {each.unit}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
