"""The frame and the bar: choices come with the page, and nothing of the lake stands in what everybody gets."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

import plotly.offline
import pytest
from flask.testing import FlaskClient

from dashboard.access.people import ADMIN, VIEWER, Reader
from dashboard.app import build_app
from dashboard.pages import PAGES
from dashboard.source import LakeSource
from fallow.lake import Lake
from tests.dashboard.conftest import components, filled, inputs_of, page, words
from tests.dashboard.sites import As
from tests.lakes import made_lake

_BUNDLE = resources.files("dashboard").joinpath("assets", "vendor", "plotly-cartesian.min.js")


def test_the_charts_library_is_the_one_that_the_figures_are_made_for() -> None:
    """The vendored bundle is a third of what plotly brings along; its version has to be the same."""
    head = _BUNDLE.read_text(encoding="utf-8")[:200]
    assert f"v{plotly.offline.get_plotlyjs_version()}" in head


def test_no_page_waits_for_the_charts_library(client: FlaskClient) -> None:
    """It comes with the first chart, from where dash looks for plotly's own, and is kept."""
    frame = client.get("/").text
    assert not [name for name in ("plotly-cartesian", "plotly.min.js") if name in frame]
    with client.get("/_dash-component-suites/plotly/package_data/plotly.min.js") as answer:
        assert answer.data[:200] == _BUNDLE.read_bytes()[:200]
        assert answer.headers["Cache-Control"] == "no-cache"
        assert answer.headers["ETag"]


