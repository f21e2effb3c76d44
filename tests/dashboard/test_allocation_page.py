"""Allocation: the rows of the command, and for a reader of one team nothing of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.dashboard.conftest import page, words
from tests.dashboard.planned import LANGUAGE, WEEK, Planned, planned_site
from tests.dashboard.test_users_page import table

if TYPE_CHECKING:
    from dashboard.view import View


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Planned:
    return planned_site(tmp_path_factory.getbasetemp())


def teams(view: View) -> set[str]:
    return set(view.whole.money.owners.teams())


def test_each_row_of_the_tree_and_each_ending_is_there(planned: Planned) -> None:
    view = planned.view()
    found = view.whole.allocation(view.report.scope, view.part)
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
