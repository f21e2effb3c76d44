"""Goals for waste: how much of the time may go unused, or what waste may cost a week, by a day; from the site's own table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Literal

from analytics.money.csv_tables import CsvLine, read_lines
from analytics.scope import Scope
from fallow.config import Config

COLUMNS = ("kind", "name", "measure", "goal", "by")
"""The columns of the goals file; `name` is empty where the goal is for all."""

KINDS = ("all", "pool", "team")

Measure = Literal["unused_share", "waste"]
MEASURES: tuple[Measure, ...] = ("unused_share", "waste")
"""Share of the observed time from 0 to 1, and what a week of waste costs in `money.currency`."""


@dataclass(frozen=True)
class Goal:
    """One line: by the end of a day in the report's zone, a week of this scope is to be at most at this level."""

    scope: Scope
    measure: Measure
    level: float
    by: date


def open_goals(settings: Config) -> tuple[Goal, ...]:
    """The goals that the settings name, in their order; raises ConfigError that names the line and what to do."""
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