def test_the_frame_tells_nothing_of_the_lake(client: FlaskClient, fleet_lake: Lake) -> None:
    for path in ("/", "/_dash-layout", "/_dash-dependencies"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert "sim-" not in answer.text
        assert fleet_lake.root not in answer.text


def test_the_choices_are_the_lakes_own(client: FlaskClient) -> None:
    found = filled(client)
    values = {each["value"] for each in found["ask-span"]["options"]}
    assert values == {"24h", "3d", "7d", "28d", "all"}
    assert found["ask-span"]["value"] == "7d"
    pools = [each["value"] for each in found["ask-pool"]["options"]]
    assert pools[0] == ""
    assert len(pools) > 1
    assert all(page(client, search=f"?pool={pool}") for pool in pools)


def test_labels_are_in_the_readers_language(client: FlaskClient) -> None:
    assert filled(client)["label-zone"]["children"] == "time zone"
    assert filled(client, search="?lang=fr")["label-zone"]["children"] == "fuseau horaire"


@pytest.mark.parametrize(
    ("path", "search", "title"),
    [
        ("/findings", "", "Findings, last 7 days - fallow"),
        ("/", "?span=24h&pool=train", "Overview, pool train, last 24 hours - fallow"),
        ("/film", "?lang=fr&since=2025-11-18&until=2025-11-19", "Bande temporelle, 2025-11-18 - 2025-11-19 - fallow"),
        ("/host", "?host=sim-h100-01", "Host, sim-h100-01, last 7 days - fallow"),
        ("/nowhere", "", "last 7 days - fallow"),
    ],
)
def test_the_title_names_page_scope_and_window(client: FlaskClient, path: str, search: str, title: str) -> None:
    assert filled(client, path, search)["titled"]["data"] == title


def test_a_choice_of_one_is_none(client: FlaskClient) -> None:
    """The fleet has no owners file: there is no team to choose."""
    assert filled(client)["box-team"]["hidden"] is True


def test_a_window_that_the_pages_were_started_with_is_a_choice_and_shown_first(fleet_lake: Lake) -> None:
    own = build_app(
        LakeSource(lambda: inputs_of(fleet_lake, "2025-11-19T00:00Z", "2025-11-19T12:00Z"))
    ).server.test_client()
    found = filled(own)
    assert found["ask-span"]["value"] == ""
    assert found["ask-span"]["options"][0] == {"label": "as the pages were started", "value": ""}
    assert "19 Nov 2025, 00:00 UTC to 19 Nov 2025, 12:00 UTC" in words(found["page"]["children"])
    other = filled(own, search="?span=24h")
    assert other["ask-span"]["value"] == "24h"
    assert "19 Nov 2025, 00:00 UTC to 20 Nov 2025, 00:00 UTC" in words(other["page"]["children"])


@pytest.mark.parametrize(
    ("person", "way_out", "said", "leads"),
    [
        (Reader("ada", ADMIN), "", None, []),
        (Reader("ada", ADMIN), "/sign-out", "ada, admin Sign out", ["/sign-out"]),
        (Reader("vic", VIEWER), "", "vic, viewer", []),
    ],
)
def test_who_reads_stands_beside_the_pages_and_the_way_out_where_there_is_one(
    fleet_source: LakeSource, person: Reader, way_out: str, said: str | None, leads: list[str]
) -> None:
    who = As(person)
    who.way_out = way_out
    own = build_app(fleet_source, who).server.test_client()
    found = [each for each in components(filled(own)["nav"]["children"]) if each["props"].get("className") == "who"]
    assert [words(each) for each in found] == ([said] if said else [])
    assert [each["props"]["href"] for each in components(found) if "href" in each["props"]] == leads


def test_links_keep_window_and_scope(client: FlaskClient) -> None:
    links = [each["props"]["href"] for each in components(filled(client, search="?span=24h&gpu=G")["nav"]["children"])
             if "href" in each["props"]]  # fmt: skip
    assert links == [f"{each.path}?span=24h" for each in PAGES if each.listed]


@pytest.mark.parametrize(
    ("path", "search", "said"),
    [
        ("/nowhere", "", "There is no such page"),
        ("/", "?span=9y", "is not a valid window"),
        ("/", "?pool=nobody's", "nothing in this window is of pool nobody's"),
        ("/", "?since=2001-01-01&until=2001-01-02", "choose a window that has some of them"),
    ],
)
def test_what_cannot_be_shown_is_one_sentence(client: FlaskClient, path: str, search: str, said: str) -> None:
    assert said.lower() in words(page(client, path, search)).lower()


def test_an_empty_lake_is_one_sentence(tmp_path: Path) -> None:
    empty = made_lake(tmp_path / "lake")
    client: Any = build_app(LakeSource(lambda: inputs_of(empty))).server.test_client()
    text = words(page(client))
    assert "Nothing to show" in text
    assert "fallow agent run" in text


def test_any_days_are_a_choice_and_the_page_says_where_the_data_end(client: FlaskClient) -> None:
    found = filled(client, path="/quality", search="?first=2025-11-18&last=2025-11-30&zone=Europe/Paris")
    fields = {
        each["props"]["name"]: each["props"]["value"]
        for each in components(found["days-form"]["children"])
        if each["type"] == "Input"
    }
    assert fields == {"first": "2025-11-18", "last": "2025-11-30"}
    assert found["ask-span"]["value"] == ""
    assert found["ask-span"]["options"][0]["label"] == "2025-11-18 - 2025-11-30"
    text = words(found["page"]["children"])
    assert "18 Nov 2025, 00:00 CET to" in text
    assert "only: the rest of these days counts as not observed" in text
    assert "There are data from" in words(found["days-form"]["children"])
    usual = filled(client, path="/quality")
    assert "2025-11-19" in str(usual["days-form"]["children"])
    assert "counts as not observed" not in words(usual["page"]["children"])


def test_days_without_data_are_told_with_those_that_have_some(client: FlaskClient) -> None:
    found = filled(client, path="/quality", search="?first=2020-01-01&last=2020-01-02")
    assert "holds nothing between" in words(found["page"]["children"])
    assert "it has rows from 2025-11-" in words(found["page"]["children"])
    assert "2020-01-01" in str(found["days-form"]["children"])
