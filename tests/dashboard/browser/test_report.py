"""The report's page in a browser: looked at, taken along in every format, and sent by those who may."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from analytics.language.languages import language
from fallow.cli import main
from tests.dashboard.browser.conftest import PLANNERS, VIEWER, VIEWER_OF_A_TEAM
from tests.dashboard.browser.test_frame import asked, choose, picture

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page, Request

    from tests.dashboard.browser.conftest import Site, Surfer

pytestmark = pytest.mark.long

SUFFIXES = {"html": "html", "pdf": "pdf", "md": "md", "text": "txt", "json": "json", "csv": "csv"}


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


def taken(page: Page, form: str) -> tuple[str, bytes]:
    """A document by its link: its name and its bytes."""
    with page.expect_download() as download:
        page.click(f".downloads a[href*='/report/download/{form}?']")
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def test_the_preview_shows_the_numbers_of_the_command(surf: Callable[..., Surfer], demo: Path, tmp_path: Path) -> None:
    page = opened(surf())
    chosen = week(page)
    told = json.loads(command(demo / "fallow.toml", tmp_path, "json", "--week", chosen))
    frame = page.frame_locator("iframe.preview")
    text = frame.locator("body").inner_text()
    words = language("en")
    hours, money = told["ledger"]["gpu_hours"], told["ledger"]["money"]
    assert chosen in frame.locator("h1").inner_text()
    for number in (told["observed"]["observed_gpu_hours"], hours["free"], hours["held"]):
        assert words.number(number, 1) in text
    assert words.money(money["paid"], money["currency"]) in text
    assert told["recommendations"]
    for each in told["recommendations"]:
        assert each["id"] in text
    assert page.get_attribute("iframe.preview", "sandbox") == ""
    picture(page, "report-preview")


def test_every_document_is_that_of_the_command(surf: Callable[..., Surfer], demo: Path, tmp_path: Path) -> None:
    page = opened(surf(), "?lang=fr&pool=legacy")
    chosen = week(page)
    for form, suffix in SUFFIXES.items():
        name, content = taken(page, form)
        assert name == f"fallow-{chosen}-pool=legacy-fr.{suffix}"
        if form == "pdf":
            assert content.startswith(b"%PDF-")
            continue
        own = ("--week", chosen, "--lang", "fr", "--pool", "legacy")
        assert content == command(demo / "fallow.toml", tmp_path, form, *own)
    rows = list(csv.DictReader(io.StringIO(taken(page, "csv")[1].decode())))
    assert {row["figure"]: row["value"] for row in rows}["scope.pool"] == "legacy"


def test_another_week_is_an_address(surf: Callable[..., Surfer]) -> None:
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
    assert page.inner_text("#page h1") == "Rapport"
    page.go_back()
    page.go_back()
    page.wait_for_function("first => document.querySelector('.weeks .here')?.innerText.startsWith(first)", arg=first)


def test_a_planner_tries_and_then_sends_to_a_folder_and_by_mail(
    surf: Callable[..., Surfer], site: Site, tmp_path: Path
) -> None:
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


@pytest.mark.parametrize("user", [VIEWER, VIEWER_OF_A_TEAM])
def test_a_viewer_sends_nothing_even_with_a_planners_words(surf: Callable[..., Surfer], site: Site, user: str) -> None:
    asks: list[Request] = []
    planner = surf(at=site.address, user=PLANNERS[1])
    planner.page.on("request", lambda each: asks.append(each) if "send-outcome" in (each.post_data or "") else None)
    page = opened(planner)
    page.locator(".targets button").first.click()
    page.wait_for_selector("#send-outcome li")
    before = len(site.mailbox.mails), sorted(site.folder.rglob("*"))
    viewer = opened(surf(at=site.address, user=user))
    assert viewer.locator(".targets, #send-now, #sending-title").count() == 0
    assert "team@example.org" not in viewer.content()
    answers: list[Any] = []
    for ask in (asks[-1].post_data_json, now_sent(asks[-1].post_data_json)):
        answer = viewer.context.request.post(
            f"{site.address}/_dash-update-component", data=json.dumps(ask),
            headers={"Content-Type": "application/json", "Origin": site.address},
        )  # fmt: skip
        assert answer.status == 200
        answers.append(answer.text())
    assert all("it takes the role planner" in each for each in answers)
    assert (len(site.mailbox.mails), sorted(site.folder.rglob("*"))) == before


def now_sent(ask: Any) -> dict[str, Any]:
    """The same with the last button, and the targets that the site's settings name."""
    search = next(each["value"] for each in ask["state"] if each["id"] == "url")
    tried = {"search": search, "targets": ["mailto:team@example.org"]}
    state = [each | {"value": tried} if each["property"] == "data" else each for each in ask["state"]]
    inputs = [
        each | {"value": 1} if isinstance(each, dict) and each["id"] == "send-now" else each for each in ask["inputs"]
    ]
    return {**ask, "state": state, "inputs": inputs, "changedPropIds": ["send-now.n_clicks"]}


def test_a_team_gets_its_own_report(surf: Callable[..., Surfer], site: Site, tmp_path: Path) -> None:
    page = opened(surf(at=site.address, user=VIEWER_OF_A_TEAM), "?team=language")
    name, content = taken(page, "json")
    assert name == f"fallow-{week(page)}-team=vision-en.json"
    assert content == command(site.config, tmp_path, "json", "--week", week(page), "--team", "vision")
