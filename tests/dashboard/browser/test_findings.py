"""The findings' page in a browser: filtered, sorted, chosen, linked to and taken along."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlparse

import pytest

from analytics.tables.table import column
from dashboard.grid import check_address
from dashboard.query import Query
from tests.dashboard.browser.conftest import Surf
from tests.dashboard.browser.findings_table import (
    ALL,
    choose,
    listed,
    made_again,
    opened,
    place,
    row,
    show_filters,
    state,
    told,
)
from tests.dashboard.browser.test_frame import asked, is_for_everybody

pytestmark = pytest.mark.long


def test_filter_order_and_switch_are_steps_in_the_address(surf: Surf) -> None:
    page = opened(surf)
    whole = state(page)["ids"]
    pages_made: list[str] = []
    page.on(
        "request",
        lambda request: pages_made.append(request.url) if '"page.children' in (request.post_data or "") else None,
    )
    show_filters(page)
    page.locator("#findings-grid .ag-floating-filter-input input").nth(1).fill("medium")
    page.wait_for_url(f"**?{ALL}&filter=confidence:medium")
    filtered = state(page)["ids"]
    assert 0 < len(filtered) < len(whole)
    head = page.locator("#findings-grid [role=columnheader][col-id=cost]")
    head.click()
    page.wait_for_url("**&sort=cost")
    head.click()
    page.wait_for_url("**&sort=-cost")
    ordered = state(page)["ids"]
    assert sorted(ordered) == sorted(filtered)
    page.click("#findings-hidden")
    page.wait_for_url("**&show=all")
    shared = page.url
    for search in (f"{ALL}&filter=confidence:medium&sort=-cost", f"{ALL}&filter=confidence:medium&sort=cost"):
        page.go_back()
        assert urlparse(page.url).query == search
    page.go_back()
    page.wait_for_function("() => !dash_ag_grid.getApi('findings-grid').getColumnState().some((each) => each.sort)")
    assert state(page)["ids"] == filtered
    page.go_back()
    assert asked(page) == {"span": ["all"]}
    assert state(page)["ids"] == whole
    page.go_forward()
    assert state(page)["ids"] == filtered
    assert pages_made == []
    other = opened(surf, f"?{urlparse(shared).query}")
    assert state(other)["ids"] == ordered
    assert other.get_attribute("#findings-hidden", "aria-pressed") == "true"


def test_what_a_reader_has_found_stays_when_the_page_is_made_again(surf: Surf) -> None:
    page = opened(surf, f"?{ALL}&filter=gpus.least:1&sort=user")
    rows = state(page)["ids"]
    choose_here = rows[-2:]
    assert len(rows) > 5
    for each in choose_here:
        place(page, each)
        page.locator(f"#findings-grid [row-id='{each}'] input[type=checkbox]").check()
    page.fill("#act-text", "half a sent")
    page.wait_for_selector("#finding-detail >> text=2 findings chosen")
    before = page.url
    made_again(page)
    page.wait_for_selector("#finding-detail >> text=2 findings chosen")
    assert page.url == before
    assert state(page)["ids"] == rows
    assert state(page)["chosen"] == sorted(choose_here)
    assert row(page, choose_here[0]).is_visible()
    assert page.input_value("#act-text") == "half a sent"


def test_a_press_on_a_box_at_the_edge_of_the_window_adds_its_row(surf: Surf) -> None:
    page = opened(surf)
    first, second = state(page)["ids"][:2]
    choose(page, first)
    box = page.locator(f"#findings-grid [row-id='{second}'] input[type=checkbox]").bounding_box()
    assert box is not None
    page.set_viewport_size({"width": 1440, "height": int(box["y"] + box["height"])})  # the rest of its row is cut off
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_selector("#finding-detail >> text=2 findings chosen")
    assert state(page)["chosen"] == sorted((first, second))


FILTERS = (
    "user:a", "user.without:a", "user.is:nobody else", "user.not:nobody else", "user.begins:a", "user.ends:a",
    "team.unknown", "team.known", "cost.above:100", "cost.below:100.5", "cost.most:100", "cost.least:100",
    "gpus:1", "gpus.not:1", "gpus.between:2..8", "cost.known", "since.before:2100-01-01", "since.after:2020-02-29",
    "since.between:2020-01-01..2100-01-01", "since.not:2020-01-01", "status:new|status:standing",
    "user.known,user.without:a", r"next_command:a\,b", r"next_command:a\|b\\c", "confidence:medium,gpus.above:1,team:v",
)  # fmt: skip
GO = "search => { history.pushState({}, '', search); dispatchEvent(new PopStateEvent('popstate')); }"


def test_every_filter_has_its_words(surf: Surf) -> None:
    """The table filters as the address says, and would say the same again."""
    page = opened(surf)
    rows = page.evaluate(
        "() => {const all = []; dash_ag_grid.getApi('findings-grid').forEachNodeAfterFilter((node) =>"
        " all.push(node.data)); return all; }"
    )
    page.wait_for_timeout(3_100)  # until then only what a reader does counts as theirs, and this is a program
    for filters in FILTERS:
        check_address(Query(filter=filters), COLUMNS)
        page.evaluate(GO, f"?{urlencode({'span': 'all', 'filter': filters})}")
        page.wait_for_function("() => Object.keys(dash_ag_grid.getApi('findings-grid').getFilterModel()).length")
        # what the reader adds is written beside it
        page.evaluate(
            """() => {
                const grid = dash_ag_grid.getApi('findings-grid');
                grid.setFilterModel({...grid.getFilterModel(), rule: {filterType: 'text', type: 'notBlank'}});
            }"""
        )
        page.wait_for_url("**rule.known*")
        assert sorted(asked(page)["filter"][0].split(",")) == sorted([*filters.split(","), "rule.known"])
        if filters in LISTS:
            assert set(state(page)["ids"]) == {each["id"] for each in rows if LISTS[filters](each)}, filters


COLUMNS = (
    *(column(name, name, "words") for name in ("user", "team", "next_command")),
    *(column(name, name, "words", json_type="integer") for name in ("status", "confidence")),
    column("cost", "cost", "money"),
    column("gpus", "GPUs", "count"),
    column("since", "since", "moment"),
)
LISTS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "user:a": lambda row: "a" in row["user"],
    "user.begins:a": lambda row: row["user"].startswith("a"),
    "team.unknown": lambda row: not row["team"],
    "cost.above:100": lambda row: row["cost"] is not None and row["cost"] > 100,
    "cost.below:100.5": lambda row: row["cost"] is not None and row["cost"] < 100.5,
    "gpus.between:2..8": lambda row: 2 <= row["gpus"] <= 8,
    "status:new|status:standing": lambda row: row["status"] in ("new", "standing"),
    "confidence:medium,gpus.above:1,team:v": lambda row: (
        row["confidence"].startswith("medium") and row["gpus"] > 1 and "v" in row["team"]
    ),
}


def test_a_day_is_one_of_the_readers_zone(surf: Surf) -> None:
    """Whatever the browser's own zone is."""
    found: dict[str, set[str]] = {}
    for zone in ("Pacific/Kiritimati", "Pacific/Pago_Pago"):
        page = opened(surf, f"?{ALL}&zone={zone}")
        days = page.evaluate(
            "() => {const found = {}; dash_ag_grid.getApi('findings-grid').forEachNodeAfterFilter((node) => {"
            " (found[node.data.since_day] ||= []).push(node.id); }); return found; }"
        )
        day = min(days)
        narrowed = opened(surf, f"?{ALL}&zone={zone}&filter=since:{day}")
        # the grid's own filter for days comes a little later than the others
        narrowed.wait_for_function(
            "many => dash_ag_grid.getApi('findings-grid').getDisplayedRowCount() === many", arg=len(days[day])
        )
        assert set(state(narrowed)["ids"]) == set(days[day])
        found[zone] = set(days)
    assert len(set.union(*found.values())) > len(found["Pacific/Pago_Pago"])


