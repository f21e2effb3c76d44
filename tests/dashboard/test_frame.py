"""The frame and the bar: choices come with the page, and nothing of the lake stands in what everybody gets."""

from __future__ import annotations

import hashlib
import re
from importlib import resources
from pathlib import Path
from typing import Any

import plotly.offline
import pytest
from flask.testing import FlaskClient

from dashboard.access.people import ADMIN, VIEWER, Reader
from dashboard.app import build_app
from dashboard.pages import PLACES
from dashboard.source import LakeSource
from fallow.lake import Lake
from tests.dashboard.conftest import components, filled, inputs_of, page, words
from tests.dashboard.sites import As
from tests.lakes import made_lake

_BUNDLE = resources.files("dashboard").joinpath("assets", "vendor", "plotly.min.js")


def test_the_charts_library_is_the_one_that_the_figures_are_made_for() -> None:
    """The vendored bundle is a part of what plotly brings along; its version has to be the same."""
    head = _BUNDLE.read_text(encoding="utf-8")[:200]
    assert f"v{plotly.offline.get_plotlyjs_version()}" in head


def test_a_page_loads_no_library_that_it_may_not_need(client: FlaskClient) -> None:
    """Its files have at most 350 KB compressed; charts' and tables' libraries come with the first of them."""
    frame = client.get("/").text
    sources = re.findall(r'(?:src|stylesheet" href)="(/[^"]+)"', frame)
    assert not [each for each in sources if re.search("plotly|ag_grid|dash_table", each)]
    [grid] = re.findall(r'data-grid="([^"]+)"', frame)
    assert b"AgGrid" in client.get(grid).data
    files = [client.get(each, headers={"Accept-Encoding": "gzip"}) for each in sources]
    assert all(each.status_code == 200 for each in files)
    assert sum(len(each.data) for each in files) < 350_000


def test_browsers_keep_our_own_files_for_ever(client: FlaskClient) -> None:
    """Their address is another one when their content is."""
    own = re.findall(r'"(/assets/pages-(\w+)[.]\w+)"', client.get("/").text)
    assert [address.rpartition(".")[2] for address, _ in own] == ["css", "js"]
    for address, digest in own:
        answer = client.get(address)
        assert hashlib.sha256(answer.data).hexdigest().startswith(digest)
        assert answer.headers["Cache-Control"] == "private, max-age=31536000, immutable"
        assert client.get(address.replace(digest, "0" * 16)).status_code == 404


def test_the_charts_library_comes_from_where_dash_looks_for_it(client: FlaskClient) -> None:
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
        (
            "/timeline",
            "?lang=fr&since=2025-11-18&until=2025-11-19",
            "Chronologie, 2025-11-18 - 2025-11-19 - fallow",
        ),
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
    """The places lead to their first pages, and the second row to the other pages of the place."""
    for place in PLACES:
        found = filled(client, place.pages[0].path, "?span=24h&gpu=G")
        places, own = (
            [each["props"]["href"] for each in components(found[name]["children"]) if "href" in each["props"]]
            for name in ("nav", "pages")
        )
        assert places == [f"{each.pages[0].path}?span=24h" for each in PLACES]
        assert own == [f"{page.path}?span=24h" for page in place.pages if page.listed]


@pytest.mark.parametrize(
    ("path", "search", "said"),
    [
        ("/nowhere", "", "There is no such page"),
        ("/", "?span=9y", "is not a valid window"),
        ("/", "?pool=nobody's", "nothing in this window belongs to pool nobody's"),
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


def test_any_days_can_be_chosen_and_the_page_shows_the_end_of_the_data(client: FlaskClient) -> None:
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
    assert "Data are available from" in words(found["days-form"]["children"])
    usual = filled(client, path="/quality")
    assert "2025-11-19" in str(usual["days-form"]["children"])
    assert "counts as not observed" not in words(usual["page"]["children"])


def test_a_choice_of_days_without_data_shows_the_days_with_data(client: FlaskClient) -> None:
    found = filled(client, path="/quality", search="?first=2020-01-01&last=2020-01-02")
    assert "holds nothing between" in words(found["page"]["children"])
    assert "it has rows from 2025-11-" in words(found["page"]["children"])
    assert "2020-01-01" in str(found["days-form"]["children"])
