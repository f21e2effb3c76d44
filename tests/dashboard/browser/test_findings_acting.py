"""What people do about findings in a browser, with the mouse or without, alone or at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.dashboard.browser.conftest import VIEWER, VIEWER_OF_A_TEAM
from tests.dashboard.browser.findings_table import (
    ALL,
    PAUL,
    PIA,
    a_day_to_come,
    choose,
    files,
    listed,
    made_again,
    opened,
    place,
    row,
    says,
    standing,
    state,
    told,
    untouched,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page, Request

    from tests.dashboard.browser.conftest import Site, Surfer

pytestmark = pytest.mark.long


def test_a_finding_is_acknowledged(surf: Callable[..., Surfer], site: Site, capsys: pytest.CaptureFixture[str]) -> None:
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
    history = told(site.config, capsys, "history", finding_id)["actions"]
    assert [(each["kind"], each["actor"], each["reason"]) for each in history] == [("ack", PIA, "asking the team")]
    by_id = {each["finding_id"]: each["status"] for each in told(site.config, capsys)["findings"]}
    assert by_id[finding_id] == "acknowledged"
    made_again(page)
    standing(page, finding_id, "acknowledged")
    assert page.input_value("#act-text") == ""


def test_suppressed_to_a_day_behind_the_switch_and_reopened(
    surf: Callable[..., Surfer], site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    page = opened(surf, at=site.address, user=PIA)
    [finding_id] = untouched(page, 1)
    choose(page, finding_id)
    page.click("#act-suppress")
    says(page, "takes a reason")
    page.fill("#act-text", "warm standby")
    page.fill("#act-until", day := a_day_to_come())
    page.click("#act-suppress")
    assert "Suppressed 1 finding until" in says(page, "Suppressed")
    page.wait_for_function("id => !document.querySelector(`#findings-grid [row-id='${id}']`)", arg=finding_id)
    page.wait_for_function("() => document.querySelector('#acts').disabled")
    assert finding_id not in state(page)["ids"]
    assert "1 suppressed" in page.inner_text("#findings-words")
    [suppressed] = told(site.config, capsys, "history", finding_id)["actions"]
    assert (suppressed["kind"], suppressed["reason"]) == ("suppress", "warm standby")
    assert suppressed["expires"] > day
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
        "suppress",
        "reopen",
    ]


def test_several_at_once(surf: Callable[..., Surfer], site: Site) -> None:
    page = opened(surf, at=site.address, user=PIA)
    ids = untouched(page, 3)
    choose(page, *ids)
    page.wait_for_selector("#finding-detail >> text=3 findings chosen")
    before = files(site)
    page.click("#act-ack")
    assert says(page, "Acknowledged") == "Acknowledged 3 findings"
    for each in ids:
        standing(page, each, "acknowledged")
    assert state(page)["chosen"] == sorted(ids)
    assert len(files(site) - before) == 1


def test_no_button_works_on_rows_that_a_filter_hides(surf: Callable[..., Surfer], site: Site) -> None:
    page = opened(surf, at=site.address, user=PIA)
    ids = untouched(page, 2)
    choose(page, *ids)
    page.evaluate("dash_ag_grid.getApi('findings-grid').ensureColumnVisible('finding_id')")
    page.get_by_label("id Filter", exact=True).fill(ids[0])
    page.wait_for_url(f"**filter=finding_id:{ids[0]}*")
    page.wait_for_selector(f"#finding-detail h3 >> text={ids[0]}")
    assert state(page) | {"filters": {}} == {"ids": [ids[0]], "chosen": [ids[0]], "filters": {}}


def test_two_people_act_on_one_finding(
    surf: Callable[..., Surfer], site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = (opened(surf, at=site.address, user=user) for user in (PIA, PAUL))
    [finding_id] = untouched(one, 1)
    for page in (one, other):
        choose(page, finding_id)
    one.fill("#act-text", "asking the team")
    one.click("#act-ack")
    says(one, "Acknowledged")
    other.fill("#act-text", "warm standby")
    other.click("#act-suppress")
    said = says(other, "Somebody acted meanwhile")
    assert f"{PIA}: acknowledged: asking the team" in said
    assert other.input_value("#act-text") == "warm standby"
    standing(other, finding_id, "acknowledged")
    assert [each["kind"] for each in told(site.config, capsys, "history", finding_id)["actions"]] == ["ack"]
    other.click("#act-suppress")
    says(other, "Suppressed 1 finding")
    history = told(site.config, capsys, "history", finding_id)["actions"]
    assert [(each["kind"], each["actor"]) for each in history] == [("ack", PIA), ("suppress", PAUL)]


def test_a_viewer_has_no_buttons_and_a_forged_answer_of_one_is_refused(surf: Callable[..., Surfer], site: Site) -> None:
    asks: list[Request] = []
    planner = surf(at=site.address, user=PIA)
    planner.page.on(
        "request", lambda request: asks.append(request) if '"act-note' in (request.post_data or "") else None
    )
    page = listed(planner.open(f"/findings?{ALL}"))
    [finding_id] = untouched(page, 1)
    choose(page, finding_id)
    page.fill("#act-text", "hm")
    page.click("#act-note")
    says(page, "Noted on 1 finding")
    before = files(site)
    for user in (VIEWER, VIEWER_OF_A_TEAM):
        viewer = opened(surf, at=site.address, user=user)
        assert viewer.locator("#acts, #act-ack").count() == 0
        row(viewer, state(viewer)["ids"][0]).click()
        viewer.wait_for_selector("#finding-detail h4")
        answer = viewer.context.request.post(
            f"{site.address}/_dash-update-component", data=asks[-1].post_data, headers={
                "Content-Type": "application/json", "Origin": site.address,
            },
        )  # fmt: skip
        assert "may not do this" in answer.json()["response"]["acts-said"]["children"]
    foreign = page.context.request.post(
        f"{site.address}/_dash-update-component", data=asks[-1].post_data, headers={
            "Content-Type": "application/json", "Origin": "http://evil.example",
        },
    )  # fmt: skip
    assert foreign.status == 403
    assert files(site) == before


def test_without_a_mouse(surf: Callable[..., Surfer], site: Site) -> None:
    page = opened(surf, at=site.address, user=PIA)
    [finding_id] = untouched(page, 1)
    page.focus("#findings-hidden")
    reach(page, "() => document.activeElement.closest('#findings-grid [role=columnheader]')")
    for key in ("ArrowDown", "ArrowDown"):  # past the filters, into the first row
        page.keyboard.press(key)
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
