"""The parts of a report, by subject: a table takes the part that it shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import tzinfo
from functools import cached_property

import polars as pl

from analytics.allocations.measured import unplaced_allocations
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
    """The subject of a report, and its sources.

    Attributes:
        week: the week of the report; None if the window is not a week.
        lake: where the lake is; None for readers who may not know.
        hosts: the hosts of the scope in the window; `gpus` and `simulated_gpus` likewise.
        held_min_ms: the shortest interval of a finding about held GPUs.
        known: the first and the last moment with rows in the lake.
        fleet_was_seen: True if the lake has rows in the window.
        counted_back_from_ms: the end of the data, if the window is a length of time before it.
        generated_ms: the wall clock's time when the report was generated.
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
    generated_ms: int

    @property
    def simulated(self) -> str:
        """Return the warning about simulated GPUs; empty if there are none."""
        return simulated_text(self.simulated_gpus, self.gpus)


@dataclass(frozen=True)
class LedgerFigures:
    """The ledger of a scope in numbers.

    Attributes:
        seen: the observed share of the window.
        steps: the states with their cents, from paid to busy time.
        floors: the power of idle cards; None without point samples.
        rows: the ledger rows that the figures sum up.
        allocations: the allocations of the scope; None for a part of the fleet or a team.
        fleet_rows: the ledger rows of the whole fleet.
    """

    scope: Scope
    summary: Summary
    money: Money
    seen: Seen
    steps: tuple[Step, ...]
    floors: IdleFloors | None
    rows: pl.DataFrame
    allocations: pl.DataFrame | None
    fleet_rows: pl.DataFrame

    @cached_property
    def unplaced_ms(self) -> float | None:
        """Return the allocated GPU time that cannot be placed on a GPU, and is `free` where no process shows.

        None for a part of the fleet or a team.
        """
        if self.allocations is None:
            return None
        since_ms, until_ms = self.summary.since_ms, self.summary.until_ms
        found = unplaced_allocations(self.allocations, self.fleet_rows, since_ms=since_ms, until_ms=until_ms)
        return float(found["gpu_ms"].sum())

    @property
    def is_empty(self) -> bool:
        """Return True if nothing was observed in the window: no GPU and no time."""
        return not self.summary.totals.total_ms

    @cached_property
    def sensitivity(self) -> Mapping[int, float]:
        """Return held GPU-hours without a kernel, by the shortest interval that counts, in minutes."""
        return held_gpu_hours(self.rows)


@dataclass(frozen=True)
class Breakdown:
    """Totals by name of a group `by`: pool, model, day, user.

    `hours` are the hours of a short window, by their first millisecond. `zone` is the time zone of the days.
    """

    by: Mapping[str, Mapping[str, Totals]]
    hours: Mapping[int, Totals]
    zone: tzinfo


@dataclass(frozen=True)
class People:
    """The teams and users of a scope, with their ranks in their pool, and the money of the scope.

    A person with more GPU time outside the scope has no rank.
    """

    teams: tuple[UserFigures, ...]
    users: tuple[UserFigures, ...]
    money: Money


@dataclass(frozen=True)
class ScopedReview(Review):
    """The findings of a scope. `people` are its users, whom findings may name; `gpus` are all of its GPUs."""

    scope: Scope
    people: frozenset[str | None]
    gpus: int
    simulated_gpus: int


@dataclass(frozen=True)
class WeekHistory:
    """A week and a quarter of a year before it, the newest first, with their goals.

    Attributes:
        week: the report's week; None if its window is not a week. Then the weeks are those up to its end.
        seen: the observed share of the report's window; `seen_before` is that of the four weeks before.
        trends: each figure of the week beside those before; empty if the window is not a week.
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
