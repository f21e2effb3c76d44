"""The pages of prices, energy and allocation: for all readers, for one team's reader, and with a bad table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analytics.scope import Scope
from analytics.simulation import SimulatedFleet
from analytics.simulation.people import intensity_csv
from tests.dashboard.conftest import UNTIL_MS, page, table, words
from tests.dashboard.sites import LANGUAGE, WEEK, Site


@pytest.fixture(scope="module")
def graded(planned: Site, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A site with the grid of the demo."""
    folder = tmp_path_factory.mktemp("graded")
    file = folder / "grid.csv"
    file.write_text(intensity_csv(SimulatedFleet(until_ms=UNTIL_MS, days=15)), encoding="utf-8")
    return planned.beside(folder, f"[plan]\ncarbon = {json.dumps(str(file))}\n")


def test_all_sections_are_there(graded: Site) -> None:
    shown = words(page(graded.client(), "/energy", WEEK))
    assert "Idle GPUs caused" in shown
    assert "known for 165 of the window's 168 hours" in shown  # the demo's grid has a gap
    for title in (
        "Energy and CO2 by team",
        "Extra power of a card that is held idle",
        "CO2 that other hours would save",
    ):
        assert title in shown


def test_a_reader_of_a_team_sees_its_energy_alone(graded: Site) -> None:
    others = set(graded.view().whole.money.owners.teams()) - {"language"}
    shown = words(page(graded.client(LANGUAGE), "/energy", WEEK))
    assert "while they were held idle, stalled or allocated but unused" in shown
    assert others
    assert not [name for name in others if name in shown]
    assert not [
        words
        for words in ("Extra power of a card that is held idle", "CO2 that other hours would save")
        if words in shown
    ]


def test_an_unusable_table_of_intensity_is_reported_once(planned: Site, tmp_path: Path) -> None:
    site = planned.beside(tmp_path, '[plan]\ncarbon = "/none.csv"\n')
    shown = words(page(site.client(), "/energy", WEEK))
    assert shown.count("the grid's intensity cannot be used") == 1
    assert "Extra power of a card that is held idle" not in shown
    assert "Buy, reserve or rent" in words(page(site.client(), "/purchase", WEEK))


def test_each_pool_has_its_mix_and_each_price_its_row(planned: Site) -> None:
    found = planned.view().whole.purchases
    shown = page(planned.client(), "/purchase", WEEK)
    assert len(table(shown, "purchase")) == len(found) > 1
    rows = {name: table(shown, name) for name in ("purchase_mix", "purchase_offers")}
    assert len(rows["purchase_mix"]) == sum(len(each.mix.parts) for each in found if each.mix is not None)
    assert len(rows["purchase_offers"]) == sum(len(each.options) for each in found)
    assert "current: up to" in json.dumps(shown)
    assert "Internal prices by hour" in words(page(planned.client(), "/prices", WEEK))


def test_a_view_of_users_has_no_purchase(planned: Site) -> None:
    shown = words(page(planned.client(LANGUAGE), "/purchase", WEEK))
    assert "GPUs are bought and rented for pools" in shown
    assert "Offers and break-even" not in shown


def test_a_table_of_offers_that_cannot_be_used_is_named(planned: Site, tmp_path: Path) -> None:
    (tmp_path / "offers.csv").write_text("kind,provider,model,hourly\nrent,cloud,L40S,1\n")
    offering = planned.beside(tmp_path, f'offers = "{tmp_path}/offers.csv"\n')
    shown = words(page(offering.client(), "/purchase", WEEK))
    assert "the table of offers cannot be used" in shown
    assert "Offers and break-even" not in shown


def test_each_row_of_the_tree_and_each_ending_is_there(planned: Site) -> None:
    view = planned.view()
    found = view.whole.plan.allocation(view.report.scope, view.part, view.report.ledger.seen)
    shown = page(planned.client(), "/allocation", WEEK)
    nodes = [node for root in found.tree for team in root.children for node in (team, *team.children)]
    rows = table(shown, "allocation")  # those in sight and those folded
    assert len(rows) == len(found.tree) + len(nodes) > 1
    assert len(table(page(planned.client(), "/endings", WEEK), "endings")) == len(found.endings) > 0


def test_a_reader_of_a_team_sees_no_other_team(planned: Site) -> None:
    others = set(planned.view().whole.money.owners.teams()) - {"language"}
    shown = " ".join(words(page(planned.client(LANGUAGE), path, WEEK)) for path in ("/allocation", "/endings"))
    assert others
    assert "GPUs that become free" in shown
    assert not [name for name in others if name in shown]
    assert "Who starves" not in shown
    assert "Checked:" not in shown


def test_the_proposal_is_there_where_a_requests_file_is_set(planned: Site, tmp_path: Path) -> None:
    """Whole for readers of everything; a team's reader sees the team's requests, and not whose GPUs it would get."""
    lines = ["language,1,V100,,2025-11-18,2026-01-31,1,translator", "vision,2,V100,,2025-11-18,2026-01-31,2,detector"]
    asking = planned.asking(tmp_path, lines)
    found = asking.view().whole.reallocation(Scope())
    assert found is not None
    assert {each.request.name for each in (*found.served, *found.unserved)} == {"translator", "detector"}
    everybody = words(page(asking.client(), "/endings", WEEK))
    own = words(page(asking.client(LANGUAGE), "/endings", WEEK))
    assert "Who should get which GPUs" not in words(page(planned.client(), "/endings", WEEK))
    for shown, names in ((everybody, ["translator", "detector"]), (own, ["translator"])):
        assert "Who should get which GPUs" in shown
        assert [name for name in ("translator", "detector") if name in shown] == names
    assert "GPUs left over" in everybody
    assert not [words for words in ("GPUs left over", "Who gains", "from team") if words in own]


def test_a_requests_file_that_cannot_be_used_closes_one_section(planned: Site, tmp_path: Path) -> None:
    asking = planned.asking(tmp_path, ["nobody,1,V100,,2025-11-18,2026-01-31,1,translator"])
    shown = words(page(asking.client(), "/endings", WEEK))
    assert "The data cannot be read or written." in shown
    assert "GPUs that become free" in shown
