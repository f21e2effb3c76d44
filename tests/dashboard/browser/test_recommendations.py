"""What a click on a decision shows, beside the table and below it, and that an action leaves nothing as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.dashboard.browser.findings_table import PIA

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

    from tests.dashboard.browser.conftest import Site, Surfer

pytestmark = pytest.mark.long

PATH, HEADING = "/recommendations", "#recommendation-heading"
ROWS = ".ag-center-cols-container .ag-row"
BESIDE_PX = 1200
"""From this width on the panel is beside the table."""


def first_of(page: Page) -> str:
    return page.locator(ROWS).first.get_attribute("row-id") or ""


def is_in_sight(page: Page) -> bool:
    box = page.locator(HEADING).bounding_box()
    height = page.evaluate("innerHeight")
    return box is not None and 0 <= box["y"] < height


@pytest.mark.parametrize("width", [1440, 1024])
def test_a_click_shows_the_decision(surf: Callable[..., Surfer], width: int) -> None:
    page = surf(width).open(PATH)
    page.wait_for_selector(ROWS)
    name = first_of(page)
    page.locator(ROWS).first.locator(".ag-cell").first.click()
    page.wait_for_selector(f"{HEADING} >> text={name}")
    page.wait_for_url(f"**recommendation={name}*")
    assert is_in_sight(page)
    side, table = page.locator(".side").bounding_box(), page.locator("#recommendations-grid").bounding_box()
    assert side is not None
    assert table is not None
    is_beside = width >= BESIDE_PX
    assert (side["x"] >= table["x"] + table["width"]) == is_beside
    assert page.locator(f"{HEADING}:focus").count() == (0 if is_beside else 1)


def test_a_telephone_has_blocks_and_goes_to_the_chosen_one(surf: Callable[..., Surfer]) -> None:
    page = surf(390).open(PATH)
    page.locator("#recommendations-cards a").first.click()
    page.wait_for_url("**recommendation=*")
    page.wait_for_selector(f"{HEADING}:focus")
    assert is_in_sight(page)
    assert not page.locator("#recommendations-grid").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_what_is_put_off_is_listed_and_reopened(surf: Callable[..., Surfer], site: Site) -> None:
    told = site.told("recommendations", "--since", "7d")["recommendations"]
    name = next(each["id"] for each in told if each["evidence"] and each["evidence"][0][1:] == each["id"][1:])
    page = surf(at=site.address, user=PIA).open(f"{PATH}?recommendation={name}")
    later = f"[aria-labelledby=put_off-title] >> text={name}"
    page.wait_for_selector(f"{HEADING} >> text={name}")
    page.fill("#recommendation-act-text", "until the move")
    page.click("#recommendation-act-suppress")
    page.wait_for_selector(later)
    assert name not in page.inner_text("[aria-labelledby=to_look_at-title]")
    page.click("#recommendation-act-reopen")
    page.wait_for_selector(later, state="detached")
    assert name in page.inner_text("[aria-labelledby=to_look_at-title]")
