"""Goals: their value now, 4 and 13 weeks before, and whether they are on track."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from analytics.language.sentences import Amount, Date, Number, Quantity, SentenceList, Share, plain, tr, tr_many
from analytics.report.goals import WEEKS_MIN, Course, Goal, GoalProgress
from analytics.report.parts import WeekHistory
from analytics.tables.table import Cell, Column, Table, column, fact

_COURSES: dict[Course, str] = {
    "reached": tr("reached"),
    "missed": tr("missed"),
    "on_course": tr("on track"),
    "off_course": tr("off track"),
    "open": tr("undecided: the weeks vary too much"),
    "too_early": tr("too early: {weeks} complete weeks are needed", weeks=WEEKS_MIN),
    "too_far": tr("too far ahead"),
    "unknown": tr("not known: no complete week was observed"),
}
_SHORT: tuple[Course, ...] = ("reached", "on_course", "off_course", "missed")


def goals(history: WeekHistory | None) -> Table | None:
    """Return a row per goal; None without goals."""
    if history is None or not history.goals:
        return None
    found = history.goals
    return Table(
        name="goals",
        title=tr("Goals"),
        question=tr("Does the site meet its goals?"),
        headline=_headline(found),
        columns=goal_columns(history.currency),
        rows=tuple(found),
        notes=(
            tr(
                "“Now” is the latest complete week that was fully observed. On track: the middle half of the changes"
                " between any two of the last 13 such weeks reaches the goal in time. A deadline further ahead than"
                " these weeks reach back has no outlook."
            ),
        ),
        wide=True,
    )


def goal_columns(currency: str = "") -> tuple[Column, ...]:
    """Return the columns of `GoalProgress`. Columns for programs are the same in every currency."""

    def figure(key: str, title: str) -> Column:
        return column(key, title, "number", lambda each: _written(each.goal, getattr(each, key), currency))

    return (
        column("goal", tr("goal"), "words", lambda each: goal_name(each.goal)),
        fact("pool", "pool", "goal.scope.pool"),
        fact("team", "team", "goal.scope.team"),
        fact("measure", "words", "goal.measure", about="unused_share, or waste: the cost of a week."),
        column("course", tr("outlook"), "sentence", lambda each: _COURSES[each.course], "course"),
        figure("now", tr("now")),
        column("level", tr("at most"), "number", lambda each: _written(each.goal, each.goal.level, currency)),
        column("by", tr("deadline"), "moment", lambda each: Date(each.goal.by)),
        figure("four_weeks_before", tr("4 weeks before")),
        figure("thirteen_weeks_before", tr("13 weeks before")),
        column("pace", tr("change per week"), "number", lambda each: _change(each.goal, each.pace, currency), "pace"),
        column(
            "needed_pace",
            tr("change needed per week"),
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
    many = tr_many("{number} {goal|goals}", len(found))
    sentences = [
        tr("{number} {course}", number=counted[each], course=_COURSES[each]) for each in _SHORT if counted[each]
    ]
    if rest := len(found) - sum(counted[each] for each in _SHORT):
        sentences.append(tr("{number} undecided", number=rest))
    return tr("{goals}: {courses}.", goals=many, courses=SentenceList(sentences, ", "))


def goal_name(goal: Goal) -> str:
    """Return the subject of a goal: `pool train, unused share`."""
    what = tr("unused share") if goal.measure == "unused_share" else tr("waste per week")
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
