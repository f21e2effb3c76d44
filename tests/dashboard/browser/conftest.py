"""The pages of a demo fleet in a real browser: Chromium, driven by Playwright."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from tests.conftest import REPOSITORY, clean_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, BrowserContext, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update")  # fmt: skip
WAIT_MS = 30_000


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
        """Waits until the server has answered and the content is drawn."""
        self.page.wait_for_selector("#page h1", timeout=WAIT_MS)
        self.page.wait_for_function("() => !document.querySelector('[data-dash-is-loading=true]')", timeout=WAIT_MS)
        self.page.wait_for_load_state("networkidle", timeout=WAIT_MS)
        return self.page


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a demo fleet: 24 GPUs over nine days, with owners and prices."""
    folder = tmp_path_factory.mktemp("browser") / "demo"
    command = [
        sys.executable,
        "-m",
        "fallow",
        "demo",
        "--out",
        str(folder),
        "--gpus",
        "24",
        "--days",
        "9",
        "--no-serve",
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=300, cwd=REPOSITORY, env=clean_environment())
    return folder


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
    code = server.wait(timeout=30)
    server.stdout.close()
    assert code == 0


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium, or nothing to test with."""
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  # only here, and it is slow to load

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def surf(browser: Browser, address: str) -> Iterator[Callable[..., Surfer]]:
    """Opens windows; afterwards none of them may have had an error or asked anybody else for anything."""
    surfers: list[Surfer] = []
    contexts: list[BrowserContext] = []

    def window(width: int = 1440, scheme: str = "light") -> Surfer:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if scheme == "dark" else "light",
            reduced_motion="reduce",
        )  # fmt: skip
        contexts.append(context)
        surfer = Surfer(context.new_page(), address)
        surfers.append(surfer)
        local = (address, "data:", "blob:", "about:")
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
