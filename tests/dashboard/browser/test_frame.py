"""What all pages share, in a browser: they load, filters are addresses, and back goes back."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import pytest
from playwright.sync_api import Page

from dashboard.pages import PAGES
from tests.dashboard.browser.conftest import Site, Surf, Surfer, check_accessibility

pytestmark = pytest.mark.long

LISTED = [page.path for page in PAGES if page.listed]
QUESTIONS = {page.path: str(page.question or page.name) for page in PAGES}


def asked(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlparse(page.url).query)


def choose(page: Page, name: str, label: str) -> None:
    """Picks from one of the bar's lists, as somebody with a keyboard or a mouse would."""
    page.click(f"#ask-{name}")
    page.locator(".dash-dropdown-option", has=page.get_by_text(label, exact=True)).first.click()


def picture(page: Page, name: str) -> None:
    """A screenshot, where FALLOW_SCREENSHOTS names a folder for somebody to look at."""
    if folder := os.environ.get("FALLOW_SCREENSHOTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=f"{folder}/{name}.png", full_page=True)


def is_for_everybody(surfer: Surfer, name: str) -> None:
    """Accessible in both schemes, and no wider than a phone."""
    page = surfer.page
    for scheme in ("light", "dark"):
        if scheme == "dark":
            page.click("#theme")
            page.wait_for_selector("html[data-theme=dark]")
            surfer.settled()
        picture(page, f"{name}-{scheme}")
        check_accessibility(page)
    page.set_viewport_size({"width": 390, "height": 900})
    page.wait_for_function("() => document.documentElement.scrollWidth <= 390")  # once the charts have been drawn again
    picture(page, f"{name}-phone")


@pytest.mark.parametrize("path", LISTED)
def test_a_page_loads_and_is_for_everybody(surf: Surf, path: str) -> None:
    surfer = surf()
    assert surfer.open(path).inner_text("#page h1") == QUESTIONS[path]
    is_for_everybody(surfer, path.strip("/") or "overview")


def test_filters_are_addresses_and_back_steps_through_them(surf: Surf) -> None:
    surfer = surf()
    page = surfer.open("/")
    before = page.inner_text("#page .headline")
    choose(page, "pool", "legacy")
    page.wait_for_url("**/?pool=legacy")
    surfer.settled()
    page.wait_for_function("before => document.querySelector('#page .headline')?.innerText !== before", arg=before)
    choose(page, "span", "last 24 hours")
    page.wait_for_url("**pool=legacy&span=24h")
    page.click("#nav a[href*='span=24h'] >> text=Recommendations")
    page.wait_for_url("**/recommendations?*")
    page.click("#pages a[href*='span=24h'] >> text=Findings")
    page.wait_for_url("**/findings?*")
    assert asked(page) == {"pool": ["legacy"], "span": ["24h"]}
    for _ in range(3):
        page.go_back()
    page.wait_for_url("**/?pool=legacy")
    page.go_back()
    page.wait_for_function("before => document.querySelector('#page .headline')?.innerText === before", arg=before)
    assert asked(page) == {}


def test_a_chosen_scheme_stays(surf: Surf) -> None:
    surfer = surf()
    page = surfer.open("/")
    assert page.get_attribute("html", "data-theme") == "light"
    page.click("#theme")
    page.wait_for_selector("html[data-theme=dark]")
    page.reload()
    surfer.settled()
    assert page.get_attribute("html", "data-theme") == "dark"


def test_the_keyboard_goes_past_the_bar(surf: Surf) -> None:
    page = surf().open("/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.innerText") == "Skip to the page"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_the_filters_are_reached_and_used_by_keyboard(surf: Surf) -> None:
    surfer = surf()
    page = surfer.open("/")
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "ask-pool":
            break
    assert page.evaluate("document.activeElement.id") == "ask-pool"
    page.keyboard.press("Enter")
    page.wait_for_selector(".dash-dropdown-content")
    page.keyboard.type("legacy")
    page.wait_for_function("() => document.querySelectorAll('.dash-dropdown-option').length === 1")
    page.keyboard.press("ArrowDown")
    page.wait_for_function("() => Boolean(document.activeElement.closest('.dash-dropdown-option'))")
    page.keyboard.press("Space")
    page.wait_for_url("**/?pool=legacy")
    surfer.settled()
    assert page.inner_text("#ask-pool").strip() == "legacy"


def test_an_open_list_is_accessible(surf: Surf) -> None:
    page = surf().open("/")
    for name in ("span", "pool"):
        page.click(f"#ask-{name}")
        page.wait_for_selector(".dash-dropdown-content [role=radiogroup]")
        check_accessibility(page)
        page.keyboard.press("Escape")
        page.wait_for_selector(".dash-dropdown-content", state="detached")


def test_a_link_to_the_page_is_copied(surf: Surf) -> None:
    page = surf().open("/timeline?pool=legacy")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click("#copy")
    page.wait_for_selector("#copy[data-done]")
    assert page.evaluate("navigator.clipboard.readText()").endswith("/timeline?pool=legacy")


@pytest.mark.parametrize("width", [390, 1440])
def test_the_bar_stays_in_sight_and_the_answer_is_in_the_first(surf: Surf, width: int) -> None:
    page = surf(width=width).open("/capacity")
    assert page.locator("#page .answers .finding").bounding_box()["y"] < 500  # type: ignore[index]
    page.mouse.wheel(0, 600)
    page.wait_for_function("() => window.scrollY > 0")
    assert page.locator("#bar").bounding_box()["y"] == 0  # type: ignore[index]


def test_on_a_phone_pages_and_filters_fold_into_buttons(surf: Surf) -> None:
    surfer = surf(width=390)
    page = surfer.open("/capacity")
    assert not page.locator("#pages").is_visible()
    assert not page.locator("#asks").is_visible()
    page.click("#menu")
    assert page.get_attribute("#menu", "aria-expanded") == "true"
    assert page.inner_text("#pages .here") == "Release or order"
    check_accessibility(page)
    page.click("#filters")
    assert not page.locator("#pages").is_visible()
    choose(page, "pool", "legacy")
    page.wait_for_url("**/capacity?pool=legacy")
    surfer.settled()
    assert "legacy" in page.inner_text("#filters")
    page.focus("#ask-pool")
    page.keyboard.press("Escape")
    assert not page.locator("#asks").is_visible()
    page.click("#menu")
    page.click("#pages >> text=Queue")
    page.wait_for_url("**/queue?pool=legacy")
    assert not page.locator("#pages").is_visible()


def test_a_session_that_has_ended_loads_the_page_again(surf: Surf) -> None:
    """What is loaded leads to the sign-in and back here."""
    surfer = surf()
    page = surfer.open("/timeline")
    page.route("**/_dash-update-component*", lambda route: route.fulfill(status=401, body="sign in"), times=1)
    with page.expect_navigation(url="**/timeline"):
        page.click("#theme")
    surfer.settled()
    assert page.inner_text("#page h1") == QUESTIONS["/timeline"]
    assert any("401" in fault for fault in surfer.faults)
    surfer.faults.clear()


def test_a_fault_in_what_somebody_did_is_told_and_the_next_page_has_nothing_of_it(surf: Surf) -> None:
    surfer = surf()
    page = surfer.open("/findings")
    assert page.locator("#failed-action").is_hidden()
    page.evaluate("dash_clientside.set_props('failed-action', {children: 'It went wrong.'})")
    page.wait_for_function("() => document.getElementById('failed-action').innerText === 'It went wrong.'")
    assert page.locator("#failed-action").get_attribute("role") == "alert"
    choose(page, "pool", "legacy")
    surfer.settled()
    page.locator("#failed-action").wait_for(state="hidden")


def test_any_days_are_chosen_with_the_keyboard(surf: Surf) -> None:
    surfer = surf()
    page = surfer.open("/quality")
    page.focus("#days-summary")
    page.keyboard.press("Enter")
    assert page.get_attribute("#window-first", "type") == "date"
    page.fill("#window-first", "2025-11-19")
    page.fill("#window-last", "2025-11-18")
    page.click("#days-form button")
    assert (
        page.evaluate("document.getElementById('window-last').validationMessage") == "The first day is after the last."
    )
    page.fill("#window-last", "2025-11-19")
    page.press("#window-last", "Enter")
    page.wait_for_url("**first=2025-11-19&last=2025-11-19")
    surfer.settled()
    check_accessibility(page)


def test_a_view_is_saved_found_by_keyboard_and_deleted(surf: Surf) -> None:
    surfer = surf(width=390, scheme="dark")
    page = surfer.open("/findings?span=24h&lang=fr")
    page.wait_for_function("() => document.title.startsWith('Constats, dernières 24 heures')")
    page.click("#menu")
    page.focus("#views-label")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Aucune vue")
    page.keyboard.press("Tab")
    page.keyboard.type("<b>la mienne</b>")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Enregistrée dans ce navigateur.")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") == "views-label"
    surfer.open("/timeline")
    page.click("#menu")
    page.focus("#views-label")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.inner_text("#views-list a:focus") == "<b>la mienne</b>"
    page.keyboard.press("Enter")
    page.wait_for_url("**/findings?*")
    surfer.settled()
    assert asked(page) == {"span": ["24h"], "lang": ["fr"]}
    page.wait_for_function("() => document.title.startsWith('Constats')")
    page.click("#views-label")
    page.click("#views-list button")
    page.wait_for_selector("text=Supprimée.")
    assert page.locator("#views-list li").count() == 0


def test_readers_of_one_browser_have_views_of_their_own(surf: Surf, site: Site) -> None:
    surfer = surf(at=site.address, user="pia")
    page = surfer.open("/timeline")
    page.click("#views-label")
    page.fill("#views-name", "mine")
    page.click("#views-save")
    page.wait_for_selector("#views-list a >> text=mine")
    page.set_extra_http_headers({"X-Forwarded-User": "paul"})
    surfer.open("/timeline")
    page.click("#views-label")
    page.wait_for_selector("text=No view is saved yet.")
