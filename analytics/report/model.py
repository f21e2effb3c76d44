"""The report's content: every number that a format may show, made once."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from functools import cached_property

import polars as pl

from analytics.capacity.gangs import Gang, gangs
from analytics.capacity.off_peak import OffPeak, off_peak
from analytics.decide.actions import load_actions
from analytics.decide.deadlines import Deadlines
from analytics.decide.decisions import Decisions, decide
from analytics.decide.recommendations import Recommendations
from analytics.decide.review import Review, RuleFindings, find_in_window, is_in_scope, names_others, with_actions
from analytics.decide.right_sizing import RightSizing
from analytics.decide.savings import recommendations_in
from analytics.intervals import by_day, by_hour
from analytics.inventory import Inventory, load_inventory, simulated_text
from analytics.language.languages import time_zone
from analytics.ledger.build import Ledger
from analytics.ledger.sampled import IdleFloors
from analytics.ledger.settings import LedgerSettings
from analytics.ledger.summary import Summary, Totals, clip_ledger, totals_by
from analytics.money.priced_segments import placed
from analytics.money.requests_file import load_requests
from analytics.money.window_money import Money, open_money
from analytics.plan.endings import Endings
from analytics.plan.forecast import PoolOutlook, of_scope
from analytics.plan.queue_waits import Waits
from analytics.plan.reallocation import Reallocation, propose
from analytics.plan.replay.comparisons import ComparedScenario
from analytics.plan.scenarios import load_scenarios
from analytics.plan.supply import find_supply
from analytics.quality.model import Remark
from analytics.quality.remarks import data_quality
from analytics.report.coverage import Seen, Watch
from analytics.report.figures import Step, SurplusInterval, Trend, UserFigures, holders, steps, surplus_intervals, teams
from analytics.report.film import Film, film
from analytics.report.goals import Goal, GoalProgress, open_goals, progress
from analytics.report.planning import Planning
from analytics.report.trends import QUARTER_WEEKS, WEEKS_BEFORE, Figures, WeekFigures, trends, weeks_up_to
from analytics.report.weeks import Week
from analytics.scope import Scope, narrow, narrowed, without_jobs
from analytics.window import Inputs, WindowLedger, confirmed, load_whole
from analytics.workloads.context import open_context
from analytics.workloads.model import Context, Finding
from analytics.workloads.reclaimable import Reclaimable, reclaimable
from fallow import __version__
from fallow.clock import DAY_MS, SystemClock, Window
from fallow.errors import EmptyLakeError

_HOURLY_UP_TO_MS = 3 * DAY_MS
"""Up to this length a window is shown hour by hour."""


@dataclass(frozen=True)
class Report:
    """One window of one lake, or what a scope leaves of it.

    `lake` is where it lies; None for readers who have no business with that, people of a scope among them.
    `week` is None where the window is no week; then there are no trends. `teams` and `holders` are those of the scope, their
    ranks those among everybody in its pool; who was given more outside the scope has none. `quality` is about the whole lake, and nothing in an edition for people: it names others.
    `known` is from when to when the lake has rows at all, `fleet_was_seen` whether it has any in the window. `seen` is how much
    of the window was observed, `seen_before` the same of the four weeks before, the newest first; none where the window is no
    week. `weeks` are the week itself and a quarter of a year before it, the newest first; `goals` are judged by those. `floors` are what idle cards draw, where point samples make anybody ask. `groups` are totals by what they are grouped by: pool, model, day, holder; `hours` those of each hour of a short window, by its first millisecond. `recommendations` are the decisions that all of it leads to.
    """

    lake: str | None
    version: str
    simulated_gpus: int
    hosts: int
    settings: LedgerSettings
    held_min_ms: int
    summary: Summary
    money: Money
    groups: Mapping[str, Mapping[str, Totals]]
    hours: Mapping[int, Totals]
    review: Review
    quality: tuple[Remark, ...]
    week: Week | None
    scope: Scope
    zone: tzinfo
    weeks: tuple[WeekFigures, ...]
    goals: tuple[GoalProgress, ...]
    trends: tuple[Trend, ...]
    steps: tuple[Step, ...]
    teams: tuple[UserFigures, ...]
    holders: tuple[UserFigures, ...]
    reclaimable: tuple[SurplusInterval, ...]
    off_peak: tuple[OffPeak, ...]
    recommendations: Recommendations
    film: Film
    known: Window
    fleet_was_seen: bool
    seen: Seen
    seen_before: tuple[Seen, ...]
    floors: IdleFloors | None = None
    counted_back_from_ms: int | None = None
    """The end of the data, where the window was asked for as a span before it."""
    waits: Waits | None = None
    """Who waited for GPUs and why; None where the window is no week, and where no job is known to have asked."""
    outlooks: tuple[PoolOutlook, ...] = ()
    """When the pools of the scope are full; none where the window is no week, nor in an edition for people."""
    endings: Endings | None = None
    scenarios: tuple[ComparedScenario, ...] = ()
    """Which GPUs come free; None where the window is no week, and for a part of the fleet."""
    made_ms: int = 0
    """The wall clock's time when the report was made."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings that nobody has suppressed."""
        return self.review.shown

    @property
    def sensitivity(self) -> Mapping[int, float]:
        """GPU-hours held without a kernel, by the shortest interval that counts, in minutes."""
        return self.review.sensitivity

    @property
    def right_sizing(self) -> RightSizing:
        """What is proposed for each work of the scope, once: packings and moves to other cards."""
        return self.recommendations.sizing

    @property
    def is_empty(self) -> bool:
        """Whether nothing was seen in the window: no GPU, no time, and nothing that could be said of them."""
        return not self.summary.totals.total_ms

    @property
    def simulated(self) -> str:
        """What to say of simulated GPUs; empty where there are none."""
        return simulated_text(self.simulated_gpus, self.summary.totals.gpus)


