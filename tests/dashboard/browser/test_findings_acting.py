"""What people do about findings in a browser, with the mouse or without, alone or at the same time."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from tests.dashboard.browser.conftest import Site, Surf
from tests.dashboard.browser.findings_table import (
    PIA,
    a_day_to_come,
    choose,
    files,
    made_again,
    opened,
    place,
    row,
    says,
    show_filters,
    standing,
    state,
    told,
    untouched,
)

pytestmark = pytest.mark.long


def test_a_finding_is_acknowledged(surf: Surf, site: Site) -> None:
    page = opened(surf, at=site.address, user=PIA)
    [finding_id] = untouched(page, 1)
    place(page, finding_id)
    row(page, finding_id).click()
    page.wait_for_url(f"**finding={finding_id}*")
    page.fill("#act-text", "asking the team")
    before = files(site)
    page.click("#act-ack")
    assert says(page, "Acknowledged") == "Acknowledged 1 finding"
    standing(page, finding_id, "acknowledged")
    assert "acknowledged" in row(page, finding_id).inner_text()
    assert f"{PIA}: acknowledged: asking the team" in page.inner_text("#finding-detail")
    assert page.input_value("#act-text") == ""
    assert state(page)["chosen"] == [finding_id]
    assert len(files(site) - before) == 1
    made_again(page)
    standing(page, finding_id, "acknowledged")
    assert page.input_value("#act-text") == ""


def test_snoozed_to_a_day_behind_the_switch_and_reopened(
    surf: Surf, site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    page = opened(surf, at=site.address, user=PIA)
    [finding_id] = untouched(page, 1)
    choose(page, finding_id)
    page.click("#act-snooze")
    says(page, "takes a reason")
    page.fill("#act-text", "warm standby")
    page.fill("#act-until", a_day_to_come())
    page.click("#act-snooze")
    assert "Snoozed 1 finding until" in says(page, "Snoozed")
    page.wait_for_function("id => !document.querySelector(`#findings-grid [row-id='${id}']`)", arg=finding_id)
    page.wait_for_function("() => document.querySelector('#acts').disabled")
    assert finding_id not in state(page)["ids"]
    assert "1 snoozed" in page.inner_text("#findings-words")
    page.click("#findings-hidden")
    page.wait_for_url("**show=all*")
    assert finding_id in state(page)["ids"]
    choose(page, finding_id)
    page.click("#act-reopen")
    assert says(page, "Reopened") == "Reopened 1 finding"
    page.wait_for_function(
        "id => ['new', 'standing'].includes(dash_ag_grid.getApi('findings-grid').getRowNode(id).data.standing)",
        arg=finding_id,
    )
    assert [each["kind"] for each in told(site.config, capsys, "history", finding_id)["actions"]] == [
        "snooze",
        "reopen",
    ]


def test_no_button_works_on_rows_that_a_filter_hides(surf: Surf, site: Site) -> None:
    page = opened(surf, at=site.address, user=PIA)
    ids = untouched(page, 2)
    choose(page, *ids)
    show_filters(page)
    page.evaluate("dash_ag_grid.getApi('findings-grid').ensureColumnVisible('finding_id')")
    page.get_by_label("id Filter", exact=True).fill(ids[0])
    page.wait_for_url(f"**filter=finding_id:{ids[0]}*")
    page.wait_for_selector(f"#finding-detail h3 >> text={ids[0]}")
    assert state(page) | {"filters": {}} == {"ids": [ids[0]], "chosen": [ids[0]], "filters": {}}


def test_without_a_mouse(surf: Surf, site: Site) -> None:
    page = opened(surf, at=site.address, user=PIA)
    [finding_id] = untouched(page, 1)
    page.focus("#findings-hidden")
    reach(page, "() => document.activeElement.closest('#findings-grid [role=columnheader]')")
    page.keyboard.press("ArrowDown")  # into the first row
    while page.evaluate("document.activeElement.closest('[role=row]')?.getAttribute('row-id')") != finding_id:
        before = page.evaluate("document.activeElement.closest('[role=row]')?.getAttribute('row-index')")
        page.keyboard.press("ArrowDown")
        assert page.evaluate("document.activeElement.closest('[role=row]')?.getAttribute('row-index')") != before
    page.keyboard.press("Space")
    page.wait_for_url(f"**finding={finding_id}*")
    page.wait_for_function("() => !document.querySelector('#acts').disabled")
    reach(page, "() => document.activeElement.id === 'act-text'")
    page.keyboard.type("by keys alone")
    reach(page, "() => document.activeElement.id === 'act-ack'")
    page.keyboard.press("Enter")
    says(page, "Acknowledged 1 finding")
    standing(page, finding_id, "acknowledged")


def reach(page: Page, there: str, most: int = 40) -> None:
    """Presses Tab until something has the focus."""
    for _ in range(most):
        if page.evaluate(there):
            return
        page.keyboard.press("Tab")
    pytest.fail(f"not reached by {most} tabs: {there}")


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
def test_a_click_shows_the_decision(surf: Surf, width: int) -> None:
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


def test_a_telephone_has_blocks_and_goes_to_the_chosen_one(surf: Surf) -> None:
    page = surf(390).open(PATH)
    page.locator("#recommendations-cards a").first.click()
    page.wait_for_url("**recommendation=*")
    page.wait_for_selector(f"{HEADING}:focus")
    assert is_in_sight(page)
    assert not page.locator("#recommendations-grid").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_what_is_put_off_is_listed_and_reopened(surf: Surf, site: Site) -> None:
    told = site.told("recommendations", "--since", "7d")["recommendations"]
    page = surf(at=site.address, user=PIA).open(PATH)
    listed, later = "[aria-labelledby=to_look_at-title]", "[aria-labelledby=put_off-title]"
    shown = page.inner_text(listed)
    # one that stands on a finding of its own, about which no test before has done anything
    name = next(
        each["id"]
        for each in told
        if each["id"] in shown and [found[1:] for found in each["evidence"][:1]] == [each["id"][1:]]
    )
    page.click(f"{listed} a[href*='{name}']")
    page.wait_for_selector(f"{HEADING} >> text={name}")
    page.fill("#recommendation-act-text", "until the move")
    page.click("#recommendation-act-snooze")
    page.click(f"{later} summary >> text=1 recommendation is snoozed.")
    page.wait_for_selector(f"{later} >> text={name}")
    assert name not in page.inner_text(listed)
    page.click("#recommendation-act-reopen")
    page.wait_for_selector(later, state="detached")
    assert name in page.inner_text(listed)
