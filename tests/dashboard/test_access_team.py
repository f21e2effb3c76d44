"""A viewer with a team sees that team, whatever they ask for and by whichever way."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import polars as pl
import pytest
from flask.testing import FlaskClient

from dashboard.access.choose import access_of
from dashboard.access.people import ADMIN
from dashboard.app import build_app
from dashboard.files import EXPORTS
from dashboard.pages import PAGES
from fallow import config
from tests.dashboard.conftest import filled, page, words
from tests.dashboard.sites import Site

OWN, OTHER = "vision", "robotics"
OTHERS = ("mei", "nuno", "olga", "pavel", "svc-robotics", "amara", "bjorn", "dmitri", "jonas", "kavya", "rosa", "sven")
HEADER = "X-Forwarded-User"
PATHS = tuple(each.path for each in PAGES)


@pytest.fixture(scope="module")
def server(teams: Site, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The pages behind a proxy: `ines` is a viewer of one team, `boss` an admin of all."""
    people = tmp_path_factory.mktemp("people") / "people.csv"
    people.write_text(f"name,role,team\nines,viewer,{OWN}\nboss,admin,\n", encoding="utf-8")
    settings = {"dashboard.proxy_header": HEADER, "dashboard.proxies": "127.0.0.1", "dashboard.people": str(people)}
    access = access_of(config.load(settings, None, {}), address="10.0.0.1", local=False, insecure=False)
    return build_app(teams.source, access).server


def client_of(server: Any, name: str) -> FlaskClient:
    client: FlaskClient = server.test_client()
    client.environ_base["HTTP_" + HEADER.upper().replace("-", "_")] = name
    return client


@pytest.fixture(scope="module")
def viewer(server: Any) -> FlaskClient:
    return client_of(server, "ines")


@pytest.fixture(scope="module")
def boss(server: Any) -> FlaskClient:
    return client_of(server, "boss")


def named(text: str) -> set[str]:
    """Return the users of other teams that a text names."""
    return {name for name in OTHERS if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)}


def test_the_others_are_there_to_be_seen(boss: FlaskClient) -> None:
    assert named(json.dumps(page(boss, "/users", f"?team={OTHER}")))
    assert named(boss.get("/export/users.csv").text)


@pytest.mark.parametrize(
    ("path", "search"),
    [
        *((path, f"?team={OTHER}") for path in PATHS),
        *(("/users", each) for each in ("?team=", "?team=vision&team=robotics", "?team=vision%2Brobotics")),
    ],
)
def test_a_page_by_its_address(viewer: FlaskClient, path: str, search: str) -> None:
    filling = filled(viewer, path, search)
    assert named(json.dumps(filling)) == set()
    assert words(filling["page"]["children"]) == words(page(viewer, path))


@pytest.mark.parametrize("path", ["/gpu", "/host", "/users", "/timeline", "/findings"])
def test_a_page_about_what_others_hold(viewer: FlaskClient, teams: Site, path: str) -> None:
    segments = teams.spans()
    own = segments.filter(pl.col("user").is_in(OTHERS).not_())
    for column in ("gpu", "host"):
        theirs = segments.filter(pl.col(column).is_in(own[column].implode()).not_())
        shared = own.filter(pl.col(column).is_in(segments.filter(pl.col("user").is_in(OTHERS))[column].implode()))
        for value in (theirs[column].min(), shared[column].min()):
            assert value
            assert named(json.dumps(filled(viewer, path, f"?{column}={value}&team={OTHER}"))) == set()
    about = filled(viewer, path, f"?user=mei&team={OTHER}")
    assert named(json.dumps(about)) <= {"mei"}  # the name that was asked with, and nothing that goes with it


def test_no_other_team_can_be_chosen(viewer: FlaskClient, boss: FlaskClient) -> None:
    assert OTHER in json.dumps(filled(boss))
    assert OTHER not in json.dumps(filled(viewer))


@pytest.mark.parametrize("name", sorted(EXPORTS))
@pytest.mark.parametrize("search", ["", f"?team={OTHER}", "?team="])
def test_a_table_as_a_file(viewer: FlaskClient, name: str, search: str) -> None:
    text = viewer.get(f"/export/{name}.csv{search}")
    if text.status_code == 409:  # a whole that a team is no part of
        return
    assert named(text.text) == set()
    assert OTHER not in text.text
    table = pl.read_parquet(io.BytesIO(viewer.get(f"/export/{name}.parquet{search}").data))
    assert named(json.dumps(table.to_dicts(), default=str)) == set()
    assert viewer.get(f"/export/{name}.csv").text == text.text


@pytest.mark.parametrize(
    "path", ["/report/preview", *(f"/report/download/{form}" for form in ("html", "md", "text", "json", "csv"))]
)
def test_a_report_as_a_document(viewer: FlaskClient, boss: FlaskClient, path: str) -> None:
    assert named(boss.get(path).text)
    answer = viewer.get(f"{path}?team={OTHER}")
    assert named(answer.text) == set()


def test_pages_of_a_higher_role_stay_closed(viewer: FlaskClient, boss: FlaskClient) -> None:
    shut = [each.path for each in PAGES if each.role == ADMIN]
    assert shut
    for path in shut:
        assert "This page needs the role admin" in words(page(viewer, path))
        assert "This page needs the role admin" not in words(page(boss, path))


def test_a_callback_without_a_name_is_refused(server: Any) -> None:
    answer = server.test_client().post("/_dash-update-component", json={}, headers={"Origin": "http://localhost"})
    assert answer.status_code == 403