@dataclass(frozen=True)
class Asked:
    """What a report is asked to be about."""

    week: Week | None = None
    scope: Scope = field(default_factory=Scope)
    zone: tzinfo = UTC


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
        """The recommendations in what a scope leaves; those of people name nobody else."""
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


def build_report(inputs: Inputs, ledger: WindowLedger, asked: Asked | None = None) -> Report:
    """The report of the window, or of what the scope leaves of it; raises LakeError and its kinds, EmptyLakeError for nothing."""
    return edition_of(Whole(inputs, ledger), asked or Asked())


def edition_of(whole: Whole, asked: Asked, part: WindowLedger | None = None) -> Report:
    """The report of what is asked for; `part` is `whole.part` of its scope where somebody has it already."""
    inputs, ledger, inventory, scope = whole.inputs, whole.ledger, whole.inventory, asked.scope
    part = part or whole.part(scope, or_empty=asked.week is not None)
    money = whole.money if scope.is_all else whole.money.of(part.inside, inventory)
    if scope.is_personal:
        money = replace(money, remarks=())  # they name anybody
    everybody = _everybody(whole, scope, money).accounts
    spans = part.inside.stretches
    gpus = spans.select("gpu", "host").unique().sort("gpu")
    found = _part_of(whole, scope, spans)
    seen = whole.seen(ledger.window, part.inside, scope)
    now = Figures(part.summary.totals, money.accounts.total, seen)
    weeks = _weeks(whole, asked, seen, now)
    earlier = weeks[1 : 1 + WEEKS_BEFORE]
    return Report(
        lake=None if scope.is_personal else inputs.lake.root,
        version=__version__,
        simulated_gpus=inventory.count_simulated(gpus["gpu"].unique()),
        hosts=gpus["host"].n_unique(),
        settings=inputs.ledger_settings,
        held_min_ms=inputs.settings.integer("findings.held_min"),
        summary=seen.beside(part.summary),
        money=money,
        hours=_hours(spans, part.summary),
        groups=_groups(spans, money, inventory, asked.zone),
        review=found,
        quality=() if scope.is_personal else whole.quality,
        week=asked.week,
        scope=scope,
        zone=asked.zone,
        weeks=weeks,
        goals=whole.progress(asked.scope, asked.week) if asked.week else (),
        trends=trends(now, [each.figures for each in earlier]) if asked.week else (),
        steps=steps(part.summary.totals, money.accounts.total),
        teams=teams(everybody, money.accounts),
        holders=holders(everybody, money.accounts, lambda name: money.owners.team(name, None)),
        reclaimable=() if scope.is_personal else surplus_intervals(found.findings),
        off_peak=() if scope.is_personal else _off_peak(ledger, asked, inventory),
        recommendations=whole.recommendations(scope, part),
        film=film(spans, part.summary.since_ms, part.summary.until_ms),
        known=_known(ledger),
        fleet_was_seen=not ledger.inside.stretches.is_empty(),
        seen=seen,
        seen_before=tuple(each.seen for each in earlier),
        floors=ledger.floors,
        counted_back_from_ms=ledger.counted_back_from_ms,
        waits=whole.plan.waits_of(scope) if asked.week is not None and _anybody_asked(whole.plan.jobs) else None,
        outlooks=() if scope.is_personal or asked.week is None else of_scope(whole.plan.outlooks, scope),
        endings=whole.plan.endings if asked.week is not None and scope.is_all else None,
        scenarios=whole.plan.scenarios_of(scope, load_scenarios(inputs.lake))
        if asked.week is not None and scope.is_all
        else (),
        made_ms=whole.made_ms,
    )


