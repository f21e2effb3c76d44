"""Any window beside the one just before it: the same figures as the ledger has of each, and no change of what nobody saw."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from analytics.intervals import by_hour
from analytics.ledger.summary import totals_by, totals_of
from analytics.report.compare import Change, Changes, window_before
from analytics.report.model import Asked, Whole
from analytics.report.report import Report
from analytics.scope import Scope
from analytics.window import load_whole, load_window_ledger
from fallow.clock import DAY_MS, HOUR_MS, Window
from tests.dashboard.sites import UNTIL_MS, Site, make_site

if TYPE_CHECKING:
    from analytics.ledger.build import Ledger
    from tests.conftest import RunFallow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Four days, of which nothing is known before 2025-11-16."""
    return make_site(tmp_path_factory.mktemp("before"))


@pytest.fixture(scope="module")
def ledger(site: Site) -> Ledger:
    return load_whole(site.inputs())


def found(site: Site, ledger: Ledger, days: float, scope: Scope | None = None) -> Changes:
    """The changes of the last days."""
    inputs = replace(site.inputs(), window=Window(UNTIL_MS - round(days * DAY_MS), None))
    whole = Whole(inputs, load_window_ledger(inputs, whole=ledger))
    return Report(whole, Asked(scope=scope or Scope())).changes


def test_the_window_before_ends_where_the_window_begins() -> None:
    assert window_before(Window(1000, 1700)) == Window(300, 1000)
    for window in (Window(None, 1), Window(1, None), Window(None, None)):
        with pytest.raises(ValueError, match="Window"):
            window_before(window)


def test_both_windows_have_the_figures_of_the_ledger(site: Site, ledger: Ledger, run_fallow: RunFallow) -> None:
    figures = found(site, ledger, 2).figures

    def told(since: str, until: str) -> dict[str, dict[str, float]]:
        asked = ("--config", str(site.config), "--since", since, "--until", until, "--json")
        told: dict[str, dict[str, float]] = json.loads(run_fallow("ledger", *asked).stdout)
        return told

    now, before = told("2025-11-18", "2025-11-19"), told("2025-11-16", "2025-11-17")
    for state in ("active", "held", "free", "unavailable", "unknown"):
        assert figures[state].now == pytest.approx(now["gpu_hours"][state])
        assert figures[state].before == pytest.approx(before["gpu_hours"][state])
    assert figures["paid_money"].now == now["money"]["paid"]
    assert figures["paid_money"].before == before["money"]["paid"]
    assert figures["held_money"].before == before["money"]["cost"]["held"]  # type: ignore[index]
    observed = before["gpu_hours"]["total"] - before["gpu_hours"]["unknown"]
    assert figures["free_share"].before == pytest.approx(before["gpu_hours"]["free"] / observed)


def test_the_part_of_a_team_is_compared_with_its_own(site: Site, ledger: Ledger) -> None:
    everybody, team = found(site, ledger, 2), found(site, ledger, 2, Scope(team="vision"))
    assert team.is_comparable
    for of in (team.figures["active"].now, team.figures["active"].before):
        assert of is not None
        assert of > 0
    assert (team.figures["active"].before or 0) < (everybody.figures["active"].before or 0)
    assert team.figures["free"].before == 0


@pytest.mark.parametrize("days", [3, 4, 30])
def test_a_window_before_that_nobody_saw_has_no_change(site: Site, ledger: Ledger, days: float) -> None:
    told = found(site, ledger, days)
    assert not told.is_comparable
    assert {each.before for each in told.figures.values()} == {None}
    assert {each.sentence for each in told.figures.values()} == {""}
    assert told.figures["active"].now


@pytest.mark.parametrize(
    ("unit", "now", "before", "said"),
    [
        ("share", 0.31, 0.3, "+1.0 points"), ("share", 0.3, 0.31, "\N{MINUS SIGN}1.0 points"),
        ("share", 0.3, 0.30004, "±0.0 points"), ("share", None, 0.3, ""), ("share", 0.3, None, ""),
        ("money", 150.0, 100.0, "+50.0 %"), ("gpu_hours", 50.0, 100.0, "\N{MINUS SIGN}50.0 %"),
        ("gpu_hours", 50.0, 0.0, ""), ("gpu_hours", 0.0, 0.0, ""),
    ],
)  # fmt: skip
def test_changes_are_in_points_or_relative(unit: str, now: float | None, before: float | None, said: str) -> None:
    assert Change(unit, now, before).sentence == said


def test_the_hours_add_up_to_the_days(ledger: Ledger) -> None:
    hours = totals_by(by_hour(ledger.stretches), "hour")
    whole = totals_of(ledger.stretches)
    assert len(hours) >= 4 * 24
    for state, milliseconds in whole.state_ms.items():
        assert sum(each.state_ms[state] for each in hours.values()) == milliseconds
    assert all(int(hour) % HOUR_MS == 0 for hour in hours)
    assert all(each.total_ms <= each.gpus * HOUR_MS for each in hours.values())
