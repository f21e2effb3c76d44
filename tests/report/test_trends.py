"""The week beside the weeks before, and goals: an unobserved week is no zero, and only whole weeks are judged."""

from __future__ import annotations

import re
from datetime import UTC, date, timedelta
from typing import TYPE_CHECKING

import pytest

from analytics.language.sentences import ENGLISH
from analytics.ledger.summary import clip_ledger, summarise
from analytics.money.accounts import Accounts
from analytics.money.costs import Costs
from analytics.money.owners import Owners
from analytics.money.prices import PriceBook
from analytics.render.html.charts import drawing
from analytics.report.coverage import Watch
from analytics.report.goals import Goal, GoalProgress, open_goals, progress
from analytics.report.parts import WeekHistory
from analytics.report.trends import QUARTER_WEEKS, WEEKS_BEFORE, WeekFigures, trends, week_figures
from analytics.report.weeks import week_of
from analytics.scope import Scope
from analytics.tables.chart import ChartPlace, Line, Panel
from analytics.tables.weeks import week_series
from analytics.window import WindowLedger
from fallow import config
from fallow.errors import ConfigError
from tests.money.fleet import T0, inventory, segment
from tests.report.test_watch import whole_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from analytics.report.figures import Trend
    from analytics.report.goals import Course
    from tests.money.fleet import Row

WEEK_S = 7 * 86_400
MONDAY_S = -4 * 86_400  # T0 is a Friday


def idle_weeks(shares: Sequence[float | None]) -> list[Row]:
    """One GPU, the newest week first: free for that share of each week, else active; None is not seen."""
    rows = []
    for number, share in enumerate(shares):
        start = MONDAY_S - number * WEEK_S
        if share is not None:
            rows += [segment("a0", start, start + share * WEEK_S, "free")] if share else []
            rows.append(segment("a0", start + share * WEEK_S, start + WEEK_S, "active", user="ann"))
    return rows


def looked_back(rows: list[Row], number: int = WEEKS_BEFORE) -> tuple[WeekFigures, ...]:
    """The week and those before it, the newest first, as of its end."""
    whole, week, devices = whole_of(rows), week_of(T0, UTC), inventory(rows)
    costs = Costs(PriceBook.load(None, "USD"), devices)
    inside = clip_ledger(whole, week.window)
    watch = Watch(WindowLedger(whole, inside, summarise(inside)), devices, week.until_ms)
    return tuple(
        week_figures(
            week.before(back),
            lambda window: clip_ledger(whole, window),
            lambda part: Accounts(part, costs, devices, Owners.none()).total,
            lambda window, part: watch.seen(window, part, lambda each: each),
        )
        for back in range(number + 1)
    )


def trends_of(rows: list[Row]) -> dict[str, Trend]:
    now, *before = looked_back(rows)
    assert now.figures is not None
    return {each.name: each for each in trends(now.figures, [each.figures for each in before])}


def shown(*idle_shares: float | None) -> dict[str, tuple[float | None, float | None, float | None]]:
    found = trends_of(idle_weeks(idle_shares))
    return {name: (each.now, each.last_week, each.median_4_weeks) for name, each in found.items()}


def test_last_week_and_the_median_of_four() -> None:
    found = shown(0.5, 0.25, 0.0, 1 / 8, 3 / 4)
    assert found["free"] == (84, 42, pytest.approx((0.25 + 0.125) / 2 * 168))
    assert found["unused_share"] == (0.5, 0.25, pytest.approx(0.1875))
    assert found["total"] == (168, 168, 168)
    paid, last, usual = found["paid_money"]
    assert (paid or 0) > 0
    assert paid == last == usual
    assert found["waste_money"][0] == found["effective_money"][0] == pytest.approx((paid or 0) / 2, abs=0.01)


def test_a_week_that_nobody_saw_is_no_zero_and_a_young_lake_has_no_median() -> None:
    assert shown(0.5, None, 0.0, 0.25, 0.5)["free"] == (84, None, None)
    assert shown(0.5, 0.25)["free"] == (84, 42, None)


def test_two_days_are_shown_as_two_days() -> None:
    """The lake begins on the Saturday of last week."""
    rows = [segment("a0", MONDAY_S - 2 * 86_400, MONDAY_S, "free"), segment("a0", MONDAY_S, MONDAY_S + WEEK_S, "free")]
    before = looked_back(rows)[1:]
    assert [each.seen.share for each in before] == [2 / 7, None, None, None]
    assert [each.figures is None for each in before] == [False, True, True, True]
    found = trends_of(rows)
    assert (found["total"].last_week, found["observed"].last_week) == (48, 2 / 7)


def test_a_week_that_was_seen_in_part_is_in_no_median() -> None:
    first_s, end_s = MONDAY_S - 4 * WEEK_S, MONDAY_S + WEEK_S
    assert trends_of([segment("a0", first_s, end_s, "free")])["total"].median_4_weeks == 168
    hole_s, over_s = first_s + WEEK_S, first_s + 1.11 * WEEK_S
    spans = ((first_s, hole_s, "free"), (hole_s, over_s, "unknown"), (over_s, end_s, "free"))
    rows = [segment("a0", *span) for span in spans]
    assert looked_back(rows)[3].seen.share == pytest.approx(0.89)
    assert {each.median_4_weeks for each in trends_of(rows).values()} == {None}


