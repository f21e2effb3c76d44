"""The page that compares says what `fallow report --compare` says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dashboard.access.people import VIEWER, Reader
from tests.dashboard.shown import Site, priced_site
from tests.dashboard.told import Question

if TYPE_CHECKING:
    from collections.abc import Sequence

ASKED = Question("three days", {"since": "2025-11-17", "until": "2025-11-19"})


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return priced_site(tmp_path_factory.getbasetemp())


def cells(rows: Sequence[Sequence[str]], name: str) -> list[str]:
    return next(list(row[1:]) for row in rows if row[0].startswith(name))


def test_the_time_just_before_is_the_first_choice(site: Site) -> None:
    shown = site.shown("/compare", ASKED)
    assert [each.text for each in shown.all("className", "here")] == ["the time just before"]
    assert any("against=13w" in href for href in shown.hrefs)
    panel = shown.panel("comparison")
    assert "The other: 14 Nov 2025, 00:00 UTC to 17 Nov 2025, 00:00 UTC." in panel.text
    paid = cells(panel.rows(), "paid (USD)")
    tiles = site.shown("/", ASKED).panel("waterfall").text
    assert paid[0] in tiles
    # nobody looked at one host on the 15th: its pool is not compared, whatever the fleet is
    pools = {row[0]: row[1:] for row in shown.panel("pools_compared").rows()}
    assert pools["train-old"][2] == "not compared"
    assert pools["train"][2].endswith("points")


def test_any_days_are_a_choice(site: Site) -> None:
    shown = site.shown("/compare", ASKED, against="2025-11-16..2025-11-16")
    assert [each.text for each in shown.all("className", "here")] == ["2025-11-16 - 2025-11-16"]
    assert "The windows are not as long as each other" in shown.panel("comparison").text
    assert cells(shown.panel("comparison").rows(), "waste")[2] == "not compared"


def test_a_reader_of_one_team_compares_that_team(site: Site) -> None:
    text = site.shown("/compare", ASKED, Reader("vic", VIEWER, "vision")).text
    assert "cost of free time" not in text
    assert "efficiency" in text
