"""Goals: where each stands, where it stood 4 and 13 weeks before, and whether it is on course."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from analytics.language.language import SentenceList
from analytics.language.plain_text import plain
from analytics.language.quantities import Amount, Date, Number, Quantity, Share
from analytics.language.sentences import tr, tr_many
from analytics.report.goals import WEEKS_MIN, Course, Goal, GoalProgress
from analytics.report.parts import WeekHistory
from analytics.tables.table import Cell, Column, Table, column, fact

_COURSES: dict[Course, str] = {
    "reached": tr("reached"),
    "missed": tr("missed"),
    "on_course": tr("on course"),
    "off_course": tr("not on course"),
    "open": tr("open: the weeks differ too much to tell"),
    "too_early": tr("too early to tell: it takes {weeks} whole weeks", weeks=WEEKS_MIN),
    "too_far": tr("too far ahead to tell"),
    "unknown": tr("not known: no whole week was observed"),
}
_SHORT: tuple[Course, ...] = ("reached", "on_course", "off_course", "missed")


def goals(history: WeekHistory | None) -> Table | None:
    """A row for each goal; None without one."""
    if history is None or not history.goals:
        return None
    found = history.goals
    return Table(
        name="goals",
        title=tr("Goals"),
        question=tr("Are we where we wanted to be?"),
        headline=_headline(found),
        columns=goal_columns(history.currency),
        rows=tuple(found),
        notes=(
            tr(
                "Now is the newest week that is over and was observed as a whole. On course: the middle half of the changes between any two of the last 13 such weeks leads to the goal in time. Nothing is said of a day that is further ahead than those weeks look back."
            ),
        ),
        wide=True,
    )


def goal_columns(currency: str = "") -> tuple[Column, ...]:
    """The columns of `GoalProgress`; those for programs are the same in every currency."""

    def figure(key: str, title: str) -> Column:
        return column(key, title, "number", lambda each: _written(each.goal, getattr(each, key), currency))

    return (
        column("goal", tr("goal"), "words", lambda each: goal_name(each.goal)),
        fact("pool", "pool", "goal.scope.pool"),
        fact("team", "team", "goal.scope.team"),
        fact("measure", "words", "goal.measure", about="unused_share, or waste: the cost of a week."),
        column("course", tr("course"), "sentence", lambda each: _COURSES[each.course], "course"),
        figure("now", tr("now")),
        column("level", tr("at most"), "number", lambda each: _written(each.goal, each.goal.level, currency)),
        column("by", tr("by"), "moment", lambda each: Date(each.goal.by)),
        figure("four_weeks_before", tr("4 weeks before")),
        figure("thirteen_weeks_before", tr("13 weeks before")),
        column("pace", tr("change a week"), "number", lambda each: _change(each.goal, each.pace, currency), "pace"),
        column(
            "needed_pace",
            tr("needed a week"),
            "number",
            lambda each: "" if each.course in ("reached", "missed") else _change(each.goal, each.needed_pace, currency),
            "needed_pace",
        ),
        fact("week", "words", "week.label", about="The newest week that was over and observed as a whole."),
        fact("weeks", "count", about="Weeks between the first and the newest whole one, 13 at most."),
        fact("weeks_left", "number"),
    )


def _headline(found: Sequence[GoalProgress]) -> str:
    counted = Counter(each.course for each in found)
    many = tr_many("{number} goal", "{number} goals", len(found))
    said = [tr("{number} {course}", number=counted[each], course=_COURSES[each]) for each in _SHORT if counted[each]]
    if rest := len(found) - sum(counted[each] for each in _SHORT):
        said.append(tr("{number} that cannot be told yet", number=rest))
    return tr("{goals}: {courses}.", goals=many, courses=SentenceList(said, ", "))


def goal_name(goal: Goal) -> str:
    """What it is about: `pool train, unused share`."""
    what = tr("unused share") if goal.measure == "unused_share" else tr("waste a week")
    if goal.scope.pool is not None:
        return tr("pool {name}: {measure}", name=plain(goal.scope.pool), measure=what)
    if goal.scope.team is not None:
        return tr("team {name}: {measure}", name=plain(goal.scope.team), measure=what)
    return tr("all: {measure}", measure=what)


def _written(goal: Goal, value: float | None, currency: str) -> Quantity | None:
    if value is None:
        return None
    return Share(value) if goal.measure == "unused_share" else Amount(value, currency)


def _change(goal: Goal, value: float | None, currency: str) -> Cell:
    if value is None:
        return None
    sign = "+" if value > 0 else "\N{MINUS SIGN}" if value < 0 else "±"
    if goal.measure == "unused_share":
        return tr("{sign}{points} points", sign=sign, points=Number(100 * abs(value), 1))
    return tr("{sign}{share}", sign=sign, share=Amount(abs(value), currency))