def history(weeks: tuple[WeekFigures, ...]) -> WeekHistory:
    return WeekHistory(None, Scope(), UTC, "USD", weeks[0].seen, weeks, ())


def test_each_week_is_beside_those_four_and_thirteen_weeks_before() -> None:
    weeks = looked_back(idle_weeks([0.3, *([0.5] * 3), 0.4, *([0.5] * 8), 0.6]), QUARTER_WEEKS)
    assert [each.is_whole for each in weeks] == [True] * 14
    assert [weeks[number].unused_share for number in (0, 4, 13)] == pytest.approx([0.3, 0.4, 0.6])
    assert weeks[0].idle_gpus == pytest.approx(0.3)
    assert weeks[0].waste == pytest.approx(0.3 * (weeks[0].paid or 0), abs=0.01)
    section = week_series(history(weeks), QUARTER_WEEKS)
    against = "-25.0 % and -10.0 points against 4 weeks before; -50.0 % and -30.0 points against 13 weeks before."
    assert section.headline.endswith(against.replace("-", "\N{MINUS SIGN}"))
    assert [str(row[0]) for row in section.cells] == [each.week.label for each in reversed(weeks)]


def test_unavailable_time_is_waste_and_is_not_unused() -> None:
    rows = [segment("a0", MONDAY_S, MONDAY_S + WEEK_S / 2, "unavailable")]
    rows += [segment("a0", MONDAY_S + WEEK_S / 2, MONDAY_S + WEEK_S, "active", user="ann")]
    (week,) = looked_back(rows, 0)
    assert week.waste == pytest.approx((week.paid or 0) / 2, abs=0.01)
    assert (week.unused_share, week.idle_gpus, week.busy_share) == (0, 0, 0.5)


@pytest.mark.parametrize("seen_share", [0.0, 0.5])
def test_a_week_that_nobody_saw_is_a_gap_and_one_seen_in_part_is_hollow(seen_share: float) -> None:
    rows = idle_weeks([0.5, 0.5, None, 0.5, 0.5])
    start = MONDAY_S - 2 * WEEK_S
    rows += [segment("a0", start, start + seen_share * WEEK_S, "free")] if seen_share else []
    weeks = looked_back(rows)
    assert [each.is_whole for each in weeks] == [True, True, False, True, True]
    assert (weeks[2].figures is None) == (not seen_share)
    section = week_series(history(weeks), WEEKS_BEFORE)
    middle = section.cells[2]
    assert middle[-1] == ("partly observed" if seen_share else "not observed")
    assert (middle[1] is None) == (not seen_share)
    drawn = str(drawing(section, ENGLISH))
    lines = [re.findall(r'<path d="M([^"]*)" fill="none"', each) for each in re.findall(r"<g class=\"l-.*?</g>", drawn)]
    assert [[part.count("L") for part in each] for each in lines] == [[1, 1]] * 5
    assert drawn.count("<circle") == (5 if seen_share else 0)


@pytest.mark.parametrize(
    ("most", "ticks"), [(0.47, (0, 0.2, 0.4, 0.6)), (1340, (0, 500, 1000, 1500)), (7, (0, 2.5, 5, 7.5)), (0, ())]
)
def test_ticks_are_round(most: float, ticks: tuple[float, ...]) -> None:
    panel = Panel("", (Line("", "held", (None, most)),), (ChartPlace("a"), ChartPlace("b")))
    assert panel.ticks == pytest.approx(ticks)


def read(tmp_path: Path, *lines: str) -> tuple[Goal, ...]:
    table = tmp_path / "goals.csv"
    table.write_text("\n".join(("kind,name,measure,goal,by", *lines)), encoding="utf-8")
    return open_goals(config.load({"money.goals": str(table)}, environment={}))


def test_goals_are_for_all_a_pool_or_a_team(tmp_path: Path) -> None:
    rest = "unused_share,0.25,2027-03-31"
    found = read(tmp_path, f"all,,{rest}", f"pool,h100,{rest}", "team,vision,waste,1500,2027-06-30")
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
def test_a_bad_goal_is_refused_with_its_line(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, "all,,waste,1000,2027-03-31", line)
    assert "goals.csv, line 3: " in refused.value.message
    assert said in f"{refused.value.message}; {refused.value.hint}"


def judged(shares: list[float | None], level: float, weeks_ahead: float) -> GoalProgress:
    """The newest week first."""
    weeks = looked_back(idle_weeks(shares), QUARTER_WEEKS)
    last = weeks[0].week.monday + timedelta(days=6)
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
)
def test_the_course(shares: list[float | None], level: float, ahead: float, course: Course) -> None:
    assert judged(shares, level, ahead).course == course


def test_where_it_stood_and_what_it_takes() -> None:
    found = judged([0.40 + 0.01 * week for week in range(14)], 0.20, 10)
    assert (found.now, found.four_weeks_before) == (pytest.approx(0.40), pytest.approx(0.44))
    assert (found.thirteen_weeks_before, found.weeks) == (pytest.approx(0.53), 13)
    assert (found.pace, found.needed_pace) == (pytest.approx(-0.01), pytest.approx(-0.02))
    assert judged([0.4, None, 0.4, 0.4, None], 0.3, 1).four_weeks_before is None
