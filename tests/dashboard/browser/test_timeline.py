"""The timeline in a browser: its orders, what a row shows and links to, part of the time, hours of the week."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from playwright.sync_api import Page
from playwright.sync_api import TimeoutError as TooLate

from tests.dashboard.browser.conftest import Site, Surf, Surfer
from tests.dashboard.browser.test_frame import asked

pytestmark = pytest.mark.long

WHERE = """([name, row, share]) => {
    const drawn = document.querySelector(`#${name} .js-plotly-plot`), full = drawn._fullLayout;
    const box = drawn.getBoundingClientRect();
    return [box.x + full._size.l + share * full.xaxis._length, box.y + full._size.t + full.yaxis.l2p(row)];
}"""
"""Where a row of a timeline lies in the window, at a share of its time."""


def timeline(surfer: Surfer, search: str = "") -> Page:
    page = surfer.open(f"/timeline{search}")
    page.wait_for_selector("#timeline-graph .nsewdrag")
    return page


def place(page: Page, row: int, share: float, name: str = "timeline-graph") -> tuple[float, float]:
    """The middle of a row, in the browser's window."""
    page.evaluate(f"document.querySelector('#{name}').scrollIntoView({{block: 'center'}})")
    x, y = page.evaluate(WHERE, [name, row, share])
    return x, y


def drag(page: Page, begin: float, end: float, name: str = "timeline-graph") -> None:
    """Pulls a part out of the time, as shares of what is in sight."""
    x, y = place(page, 0, begin, name)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(place(page, 0, end, name)[0], y + 2, steps=8)
    page.mouse.up()


def leave_part(page: Page, name: str = "timeline-graph") -> None:
    """Double-clicks. A browser that is kept from its work may take the two for a click and a click: then once more."""
    for _ in range(3):
        before = page.url
        page.mouse.dblclick(*place(page, 0, 0.5, name))
        with contextlib.suppress(TooLate):
            page.wait_for_selector("text=Drag along the time", timeout=10_000)
            return
        if page.url != before:
            page.go_back()
            page.wait_for_selector(f"#{name} .nsewdrag")
    pytest.fail("a double click does not show the whole window")


def drawn(page: Page, name: str = "timeline-graph") -> list[dict[str, Any]]:
    """What a graph was given, without the values."""
    found: list[dict[str, Any]] = page.evaluate(
        """name => {
            const graph = document.querySelector(`#${name} .js-plotly-plot`);
            return graph.data.map((each, number) => {
                const cells = graph.calcdata[number][0].z;
                return {type: each.type, x0: each.x0, dx: each.dx, values: cells ? cells[0].length : each.y.length,
                    rows: cells ? cells.length : 0};
            });
        }""",
        name,
    )
    return found


def listed(page: Page) -> list[list[str]]:
    """GPU, host, user and unused hours of the rows, in their order."""
    found: list[list[str]] = page.evaluate(
        """() => [...document.querySelectorAll("section[aria-labelledby=timeline-title] details tbody tr")]
            .map(row => [...row.children].map(cell => cell.textContent))"""
    )
    return found


def test_a_click_on_a_row_opens_its_gpu_and_back_comes_back(surf: Surf) -> None:
    surfer, row = surf(), 7
    page = timeline(surfer, "?sort=waste&span=3d&zone=Asia/Kolkata")
    gpu, host, _, _ = listed(page)[row]
    x, y = place(page, row, 0.4)
    page.mouse.move(x, y)
    page.wait_for_function("() => document.querySelector('#timeline-tip')?.textContent.trim()")
    told = page.inner_text("#timeline-tip").split("\n")
    assert told[0] == f"{host} · {gpu}"
    assert "GMT+5:30" in told[1] or "IST" in told[1]
    page.mouse.click(x, y)
    page.wait_for_url("**/gpu?*")
    surfer.settled()
    assert asked(page) == {"span": ["3d"], "zone": ["Asia/Kolkata"], "gpu": [gpu]}
    assert gpu in page.inner_text(".lead")
    page.go_back()
    page.wait_for_selector("#timeline-graph .nsewdrag")
    assert asked(page) == {"sort": ["waste"], "span": ["3d"], "zone": ["Asia/Kolkata"]}


def test_a_part_of_the_time_has_finer_columns_and_a_double_click_ends_it(surf: Surf) -> None:
    surfer = surf()
    page = timeline(surfer, "?sort=waste")
    whole = drawn(page)[0]
    drag(page, 0.5, 0.6)
    page.wait_for_url("**start=*")
    surfer.settled()
    page.wait_for_selector("text=In sight:")
    part = drawn(page)[0]
    assert part["rows"] == whole["rows"] == 24
    assert part["dx"] < whole["dx"] / 4
    assert part["values"] <= 720
    leave_part(page)
    surfer.settled()
    assert "start" not in asked(page)
    assert drawn(page)[0] == whole


