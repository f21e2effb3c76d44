"""The page What if in a browser: fields are answered, the address keeps them, scenarios are saved and opened."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from tests.dashboard.browser.conftest import Surf, check_accessibility

pytestmark = pytest.mark.long

OUTCOME = "#what-if-outcome"


def answered(page: Page) -> str:
    """The whole answer, once it is there."""
    page.wait_for_function(
        f"() => document.querySelector('{OUTCOME} section') && !document.querySelector('{OUTCOME} .waiting')"
    )
    return page.inner_text(OUTCOME).replace("\N{NO-BREAK SPACE}", " ")


def typed(page: Page, label: str, text: str) -> str:
    """The answer after a field has another value."""
    before = answered(page)
    page.get_by_label(label, exact=True).fill(text)
    page.wait_for_function(
        f"before => document.querySelector('{OUTCOME}').innerText.replaceAll('\\u00a0', ' ') !== before", arg=before
    )
    return answered(page)


def wait_for_scenario(page: Page, text: str) -> None:
    """Wait until the address has these choices."""
    page.wait_for_function("text => new URLSearchParams(location.search).get('scenario') === text", arg=text)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_fields_are_answered_and_scenarios_kept(surf: Surf, scheme: str) -> None:
    surfer = surf(width=390, scheme=scheme)
    page = surfer.open("/what-if?span=all")
    today = answered(page)
    assert "16 more GPUs add" in typed(page, "GPUs to add in train", "16")
    wait_for_scenario(page, "gpus.train=%2B16")
    both = typed(page, "Idle time-out in hours", "2")
    wait_for_scenario(page, "gpus.train=%2B16&idle=2")
    assert both.index("An idle time-out of 2 h frees") < both.index("16 more GPUs add")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    check_accessibility(page)

    page.get_by_text("Link to this answer over the same days").click()
    surfer.settled()
    assert answered(page) == both
    assert page.get_by_label("GPUs to add in train", exact=True).input_value() == "16"

    page.fill("#what-if-name", "<b>more</b>")
    page.click("#what-if-save")
    page.wait_for_selector("#what-if-saved section")
    surfer.open("/what-if?span=all")
    assert answered(page) == today
    page.locator("#what-if-saved a", has_text="<b>more</b>").click()
    surfer.settled()
    page.wait_for_function("() => document.querySelector('#what-if-outcome')?.innerText.includes('16 more GPUs')")

    page.fill("#what-if-name", "<b>more</b>")
    page.click("#what-if-remove")
    page.wait_for_function("() => !document.querySelector('#what-if-saved section')")
