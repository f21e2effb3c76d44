"""Goals for waste: the site's own table of goals, the distance to each goal, and whether the weeks reach it in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import combinations
from statistics import median, quantiles
from typing import Literal

from analytics.money.csv_tables import CsvLine, read_lines
from analytics.report.trends import QUARTER_WEEKS, WEEKS_BEFORE, WeekFigures
from analytics.report.weeks import Week
from analytics.scope import Scope
from fallow.clock import WEEK_MS, to_ms
from fallow.config import Config

COLUMNS = ("kind", "name", "measure", "goal", "by")
"""Columns of the goals file. `name` is empty for a goal of the whole fleet."""

KINDS = ("all", "pool", "team")

Measure = Literal["unused_share", "waste"]
MEASURES: tuple[Measure, ...] = ("unused_share", "waste")
"""Measures: a share of the observed time from 0 to 1, or the cost of a week's waste in `money.currency`."""


@dataclass(frozen=True)
class Goal:
    """One line: by the end of a day in the report's zone, a week of this scope must be at most at this level."""

    scope: Scope
    measure: Measure
    level: float
    by: date


def open_goals(settings: Config) -> tuple[Goal, ...]:
    """Return the goals of the settings, in their order. Raises ConfigError that names the line and the remedy."""
    path = settings.text("money.goals")
    found: dict[tuple[Scope, Measure], int] = {}
    goals = []
    for line in read_lines(path, COLUMNS, COLUMNS) if path else ():
        goal = _goal(line)
        key = (goal.scope, goal.measure)
        if key in found:
            raise line.error(f"line {found[key]} has a goal for the same already", "leave one of them")
        found[key] = line.number
        goals.append(goal)
    return tuple(goals)


def _goal(line: CsvLine) -> Goal:
    kind, name, by = (line.text("kind") or "").lower(), line.text("name"), line.date_of("by")
    if kind not in KINDS:
        raise line.error(f"kind '{kind}' is none of {', '.join(KINDS)}")
    if (name is None) != (kind == "all"):
        wrong = "a goal for all has a name" if name else f"name is empty: which {kind}?"
        raise line.error(wrong, "name the pool or team, and leave the name of `all` empty")
    measure = next((each for each in MEASURES if each == line.text("measure")), None)
    if measure is None:
        raise line.error(f"measure '{line.text('measure') or ''}' is none of {', '.join(MEASURES)}")
    if by is None:
        raise line.error("by is empty", "write the day by which it is to be reached, as 2027-03-31")
    scope = Scope(pool=name if kind == "pool" else None, team=name if kind == "team" else None)
    return Goal(scope, measure, _level(line, measure), by)


def _level(line: CsvLine, measure: Measure) -> float:
    level = line.number_of("goal")
    if level is None:
        raise line.error("goal is empty", "write a share such as 0.10, or an amount such as 1500")
    if measure == "unused_share" and level > Decimal(1):
        raise line.error(f"goal '{level}' is not a share from 0 to 1", f"write {level / 100} for {level} %")
    return float(level)


WEEKS_MIN = 5
"""Complete weeks needed for an outlook: four steps from week to week."""

Course = Literal["reached", "missed", "on_course", "off_course", "open", "too_early", "too_far", "unknown"]
"""Outlooks.

`open`: the weeks vary too much. `too_far`: the day is further ahead than the weeks reach back. `unknown`: no complete
week.
"""


@dataclass(frozen=True)
class GoalProgress:
    """A goal in its newest complete week, and 4 and 13 weeks before (None if not fully observed).

    Attributes:
        weeks: weeks between the first and the newest complete week.
        weeks_left: weeks from the newest complete week to the goal's day.
        pace: the change of the figure per week. `needed_pace` is the change per week that reaches the goal.
    """

    goal: Goal
    week: Week | None
    now: float | None
    four_weeks_before: float | None
    thirteen_weeks_before: float | None
    course: Course
    weeks: int
    weeks_left: float | None
    pace: float | None
    needed_pace: float | None


def progress(goal: Goal, weeks: Sequence[WeekFigures]) -> GoalProgress:
    """Return the progress of a goal over the weeks of its scope, the newest first."""
    points = {number: value for number, each in enumerate(weeks) if (value := _value(goal, each)) is not None}
    if not points:
        return GoalProgress(goal, None, None, None, None, "unknown", 0, None, None, None)
    at = min(points)
    newest, now = weeks[at].week, points[at]
    own = {at - number: value for number, value in points.items() if number - at <= QUARTER_WEEKS}
    span, left = -min(own), _weeks_left(goal, newest)
    slopes = _slopes(own)
    return GoalProgress(
        goal=goal,
        week=newest,
        now=now,
        four_weeks_before=own.get(-WEEKS_BEFORE),
        thirteen_weeks_before=own.get(-QUARTER_WEEKS),
        course=_course(goal, own, slopes, left),
        weeks=span,
        weeks_left=left,
        pace=median(slopes) if len(own) >= WEEKS_MIN else None,
        needed_pace=(goal.level - now) / left if left > 0 else None,
    )


def _value(goal: Goal, each: WeekFigures) -> float | None:
    """Return the goal's figure of a complete week; None for an incomplete week, whose sums are partial."""
    if not each.is_whole:
        return None
    return each.unused_share if goal.measure == "unused_share" else each.waste


def _weeks_left(goal: Goal, newest: Week) -> float:
    """Return the weeks from the end of a week to the end of the goal's day."""
    end = to_ms(datetime.combine(goal.by + timedelta(days=1), time.min, newest.zone))
    return (end - newest.until_ms) / WEEK_MS


def _slopes(points: dict[int, float]) -> list[float]:
    """Return the change per week between any two weeks; their median is the Theil-Sen slope."""
    return [(points[late] - points[early]) / (late - early) for early, late in combinations(sorted(points), 2)]


def _course(goal: Goal, points: dict[int, float], slopes: list[float], left: float) -> Course:
    """Return whether the middle half of all changes reaches the goal in time."""
    if points[0] <= goal.level:
        return "reached"
    if left <= 0:
        return "missed"
    if len(points) < WEEKS_MIN:
        return "too_early"
    if left > -min(points):
        return "too_far"
    low, _, high = quantiles(slopes, n=4, method="inclusive")
    level = median(value - median(slopes) * week for week, value in points.items())
    if level + high * left <= goal.level:
        return "on_course"
    return "off_course" if level + low * left > goal.level else "open"