def test_a_row_of_a_pool_says_its_shares_and_opens_it(surf: Surf) -> None:
    surfer = surf()
    page = timeline(surfer, "?rows=pool")
    lines = page.evaluate("document.querySelector('#timeline-graph .js-plotly-plot').calcdata[0][0].z.length")
    pools = page.eval_on_selector_all(
        "section[aria-labelledby=timeline-title] tbody th", "all => all.map(each => each.textContent)"
    )
    page.mouse.move(*place(page, lines - 3, 0.4))
    page.wait_for_function("() => document.querySelector('#timeline-tip')?.textContent.trim()")
    row, _, *shares = page.inner_text("#timeline-tip").split("\n")
    assert row.split(" · ")[0] == pools[-1]
    assert sum(int(each.split(": ")[1].removesuffix("%")) for each in shares) == 100
    page.mouse.click(*place(page, lines - 3, 0.4))
    page.wait_for_url("**/timeline?pool=*")
    surfer.settled()
    assert asked(page) == {"pool": [pools[-1]]}
    page.click("text=all pools >> visible=true")
    page.wait_for_url(lambda url: "pool=" not in url)


def test_columns_that_last_longer_where_clocks_change_are_named_by_their_beginning(surf: Surf) -> None:
    page = timeline(surf())
    told = page.evaluate(
        """() => {
            const hour = 3600000, begin = Date.UTC(2026, 9, 24, 22);
            const words = {gpus: ["GPU-1", "GPU-2"], hosts: ["gn1"], at: [0, 0], states: ["active", "held"],
            lines: [null], each: 1, gaps: [], gap: 0,
                start: begin, bin: 24 * hour, edges: [begin, begin + 25 * hour, begin + 49 * hour],
                runs: [[0, 2], [1, 1, 2, 1]], names: ["", "ann", "bob"], zone: "Europe/Paris", lang: "en"};
            const tip = (x, row) => window.dash_clientside.timeline.tooltip(
                {points: [{x, y: row, z: 1, curveNumber: 0, bbox: {}}]}, words)[2];
            return [tip(begin + 24.5 * hour, 0), tip(begin + 24.5 * hour, 1), tip(begin + 25.5 * hour, 1)];
        }"""
    )
    assert [each.split("\n") for each in told] == [
        ["gn1 · GPU-1", "25 Oct, 00:00 CEST", "held"],
        ["gn1 · GPU-2", "25 Oct, 00:00 CEST", "held", "ann"],
        ["gn1 · GPU-2", "26 Oct, 00:00 CET", "held", "bob"],
    ]


def test_a_finger_that_moves_over_the_timeline_scrolls_the_page(surf: Surf) -> None:
    surfer = surf(width=390)
    page = timeline(surfer)
    session = page.context.new_cdp_session(page)
    session.send("Emulation.setTouchEmulationEnabled", {"enabled": True})
    x, y = place(page, 12, 0.5)
    before = page.evaluate("scrollY")
    session.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]})
    for moved in range(20, 320, 20):
        session.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [{"x": x, "y": y - moved}]})
        page.wait_for_timeout(20)
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.wait_for_function("before => scrollY > before + 50", arg=before)
    assert asked(page) == {}


def test_a_planner_annotates_a_moment_and_takes_it_back(surf: Surf, site: Site) -> None:
    surfer = surf(at=site.address, user="pia")
    page = timeline(surfer, "?zone=Europe/Paris")
    day = page.evaluate(
        "new Date(document.querySelector('#timeline-graph .js-plotly-plot')._fullLayout.xaxis.range[1] -"
        " 36e5).toISOString()"
    )
    page.fill("#annotation-when", day)
    page.fill("#annotation-text", "driver <b>580</b>")
    page.click("#annotation-add")
    page.wait_for_selector("#annotations-status >> text=Written.")
    page.wait_for_selector("#annotations-list >> text=driver <b>580</b> (pia)")
    page.wait_for_selector("#timeline-graph .shapelayer path", state="attached")
    page.click("#annotations-list button")
    page.wait_for_selector("#annotations-status >> text=Removed.")
    page.wait_for_selector("#annotations-list >> text=This window has none.")
    (kept,) = [site.told("annotations", "list")["tables"]["annotations"]["rows"]]
    assert kept == []
    viewer = timeline(surf(at=site.address, user="val"))
    assert viewer.locator("#annotation-add").count() == 0