def test_what_the_table_cannot_do_is_a_sentence_beside_all_of_it(surf: Surf) -> None:
    page = opened(surf, f"?{ALL}&filter=salary:1")
    assert "the table has no column 'salary'" in page.inner_text("#findings-wrong")
    assert state(page)["filters"] == {}
    assert len(state(page)["ids"]) > 5
    page.locator("#findings-grid [role=columnheader][col-id=user]").click()
    page.wait_for_url("**sort=user*")
    page.wait_for_selector("#findings-wrong", state="hidden")


def test_a_link_to_one_finding_shows_its_evidence_and_copies_its_command(
    surf: Surf, demo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    findings = told(demo / "fallow.toml", capsys)["findings"]
    finding = next(each for each in reversed(findings) if each["failed_conditions"] and each["next_command"])
    finding_id = finding["finding_id"]
    surfer = surf()
    surfer.page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=surfer.address)
    page = listed(surfer.open(f"/findings?{ALL}&finding={finding_id}"))
    page.wait_for_function("() => dash_ag_grid.getApi('findings-grid').getSelectedNodes().length")
    assert state(page)["chosen"] == [finding_id]
    row(page, finding_id).wait_for()
    shown = page.inner_text("#finding-detail").replace("\xa0", " ")
    for each in (finding_id, finding["next_command"], *finding["failed_conditions"]):
        assert each in shown
    assert f"{finding['evidence']['sample_count']:,}" in shown
    page.click("#finding-copy")
    page.wait_for_function("async text => await navigator.clipboard.readText() === text", arg=finding["next_command"])


def test_one_chosen_is_for_everybody(surf: Surf) -> None:
    surfer = surf()
    page = listed(surfer.open(f"/findings?{ALL}&lang=fr"))
    row(page, state(page)["ids"][3]).click()
    page.wait_for_selector("#finding-detail h4")
    page.wait_for_load_state("networkidle")
    assert page.inner_text("#pages .here") == "Constats"
    assert page.inner_text("#page h1").replace("\xa0", " ") == "Qu'ont trouvé les règles, et sur quelles preuves ?"
    assert "Commande suivante" in page.inner_text("#finding-detail")
    assert "Accuser" in page.inner_text("#acts") or "Prendre" in page.inner_text("#acts")
    is_for_everybody(surfer, "findings-chosen")