def _anybody_asked(jobs: pl.DataFrame) -> bool:
    return bool(jobs.select(pl.coalesce("eligible", "submitted").is_not_null().any()).item())


def _weeks(whole: Whole, asked: Asked, seen: Seen, now: Figures) -> tuple[WeekFigures, ...]:
    """The week that is asked for, with the figures that the report has of it, and those before; nothing where it is no week."""
    if asked.week is None:
        return ()
    own = WeekFigures(asked.week, seen, now if seen.observed_ms else None)
    return (own, *whole.weeks(asked.scope, asked.week.before(), QUARTER_WEEKS - 1))


def after_actions(report: Report, whole: Whole, part: WindowLedger) -> Report:
    """The same report after people did something about its findings; `part` is what it was made of."""
    found = _part_of(whole, report.scope, part.inside.stretches)
    groups = () if report.scope.is_personal else surplus_intervals(found.findings)
    decided = whole.recommendations(report.scope, part)
    return replace(report, review=found, reclaimable=groups, recommendations=decided)


def _part_of(whole: Whole, scope: Scope, spans: pl.DataFrame) -> Review:
    """The findings of the scope; those that also name others are left out uncounted, for their number tells of these."""
    found, inventory, owners = whole.review, whole.inventory, whole.money.owners
    if scope.is_all:
        return found

    def apart(finding: Finding) -> bool:
        return scope.is_personal and names_others(finding, scope, owners)

    return found.about(lambda each: is_in_scope(each, scope, inventory) and not apart(each), spans)


def _known(ledger: WindowLedger) -> Window:
    return Window(ledger.whole.first_ms, max(ledger.whole.host_ends.values()))


def _everybody(whole: Whole, scope: Scope, part: Money) -> Money:
    """The money of all those among whom people rank: everybody, or everybody on the GPUs that are asked for."""
    if scope.of_gpus.is_all or not scope.is_personal:
        return whole.money if scope.of_gpus.is_all else part
    return whole.money.of(whole.narrowed(whole.ledger.inside, scope.of_gpus), whole.inventory)


def _off_peak(ledger: WindowLedger, asked: Asked, inventory: Inventory) -> tuple[OffPeak, ...]:
    pools = {gpu: inventory.pool(gpu) for gpu in ledger.whole.stretches["gpu"].unique()}
    pools = {gpu: pool for gpu, pool in pools.items() if asked.scope.has_gpu(gpu, inventory)}
    return off_peak(ledger.whole.stretches, pools, ledger.summary.until_ms, asked.zone)


def _groups(
    spans: pl.DataFrame, money: Money, inventory: Inventory, zone: tzinfo
) -> Mapping[str, Mapping[str, Totals]]:
    named = placed(spans, money.costs, inventory)
    return {
        "pool": totals_by(named, "pool"),
        "model": totals_by(named, "model"),
        "day": totals_by(by_day(named, zone), "day"),
        "holder": totals_by(named.filter(pl.col("holder").is_not_null()), "holder"),
    }


def _hours(spans: pl.DataFrame, summary: Summary) -> Mapping[int, Totals]:
    if summary.until_ms - summary.since_ms > _HOURLY_UP_TO_MS:
        return {}
    found = totals_by(by_hour(spans), "hour")
    return dict(sorted((int(name), totals) for name, totals in found.items()))
