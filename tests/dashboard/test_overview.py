"""The first page shows the commands' figures of the same window and scope, and no reader sees more than their own."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from markupsafe import escape

from analytics.render.html.page import page
from analytics.tables.palette import DARK, LIGHT
from analytics.tables.waterfall import waterfall
from dashboard.access.people import VIEWER, Reader
from dashboard.pages.overview import OVERVIEW
from tests.dashboard.conftest import components, words
from tests.dashboard.sites import Site, content, make_site
from tests.lakes import made_lake
from tests.ledger.rows import device, fill, samples
from tests.report.html.reports import changed

SEARCH = "?since=2025-11-18&until=2025-11-19"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return make_site(tmp_path_factory.mktemp("overview"))


@pytest.fixture(scope="module")
def shown(site: Site) -> Any:
    return content(OVERVIEW, site.view(SEARCH))


def tile(tree: Any, label: str) -> str:
    tiles = [each for each in components(tree) if each["props"].get("className") == "tile"]
    return next(text for text in map(words, tiles) if text.split()[0] == label)


def test_every_tile_names_the_window_and_its_change(site: Site, shown: Any) -> None:
    changes = [each for each in components(shown) if each["props"].get("className", "").startswith("change ")]
    assert len(changes) >= 6
    assert "Figures cover the whole window" in words(shown)
    assert "States are shares of the observed time." in words(shown)  # the chart beside them: of all GPU time
    assert "just before, from 16 Nov 2025" in words(shown)
    longer = content(OVERVIEW, site.view("?span=all"))
    assert not [each for each in components(longer) if each["props"].get("className", "").startswith("change ")]
    assert "No change is shown, because nothing was observed" in words(longer)


@pytest.mark.parametrize(
    ("code", "wasted", "unwasted"),
    [
        (
            "en",
            "of the paid GPU time was busy. The largest waste is ",
            "of the paid GPU time was busy; no idle time was observed.",
        ),
        (
            "fr",
            "du temps GPU payé a été actif. Le plus grand gaspillage\N{NO-BREAK SPACE}: ",
            "du temps GPU payé a été actif\N{NO-BREAK SPACE}; aucun temps inactif n'a été observé.",
        ),
    ],
)
def test_report_and_page_say_the_same_of_waste_and_of_none(site: Site, code: str, wasted: str, unwasted: str) -> None:
    view = site.view(f"{SEARCH}&lang={code}")
    busy = tuple(replace(step, gpu_ms=step.gpu_ms * (step.state == "active")) for step in view.report.ledger.steps)
    unwasted_report = changed(view.report, ledger=replace(view.report.ledger, steps=busy))
    for report, expected in ((view.report, wasted), (unwasted_report, unwasted)):
        said = view.language.translate(waterfall(report.ledger).headline)
        assert expected.replace("\N{NO-BREAK SPACE}", " ") in said.replace("\N{NO-BREAK SPACE}", " ")
        assert said in words(content(OVERVIEW, replace(view, report=report)))
        assert escape(said) in page(report, view.language)


def test_the_first_decisions_lead_to_all_of_them(planned: Site) -> None:
    view = planned.view()
    shown = content(OVERVIEW, view)
    panel = next(each for each in components(shown) if each["props"].get("aria-labelledby") == "recommendations-title")
    rows = [words(each) for each in components(panel) if each["type"] == "Tr"][1:]
    ranked = view.whole.recommendations(view.report.scope, view.part).ranked[:6]
    assert len(rows) == len(ranked)
    assert all(each.recommendation_id in row for each, row in zip(ranked, rows, strict=True))
    links = [each["props"]["href"] for each in components(shown) if each["type"] == "Link"]
    assert f"/recommendations{view.query.search}" in links
    assert f"/findings{view.query.search}" in links
    assert f"/quality{view.query.search}" in links
    # what to do comes before what the figures are
    places = [each["props"].get("id") or each["props"].get("className") for each in components(shown)]
    assert places.index("recommendations-title") < places.index("waterfall-title") < places.index("tile")


def test_the_schemes_differ_in_colours_only(site: Site, shown: Any) -> None:
    dark = content(OVERVIEW, site.view(SEARCH), "dark")
    assert words(dark) == words(shown)
    assert DARK.state["active"] in json.dumps(dark)
    # drawings have light colours, which the style sheet replaces by class
    drawings = [each["props"].pop("data-drawing") for each in components(dark) if "data-drawing" in each["props"]]
    coloured = [tag for each in drawings for tag in re.findall(rf"<[^>]*{LIGHT.state['active']}[^>]*>", each)]
    assert coloured
    assert all(re.search('class="[sl]-active"', tag) for tag in coloured)
    assert LIGHT.state["active"] not in json.dumps(dark)


def test_a_reader_of_one_team_sees_that_team(site: Site, shown: Any) -> None:
    reader = Reader("ann", VIEWER, "vision")
    own = content(OVERVIEW, site.view(SEARCH + "&team=language", reader))
    asked_for = content(OVERVIEW, site.view(SEARCH + "&team=vision"))
    text = words(own)
    assert text == words(asked_for)
    assert "hiro" not in json.dumps(own)
    assert ("Unallocated no process" in words(shown), "Unallocated no process" in text) == (True, False)
    assert "are not shown for a single team" in text


def test_the_page_is_in_french(site: Site) -> None:
    text = words(content(OVERVIEW, site.view(SEARCH + "&lang=fr")))
    for english in ("Busy", "GPU-hours", "window", "observed", "finding", "Every", "idle_intervals"):
        assert english not in text.replace("The numbers", "")
    assert "heures GPU" in text


def test_the_tile_marks_sampled_time(shown: Any, tmp_path: Path) -> None:
    lake = made_lake(tmp_path / "lake")
    fill(lake, samples("a", 0, 6 * 3600, every_s=60, gpu_util_pct=50.0), devices=[device("a")])
    (tmp_path / "fallow.toml").write_text(f'[lake]\npath = "{lake.root}"\n')
    scraped = content(OVERVIEW, Site(lake, tmp_path / "fallow.toml").view())
    assert "of that time only sampled, once every" in tile(scraped, "observed")
    assert "sampled" not in tile(shown, "observed")
