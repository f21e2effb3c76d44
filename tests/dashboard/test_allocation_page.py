"""Allocation: the rows of the command, and for a reader of one team nothing of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from analytics.scope import Scope
from tests.dashboard.conftest import page, words
from tests.dashboard.planned import LANGUAGE, WEEK, Planned, asking_site, planned_site
from tests.dashboard.test_users_page import table

if TYPE_CHECKING:
    from pathlib import Path

    from dashboard.view import View


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Planned:
    return planned_site(tmp_path_factory.getbasetemp())


def teams(view: View) -> set[str]:
    return set(view.whole.money.owners.teams())


def test_each_row_of_the_tree_and_each_ending_is_there(planned: Planned) -> None:
    view = planned.view()
    found = view.whole.plan.allocation(view.report.scope, view.part, view.report.ledger.seen)
    shown = page(planned.client(), "/allocation", WEEK)
    nodes = [node for root in found.tree for team in root.children for node in (team, *team.children)]
    rows = [row for row in table(shown, "allocation-title") if row[0] != "name"]  # those in sight and those folded
    assert len(rows) == len(found.tree) + len(nodes) > 1
    assert len(table(shown, "endings-title")) - 1 == len(found.endings) > 0


def test_a_reader_of_a_team_sees_no_other_team(planned: Planned) -> None:
    others = teams(planned.view()) - {"language"}
    shown = words(page(planned.client(LANGUAGE), "/allocation", WEEK))
    assert others
    assert "Which GPUs come free" in shown
    assert not [name for name in others if name in shown]
    assert "Who starves" not in shown
    assert "Checked:" not in shown


def test_the_proposal_is_there_where_a_requests_file_is_set(planned: Planned, tmp_path: Path) -> None:
    """All of it for who sees everybody; a reader of a team sees their own requests, and not whose GPUs they would get."""
    lines = ["language,1,V100,,2025-11-18,2026-01-31,1,translator", "vision,2,V100,,2025-11-18,2026-01-31,2,detector"]
    asking = asking_site(planned, tmp_path, lines)
    found = asking.view().whole.reallocation(Scope())
    assert found is not None
    assert {each.request.name for each in (*found.served, *found.unserved)} == {"translator", "detector"}
    everybody = words(page(asking.client(), "/allocation", WEEK))
    own = words(page(asking.client(LANGUAGE), "/allocation", WEEK))
    assert "Who should get which GPUs" not in words(page(planned.client(), "/allocation", WEEK))
    for shown, names in ((everybody, ["translator", "detector"]), (own, ["translator"])):
        assert "Who should get which GPUs" in shown
        assert [name for name in ("translator", "detector") if name in shown] == names
    assert "What is left over" in everybody
    assert not [words for words in ("What is left over", "Who gains", "from whom") if words in own]


def test_a_requests_file_that_cannot_be_used_closes_one_section(planned: Planned, tmp_path: Path) -> None:
    asking = asking_site(planned, tmp_path, ["nobody,1,V100,,2025-11-18,2026-01-31,1,translator"])
    shown = words(page(asking.client(), "/allocation", WEEK))
    assert "and whose are they? The data cannot be read or written as they should." in shown
    assert "Which GPUs come free" in shown
    assert "Who has the GPUs" in shown
