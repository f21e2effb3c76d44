"""The parts that a report holds, by subject: a table takes the part that it shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import tzinfo
from functools import cached_property

import polars as pl

from analytics.decide.review import Review
from analytics.inventory import simulated_text
from analytics.ledger.sampled import IdleFloors
from analytics.ledger.settings import LedgerSettings
from analytics.ledger.summary import Summary, Totals
from analytics.money.window_money import Money
from analytics.report.coverage import Seen
from analytics.report.figures import Step, Trend, UserFigures
from analytics.report.goals import GoalProgress
from analytics.report.trends import WeekFigures
from analytics.report.weeks import Week
from analytics.scope import Scope
from analytics.workloads.ledger_rows import held_gpu_hours
from fallow.clock import Window


@dataclass(frozen=True)
class Heading:
    """What a report is about, and what it was made of.

    Attributes:
        week: the week that it is about; None where the window is no week.
        lake: where the lake lies; None for readers who have no business with that.
        hosts: how many hosts the scope has in the window; `gpus` and `simulated_gpus` likewise.
        held_min_ms: the shortest interval of a finding about held GPUs.
        known: from when to when the lake has rows at all.
        fleet_was_seen: True if the lake has rows in the window.
        counted_back_from_ms: the end of the data, where the window was asked for as a span before it.
        made_ms: the wall clock's time when the report was made.
    """

    week: Week | None
    scope: Scope
    zone: tzinfo
    lake: str | None
    version: str
    hosts: int
    gpus: int
    simulated_gpus: int
    settings: LedgerSettings
    held_min_ms: int
    known: Window
    fleet_was_seen: bool
    counted_back_from_ms: int | None
    made_ms: int

    @property
    def simulated(self) -> str:
        """What to say of simulated GPUs; empty where there are none."""
        return simulated_text(self.simulated_gpus, self.gpus)


@dataclass(frozen=True)
class LedgerFigures:
    """The ledger of a scope in numbers.

    Attributes:
        seen: how much of the window was observed.
        steps: the states with the cents of each, from what was paid to what was useful.
        floors: what idle cards draw; None without point samples.
        rows: the rows of the ledger that the figures are sums of.
    """

    scope: Scope
    summary: Summary
    money: Money
    seen: Seen
    steps: tuple[Step, ...]
    floors: IdleFloors | None
    rows: pl.DataFrame

    @property
    def is_empty(self) -> bool:
        """True if nothing was seen in the window: no GPU, no time."""
        return not self.summary.totals.total_ms

    @cached_property
    def sensitivity(self) -> Mapping[int, float]:
        """GPU-hours held without a kernel, by the shortest interval that counts, in minutes."""
        return held_gpu_hours(self.rows)


@dataclass(frozen=True)
class Breakdown:
    """Totals by name of what they are grouped `by`: pool, model, day, holder.

    `hours` are those of each hour of a short window, by its first millisecond; `zone` is that of the days.
    """

    by: Mapping[str, Mapping[str, Totals]]
    hours: Mapping[int, Totals]
    zone: tzinfo


@dataclass(frozen=True)
class People:
    """The teams and holders of a scope, with their ranks among everybody in its pool, and the money of the scope.

    A person who was given more outside the scope has no rank.
    """

    teams: tuple[UserFigures, ...]
    holders: tuple[UserFigures, ...]
    money: Money


@dataclass(frozen=True)
class ScopedReview(Review):
    """The findings of a scope. `people` are the holders that it is about, for what may name them; `gpus` are all of its GPUs."""

    scope: Scope
    people: frozenset[str | None]
    gpus: int
    simulated_gpus: int


@dataclass(frozen=True)
class WeekHistory:
    """A week and a quarter of a year before it, the newest first, with the goals that are judged by them.

    Attributes:
        week: the report's own; None where its window is no week, and the weeks are those up to its end.
        seen: how much of the report's window was observed, `seen_before` the same of the four weeks before.
        trends: each figure of the week beside those before; none where the window is no week.
    """

    week: Week | None
    scope: Scope
    zone: tzinfo
    currency: str
    seen: Seen
    weeks: tuple[WeekFigures, ...]
    goals: tuple[GoalProgress, ...]
    seen_before: tuple[Seen, ...] = ()
    trends: tuple[Trend, ...] = ()
