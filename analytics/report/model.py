"""A window of a lake as a whole, before a scope narrows it: what all reports on it share."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from functools import cached_property

from analytics.capacity.demand import Gang, gangs
from analytics.decide.actions import load_actions
from analytics.decide.deadlines import Deadlines
from analytics.decide.decisions import Decisions, decide
from analytics.decide.recommendations import Recommendations
from analytics.decide.review import Review, RuleFindings, find_in_window, is_in_scope, names_others, with_actions
from analytics.decide.savings import recommendations_in
from analytics.inventory import Inventory, load_inventory
from analytics.language.languages import time_zone
from analytics.ledger.build import Ledger
from analytics.ledger.summary import clip_ledger
from analytics.money.priced_segments import placed
from analytics.money.requests_file import load_requests
from analytics.money.window_money import Money, open_money
from analytics.plan.endings import Endings
from analytics.plan.reallocation import Reallocation, propose
from analytics.plan.supply import find_supply
from analytics.quality.model import Remark
from analytics.quality.remarks import data_quality
from analytics.report.coverage import Seen, Watch
from analytics.report.goals import Goal, GoalProgress, open_goals, progress
from analytics.report.planning import Planning
from analytics.report.trends import QUARTER_WEEKS, WeekFigures, weeks_up_to
from analytics.report.weeks import Week
from analytics.scope import Scope, narrow, narrowed, without_jobs
from analytics.window import Inputs, WindowLedger, confirmed, load_whole
from analytics.workloads.context import open_context
from analytics.workloads.model import Context
from analytics.workloads.reclaimable import Reclaimable, reclaimable
from fallow.clock import SystemClock, Window
from fallow.errors import EmptyLakeError


@dataclass(frozen=True)
class Asked:
    """What a report is asked to be about; `names_lake` is whether its readers may know where the lake lies."""

    week: Week | None = None
    scope: Scope = field(default_factory=Scope)
    zone: tzinfo = UTC
    names_lake: bool = True


class Whole:
    """A window of a lake before anybody narrows it: what all its editions share, made once.

    Raises LakeError and its kinds, ConfigError for tables of prices or owners that cannot be used.
    """

    def __init__(self, inputs: Inputs, ledger: WindowLedger) -> None:
        self.made_ms = SystemClock().now_ms()
        self._first = self
        self.inputs = inputs
        self.ledger = ledger
        self.inventory: Inventory = ledger.whole.inventory or load_inventory(inputs.lake)
        self.money: Money = open_money(inputs, ledger.inside, self.inventory)
        self._goals = open_goals(inputs.settings)
        self._weeks: dict[tuple[Scope, Week, int], tuple[WeekFigures, ...]] = {}
        self._gangs: dict[Scope, tuple[Gang, ...]] = {}

    @cached_property
    def found(self) -> RuleFindings:
        """What the rules found, whatever people did about it."""
        if self._first is not self:
            return self._first.found
        return find_in_window(self.inputs, self.ledger, self.inventory, self.made_ms)

    @cached_property
    def context(self) -> Context:
        """What was known at the end of the window: enough for whoever needs no findings."""
        if self._first is not self:
            return self._first.context
        if "found" in self.__dict__:
            return self.found.context
        return open_context(self.inputs, self.ledger, self.inventory, self.made_ms)

    @cached_property
    def review(self) -> Review:
        """Every finding, and what became of last week's."""
        return with_actions(self.found)

    def after_actions(self) -> Whole:
        """The same, which asks anew what people did about the findings; the rules do not run again.

        Another object, so that who is still using this one keeps what it says.
        """
        after = copy(self)
        for name in ("review", "decisions", "decisions_for_people", "_proposal"):
            after.__dict__.pop(name, None)
        return after

    @cached_property
    def decisions(self) -> Decisions:
        """What the findings lead to, over the whole fleet."""
        return self._decided(for_people=False)

    @cached_property
    def decisions_for_people(self) -> Decisions:
        """The same without what would tell one team of another."""
        return self._decided(for_people=True)

    def _decided(self, *, for_people: bool) -> Decisions:
        settings = self.inputs.settings
        deadlines = Deadlines.of(settings, time_zone(settings.text("report.timezone")))
        return decide(self.review, deadlines, for_people=for_people)

    def recommendations(self, scope: Scope, part: WindowLedger) -> Recommendations:
        """The recommendations in what a scope leaves; those for people name no other people."""
        owners = self.money.owners
        named = [
            each
            for each in self.review.findings
            if is_in_scope(each, scope, self.inventory)
            and not (scope.is_personal and names_others(each, scope, owners))
        ]
        decided = self.decisions_for_people if scope.is_personal else self.decisions
        return recommendations_in(decided, part.inside.stretches, about=named)

    @cached_property
    def plan(self) -> Planning:
        """What queue, shortage and the days to come say: made once, whatever people did about the findings."""
        if self._first is not self:
            return self._first.plan
        return Planning(self.inputs, self.ledger, self.inventory, self.money, lambda: self.context)

    def gangs(self, scope: Scope, part: WindowLedger) -> tuple[Gang, ...]:
        """Which jobs on several GPUs could start in what a scope leaves; kept, for pages in every language show the same."""
        if scope not in self._gangs:
            rows = placed(part.inside.stretches, self.money.costs, self.inventory)
            self._gangs[scope] = gangs(rows, part.summary.since_ms, part.summary.until_ms)
        return self._gangs[scope]

    @cached_property
    def _proposal(self) -> Reallocation | None:
        """That for the requests file that is set; None without one."""
        path = self.inputs.settings.text("plan.requests")
        return self._proposal_for(path, self.plan.endings) if path else None

    def _proposal_for(self, requests_path: str, calendar: Endings) -> Reallocation:
        owners = self.money.owners
        requests = load_requests(requests_path, owners, self.inventory.models)
        supply = find_supply(self.context, self._safe_to_give(), calendar)
        quotas = {team.name: team.quota_gpus for team in owners.teams().values() if team.quota_gpus is not None}
        return propose(supply, requests, quotas)

    def _safe_to_give(self) -> Reclaimable:
        """What can be given back, without what somebody put off; the rules run only where anybody did."""
        actions = load_actions(self.inputs.lake).values()
        is_put_off = any(each.kind == "suppress" for own in actions for each in own)
        return self.decisions.reclaimable if is_put_off else reclaimable(self.context)

    def reallocation(
        self, scope: Scope, requests_path: str | None = None, calendar: Endings | None = None
    ) -> Reallocation | None:
        """What comes free, matched to what teams ask for, as far as a scope lets its reader know.

        Of the requests file at a path, by default of the one that is set; None without one, and for a user: teams ask. Raises ConfigError.
        """
        if scope.holder is not None:
            return None
        found = self._proposal_for(requests_path, calendar or self.plan.endings) if requests_path else self._proposal
        if found is None:
            return None
        own = found if scope.team is None else found.of_team(scope.team)
        return own.of_gpus(scope.pool, scope.model)

    @cached_property
    def quality(self) -> tuple[Remark, ...]:
        """What there is to remark on the data."""
        return data_quality(self.inputs, self.ledger, self.inventory)

    @cached_property
    def _watch(self) -> Watch:
        return Watch(self.ledger, self.inventory, self.made_ms)

    def seen(self, window: Window, inside: Ledger, scope: Scope) -> Seen:
        """How much of a window was observed; `inside` is what the scope leaves of the ledger in it."""
        return self._watch.seen(window, inside, lambda ledger: self.narrowed(ledger, scope))

    def narrowed(self, ledger: Ledger, scope: Scope) -> Ledger:
        """What the scope leaves of a ledger."""
        return narrowed(ledger, scope, self.money.costs, self.inventory, self.money.owners)

    def inside(self, window: Window, scope: Scope) -> Ledger:
        """What the scope leaves of the ledger in another window."""
        inside, _ = confirmed(self.inputs, clip_ledger(self.ledger.whole, window))
        return self.narrowed(without_jobs(inside), scope)

    def weeks(self, scope: Scope, last: Week, number: int = QUARTER_WEEKS) -> tuple[WeekFigures, ...]:
        """A week and so many before it, the newest first."""
        key = (scope, last, number)
        if key not in self._weeks:
            self._weeks[key] = weeks_up_to(
                last,
                number,
                lambda window: self.inside(window, scope),
                lambda inside: self.money.of(inside, self.inventory).accounts.total,
                lambda window, inside: self.seen(window, inside, scope),
            )
        return self._weeks[key]

    def goals(self, scope: Scope) -> tuple[Goal, ...]:
        """Those of a pool or a team where that is asked for; all of them for the whole fleet."""
        return tuple(each for each in self._goals if scope in (each.scope, Scope()))

    def progress(self, scope: Scope, last: Week) -> tuple[GoalProgress, ...]:
        """Where the goals stand in a week, by it and those before it."""
        return tuple(progress(each, self.weeks(each.scope, last)) for each in self.goals(scope))

    def part(self, scope: Scope, *, or_empty: bool = False) -> WindowLedger:
        """The ledger of the window with what the scope leaves of it; raises EmptyLakeError as `narrow` does."""
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
        """Whether a team of the owners table, or whoever asked for GPUs, were it in vain."""
        if not scope.is_personal or not scope.of_gpus.is_all:
            return False
        if scope.holder is None and scope.team in self.money.owners.teams():
            return True
        people = self.plan.jobs.select("user", "account").unique().rows()
        return any(
            scope.holder in (None, user) and scope.team in (None, self.money.owners.team(user, account))
            for user, account in people
        )
