"""Capacity: the report's numbers, unknown time as unknown, and nothing for people."""

from __future__ import annotations

import json
import re
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from plotly.utils import PlotlyJSONEncoder

from analytics.capacity.off_peak import OffPeak
from analytics.tables.off_peak import off_peak
from analytics.tables.palette import LIGHT
from analytics.tables.table import Table
from dashboard.app import build_app
from dashboard.render.panel import section_panel
from dashboard.source import LakeSource
from dashboard.view import View
from fallow.lake import Lake
from tests.dashboard.conftest import components, drawing, hints, inputs_of, page, table, words
from tests.dashboard.sites import LANGUAGE, WEEK, Site
from tests.ledger.rows import device, fill, processes, samples


def drawn(view: View, section: Table | None, **places: Any) -> Any:
    assert section is not None
    return json.loads(json.dumps(section_panel(view, LIGHT, section, **places), cls=PlotlyJSONEncoder))


def test_every_pool_of_the_scope_has_a_forecast_row(planned: Site) -> None:
    rows = table(page(planned.client(), "/capacity", WEEK), "forecast")
    assert [row[0] for row in rows] == [each.pool for each in planned.view(WEEK).report.pools] != []
    train = table(page(planned.client(), "/capacity", WEEK + "&pool=train"), "forecast")
    assert train == [row for row in rows if row[0] == "train"] != []


def test_gangs_are_those_of_the_ledger(planned: Site) -> None:
    gangs = planned.view(WEEK).report.gangs
    rows = table(page(planned.client(), "/room", WEEK), "gangs")
    assert [row[0] for row in rows] == [str(each.size) for each in gangs]
    assert [each.start_share for each in gangs] == sorted((each.start_share or 0 for each in gangs), reverse=True)


@pytest.mark.parametrize(("lang", "sign"), [("en", "."), ("fr", ",")])
def test_shares_are_written_as_in_the_table(planned: Site, lang: str, sign: str) -> None:
    shown = page(planned.client(), "/room", f"{WEEK}&lang={lang}")
    rows = table(shown, "gangs")
    shares = [[re.split(" ?: ", line)[1] for line in said] for _, *said in hints(shown, "gangs-chart")]
    assert shares == [[" ".join(row[column].split()) for column in (2, 3)] for row in rows]
    assert all(re.fullmatch(rf"\d+\{sign}\d %", each) for own in shares for each in own)
    capacity = page(planned.client(), "/capacity", f"{WEEK}&lang={lang}")
    assert all(re.fullmatch(rf"\d+\{sign}\d %", at) for at, *_ in hints(capacity, "demand-chart"))


def test_the_gaps_of_the_off_peak_chart_are_named(planned: Site) -> None:
    view = planned.view(WEEK)
    found = tuple(OffPeak(f"pool{number}", 5, 7, 30, 2, 4) for number in range(6))
    shown = drawn(view, off_peak(found, view.report.heading, view.report.ledger))
    assert len(hints(shown, "off_peak-chart")) == 4 * 2  # a night over two days
    assert {row[0] for row in table(shown, "off_peak")} == {f"pool{number}" for number in range(6)}
    assert "Blank hours have no more room than usual" in words(shown)
    assert "The chart shows 4 of 6 pools" in words(shown)


def test_people_have_no_capacity(planned: Site) -> None:
    shown = page(planned.client(), "/capacity", WEEK + "&team=vision")
    assert "Capacity counts GPUs, not teams" in words(shown)
    assert not [each for each in components(shown) if each["props"].get("role") == "img"]
    own = page(planned.client(LANGUAGE), "/capacity", WEEK)
    assert "Capacity counts GPUs, not teams" in words(own)


def test_free_gpus_that_lie_apart_start_no_gang(lake: Lake) -> None:
    """Two hosts of two GPUs each, one of the two at work: two are free, and a job of two cannot start."""
    for host, busy, free in (("h1", "a", "b"), ("h2", "c", "d")):
        rows = [*samples(busy, 0, 7200, gpu_util_pct=90.0, process_count=1), *samples(free, 0, 7200)]
        fill(lake, rows, processes(busy, *range(0, 7200, 30)), host=host, devices=[device(busy), device(free)])
    shown = page(build_app(LakeSource(lambda: inputs_of(lake))).server.test_client(), "/room")
    shares = [[line.split(": ")[1] for line in said] for _, *said in hints(shown, "gangs-chart")]
    assert shares[:3] == [["100.0 %", "100.0 %"], ["100.0 %", "0.0 %"], ["0.0 %", "0.0 %"]]
    assert [row[:4] for row in table(shown, "gangs")[:2]] == [
        ["1", "2", "100.0\N{NO-BREAK SPACE}%", "100.0\N{NO-BREAK SPACE}%"],
        ["2", "0", "100.0\N{NO-BREAK SPACE}%", "0.0\N{NO-BREAK SPACE}%"],
    ]


def test_unknown_time_is_a_band(lake: Lake) -> None:
    """Three hours of two GPUs, one of them silent for an hour in between."""
    busy = {"gpu_util_pct": 90.0, "process_count": 1}
    rows = [*samples("a", 0, 10800, **busy), *samples("b", 0, 3600), *samples("b", 7200, 10800)]
    fill(lake, rows, processes("a", *range(0, 10800, 30)), devices=[device("a"), device("b")])
    shown = page(build_app(LakeSource(lambda: inputs_of(lake))).server.test_client(), "/capacity")
    assert "In 1 of these hours, some GPUs were not observed" in words(shown)
    shapes = ET.fromstring(drawing(shown, "demand-chart"))  # noqa: S314  # it is ours
    groups = [each for each in shapes.iter("g") if each.get("class") == "d"]
    is_band = [any("z" in path.get("d", "") for path in each.iter("path")) for each in groups]
    assert is_band == [True, False, True, False, False]  # the last is the level of all GPUs


def is_chart(found: dict[str, Any]) -> bool:
    return found["type"] == "Graph" or str(found["props"].get("id", "")).endswith("-chart")


@pytest.mark.parametrize("path", ["/", "/timeline", "/right-size", "/capacity"])
def test_every_chart_has_a_name_a_question_a_finding_and_its_numbers(planned: Site, path: str) -> None:
    shown = page(planned.client(), path, WEEK)
    sections = [each for each in components(shown) if each["type"] == "Section"]
    charts = [(section, each) for section in sections for each in components(section) if is_chart(each)]
    assert charts
    for section, chart in charts:
        inside = list(components(section))
        classes = {each["props"].get("className") for each in inside}
        # the question of the section that answers the page's is the page's heading
        answers = "answers" in section["props"]["className"]
        assert ({"finding"} if answers else {"question", "finding"}) <= classes, chart["props"]["id"]
        assert len(words(next(each for each in inside if each["props"].get("className") == "finding"))) > 20
        assert any(each["type"] == "Table" for each in inside), chart["props"]["id"]
        [name] = [
            each["props"]["aria-label"]
            for each in inside
            if each["props"].get("role") == "img" and (each is chart or chart in components(each))
        ]
        assert len(name) > 20
