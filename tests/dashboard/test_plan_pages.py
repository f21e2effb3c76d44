"""Energy and CO2 on the page of costs: for everybody, for a reader of one team, and with a file that cannot be used."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from analytics.simulation import SimulatedFleet
from analytics.simulation.people import intensity_csv
from tests.dashboard.conftest import UNTIL_MS, page, words
from tests.dashboard.planned import LANGUAGE, WEEK, Planned, planned_site, with_plan

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Planned:
    """A site with the grid of the demo."""
    folder = tmp_path_factory.mktemp("graded")
    file = folder / "grid.csv"
    file.write_text(intensity_csv(SimulatedFleet(until_ms=UNTIL_MS, days=15)), encoding="utf-8")
    return with_plan(planned_site(tmp_path_factory.getbasetemp()), folder, f"carbon = {json.dumps(str(file))}")


def test_all_sections_are_there(graded: Planned) -> None:
    shown = words(page(graded.client(), "/purchase", WEEK))
    assert "while nobody computed" in shown
    assert "known for 165 of the window's 168 hours" in shown  # the demo's grid has a gap
    for title in ("Energy and CO2 by team", "What holding a card costs", "What other hours would save"):
        assert title in shown


def test_a_reader_of_a_team_sees_its_energy_alone(graded: Planned) -> None:
    others = set(graded.view().whole.money.owners.teams()) - {"language"}
    shown = words(page(graded.client(LANGUAGE), "/purchase", WEEK))
    assert "while they were held without use" in shown
    assert others
    assert not [name for name in others if name in shown]
    assert not [words for words in ("What holding a card costs", "What other hours would save") if words in shown]


def test_a_file_that_cannot_be_used_is_said_once(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    site = with_plan(planned_site(tmp_path_factory.getbasetemp()), tmp_path, 'carbon = "/none.csv"')
    shown = words(page(site.client(), "/purchase", WEEK))
    assert shown.count("the grid's intensity cannot be used") == 1
    assert "What holding a card costs" not in shown
    assert "Rent, reserve or buy?" in shown
