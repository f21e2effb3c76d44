"""The pages of a demo fleet in a real browser: Chromium, driven by Playwright."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page

from tests.conftest import REPOSITORY, clean_environment
from tests.dashboard.servers import serving
from tests.delivery.mail_server import Mailbox, mail_server
from tests.made_once import made_once

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update")  # fmt: skip
WAIT_MS = 120_000
"""Many times what any page takes: the machine may have other work."""


TABLES_ARE_DRAWN = """\
() => [...document.querySelectorAll("#page .grid")].every((table) => !table.getClientRects().length
    || /\\d/.test(table.querySelector(".ag-paging-row-summary-panel")?.textContent))"""
"""A table that is in sight says how many rows it has once it has drawn them, or that there are none."""


@dataclass
class Surfer:
    """A browser's window on the pages, and what went wrong in it."""

    page: Page
    address: str
    faults: list[str] = field(default_factory=list)

    def open(self, path: str) -> Page:
        """Opens a page and waits until its content is there."""
        self.page.goto(f"{self.address}{path}")
        return self.settled()

    def settled(self) -> Page:
        """Wait until the server has answered and the content is drawn, also that of a page that refreshes by itself."""
        self.page.wait_for_selector("#page:not(:has([data-again])) h1", timeout=WAIT_MS)
        self.page.wait_for_function("() => !document.querySelector('[data-dash-is-loading=true]')", timeout=WAIT_MS)
        self.page.wait_for_load_state("networkidle", timeout=WAIT_MS)
        self.page.wait_for_function(TABLES_ARE_DRAWN, timeout=WAIT_MS)
        return self.page


def check_accessibility(page: Page) -> None:
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


Surf = Callable[..., Surfer]
"""Opens a window: `surf` below."""


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a demo fleet: 24 GPUs over four weeks, with owners and prices."""
    size = ("--gpus", "24", "--days", "28", "--no-serve")

    def fill(folder: Path) -> None:
        command = [sys.executable, "-m", "fallow", "demo", "--out", str(folder / "demo"), *size]
        subprocess.run(command, check=True, capture_output=True, timeout=300, cwd=REPOSITORY, env=clean_environment())

    return made_once(tmp_path_factory.getbasetemp(), "demo", fill) / "demo"


@pytest.fixture(scope="session")
def address(demo: Path) -> Iterator[str]:
    """Where `fallow dashboard` serves it, on a port of its own."""
    command = [sys.executable, "-m", "fallow", "dashboard", "--config", str(demo / "fallow.toml"), "--port", "0"]
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=REPOSITORY, env=clean_environment()
    )
    assert server.stdout is not None
    said = []
    for line in server.stdout:
        said.append(line)
        if found := re.search(r"http://[^/ ]+", line):
            yield found[0]
            break
    else:
        pytest.fail("no address: " + "".join(said))
    server.terminate()
    code = server.wait(timeout=120)
    server.stdout.close()
    assert code == 0


PROXY_HEADER = "X-Forwarded-User"
PLANNERS, VIEWER, VIEWER_OF_A_TEAM = ("pia", "paul"), "val", "vic"


@dataclass(frozen=True)
class Site:
    """A copy of the demo that tests act on, behind a proxy that signs readers in; reports go to `folder`, `mailbox`."""

    address: str
    config: Path
    lake: Path
    folder: Path
    mailbox: Mailbox

    def told(self, *arguments: str) -> Any:
        """What `fallow ... --json` says of it."""
        command = [sys.executable, "-m", "fallow", *arguments, "--config", str(self.config), "--json"]
        done = subprocess.run(
            command, check=True, capture_output=True, timeout=300, cwd=REPOSITORY, env=clean_environment()
        )
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def site(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Two planners, a viewer, and a viewer of one team; reports go to a folder and to a mail server."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(demo, folder / "demo")
    config = folder / "demo" / "fallow.toml"
    people = [*(f"{name},planner," for name in PLANNERS), f"{VIEWER},viewer,", f"{VIEWER_OF_A_TEAM},viewer,vision"]
    (folder / "people.csv").write_text("\n".join(["name,role,team", *people, ""]), encoding="utf-8")
    with mail_server(Mailbox()) as mailbox:
        settings = config.read_text(encoding="utf-8").replace(str(demo), str(folder / "demo"))
        own = {
            "dashboard": {"proxy_header": PROXY_HEADER, "proxies": ["127.0.0.1"], "people": str(folder / "people.csv")},
            "report": {"to": [str(folder / "reports"), "mailto:team@example.org"]},
            "mail": {"server": f"localhost:{mailbox.port}", "security": "none", "from": "gpu@example.org"},
        }
        lines = [line for name, table in own.items() for line in (f"[{name}]", *_toml(table))]
        config.write_text("\n".join([settings, *lines, ""]), encoding="utf-8")
        with serving("dashboard", "--config", str(config), "--port", "0") as (_, address):
            yield Site(address.rstrip("/"), config, folder / "demo" / "lake", folder / "reports", mailbox)


def _toml(table: dict[str, object]) -> list[str]:
    return [f"{name} = {json.dumps(value)}" for name, value in table.items()]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium, or nothing to test with."""
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    from playwright.sync_api import sync_playwright  # only here, and it is slow to load

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def surf(browser: Browser, address: str) -> Iterator[Surf]:
    """Opens windows; afterwards none of them may have had an error or asked anybody else for anything.

    `at` is another server than that of the demo, and `user` who its proxy says there is.
    """
    surfers: list[Surfer] = []
    contexts: list[BrowserContext] = []

    def window(width: int = 1440, scheme: str = "light", at: str = address, user: str = "") -> Surfer:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if scheme == "dark" else "light",
            reduced_motion="reduce",
            extra_http_headers={PROXY_HEADER: user} if user else {},
        )
        context.set_default_timeout(WAIT_MS)
        contexts.append(context)
        surfer = Surfer(context.new_page(), at)
        surfers.append(surfer)
        local = (at, "data:", "blob:", "about:")
        surfer.page.on("console", lambda said: surfer.faults.append(said.text) if said.type == "error" else None)
        surfer.page.on("pageerror", lambda error: surfer.faults.append(str(error)))
        surfer.page.on(
            "request", lambda asked: None if asked.url.startswith(local) else surfer.faults.append(asked.url)
        )
        return surfer

    yield window
    for context in contexts:
        context.close()
    assert [fault for surfer in surfers for fault in surfer.faults] == []
