"""What if in a browser: sliders by keyboard, the address, a scenario that is saved, compared and removed, and a telephone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

    from tests.dashboard.browser.conftest import Surfer

pytestmark = pytest.mark.long

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


def test_sliders_are_answered_and_scenarios_kept(surf: Callable[..., Surfer]) -> None:
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
