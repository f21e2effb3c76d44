"""What all pages share, in a browser: they load, filters are addresses, and back goes back."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from dashboard.pages import PAGES
from tests.dashboard.browser.conftest import Site, Surf, Surfer

pytestmark = pytest.mark.long

LISTED = [page.path for page in PAGES if page.listed]
NAMES = {page.path: str(page.name) for page in PAGES}


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
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
    page.set_viewport_size({"width": 390, "height": 900})
    page.wait_for_function("() => document.documentElement.scrollWidth <= 390")  # once the charts have been drawn again
    picture(page, f"{name}-phone")


@pytest.mark.parametrize("path", LISTED)
def test_a_page_loads_and_is_for_everybody(surf: Surf, path: str) -> None:
    surfer = surf()
    assert surfer.open(path).inner_text("#page h1") == NAMES[path]
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
    page.click("#nav a[href*='span=24h'] >> text=Findings")
    page.wait_for_url("**/findings?*")
    assert asked(page) == {"pool": ["legacy"], "span": ["24h"]}
    page.go_back()
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


@pytest.mark.parametrize("name", ["span", "pool"])
def test_an_open_list_is_accessible(surf: Surf, name: str) -> None:
    page = surf().open("/")
    page.click(f"#ask-{name}")
    page.wait_for_selector(".dash-dropdown-content [role=radiogroup]")
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


def test_a_link_to_the_page_is_copied(surf: Surf) -> None:
    page = surf().open("/film?pool=legacy")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click("#copy")
    page.wait_for_selector("#copy[data-done]")
    assert page.evaluate("navigator.clipboard.readText()").endswith("/film?pool=legacy")


def test_on_a_phone_the_page_that_one_is_on_is_in_sight_in_the_list_of_pages(surf: Surf) -> None:
    page = surf(width=390).open("/settings")
    page.wait_for_function("() => document.getElementById('nav').scrollLeft > 0")
    left, right = page.evaluate(
        "(here => [here.left, here.right])(document.querySelector('#nav .here').getBoundingClientRect())"
    )
    assert 0 <= left < right <= 390


def test_a_session_that_has_ended_loads_the_page_again(surf: Surf) -> None:
    """What is loaded leads to the sign-in and back here."""
    surfer = surf()
    page = surfer.open("/film")
    page.route("**/_dash-update-component*", lambda route: route.fulfill(status=401, body="sign in"), times=1)
    with page.expect_navigation(url="**/film"):
        page.click("#theme")
    surfer.settled()
    assert page.inner_text("#page h1") == NAMES["/film"]
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
    assert Axe().run(page).violations_count == 0


def test_a_view_is_saved_found_by_keyboard_and_deleted(surf: Surf) -> None:
    surfer = surf(width=390, scheme="dark")
    page = surfer.open("/findings?span=24h&lang=fr")
    page.wait_for_function("() => document.title.startsWith('Constats, dernières 24 heures')")
    page.focus("#views-label")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Aucune vue")
    page.keyboard.press("Tab")
    page.keyboard.type("<b>la mienne</b>")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Enregistrée dans ce navigateur.")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") == "views-label"
    surfer.open("/film")
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
    page = surfer.open("/film")
    page.click("#views-label")
    page.fill("#views-name", "mine")
    page.click("#views-save")
    page.wait_for_selector("#views-list a >> text=mine")
    page.set_extra_http_headers({"X-Forwarded-User": "paul"})
    surfer.open("/film")
    page.click("#views-label")
    page.wait_for_selector("text=No view is saved yet.")


OUTCOME = "#what-if-outcome"


def moved(page: Page, slider: str, key: str) -> str:
    """What the answer says after a key; waits until it is another one."""
    before = page.inner_text(OUTCOME)
    page.focus(f"#what-if-{slider} [role=slider]")
    page.keyboard.press(key)
    page.wait_for_function(
        "before => document.querySelector('#what-if-outcome section') && document.querySelector('#what-if-outcome').innerText !== before",
        arg=before,
    )
    return page.inner_text(OUTCOME)


def test_sliders_are_answered_and_scenarios_kept(surf: Surf) -> None:
    surfer = surf(width=390)
    page = surfer.open("/what-if?span=all")
    page.wait_for_selector(f"{OUTCOME} section")
    today = page.inner_text(OUTCOME)
    fewer = moved(page, "size", "ArrowLeft")
    page.wait_for_function("() => new URLSearchParams(location.search).get('scenario') === 'size=-10'")
    assert page.get_attribute("#what-if-size [role=slider]", "aria-valuetext") == "-10"
    assert moved(page, "idle", "ArrowRight") != fewer
    assert page.evaluate("document.documentElement.scrollWidth") <= 390

    page.fill("#what-if-name", "<b>a tenth fewer</b>")
    page.click("#what-if-save")
    page.wait_for_selector("#what-if-saved section")
    assert "<b>a tenth fewer</b>" in page.inner_text("#what-if-saved")

    surfer.open("/what-if?span=all&scenario=size%3D-10%26idle%3D1")
    page.wait_for_selector(f"{OUTCOME} section")
    assert page.get_attribute("#what-if-idle [role=slider]", "aria-valuetext") == "1"
    assert page.inner_text(OUTCOME) != today

    page.fill("#what-if-name", "<b>a tenth fewer</b>")
    page.click("#what-if-remove")
    page.wait_for_function("() => !document.querySelector('#what-if-saved section')")
