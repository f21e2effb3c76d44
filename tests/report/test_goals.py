"""Goals: a line that cannot be meant is refused with what to do, and a course is only told by weeks that allow it."""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING

import pytest

from analytics.report.goals import Goal, open_goals, progress
from analytics.report.trends import QUARTER_WEEKS
from analytics.report.weeks import week_of
from analytics.scope import Scope
from fallow import config
from fallow.errors import ConfigError
from tests.money.fleet import T0
from tests.report.test_trends import looked_back
from tests.report.test_week_series import idle_weeks

if TYPE_CHECKING:
    from pathlib import Path

    from analytics.report.goals import Course, GoalProgress

HEAD = "kind,name,measure,goal,by\n"


def read(tmp_path: Path, *lines: str) -> tuple[Goal, ...]:
    table = tmp_path / "goals.csv"
    table.write_text(HEAD + "".join(f"{line}\n" for line in lines), encoding="utf-8")
    return open_goals(config.load({"money.goals": str(table)}, environment={}))


def test_goals_are_for_all_a_pool_or_a_team(tmp_path: Path) -> None:
    found = read(tmp_path, "all,,unused_share,0.25,2027-03-31", "pool,h100,unused_share,0.1,2027-03-31", "team,vision,waste,1500,2027-06-30")  # fmt: skip
    assert [each.scope for each in found] == [Scope(), Scope(pool="h100"), Scope(team="vision")]
    assert found[2] == Goal(Scope(team="vision"), "waste", 1500.0, date(2027, 6, 30))
    assert open_goals(config.load({}, environment={})) == ()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("host,a,unused_share,0.1,2027-03-31", "kind 'host' is none of all, pool, team"),
        ("pool,,unused_share,0.1,2027-03-31", "name is empty"),
        ("all,train,unused_share,0.1,2027-03-31", "a goal for all has a name"),
        ("all,,idle,0.1,2027-03-31", "measure 'idle' is none of unused_share, waste"),
        ("all,,unused_share,10,2027-03-31", "write 0.1 for 10 %"),
        ("all,,unused_share,,2027-03-31", "goal is empty"),
        ("all,,waste,1000,", "by is empty"),
        ("all,,waste,1000,31.3.2027", "'31.3.2027' is not a day"),
        ("all,,waste,2000,2027-03-31", "line 2 has a goal for the same already"),
    ],
)
def test_a_bad_line_is_refused_with_its_number(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, "all,,waste,1000,2027-03-31", line)
    assert "goals.csv, line 3: " in refused.value.message
    assert said in f"{refused.value.message}; {refused.value.hint}"


def judged(shares: list[float | None], level: float, weeks_ahead: float) -> GoalProgress:
    """The newest week first."""
    weeks = looked_back(idle_weeks(shares), QUARTER_WEEKS)
    last = weeks[0].week.monday + timedelta(days=6)
    assert weeks[0].week == week_of(T0, weeks[0].week.zone)
    return progress(Goal(Scope(), "unused_share", level, last + timedelta(days=round(7 * weeks_ahead))), weeks)


@pytest.mark.parametrize(
    ("shares", "level", "ahead", "course"),
    [
        ([0.40, 0.42, 0.44, 0.46, 0.48], 0.34, 4, "on_course"),
        ([0.40, 0.42, 0.44, 0.46, 0.48], 0.30, 4, "off_course"),
        ([0.48, 0.46, 0.44, 0.42, 0.40], 0.34, 4, "off_course"),
        ([0.40, 0.50, 0.34, 0.50, 0.42], 0.36, 4, "open"),
        ([0.40, 0.42, 0.44, 0.46, 0.48], 0.34, 5, "too_far"),
        ([0.40, 0.42, None, 0.46, 0.48], 0.34, 3, "too_early"),
        ([0.40, 0.50], 0.40, 9, "reached"),
        ([0.40, 0.50], 0.39, 0, "missed"),
        ([None, None, None, None, None, 0.2], 0.3, 1, "reached"),
    ],
)  # fmt: skip
def test_the_course(shares: list[float | None], level: float, ahead: float, course: Course) -> None:
    assert judged(shares, level, ahead).course == course


def test_where_it_stood_and_what_it_takes() -> None:
    found = judged([0.40 + 0.01 * week for week in range(14)], 0.20, 10)
    assert (found.now, found.four_weeks_before) == (pytest.approx(0.40), pytest.approx(0.44))
    assert (found.thirteen_weeks_before, found.weeks) == (pytest.approx(0.53), 13)
    assert (found.pace, found.needed_pace) == (pytest.approx(-0.01), pytest.approx(-0.02))
    assert judged([0.4, None, 0.4, 0.4, None], 0.3, 1).four_weeks_before is None
