"""The pages say what the commands say, in both schemes, and nothing else than text where there is nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from dashboard.app import build_app
from dashboard.charts.panel import GRAPH_CONFIG
from dashboard.pages import PAGES
from dashboard.palette import DARK, LIGHT, ORDER
from dashboard.source import Source
from fallow.schema import STATES
from tests.dashboard.conftest import components, empty_folder, inputs_of, page, words

if TYPE_CHECKING:
    from pathlib import Path

    from flask.testing import FlaskClient

    from fallow.lake import Lake
    from tests.conftest import RunFallow


@pytest.fixture(scope="session")
def shown(client: FlaskClient) -> Any:
    return page(client)


def by_id(tree: Any, wanted: str) -> dict[str, Any]:
    return next(each["props"] for each in components(tree) if each["props"].get("id") == wanted)


def test_every_state_has_a_colour_in_both_schemes() -> None:
    assert set(ORDER) == set(STATES) == set(LIGHT.state) == set(DARK.state)
    for colours in (LIGHT, DARK):
        assert len(set(colours.state.values())) == len(STATES)


def test_the_frame_tells_nothing_of_the_lake(client: FlaskClient, fleet_lake: Lake) -> None:
    for path in ("/", "/_dash-layout", "/_dash-dependencies"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert "sim-" not in answer.text
        assert fleet_lake.root not in answer.text


def test_the_page_is_in_english_and_works_on_a_phone(client: FlaskClient) -> None:
    index = client.get("/").text
    assert '<html lang="en">' in index
    assert 'name="viewport" content="width=device-width, initial-scale=1"' in index


def test_the_tiles_and_charts_are_those_of_the_ledger_command(
    shown: Any, fleet_lake: Lake, run_fallow: RunFallow
) -> None:
    ledger = json.loads(run_fallow("ledger", "--lake", fleet_lake.root, "--json").stdout)
    hours = ledger["gpu_hours"]
    text = words(shown)
    for state in ORDER:
        assert f"{hours[state]:,.1f}" in text
    assert f"{hours['total']:,.1f}" in text
    assert f"{100 * ledger['coverage']:.1f} %" in text
    for trace in by_id(shown, "days-chart")["figure"]["data"]:
        # all but the milliseconds by which a last interval reaches into the next day
        assert sum(trace["y"]) == pytest.approx(hours[trace["name"]], abs=0.05)
    drawn = by_id(shown, "idle-chart")["figure"]["data"][0]["x"]
    assert drawn == [ledger["idle"]["share"], *ledger["idle"]["spells"].values()]


def test_the_findings_are_those_of_the_findings_command(shown: Any, fleet_lake: Lake, run_fallow: RunFallow) -> None:
    found = json.loads(run_fallow("findings", "--lake", fleet_lake.root, "--json").stdout)["findings"]
    rows = [each for each in components(shown) if each["type"] == "Td" and each["props"].get("data-label") == "Finding"]
    assert found
    assert len(rows) == len(found)
    for row, finding in zip(rows, found, strict=True):
        assert finding["finding_id"] in words(row)
    text = words(shown)
    for finding in found:
        assert f"{finding['gpu_hours']:,.1f}" in text
        assert finding["next_command"] in text
        for failed in finding["failed_conditions"]:
            assert failed in text


def test_a_simulated_fleet_says_so(shown: Any) -> None:
    assert "SIMULATED FLEET" in words(shown)
    assert "Data as of" in words(shown)


def test_every_chart_has_a_title_a_question_a_finding_and_a_name(shown: Any) -> None:
    panels = [
        each
        for each in components(shown)
        if each["type"] == "Section" and "panel" in each["props"].get("className", "")
    ]
    charts = [each for each in components(shown) if each["type"] == "Graph"]
    images = [each["props"] for each in components(shown) if each["props"].get("role") == "img"]
    assert len(charts) == len(images) == 3
    assert all(len(image["aria-label"]) > 40 for image in images)
    for chart in charts:
        assert chart["props"]["config"] == GRAPH_CONFIG
    for panel in panels[:4]:
        classes = [each["props"].get("className") for each in components(panel)]
        assert "question" in classes
        assert "finding" in classes
        assert words(next(each for each in components(panel) if each["type"] == "H2"))


def test_the_schemes_differ_in_colours_only(client: FlaskClient, shown: Any) -> None:
    dark = page(client, scheme="dark")
    assert words(dark) == words(shown)
    assert DARK.state["active"] in json.dumps(dark)
    assert LIGHT.state["active"] not in json.dumps(dark)
    assert page(client, scheme="mauve") == shown


def test_figures_keep_their_budget(shown: Any) -> None:
    for chart in (each for each in components(shown) if each["type"] == "Graph"):
        assert len(json.dumps(chart["props"]["figure"])) < 120_000


def test_every_page_of_the_registry_answers(client: FlaskClient) -> None:
    assert len({each.path for each in PAGES}) == len(PAGES)
    for each in PAGES:
        assert "GPU-hours" in words(page(client, each.path))


def test_an_unknown_path_says_so(client: FlaskClient) -> None:
    assert "no such page" in words(page(client, "/nowhere"))


def test_a_lake_without_rows_says_what_to_do(tmp_path: Path) -> None:
    lake = empty_folder(tmp_path / "lake")
    app = build_app(Source(lambda: inputs_of(lake)))
    text = words(page(app.server.test_client()))
    assert "Nothing to show yet" in text
    assert "fallow agent run" in text


def test_a_window_without_rows_says_where_the_rows_are(fleet_lake: Lake) -> None:
    app = build_app(Source(lambda: inputs_of(fleet_lake, "2020-01-01", "2020-01-02")))
    assert "choose a window that has some of them" in words(page(app.server.test_client()))


def test_a_fault_that_nobody_foresaw_shows_no_trace(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Any:
        raise RuntimeError("the very inside")

    text = words(page(build_app(Source(broken)).server.test_client()))
    assert "could not be made" in text
    assert "inside" not in text
    assert "the very inside" in caplog.text
