"""A GPU and a host in a browser: series by what is in sight, what happened to them, and the ways there and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import polars as pl
import pytest
from playwright.sync_api import Page, Request

from dashboard.series import MOST_POINTS
from fallow.clock import HOUR_MS, MINUTE_MS, parse_window
from fallow.lake import Lake
from tests.dashboard.browser.conftest import Surf, Surfer
from tests.dashboard.browser.test_frame import asked, is_for_everybody
from tests.dashboard.browser.test_timeline import drag, drawn, leave_part, place

pytestmark = pytest.mark.long


@pytest.fixture(scope="session")
def card(demo: Path) -> tuple[str, str]:
    """A GPU that had an event, and its host."""
    files = Lake.at(str(demo / "lake")).files("event")
    events = pl.concat(pl.read_parquet(file.url).select("gpu", host=pl.lit(file.host)) for file in files)
    return events.drop_nulls("gpu").sort("host", "gpu").row(0)


@pytest.fixture(scope="session")
def busy(demo: Path) -> str:
    """A GPU that was in use most of the time."""
    files = Lake.at(str(demo / "lake")).files("process")
    listed = pl.concat(pl.read_parquet(file.url).select("gpu") for file in files)
    return str(listed.group_by("gpu").len().sort("len", "gpu", descending=True)["gpu"][0])


def open_detail(surfer: Surfer, kind: str, name: str, more: str = "") -> Page:
    page = surfer.open(f"/{kind}?{kind}={name}{more}")
    page.wait_for_selector(f"#{kind}-graph .nsewdrag")
    return page


def of_page(request: Request) -> bool:
    """Whether it asks for a page's content."""
    return "_dash-update-component" in request.url and "page.children" in (request.post_data or "")


def figure(answer: Any) -> dict[str, Any]:
    """The graph in a page's answer."""
    if isinstance(answer, dict):
        if answer.get("type") == "Graph":
            return dict(answer["props"]["figure"])
        answer = list(answer.values())
    found = (figure(each) for each in answer) if isinstance(answer, list) else ()
    return next((each for each in found if each), {})


def test_a_drag_brings_the_rows_of_what_is_in_sight_and_no_others(surf: Surf, busy: str) -> None:
    page = open_detail(surf(), "gpu", busy, "&span=7d")
    whole = [each for each in drawn(page, "gpu-graph") if each["type"] == "scatter"]
    assert 0 < sum(each["values"] for each in whole) <= MOST_POINTS
    assert "Lines are the mean of every" in page.inner_text("#page")
    with page.expect_request(of_page) as request:
        drag(page, 0.50, 0.52, "gpu-graph")
    response = request.value.response()
    assert response is not None
    page.wait_for_selector("text=Every point is one row of the lake.")
    window = parse_window(asked(page)["start"][0], asked(page)["end"][0])
    start, end = window.since_ms or 0, window.until_ms or 0
    assert 2 * HOUR_MS < end - start < 5 * HOUR_MS
    sent = json.loads(request.value.post_data or "")
    (search,) = (each["value"] for each in sent["inputs"] if each["property"] == "search")
    assert parse_qs(search.removeprefix("?")) == asked(page)
    shown = figure(response.json())["data"]
    lines = [each for each in shown if each["type"] == "scatter"]
    assert [each["type"] for each in shown] == ["heatmap", *(len(lines) * ["scatter"])]
    for each in lines:
        assert start - MINUTE_MS <= each["x0"]
        assert each["x0"] + (len(each["y"]) - 1) * each["dx"] <= end
        assert each["dx"] < whole[0]["dx"] / 4
        assert [value for value in each["y"] if value is not None]
    assert sum(len(each["y"]) for each in lines) <= MOST_POINTS
    assert len(response.body()) < 200_000


def test_back_and_a_double_click_and_a_link_show_the_whole_window(surf: Surf, card: tuple[str, str]) -> None:
    surfer = surf()
    page = open_detail(surfer, "gpu", card[0])
    whole = drawn(page, "gpu-graph")
    for way in ("back", "double click", "link"):
        drag(page, 0.3, 0.5, "gpu-graph")
        page.wait_for_selector("text=In sight:")
        surfer.settled()
        assert drawn(page, "gpu-graph") != whole
        if way == "back":
            page.go_back()
        elif way == "link":
            page.click("text=Show the whole window")
        else:
            leave_part(page, "gpu-graph")
        page.wait_for_selector("text=Drag along the time")
        surfer.settled()
        assert asked(page) == {"gpu": [card[0]]}
        assert drawn(page, "gpu-graph") == whole


def test_the_keyboard_comes_closer_and_reads_the_figures(surf: Surf, busy: str) -> None:
    surfer = surf()
    page = open_detail(surfer, "gpu", busy)
    page.focus(".zoom a")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=In sight:")
    surfer.settled()
    assert {"start", "end"} <= asked(page).keys()
    page.focus("section[aria-labelledby=states-title] details summary")
    page.keyboard.press("Enter")
    rows = page.locator("section[aria-labelledby=states-title] details[open] tbody tr")
    assert 12 <= rows.count() <= 24
    head = page.inner_text("section[aria-labelledby=states-title] details[open] thead")
    assert "GPU UTILIZATION, %" in head.upper()


def test_a_host_shows_its_gpus_and_a_click_opens_one(surf: Surf, card: tuple[str, str]) -> None:
    surfer = surf()
    page = open_detail(surfer, "host", card[1], "&span=all")
    gpus = page.locator(".lead a[href^='/gpu']").count()
    shown = drawn(page, "host-graph")
    assert shown[0]["rows"] == gpus > 1
    assert len([each for each in shown if each["type"] == "scatter"]) == 5
    for name in ("stays", "processes", "events"):
        assert page.locator(f"section[aria-labelledby={name}-title] tbody tr").count() >= 1
    drag(page, 0.3, 0.5, "host-graph")
    page.wait_for_selector("text=In sight:")
    surfer.settled()
    part = asked(page)
    page.mouse.click(*place(page, 1, 0.5, "host-graph"))
    page.wait_for_url("**/gpu?*")
    surfer.settled()
    assert card[1] in page.inner_text(".lead")
    assert {name: asked(page)[name] for name in ("start", "end")} == {name: part[name] for name in ("start", "end")}
    page.go_back()
    page.wait_for_selector("#host-graph .nsewdrag")


@pytest.mark.parametrize("kind", ["gpu", "host"])
def test_it_is_accessible_in_both_schemes_and_fits_a_phone(surf: Surf, card: tuple[str, str], kind: str) -> None:
    surfer = surf()
    page = open_detail(surfer, kind, card[0] if kind == "gpu" else card[1], "&span=all&lang=fr")
    assert page.inner_text("#stays-title") == "Utilisateurs"
    is_for_everybody(surfer, kind)
