"""The pages say what the commands say, in both schemes, and nothing else than text where there is nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flask.testing import FlaskClient

from analytics.tables.palette import DARK, LIGHT, ORDER
from dashboard.app import build_app
from dashboard.pages import PAGES
from dashboard.source import LakeSource
from fallow.schema import STATES
from tests.dashboard.conftest import components, page, words


def test_every_state_has_a_colour_in_both_schemes() -> None:
    assert set(ORDER) == set(STATES) == set(LIGHT.state) == set(DARK.state)
    for colours in (LIGHT, DARK):
        assert len(set(colours.state.values())) == len(STATES)


def test_the_page_is_in_english_and_fits_a_phone(client: FlaskClient) -> None:
    index = client.get("/").text
    assert '<html lang="en">' in index
    assert 'name="viewport" content="width=device-width, initial-scale=1"' in index


@pytest.mark.parametrize("path", [each.path for each in PAGES if each.listed])
def test_every_page_answers_in_both_schemes_with_its_title_and_marks_simulated_data(
    client: FlaskClient, path: str
) -> None:
    own = next(each for each in PAGES if each.path == path)
    light, dark = (page(client, path, scheme=scheme) for scheme in ("light", "dark"))
    for shown in (light, dark):
        text = words(shown)
        assert text.startswith(own.question or own.name)
        assert "SIMULATED FLEET" in text
        assert "data as of" in text
    assert words(dark) == words(light)


def test_charts_have_a_name_and_never_upload(client: FlaskClient) -> None:
    for each in (each for each in PAGES if each.listed):
        shown = page(client, each.path)
        images = [found["props"] for found in components(shown) if found["props"].get("role") == "img"]
        assert all(len(image["aria-label"]) > 20 for image in images), each.path
        for chart in (found["props"] for found in components(shown) if found["type"] == "Graph"):
            assert chart["config"]["showSendToCloud"] is False
            assert chart["config"]["plotlyServerURL"] == ""
            assert len(json.dumps(chart["figure"])) < 150_000


def test_an_unexpected_error_shows_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Any:
        raise RuntimeError("the very inside")

    text = words(page(build_app(LakeSource(broken)).server.test_client()))
    assert "could not be computed" in text
    assert "inside" not in text
    assert "the very inside" in caplog.text
