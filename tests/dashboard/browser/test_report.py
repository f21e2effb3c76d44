"""The report's page in a browser: looked at, taken along in every format, and sent by those who may."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page

from fallow.cli import main
from tests.dashboard.browser.conftest import PLANNERS, Site, Surf, Surfer
from tests.dashboard.browser.test_frame import asked, choose, picture

pytestmark = pytest.mark.long


READING_MS = 120_000
"""A week that nobody has asked for yet: the rules run over it and over the one before."""


def opened(surfer: Surfer, search: str = "") -> Page:
    """Waits until the preview is there as well."""
    page = surfer.page
    page.goto(f"{surfer.address}/report{search}")
    page.wait_for_selector(".weeks .here", timeout=READING_MS)
    page.frame_locator("iframe.preview").locator("h1").wait_for(timeout=READING_MS)
    return page


def command(config: Path, folder: Path, form: str, *arguments: str) -> bytes:
    """What `fallow report` writes."""
    target = folder / f"told.{form}"
    assert main(["report", "--config", str(config), "--format", form, "--out", str(target), *arguments]) == 0
    return target.read_bytes()


def week(page: Page) -> str:
    """The chosen one."""
    return page.inner_text(".weeks .here").split()[0]


def test_another_week_is_an_address(surf: Surf) -> None:
    surfer = surf()
    page = opened(surfer)
    first = week(page)
    page.locator(".weeks a").first.click()
    page.wait_for_url("**/report?start=*")
    page.wait_for_function("first => !document.querySelector('.weeks .here').innerText.startsWith(first)", arg=first)
    second = week(page)
    assert asked(page) == {"start": [second]}
    assert second in page.inner_text("#preview-title")
    choose(page, "lang", "Français")
    page.wait_for_url("**lang=fr*")
    page.wait_for_selector("iframe.preview[src*='lang=fr']", timeout=READING_MS)
    page.frame_locator("iframe.preview").locator("html[lang=fr] h1").wait_for(timeout=READING_MS)
    assert second in page.frame_locator("iframe.preview").locator("h1").inner_text()
    assert page.inner_text("#page h1").replace("\xa0", " ") == "Que dit le rapport d'une semaine ?"
    page.go_back()
    page.go_back()
    page.wait_for_function("first => document.querySelector('.weeks .here')?.innerText.startsWith(first)", arg=first)


def test_a_planner_tries_and_then_sends_to_a_folder_and_by_mail(surf: Surf, site: Site, tmp_path: Path) -> None:
    page = opened(surf(at=site.address, user=PLANNERS[0]))
    chosen = week(page)
    assert page.is_disabled("#send-now")
    page.locator(".targets button").last.click()
    page.wait_for_selector("#send-now:not([disabled])")
    assert page.inner_text("#send-outcome").count("would be sent") == 2
    assert site.mailbox.mails == []
    assert not site.folder.exists()
    page.click("#send-now")
    page.wait_for_selector("#send-now[disabled]")
    picture(page, "report-sent")
    assert "would" not in page.inner_text("#send-outcome")
    [file] = [each for each in site.folder.rglob("*.html") if chosen in each.name]
    told = command(site.config, tmp_path, "html", "--week", chosen)
    # where the lake lies is told to admins alone
    assert file.read_bytes() == re.sub(rb", <bdi>[^<]*</bdi></footer>", b"</footer>", told) != told
    [message] = site.mailbox.messages
    assert (message["To"], message["From"]) == ("team@example.org", "gpu@example.org")
    assert chosen in message["Subject"]
    page.locator(".targets button").last.click()
    page.wait_for_selector("#send-outcome >> text=it was sent on")
    assert page.is_disabled("#send-now")
    assert len(site.mailbox.mails) == 1
