"""Views saved by name: kept by the browser for each reader, found again by keyboard, deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.dashboard.browser.test_frame import asked

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.dashboard.browser.conftest import Site, Surfer

pytestmark = pytest.mark.long


def test_a_view_is_saved_found_by_keyboard_and_deleted(surf: Callable[..., Surfer]) -> None:
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


def test_readers_of_one_browser_have_views_of_their_own(surf: Callable[..., Surfer], site: Site) -> None:
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
