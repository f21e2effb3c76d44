"""What a reader sees when something is not as it should be: a sentence, and the page comes back by itself."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page
from werkzeug.serving import make_server

from analytics.simulation import SimulatedFleet, write_fleet
from dashboard.access.people import Reader
from dashboard.app import build_app
from dashboard.query import Query
from dashboard.source import LATE, LakeSource
from dashboard.view import Problem, View
from fallow.lake import Lake
from tests.dashboard.browser.conftest import WAIT_MS, Surfer, check_accessibility
from tests.dashboard.browser.findings_table import ALL, listed, state
from tests.dashboard.conftest import UNTIL_MS, inputs_of, words
from tests.dashboard.conftest import page as frame_page
from tests.lakes import made_lake

pytestmark = pytest.mark.long


class Late(LakeSource):
    """Says as often as `late` that it takes long."""

    late = 0

    def look(self, query: Query, reader: Reader, *, findings: bool = True) -> View | Problem:
        if self.late:
            self.late -= 1
            return LATE
        return super().look(query, reader, findings=findings)


@contextmanager
def served(source: LakeSource) -> Iterator[str]:
    """The pages over a source of this process, and where they are."""
    server = make_server("127.0.0.1", 0, build_app(source).server, threaded=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.shutdown()
        thread.join(timeout=30)


@contextmanager
def opened(browser: Browser, address: str, path: str = "/", *, until: str = "") -> Iterator[Page]:
    """A window on the page; `until` is what it waits for, where that is not its content."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(WAIT_MS)
    surfer = Surfer(context.new_page(), address)
    surfer.page.on("pageerror", lambda error: surfer.faults.append(str(error)))
    try:
        if until:
            surfer.page.goto(address + path)
            surfer.page.wait_for_selector(until)
        else:
            surfer.open(path)
        yield surfer.page
        assert surfer.faults == []
    finally:
        context.close()


@pytest.fixture(scope="module")
def small_lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """One GPU over two days; copied by whoever changes it."""
    lake = made_lake(tmp_path_factory.mktemp("small") / "lake")
    write_fleet(lake, SimulatedFleet(until_ms=UNTIL_MS, gpus=1, days=2, seed=3))
    return lake


@pytest.fixture(scope="module")
def small_pages(small_lake: Lake) -> Iterator[str]:
    """Where its pages are: they share the ledger, which the first of them makes."""
    with served(LakeSource(lambda: inputs_of(small_lake))) as address:
        yield address


def copied(lake: Lake, folder: Path) -> Lake:
    shutil.copytree(lake.root, folder / "lake")
    return made_lake(folder / "lake")


def without_traceback(page: Page) -> str:
    text = page.inner_text("body")
    assert "Traceback" not in text
    assert "Error" not in text
    return text


def test_an_empty_lake_says_how_to_fill_it_and_shows_what_comes(
    browser: Browser, small_lake: Lake, tmp_path: Path
) -> None:
    (tmp_path / "lake").mkdir()
    with (
        served(LakeSource(lambda: inputs_of(made_lake(tmp_path / "lake")))) as address,
        opened(browser, address) as page,
    ):
        assert "fallow agent run" in without_traceback(page)
        check_accessibility(page)
        shutil.copytree(small_lake.root, tmp_path / "lake", dirs_exist_ok=True)
        page.reload()
        page.wait_for_selector("#page .headline", timeout=WAIT_MS)


@pytest.mark.parametrize("path", ["/", "/timeline", "/findings", "/users", "/right-size", "/capacity", "/report"])
def test_one_gpu_makes_whole_pages(browser: Browser, small_pages: str, path: str) -> None:
    with opened(browser, small_pages, path) as page:
        assert page.query_selector(".problem") is None
        assert "nan" not in without_traceback(page).lower().replace("finance", "")
        check_accessibility(page)


def test_a_lake_that_is_gone_leaves_what_was_read_and_says_so(
    browser: Browser, small_lake: Lake, tmp_path: Path
) -> None:
    lake = copied(small_lake, tmp_path)
    source = LakeSource(lambda: inputs_of(lake))
    with served(source) as address, opened(browser, address) as page:
        headline = page.inner_text("#page .headline")
        Path(lake.root).rename(tmp_path / "elsewhere")
        source.refresh()
        page.reload()
        page.wait_for_selector("#page .stale", timeout=WAIT_MS)
        assert "could not be read again" in page.inner_text("#page .stale")
        assert page.inner_text("#page .headline") == headline
        check_accessibility(page)
        (tmp_path / "elsewhere").rename(lake.root)
        source.refresh()
        page.reload()
        page.wait_for_selector("#page .headline", timeout=WAIT_MS)
        assert page.query_selector("#page .stale") is None


def test_an_answer_that_takes_long_is_said_and_comes_by_itself(browser: Browser, small_lake: Lake) -> None:
    source = Late(lambda: inputs_of(small_lake))
    source.late = 3
    with served(source) as address, opened(browser, address, until="#page [data-again]") as page:
        assert "This page takes longer than usual." in without_traceback(page)
        page.wait_for_selector("#page .headline", timeout=WAIT_MS)
        assert source.late == 0


def test_a_chosen_finding_that_takes_long_comes_by_itself(browser: Browser, demo: Path) -> None:
    source = Late(lambda: inputs_of(Lake.at(str(demo / "lake")), config=str(demo / "fallow.toml")))
    with served(source) as address, opened(browser, address, f"/findings?{ALL}") as page:
        chosen = state(listed(page))["ids"][0]
        source.late = 2
        page.locator(f"#findings-grid [row-id='{chosen}'] input[type=checkbox]").check()
        page.wait_for_selector("#finding-detail >> text=takes longer than usual")
        page.wait_for_selector(f"#finding-detail >> text={chosen}")
        assert state(page)["chosen"] == [chosen]


def test_files_are_put_together_while_readers_read(small_lake: Lake, tmp_path: Path) -> None:
    """Wider files replace narrower ones again and again, as compaction does: every page is whole or says it loads."""
    lake = copied(small_lake, tmp_path)
    source = LakeSource(lambda: inputs_of(lake))
    source.refresh()
    client = build_app(source).server.test_client
    stop, seen = threading.Event(), []

    def compact() -> None:
        while not stop.is_set():
            for file in lake.files("gpu"):
                wider = type(file)(file.table, file.date, file.host, file.first_seq, file.last_seq + 1)
                lake.put(wider, Path(file.url).read_bytes())
                lake.delete(file)
            time.sleep(0.01)

    def read() -> None:
        own = client()
        seen.extend(words(frame_page(own, path)) for path in ("/", "/timeline", "/quality", "/capacity"))

    compacting = threading.Thread(target=compact)
    compacting.start()
    try:
        for _ in range(6):
            source.refresh()
            readers = [threading.Thread(target=read) for _ in range(3)]
            for each in readers:
                each.start()
            for each in readers:
                each.join(timeout=120)
    finally:
        stop.set()
        compacting.join(timeout=30)
    assert len(seen) == 6 * 3 * 4
    assert all("observed" in text or "put together" in text for text in seen)
    assert any("observed" in text for text in seen)
