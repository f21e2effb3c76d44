"""The report's content: every number that a format may show, made once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC
from typing import TYPE_CHECKING

import polars as pl

from analytics.capacity.off_peak import OffPeak, off_peak
from analytics.devices import Inventory, load_inventory
from analytics.findings.find import Review, review
from analytics.ledger.summary import Summary, Totals, totals_by
from analytics.ledger.text import simulated_text
from analytics.money.pieces import placed
from analytics.money.window import Money, open_money
from analytics.quality.look import data_quality
from analytics.report import people
from analytics.report.days import by_day
from analytics.report.film import film
from analytics.report.parts import Film, Person, Reclaimable, Step, Trend
from analytics.report.reclaimable import reclaimable
from analytics.report.trends import Figures, trends, weeks_before
from analytics.scope import Scope, narrow, narrowed
from fallow import __version__

if TYPE_CHECKING:
    from datetime import tzinfo

    from analytics.findings.model import Finding
    from analytics.inputs import Inputs, WindowLedger
    from analytics.ledger.build import Ledger
    from analytics.ledger.settings import LedgerSettings
    from analytics.quality.model import Remark
    from analytics.report.weeks import Week

STEPS = ("unavailable", "unknown", "free", "reserved", "held", "low", "active")
"""From what was paid to what was useful: what takes most of it away for reasons outside the work first."""


@dataclass(frozen=True)
class Section:
    """Totals of groups of GPUs or of days: what they are grouped by, and the groups."""

    name: str
    groups: dict[str, Totals]


@dataclass(frozen=True)
class Report:
    """One window of one lake, or what a scope leaves of it.

    `week` is None where the window is no week; then there are no trends. `teams` and `holders` are those of the scope, their
    ranks those among everybody. `quality` is about the whole lake, and nothing in an edition for people: it names others.
    """

    lake: str
    version: str
    simulated_gpus: int
    hosts: int
    settings: LedgerSettings
    held_min_ms: int
    summary: Summary
    money: Money
    sections: tuple[Section, ...]
    review: Review
    quality: tuple[Remark, ...]
    week: Week | None
    scope: Scope
    zone: tzinfo
    trends: tuple[Trend, ...]
    steps: tuple[Step, ...]
    teams: tuple[Person, ...]
    holders: tuple[Person, ...]
    reclaimable: tuple[Reclaimable, ...]
    off_peak: tuple[OffPeak, ...]
    film: Film

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings that nobody has suppressed."""
        return self.review.shown

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


def build_report(inputs: Inputs, ledger: WindowLedger, asked: Asked | None = None) -> Report:
    """The report of the window, or of what the scope leaves of it; raises LakeError and its kinds, EmptyLakeError for nothing."""
    asked = asked or Asked()
    inventory = ledger.whole.inventory or load_inventory(inputs.lake)
    whole = open_money(inputs, ledger.inside, inventory)
    part = narrow(ledger, asked.scope, whole.costs, inventory, whole.owners)
    money = whole if asked.scope.is_all else whole.of(part.inside, inventory)
    if asked.scope.is_personal:
        money = replace(money, remarks=())  # they name anybody
    spans = part.inside.stretches
    gpus = spans.select("gpu", "host").unique().sort("gpu")
    found = review(inputs, ledger, inventory)
    if not asked.scope.is_all:
        found = found.about(lambda each: asked.scope.has(each, inventory), spans)
    return Report(
        lake=inputs.lake.root,
        version=__version__,
        simulated_gpus=inventory.count_simulated(gpus["gpu"].unique()),
        hosts=gpus["host"].n_unique(),
        settings=inputs.ledger_settings,
        held_min_ms=inputs.settings.integer("findings.held_min"),
        summary=part.summary,
        money=money,
        sections=_sections(spans, money, inventory, asked.zone),
        review=found,
        quality=() if asked.scope.is_personal else data_quality(inputs, ledger, inventory),
        week=asked.week,
        scope=asked.scope,
        zone=asked.zone,
        trends=_trends(asked, part, money, inventory),
        steps=_steps(part.summary, money),
        teams=people.teams(whole.accounts, money.accounts),
        holders=people.holders(whole.accounts, money.accounts, lambda name: whole.owners.team(name, None)),
        reclaimable=() if asked.scope.is_personal else reclaimable(found.findings),
        off_peak=() if asked.scope.is_personal else _off_peak(ledger, asked, inventory),
        film=film(spans, part.summary.since_ms, part.summary.until_ms),
    )


def _trends(asked: Asked, part: WindowLedger, money: Money, inventory: Inventory) -> tuple[Trend, ...]:
    if asked.week is None:
        return ()

    def own(ledger: Ledger) -> Ledger:
        return narrowed(ledger, asked.scope, money.costs, inventory, money.owners)

    before = weeks_before(part.whole, asked.week, own, lambda inside: money.of(inside, inventory).accounts.total)
    return trends(Figures(part.summary.totals, money.accounts.total), before)


def _steps(summary: Summary, money: Money) -> tuple[Step, ...]:
    """The states with the cents of `fallow ledger`, which add up to what was paid."""
    total, times = money.accounts.total, summary.totals.state_ms
    priced = total.paid_cents is not None
    return tuple(Step(state, times[state], total.state_cents[state] if priced else None) for state in STEPS)


def _off_peak(ledger: WindowLedger, asked: Asked, inventory: Inventory) -> tuple[OffPeak, ...]:
    pools = {gpu: inventory.pool(gpu) for gpu in ledger.whole.stretches["gpu"].unique()}
    if asked.scope.pool is not None:
        pools = {gpu: pool for gpu, pool in pools.items() if pool == asked.scope.pool}
    return off_peak(ledger.whole.stretches, pools, ledger.summary.until_ms, asked.zone)


def _sections(spans: pl.DataFrame, money: Money, inventory: Inventory, zone: tzinfo) -> tuple[Section, ...]:
    named = placed(spans, money.costs, inventory)
    return (
        Section("pool", totals_by(named, "pool")),
        Section("model", totals_by(named, "model")),
        Section("day", totals_by(by_day(named, zone), "day")),
        Section("holder", totals_by(named.filter(pl.col("holder").is_not_null()), "holder")),
    )
