"""The table of the findings' page, as its reader handles it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page

from fallow.cli import main
from fallow.clock import DAY_MS, SystemClock, format_ms
from fallow.lake import Lake
from tests.dashboard.browser.conftest import PLANNERS, Site, Surf

PIA, PAUL = PLANNERS
ALL = "span=all"
STATE = """() => {
    const grid = dash_ag_grid.getApi('findings-grid');
    const ids = [];
    grid.forEachNodeAfterFilterAndSort((node) => ids.push(node.id));
    return {ids, filters: grid.getFilterModel(), chosen: grid.getSelectedNodes().map((node) => node.id).sort()};
}"""


def told(config: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["findings", *arguments, "--json", "--config", str(config)]) == 0
    content: dict[str, Any] = json.loads(capsys.readouterr().out)
    return content


def state(page: Page) -> dict[str, Any]:
    """Which rows the table lists in which order, and which are chosen."""
    found: dict[str, Any] = page.evaluate(STATE)
    return found


def opened(surf: Surf, search: str = f"?{ALL}", **how: Any) -> Page:
    page = surf(**how).open(f"/findings{search}")
    return listed(page)


def listed(page: Page) -> Page:
    """Waits until the table follows its address."""
    page.wait_for_selector("#findings-hidden[aria-pressed]")
    page.wait_for_load_state("networkidle")
    return page


def show_filters(page: Page) -> None:
    """Presses the button that shows the fields by which the table is filtered."""
    page.click("[data-filters=findings-grid][aria-pressed=false]")
    page.wait_for_selector("#findings-grid .ag-floating-filter-input input")


def row(page: Page, finding_id: str) -> Locator:
    return page.locator(f"#findings-grid .ag-center-cols-container [row-id='{finding_id}']")


def choose(page: Page, *ids: str) -> None:
    """Lists the rows by a filter of their ids, and chooses them by their boxes."""
    for number, each in enumerate(ids):
        place(page, each)
        box = page.locator(f"#findings-grid [row-id='{each}'] input[type=checkbox]")
        box.set_checked(checked=True)
        page.wait_for_function(
            "many => dash_ag_grid.getApi('findings-grid').getSelectedNodes().length === many", arg=number + 1
        )
    page.wait_for_function("() => !document.querySelector('#acts')?.disabled")


def place(page: Page, finding_id: str) -> None:
    """Opens the page of the table on which the row stands."""
    page.evaluate(
        """id => {
            const grid = dash_ag_grid.getApi('findings-grid');
            grid.paginationGoToPage(Math.floor(grid.getRowNode(id).rowIndex / grid.paginationGetPageSize()));
        }""",
        finding_id,
    )
    row(page, finding_id).wait_for()


def says(page: Page, text: str) -> str:
    """Waits until the line below the buttons has the text."""
    page.wait_for_function("text => document.querySelector('#acts-status').innerText.includes(text)", arg=text)
    return page.inner_text("#acts-status")


def standing(page: Page, finding_id: str, status: str) -> None:
    """Waits until the row has the status."""
    page.wait_for_function(
        "([id, status]) => dash_ag_grid.getApi('findings-grid').getRowNode(id)?.data.status === status",
        arg=[finding_id, status],
    )


def made_again(page: Page) -> None:
    """Has the page made again, as after new data, and waits for it."""
    page.evaluate("document.querySelector('#findings-grid').dataset.old = 'yes'")
    page.evaluate("document.getElementById('again').click()")
    page.wait_for_selector("#findings-grid:not([data-old])")
    listed(page)


def untouched(page: Page, number: int) -> list[str]:
    """So many findings about which nobody has done anything yet."""
    found: list[str] = page.evaluate(
        """() => {
            const ids = [];
            dash_ag_grid.getApi('findings-grid').forEachNodeAfterFilter((node) => {
                if (['new', 'standing'].includes(node.data.standing)) { ids.push(node.id); }
            });
            return ids;
        }"""
    )
    assert len(found) >= number
    return found[:number]


def files(site: Site) -> set[str]:
    return {each.key for each in Lake.at(str(site.lake)).files("action")}


def a_day_to_come() -> str:
    return format_ms(SystemClock().now_ms() + 7 * DAY_MS)[:10]
