"""The report on a window of a lake: parts by subject, each computed once on first use."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from analytics.capacity.demand import Gang
from analytics.capacity.jobs import load_jobs, with_allocation_facts
from analytics.capacity.off_peak import OffPeak, off_peak
from analytics.decide.recommendations import Recommendations
from analytics.decide.review import Review, is_in_scope, names_others
from analytics.intervals import by_day, by_hour
from analytics.ledger.summary import Totals, totals_by
from analytics.money.accounts import ALLOCATION_GROUPS, Accounts
from analytics.money.priced_segments import placed
from analytics.money.window_money import Money
from analytics.quality.model import Remark
from analytics.report.compare import Changes, changes
from analytics.report.coverage import Seen
from analytics.report.figures import steps, teams, users
from analytics.report.model import Asked, Whole
from analytics.report.parts import Breakdown, Heading, LedgerFigures, People, ScopedReview, WeekHistory
from analytics.report.timeline import FleetTimeline, timeline
from analytics.report.trends import QUARTER_WEEKS, WEEKS_BEFORE, Figures, WeekFigures, trends
from analytics.report.weeks import week_of
from analytics.scope import Scope
from analytics.window import Inputs, WindowLedger
from analytics.workloads.model import Finding
from analytics.workloads.pool_demand import PoolDemand, most_urgent_first
from fallow import __version__
from fallow.clock import DAY_MS, Window

if TYPE_CHECKING:
    from analytics.plan.endings import Endings
    from analytics.plan.queue_waits import QueueWaits
    from analytics.plan.replay.comparisons import ComparedScenario
    from analytics.plan.room_for_jobs import PoolRoom

_HOURLY_UP_TO_MS = 3 * DAY_MS
"""Longest window that is shown by hour."""


class Report:
    """One window of one lake, or a scope's part of it. Documents, pages, verbs and the API show tables of its parts.

    Every part is narrowed to the scope. A report for a team or a user names no other people.

    Attributes:
        whole: the window of the whole fleet.
        asked: the week, the scope and the time zone.
        part: the ledger of the scope.
    """

    def __init__(self, whole: Whole, asked: Asked) -> None:
        """Raise EmptyLakeError if the scope has nothing in a window that is not a week."""
        self.whole, self.asked = whole, asked
        self.part: WindowLedger = whole.part(asked.scope, or_empty=asked.week is not None)

    @property
    def scope(self) -> Scope:
        return self.asked.scope

    def decided(self) -> Report:
        """Return this report after making the recommendations, which takes long: the rules run in their own window."""
        _ = self.recommendations
        return self

    def after_actions(self, whole: Whole) -> Report:
        """Return the same report with people's new actions, as `whole` has them; ledger and plans stay."""
        after = copy(self)
        after.whole = whole
        for name in ("review", "decision_review", "recommendations", "surplus"):
            after.__dict__.pop(name, None)
        return after

    @cached_property
    def heading(self) -> Heading:
        whole, asked, ledger = self.whole, self.asked, self.whole.ledger
        gpus = self._spans.select("gpu", "host").unique()
        return Heading(
            week=asked.week,
            scope=asked.scope,
            zone=asked.zone,
            lake=whole.inputs.lake.root if asked.names_lake and not asked.scope.is_personal else None,
            version=__version__,
            hosts=gpus["host"].n_unique(),
            gpus=self.part.summary.totals.gpus,
            simulated_gpus=whole.inventory.count_simulated(gpus["gpu"].unique()),
            settings=whole.inputs.ledger_settings,
            held_min_ms=whole.inputs.settings.integer("findings.held_min"),
            known=Window(ledger.whole.first_ms, max(ledger.whole.host_ends.values())),
            fleet_was_seen=not ledger.inside.segments.is_empty(),
            counted_back_from_ms=ledger.counted_back_from_ms,
            generated_ms=whole.generated_ms,
        )

    @cached_property
    def money(self) -> Money:
        """Return the money of the scope; for people without problems of the site's tables, which name others."""
        if self.scope.is_all:
            return self.whole.money
        own = self.whole.money.of(self.part.inside, self.whole.inventory)
        return replace(own, remarks=()) if self.scope.is_personal else own

    def money_by(self, group: str | None) -> Money:
        """Return the scope's money for the accounts of a group; partition, QOS and job come from the allocations."""
        if group not in ALLOCATION_GROUPS:
            return self.money
        inside = self.part.inside
        rows = with_allocation_facts(inside.segments, load_jobs(self.whole.inputs.lake), ("partition", "qos"))
        return self.money.of(replace(inside, segments=rows.with_columns(job_name="job")), self.whole.inventory)

    @cached_property
    def ledger(self) -> LedgerFigures:
        part, seen = self.part, self._seen
        totals, paid = part.summary.totals, self.money.accounts.total
        whole, scope = self.whole.ledger, self.scope
        allocations = None if scope.team or not scope.of_gpus.is_all else whole.whole.rollups.allocations
        if allocations is not None and scope.user is not None:
            allocations = allocations.filter(pl.col("user") == scope.user)
        return LedgerFigures(
            scope,
            seen.beside(part.summary),
            self.money,
            seen,
            steps(totals, paid),
            part.floors,
            self._spans,
            allocations,
            whole.inside.segments,
        )

    @cached_property
    def changes(self) -> Changes:
        """Return the figures of the ledger beside those of the window before."""
        return changes(self.whole, self.ledger)

    @cached_property
    def breakdown(self) -> Breakdown:
        zone, summary = self.asked.zone, self.part.summary
        named = placed(self._spans, self.money.costs, self.whole.inventory)
        by = {
            "pool": totals_by(named, "pool"),
            "model": totals_by(named, "model"),
            "day": totals_by(by_day(named, zone), "day"),
            "user": totals_by(named.filter(pl.col("user").is_not_null()), "user"),
        }
        is_short = summary.until_ms - summary.since_ms <= _HOURLY_UP_TO_MS
        return Breakdown(by, _by_hour(self._spans) if is_short else {}, zone)

    @cached_property
    def people(self) -> People:
        everybody, own, owners = self._everybody, self.money.accounts, self.money.owners
        return People(teams(everybody, own), users(everybody, own, lambda name: owners.team(name, None)), self.money)

    @property
    def _everybody(self) -> Accounts:
        """Return the accounts among which people rank: all, or all on the requested GPUs."""
        whole, gpus = self.whole, self.scope.of_gpus
        if gpus.is_all:
            return whole.money.accounts
        if not self.scope.is_personal:
            return self.money.accounts
        return whole.money.of(whole.narrowed(whole.ledger.inside, gpus), whole.inventory).accounts

    @cached_property
    def timeline(self) -> FleetTimeline:
        return timeline(self._spans, self.part.summary.since_ms, self.part.summary.until_ms)

    @property
    def is_reviewed(self) -> bool:
        """Return whether the findings are there, so that no rule needs to run."""
        return "review" in self.__dict__

    @cached_property
    def review(self) -> ScopedReview:
        """Return the findings.

        Findings that also name others are left out and not counted, because their number reveals something.
        """
        return self._scoped(self.whole.review)

    @cached_property
    def decision_review(self) -> ScopedReview:
        """Return the findings of the decision window, on which the recommendations rest, with people's actions."""
        return self._scoped(self.whole.decision_review)

    def _scoped(self, found: Review) -> ScopedReview:
        whole, scope = self.whole, self.scope
        if not scope.is_all:

            def is_own(each: Finding) -> bool:
                names_more = scope.is_personal and names_others(each, scope, whole.money.owners)
                return is_in_scope(each, scope, whole.inventory) and not names_more

            found = found.about(is_own, self._spans)
        people = frozenset(each.name for each in self.people.users) if scope.is_personal else frozenset()
        gpus, simulated = self.heading.gpus, self.heading.simulated_gpus
        return ScopedReview(**vars(found), scope=scope, people=people, gpus=gpus, simulated_gpus=simulated)

    @cached_property
    def recommendations(self) -> Recommendations:
        return self.whole.recommendations(self.scope, self.part)

    @property
    def named_findings(self) -> tuple[Finding, ...]:
        """Return the findings of the window, and other findings behind the recommendations."""
        known = {each.finding_id for each in self.review.findings}
        return (*self.review.findings, *(each for name, each in self.evidence.items() if name not in known))

    @property
    def evidence(self) -> dict[str, Finding]:
        """Return the findings behind the recommendations, by id. The rules need not run in the window for them."""
        return {each.finding_id: each for found in self.recommendations.listed for each in found.evidence}

    @cached_property
    def quality(self) -> tuple[Remark, ...] | None:
        """Return problems in the data of the whole lake; None for people, because they name others."""
        return None if self.scope.is_personal else self.whole.quality

    @cached_property
    def off_peak(self) -> tuple[OffPeak, ...] | None:
        """Return hours of the week with room for more work; None for people, who have no pools."""
        ledger, inventory, scope = self.whole.ledger, self.whole.inventory, self.scope
        if scope.is_personal:
            return None
        pools = {gpu: inventory.pool(gpu) for gpu in ledger.whole.segments["gpu"].unique()}
        pools = {gpu: pool for gpu, pool in pools.items() if scope.has_gpu(gpu, inventory)}
        return off_peak(ledger.whole.segments, pools, ledger.summary.until_ms, self.asked.zone)

    @cached_property
    def weeks(self) -> WeekHistory | None:
        """Return the week beside those before it; None if the window is not a week."""
        week, seen = self.asked.week, self._seen
        if week is None:
            return None
        # the week itself has the figures that the report has of it
        now = Figures(self.part.summary.totals, self.money.accounts.total, seen)
        own = WeekFigures(week, seen, now if seen.observed_ms else None)
        weeks = (own, *self.whole.weeks(self.scope, week.before(), QUARTER_WEEKS - 1))
        earlier = weeks[1 : 1 + WEEKS_BEFORE]
        return replace(
            self._history,
            week=week,
            weeks=weeks,
            goals=self.whole.progress(self.scope, week),
            seen_before=tuple(each.seen for each in earlier),
            trends=trends(now, [each.figures for each in earlier]),
        )

    @cached_property
    def quarter(self) -> WeekHistory:
        """Return the week in which the window ends and the 13 weeks before it, whatever the window's length."""
        last = week_of(max(self._seen.until_ms - 1, 0), self.asked.zone)
        weeks, goals = self.whole.weeks(self.scope, last), self.whole.progress(self.scope, last)
        return replace(self._history, weeks=weeks, goals=goals)

    @property
    def _history(self) -> WeekHistory:
        return WeekHistory(None, self.scope, self.asked.zone, self.money.currency, self._seen, (), ())

    @cached_property
    def waits(self) -> QueueWaits | None:
        """Who waited for GPUs and why; None where the window is no week, and where no job is known to have asked."""
        plan, was_asked = self.whole.plan, pl.coalesce("eligible", "submitted").is_not_null().any()
        if self.asked.week is None or not plan.jobs.select(was_asked).item():
            return None
        return plan.waits_of(self.scope)

    @cached_property
    def pools(self) -> tuple[PoolDemand, ...]:
        """Return the demand of the scope's pools, the first to be full first; empty for people, who have no pools."""
        return () if self.scope.is_personal else most_urgent_first(self.whole.decisions.fleet.pools, self.scope)

    @cached_property
    def rooms(self) -> tuple[PoolRoom, ...]:
        """Return the job sizes that could start in the scope's pools; empty for people, who have no pools."""
        from analytics.plan.room_for_jobs import of_pools

        return () if self.scope.is_personal else of_pools(self.whole.plan.rooms, self.scope)

    @cached_property
    def endings(self) -> Endings | None:
        """Return the GPUs that come free; None if the window is not a week, and for a part of the fleet."""
        return self.whole.plan.endings if self._is_of_planners else None

    @cached_property
    def scenarios(self) -> tuple[ComparedScenario, ...]:
        """Return the saved scenarios, over the jobs of the week; empty for a part of the fleet."""
        from analytics.plan.replay.comparisons import load_scenarios

        saved = load_scenarios(self.whole.inputs.lake) if self._is_of_planners else ()
        return self.whole.plan.scenarios_of(self.scope, saved)

    @property
    def _is_of_planners(self) -> bool:
        return self.asked.week is not None and self.scope.is_all

    @cached_property
    def gangs(self) -> tuple[Gang, ...]:
        """Return the job sizes that could start."""
        return self.whole.gangs(self.scope, self.part)

    @property
    def _spans(self) -> pl.DataFrame:
        return self.part.inside.segments

    @cached_property
    def _seen(self) -> Seen:
        return self.whole.seen(self.whole.ledger.window, self.part.inside, self.scope)


def build_report(inputs: Inputs, ledger: WindowLedger, asked: Asked | None = None) -> Report:
    """Return the report of the window, or of the scope's part of it.

    Raises LakeError and its kinds, and EmptyLakeError without data. The parts raise them too, when they are computed.
    """
    return Report(Whole(inputs, ledger), asked or Asked())


def _by_hour(spans: pl.DataFrame) -> Mapping[int, Totals]:
    found = totals_by(by_hour(spans), "hour")
    return dict(sorted((int(name), totals) for name, totals in found.items()))
