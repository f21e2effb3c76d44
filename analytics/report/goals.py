"""How far a goal is from being reached, and whether the weeks so far lead there in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from itertools import combinations
from statistics import median, quantiles
from typing import Literal

from analytics.report.goal_table import Goal
from analytics.report.trends import QUARTER_WEEKS, WEEKS_BEFORE, WeekFigures
from analytics.report.weeks import Week
from fallow.clock import WEEK_MS, to_ms

WEEKS_MIN = 5
"""So many whole weeks it takes to speak of a course: four steps from one to the next."""

Course = Literal["reached", "missed", "on_course", "off_course", "open", "too_early", "too_far", "unknown"]
"""`open`: the weeks differ too much to tell; `too_far`: the day is further ahead than the weeks look back; `unknown`: no whole week."""


@dataclass(frozen=True)
class GoalProgress:
    """Where a goal stands: in its newest whole week, and 4 and 13 weeks before that, None where those were not seen as a whole.

    `weeks` is how many weeks lie between the first and the newest whole one; `weeks_left` are those from the newest to the
    goal's day. `pace` and `needed_pace` are by how much the figure changed a week, and has to change from now on.
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
    """That of a goal over the weeks of its scope, the newest first."""
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
    """The goal's figure of a whole week; sums over a part of one say nothing."""
    if not each.is_whole:
        return None
    return each.unused_share if goal.measure == "unused_share" else each.waste


def _weeks_left(goal: Goal, newest: Week) -> float:
    """From the end of a week to the end of the goal's day."""
    end = to_ms(datetime.combine(goal.by + timedelta(days=1), time.min, newest.zone))
    return (end - newest.until_ms) / WEEK_MS


def _slopes(points: dict[int, float]) -> list[float]:
    """By how much the figure changed a week between any two weeks: their median is that of Theil and Sen."""
    return [(points[late] - points[early]) / (late - early) for early, late in combinations(sorted(points), 2)]


def _course(goal: Goal, points: dict[int, float], slopes: list[float], left: float) -> Course:
    """Whether the middle half of all changes leads below the goal in time."""
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
