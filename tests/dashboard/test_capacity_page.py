"""Capacity: the report's numbers, unknown time as unknown, and nothing for people."""

from __future__ import annotations

import json
from typing import Any

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
from tests.dashboard.conftest import components, figure, inputs_of, page, table, words
from tests.dashboard.sites import LANGUAGE, WEEK, Site
from tests.ledger.rows import device, fill, processes, samples


def drawn(view: View, section: Table | None, **places: Any) -> Any:
    assert section is not None
    return json.loads(json.dumps(section_panel(view, LIGHT, section, **places), cls=PlotlyJSONEncoder))


def test_when_to_order_is_said_of_each_pool_of_the_scope(planned: Site) -> None:
    rows = table(page(planned.client(), "/capacity", WEEK), "forecast")
    assert [row[0] for row in rows] == [each.series.pool for each in planned.view(WEEK).whole.plan.outlooks] != []
    train = table(page(planned.client(), "/capacity", WEEK + "&pool=train"), "forecast")
    assert train == [row for row in rows if row[0] == "train"] != []


def test_gangs_are_those_of_the_ledger(planned: Site) -> None:
    gangs = planned.view(WEEK).report.gangs
    rows = table(page(planned.client(), "/capacity", WEEK), "gangs")
    assert [row[0] for row in rows] == [str(each.size) for each in gangs]
    assert [each.start_share for each in gangs] == sorted((each.start_share or 0 for each in gangs), reverse=True)
    bars = figure(page(planned.client(), "/capacity", WEEK), "gangs-chart")["data"]
    assert bars[1]["y"] == pytest.approx([each.start_share for each in gangs])


@pytest.mark.parametrize(("lang", "sign"), [("en", "."), ("fr", ",")])
def test_shares_are_written_as_in_the_table(planned: Site, lang: str, sign: str) -> None:
    shown = page(planned.client(), "/capacity", f"{WEEK}&lang={lang}")
    rows = table(shown, "gangs")
    drawn = figure(shown, "gangs-chart")
    listed = [[row[column].replace("\N{NO-BREAK SPACE}", " ") for row in rows] for column in (2, 3)]
    assert [trace["customdata"] for trace in drawn["data"]] == listed
    assert {each[-1] for trace in drawn["data"] for each in trace["customdata"]} == {"%"}
    assert drawn["layout"]["yaxis"]["ticktext"][-1].split("\N{NO-BREAK SPACE}") == ["100", "%"]
    curve = figure(shown, "demand-chart")
    assert curve["layout"]["separators"].startswith(sign)
    # the axis adds its sign to what a template says of it
    templates = [trace["hovertemplate"] for trace in curve["data"] if "hovertemplate" in trace]
    assert len(templates) == 2
    assert not any("%" in each.replace("%{", "") for each in templates)


def test_what_the_off_peak_chart_leaves_out_is_said(planned: Site) -> None:
    view = planned.view(WEEK)
    found = tuple(OffPeak(f"pool{number}", 5, 7, 30, 2, 4) for number in range(6))
    shown = drawn(view, off_peak(found, view.report.heading, view.report.ledger))
    assert [len(trace["z"]) for trace in figure(shown, "off_peak-chart")["data"]] == [7] * 4
    assert {row[0] for row in table(shown, "off_peak")} == {f"pool{number}" for number in range(6)}
    assert "Hours left blank" in words(shown)
    assert "The chart shows 4 of 6 pools" in words(shown)


def test_people_have_no_capacity(planned: Site) -> None:
    shown = page(planned.client(), "/capacity", WEEK + "&team=vision")
    assert "Capacity is that of GPUs" in words(shown)
    assert not [each for each in components(shown) if each["type"] == "Graph"]
    own = page(planned.client(LANGUAGE), "/capacity", WEEK)
    assert "Capacity is that of GPUs" in words(own)


def test_free_gpus_that_lie_apart_start_no_gang(lake: Lake) -> None:
    """Two hosts of two GPUs each, one of the two at work: two are free, and a job of two cannot start."""
    for host, busy, free in (("h1", "a", "b"), ("h2", "c", "d")):
        rows = [*samples(busy, 0, 7200, gpu_util_pct=90.0, process_count=1), *samples(free, 0, 7200)]
        fill(lake, rows, processes(busy, *range(0, 7200, 30)), host=host, devices=[device(busy), device(free)])
    shown = page(build_app(LakeSource(lambda: inputs_of(lake))).server.test_client(), "/capacity")
    free_bars, start_bars = figure(shown, "gangs-chart")["data"]
    assert (free_bars["y"][:3], start_bars["y"][:3]) == ([1, 1, 0], [1, 0, 0])
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
    assert "In 1 of them some GPU" in words(shown)
    traces = figure(shown, "demand-chart")["data"]
    assert [max(trace["y"]) for trace in traces] == [2, 1, 2, 1]
    assert [trace.get("fill") for trace in traces] == ["toself", None, "toself", None]


@pytest.mark.parametrize("path", ["/", "/film", "/right-size", "/capacity"])
def test_every_chart_has_a_name_a_question_a_finding_and_its_numbers(planned: Site, path: str) -> None:
    shown = page(planned.client(), path, WEEK)
    sections = [each for each in components(shown) if each["type"] == "Section"]
    charts = [(section, each) for section in sections for each in components(section) if each["type"] == "Graph"]
    assert charts
    for section, chart in charts:
        inside = list(components(section))
        classes = {each["props"].get("className") for each in inside}
        assert {"question", "finding"} <= classes, chart["props"]["id"]
        assert len(words(next(each for each in inside if each["props"].get("className") == "finding"))) > 20
        assert any(each["type"] == "Table" for each in inside), chart["props"]["id"]
        [name] = [
            each["props"]["aria-label"]
            for each in inside
            if chart in components(each) and each["props"].get("role") == "img"
        ]
        assert len(name) > 20
