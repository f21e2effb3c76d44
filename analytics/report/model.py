"""A window of a lake before a scope narrows it: the parts that all its reports share."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from analytics.capacity.demand import Gang, gangs
from analytics.decide.deadlines import Deadlines
from analytics.decide.decisions import Decisions, decide
from analytics.decide.recommendations import Recommendations
from analytics.decide.review import Review, RuleFindings, find_in_window, is_in_scope, names_others, with_actions
from analytics.decide.savings import recommendations_in
from analytics.decide.value import ValueBasis
from analytics.inventory import Inventory, load_inventory
from analytics.language.languages import site_zone
from analytics.ledger.build import Ledger
from analytics.ledger.summary import clip_ledger
from analytics.money.priced_segments import placed
from analytics.money.requests_file import load_requests
from analytics.money.window_money import Money, open_money
from analytics.quality.model import Remark
from analytics.quality.remarks import data_quality
from analytics.report.coverage import Seen, Watch
from analytics.report.decision_window import DecisionWindow, decision_window
from analytics.report.goals import Goal, GoalProgress, open_goals, progress
from analytics.report.trends import QUARTER_WEEKS, WeekFigures, week_figures
from analytics.report.weeks import Week
from analytics.scope import Scope, narrow, narrowed, without_jobs
from analytics.window import Inputs, WindowLedger, confirmed, load_whole
from analytics.workloads.context import open_context
from analytics.workloads.model import Context
from analytics.workloads.workloads import workload_footprints
from fallow.clock import SystemClock, Window
from fallow.errors import EmptyLakeError

if TYPE_CHECKING:
    from analytics.plan.endings import Endings
    from analytics.plan.purchase import PoolPurchase
    from analytics.plan.reallocation import Reallocation
    from analytics.report.planning import Planning


@dataclass(frozen=True)
class Asked:
    """The request for a report. `names_lake` is True if its readers may know where the lake is."""

    week: Week | None = None
    scope: Scope = field(default_factory=Scope)
    zone: tzinfo = UTC
    names_lake: bool = True


@dataclass(frozen=True)
class Shared:
    """What windows of a lake version share: `whole_of` returns another window, `weeks` figures by scope and week."""

    whole_of: Callable[[Window], Whole]
    weeks: dict[tuple[Scope, Week], WeekFigures] = field(default_factory=dict)


class Whole:
    """A window of a lake before a scope narrows it: shared by all editions and computed once.

    Raises LakeError and its kinds, and ConfigError for unusable tables of prices or owners.
    """

    def __init__(self, inputs: Inputs, ledger: WindowLedger, *, shared: Shared | None = None) -> None:
        self.generated_ms = SystemClock().now_ms()
        self._whole_of = None if shared is None else shared.whole_of
        self._first = self
        self.inputs = inputs
        self.ledger = ledger
        self.inventory: Inventory = ledger.whole.inventory or load_inventory(inputs.lake)
        self._goals = open_goals(inputs.settings)
        self._weeks: dict[tuple[Scope, Week], WeekFigures] = {} if shared is None else shared.weeks
        self._gangs: dict[Scope, tuple[Gang, ...]] = {}
        self._footprints: dict[Scope, pl.DataFrame] = {}

    @cached_property
    def money(self) -> Money:
        """Return the money of the window. Raises ConfigError for unusable tables."""
        if self._first is not self:
            return self._first.money
        return open_money(self.inputs, self.ledger.inside, self.inventory)

    @cached_property
    def found(self) -> RuleFindings:
        """Return the rules' findings, regardless of people's actions."""
        if self._first is not self:
            return self._first.found
        return find_in_window(self.inputs, self.ledger, self.inventory, self.generated_ms)

    @cached_property
    def context(self) -> Context:
        """Return what was known at the end of the window, without running the rules."""
        if self._first is not self:
            return self._first.context
        if "found" in self.__dict__:
            return self.found.context
        return open_context(self.inputs, self.ledger, self.inventory, self.generated_ms)

    @cached_property
    def review(self) -> Review:
        """Return every finding, and the outcome of last week's."""
        return with_actions(self.found, self.found.last_week)

    def after_actions(self) -> Whole:
        """Return a copy that reads people's actions again; the rules do not run again.

        Readers of the old object keep its results.
        """
        after = copy(self)
        for name in ("review", "decision_review", "decisions", "decisions_for_people", "purchases", "_proposal"):
            after.__dict__.pop(name, None)
        return after

    @cached_property
    def decisions(self) -> Decisions:
        """Return the recommendations for the whole fleet."""
        return self._decided(for_people=False)

    @cached_property
    def decisions_for_people(self) -> Decisions:
        """Return the same without what would reveal one team's work to another."""
        return self._decided(for_people=True)

    def _decided(self, *, for_people: bool) -> Decisions:
        basis = ValueBasis(self.decision_window.weeks, self.money.grid)
        deadlines = Deadlines.of(self.inputs.settings, self._zone)
        return decide(self.decision_review, deadlines, basis, for_people=for_people)

    @property
    def _zone(self) -> tzinfo:
        return site_zone(self.inputs.settings)

    @cached_property
    def decision_window(self) -> DecisionWindow:
        """Return the window of the recommendations: the same for every window with the same end."""
        if self._first is not self:
            return self._first.decision_window
        whole_of = self._whole_of
        ledger_of = None if whole_of is None else lambda window: whole_of(window).ledger
        return decision_window(self.inputs, self.ledger, self._zone, self.generated_ms, ledger_of)

    @cached_property
    def decision_found(self) -> RuleFindings:
        """Return the rules' findings in the decision window, regardless of people's actions."""
        if self._first is not self:
            return self._first.decision_found
        own = self.decision_window.ledger
        if own is self.ledger:
            return self.found
        if self._whole_of is not None:
            return self._whole_of(own.window).found
        return find_in_window(self.inputs, own, self.inventory, self.generated_ms)

    @cached_property
    def decision_review(self) -> Review:
        """Return the decision window's findings. They are not compared with last week's, which costs as much again."""
        return with_actions(self.decision_found)

    def recommendations(self, scope: Scope, part: WindowLedger) -> Recommendations:
        """Return the recommendations in a scope. Recommendations for people name no other people.

        `part` is the scope's part of the window whose waste is counted.
        """
        owners = self.money.owners
        named = [
            each
            for each in self.decision_review.findings
            if is_in_scope(each, scope, self.inventory)
            and not (scope.is_personal and names_others(each, scope, owners))
        ]
        decided = self.decisions_for_people if scope.is_personal else self.decisions
        own = self.narrowed(self.decision_window.ledger.inside, scope)
        return recommendations_in(decided, own.segments, about=named, asked=part.inside.segments)

    @cached_property
    def plan(self) -> Planning:
        """Return queue, shortage and forecast: computed once, regardless of people's actions."""
        if self._first is not self:
            return self._first.plan
        from analytics.report.planning import Planning  # with everything that plans need, and few verbs show

        return Planning(self.inputs, self.ledger, self.inventory, self.money, lambda: self.context)

    @cached_property
    def purchases(self) -> tuple[PoolPurchase, ...]:
        """Return the cost of each pool's demand, bought, reserved and rented.

        Raises ConfigError for unusable offers.
        """
        return self.plan.purchases_for(self.decisions.fleet)

    def gangs(self, scope: Scope, part: WindowLedger) -> tuple[Gang, ...]:
        """Return the job sizes that could start in a scope; cached, because pages in every language show the same."""
        if scope not in self._gangs:
            rows = placed(part.inside.segments, self.money.costs, self.inventory)
            self._gangs[scope] = gangs(rows, part.summary.since_ms, part.summary.until_ms)
        return self._gangs[scope]

    def footprints(self, scope: Scope, part: WindowLedger) -> pl.DataFrame:
        """Return the rows of `workload_footprints` of a scope; cached, because pages in all languages show them."""
        if scope not in self._footprints:
            self._footprints[scope] = workload_footprints(self.context, part.inside.segments)
        return self._footprints[scope]

    @cached_property
    def _proposal(self) -> Reallocation | None:
        """Return the proposal for the requests file of the settings; None without one."""
        path = self.inputs.settings.text("plan.requests")
        return self._proposal_for(path, self.plan.endings) if path else None

    def _proposal_for(self, requests_path: str, calendar: Endings) -> Reallocation:
        from analytics.plan.reallocation import propose
        from analytics.plan.supply import find_supply

        owners = self.money.owners
        requests = load_requests(requests_path, owners, self.inventory.models)
        supply = find_supply(self.context, self.decisions.fleet, calendar)
        quotas = {team.name: team.quota_gpus for team in owners.teams().values() if team.quota_gpus is not None}
        return propose(supply, requests, quotas)

    def reallocation(
        self, scope: Scope, requests_path: str | None = None, calendar: Endings | None = None
    ) -> Reallocation | None:
        """Return GPUs that come free, matched to teams' requests, limited to the scope of the reader.

        The requests file is the one at `path`, by default that of the settings. None without a file, and for a user,
        because teams make requests. Raises ConfigError.
        """
        if scope.user is not None:
            return None
        found = self._proposal_for(requests_path, calendar or self.plan.endings) if requests_path else self._proposal
        if found is None:
            return None
        own = found if scope.team is None else found.of_team(scope.team)
        return own.of_gpus(scope.pool, scope.model)

    @cached_property
    def quality(self) -> tuple[Remark, ...]:
        return data_quality(self.inputs, self.ledger, self.inventory)

    @cached_property
    def _watch(self) -> Watch:
        return Watch(self.ledger, self.inventory, self.generated_ms)

    def seen(self, window: Window, inside: Ledger, scope: Scope) -> Seen:
        """Return how much of a window was observed; `inside` is the scope's part of the ledger in it."""
        return self._watch.seen(window, inside, lambda ledger: self.narrowed(ledger, scope))

    def narrowed(self, ledger: Ledger, scope: Scope) -> Ledger:
        return narrowed(ledger, scope, self.money.costs, self.inventory, self.money.owners)

    def inside(self, window: Window, scope: Scope) -> Ledger:
        """Return the scope's part of the ledger in another window."""
        inside, _ = confirmed(self.inputs, clip_ledger(self.ledger.whole, window))
        return self.narrowed(without_jobs(inside), scope)

    def weeks(self, scope: Scope, last: Week, number: int = QUARTER_WEEKS) -> tuple[WeekFigures, ...]:
        """Return a week and this many weeks before it, the newest first."""
        return tuple(self._week(scope, last.before(back)) for back in range(number + 1))

    def _week(self, scope: Scope, week: Week) -> WeekFigures:
        if (scope, week) not in self._weeks:
            self._weeks[scope, week] = week_figures(
                week,
                lambda window: self.inside(window, scope),
                lambda inside: self.money.of(inside, self.inventory).accounts.total,
                lambda window, inside: self.seen(window, inside, scope),
            )
        return self._weeks[scope, week]

    def goals(self, scope: Scope) -> tuple[Goal, ...]:
        """Return the goals of a pool or team; for the whole fleet all goals."""
        return tuple(each for each in self._goals if scope in (each.scope, Scope()))

    def progress(self, scope: Scope, last: Week) -> tuple[GoalProgress, ...]:
        return tuple(progress(each, self.weeks(each.scope, last)) for each in self.goals(scope))

    def part(self, scope: Scope, *, or_empty: bool = False) -> WindowLedger:
        """Return the ledger of the window with the scope's part. Raises EmptyLakeError like `narrow`."""
        of_scope = (scope, self.money.costs, self.inventory, self.money.owners)
        try:
            return narrow(self.ledger, *of_scope, or_empty=or_empty)
        except EmptyLakeError:
            if self._has_asked(scope):
                return narrow(self.ledger, *of_scope, is_known=True)
            if not or_empty:
                raise
            # the name may be one that was last seen before the history of this window
            everything = replace(self.ledger, whole=load_whole(self.inputs))
            return replace(narrow(everything, *of_scope, or_empty=True), whole=self.ledger.whole)

    def _has_asked(self, scope: Scope) -> bool:
        """Return True if a team of the owners table, or of a request, is in the scope, even without GPU time."""
        if not scope.is_personal or not scope.of_gpus.is_all:
            return False
        if scope.user is None and scope.team in self.money.owners.teams():
            return True
        people = self.plan.jobs.select("user", "account").unique().rows()
        return any(
            scope.user in (None, user) and scope.team in (None, self.money.owners.team(user, account))
            for user, account in people
        )
