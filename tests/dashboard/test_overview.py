"""The first page says what the commands say of the same window and scope, and shows no reader more than theirs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from markupsafe import escape

from analytics.render.html.page import page
from analytics.tables.palette import DARK, LIGHT
from analytics.tables.waterfall import waterfall
from dashboard.access.people import VIEWER, Reader
from dashboard.pages.table_pages import OVERVIEW
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


def test_every_tile_says_that_it_is_over_the_window_and_how_it_changed(site: Site, shown: Any) -> None:
    changes = [each for each in components(shown) if each["props"].get("className", "").startswith("change ")]
    assert len(changes) >= 6
    assert "over the whole window" in words(shown)
    assert "just before, from 16 Nov 2025" in words(shown)
    longer = content(OVERVIEW, site.view("?span=all"))
    assert not [each for each in components(longer) if each["props"].get("className", "").startswith("change ")]
    assert "No change is given: nothing was observed" in words(longer)


@pytest.mark.parametrize(
    ("code", "wasted", "unwasted"),
    [
        ("en", "of the GPU time was useful. Most waste: ", "of the GPU time was useful; nothing was idle."),
        (
            "fr",
            "du temps GPU a été utile. Principal gaspillage : ",
            "du temps GPU a été utile ; rien n'est resté inactif.",
        ),
    ],
)
def test_report_and_page_say_the_same_of_waste_and_of_none(site: Site, code: str, wasted: str, unwasted: str) -> None:
    view = site.view(f"{SEARCH}&lang={code}")
    useful = tuple(replace(step, gpu_ms=step.gpu_ms * (step.state == "active")) for step in view.report.ledger.steps)
    unwasted_report = changed(view.report, ledger=replace(view.report.ledger, steps=useful))
    for report, expected in ((view.report, wasted), (unwasted_report, unwasted)):
        said = view.language.translate(waterfall(report.ledger).headline)
        assert expected.replace("\N{NO-BREAK SPACE}", " ") in said.replace("\N{NO-BREAK SPACE}", " ")
        assert said in words(content(OVERVIEW, replace(view, report=report)))
        assert escape(said) in page(report, view.language)


def test_the_first_decisions_lead_to_all_of_them(site: Site, shown: Any) -> None:
    view = site.view(SEARCH)
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
    assert places.index("recommendations-title") < places.index("tile") < places.index("waterfall-title")


def test_the_schemes_differ_in_colours_only(site: Site, shown: Any) -> None:
    dark = content(OVERVIEW, site.view(SEARCH), "dark")
    assert words(dark) == words(shown)
    assert DARK.state["active"] in json.dumps(dark)
    assert LIGHT.state["active"] not in json.dumps(dark)


def test_a_reader_of_one_team_sees_that_team(site: Site) -> None:
    reader = Reader("ann", VIEWER, "vision")
    own = content(OVERVIEW, site.view(SEARCH + "&team=language", reader))
    asked_for = content(OVERVIEW, site.view(SEARCH + "&team=vision"))
    text = words(own)
    assert text == words(asked_for)
    assert "hiro" not in json.dumps(own)
    assert "free no process" not in text
    assert "are not shown for a single team" in text


def test_it_is_said_in_french(site: Site) -> None:
    text = words(content(OVERVIEW, site.view(SEARCH + "&lang=fr")))
    for english in ("useful", "GPU-hours", "window", "observed", "finding", "Every", "spells"):
        assert english not in text.replace("The numbers", "")
    assert "heures GPU" in text


def test_of_time_that_was_only_sampled_the_tile_says_so(shown: Any, tmp_path: Path) -> None:
    lake = made_lake(tmp_path / "lake")
    fill(lake, samples("a", 0, 6 * 3600, every_s=60, gpu_util_pct=50.0), devices=[device("a")])
    (tmp_path / "fallow.toml").write_text(f'[lake]\npath = "{lake.root}"\n')
    scraped = content(OVERVIEW, Site(lake, tmp_path / "fallow.toml").view())
    assert "of it by point samples, one every" in tile(scraped, "observed")
    assert "point samples" not in tile(shown, "observed")
