"""Run every rule over a window, rank the findings, and return their status and the rules with too little history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from analytics.decide import lifecycle
from analytics.decide.actions import Action, load_actions
from analytics.decide.kept_findings import KeptFindings, LastWeek, WindowFindings
from analytics.decide.reversals import Reversals, graded_by_records, reversals
from analytics.decide.totals import most_first
from analytics.inventory import Inventory
from analytics.ledger.summary import SILENT_AFTER_MS
from analytics.mig import MIG_PREFIX
from analytics.money.owners import Owners
from analytics.names import JOINER
from analytics.rules import RULES
from analytics.scope import Scope
from analytics.time_limit import check_time
from analytics.window import Inputs, WindowLedger
from analytics.workloads.context import open_context, week_before
from analytics.workloads.finding_parts import findings_of
from analytics.workloads.fleet_demand import fleet_demand
from analytics.workloads.ledger_rows import held_gpu_hours
from analytics.workloads.model import Context, Finding
from analytics.workloads.packing import short_runs_beside, small_workloads
from analytics.workloads.pool_demand import FleetDemand, going_by
from analytics.workloads.rule import Rule
from fallow.clock import SystemClock


def is_in_scope(finding: Finding, scope: Scope, inventory: Inventory) -> bool:
    """Return True if a finding is about the scope, even together with others."""
    return (
        (scope.of_gpus.is_all or any(scope.has_gpu(gpu, inventory) for gpu in finding.gpus))
        and (scope.team is None or scope.team in (finding.team or "").split(JOINER))
        and (scope.user is None or scope.user in (finding.user or "").split(JOINER))
    )


def names_others(finding: Finding, scope: Scope, owners: Owners) -> bool:
    """Return True if a finding also names people outside the scope, in its words or its command."""
    names = (finding.user or "").split(JOINER)
    others = scope.user is not None and names != [scope.user]
    if scope.team is None:
        return others or finding.beside_unknown
    strangers = len(names) > 1 and any(owners.team(name, None) != scope.team for name in names)
    return others or strangers or finding.team != scope.team or finding.beside_unknown


@dataclass(frozen=True)
class WaitingRule:
    """A rule, and the earliest moment from which it can find something."""

    rule: str
    from_ms: int


def waiting_rules(context: Context) -> tuple[WaitingRule, ...]:
    """Return the rules that need more history at the end of the window, the earliest first."""
    seen, first_ms = context.whole.lifetimes, context.whole.first_ms
    if seen.is_empty():
        return ()
    gpus = seen["gpu"].n_unique()
    found = (WaitingRule(rule.name, first_ms + rule.history.least_ms(context.settings, gpus)) for rule in RULES)
    return tuple(sorted((each for each in found if each.from_ms > context.until_ms), key=lambda each: each.from_ms))


@dataclass(frozen=True)
class Review:
    """The findings of a window with their status.

    Attributes:
        findings: all findings, ranked, each with its status.
        gone: findings of the window one week earlier that ended.
        reversals: how often those were wrong; None without such a window, and where it is not compared.
        sensitivity: held GPU-hours without a kernel, by the shortest segment that counts, in minutes.
        fleet: the demand of every pool, regardless of snoozes.
    """

    context: Context
    findings: tuple[Finding, ...]
    fleet: FleetDemand
    gone: tuple[Finding, ...]
    reversals: Reversals | None
    sensitivity: Mapping[int, float]
    actions: Mapping[str, Sequence[Action]]

    @property
    def ended(self) -> tuple[Finding, ...]:
        """Return last week's findings of at least medium confidence: wrong, then continuing, then closed or unseen."""
        wrong = () if self.reversals is None else tuple(map(lifecycle.reversed_by, self.reversals.findings))
        found = (*wrong, *(finding for finding in self.gone if finding.status != "reversed"))
        return tuple(finding for finding in found if not finding.confidence.is_low)

    @property
    def sure(self) -> tuple[Finding, ...]:
        """Return the findings of at least medium confidence, including snoozed ones."""
        return tuple(finding for finding in self.findings if not finding.confidence.is_low)

    @property
    def shown(self) -> tuple[Finding, ...]:
        """Return the findings that lists show by default: at least medium confidence and not snoozed."""
        return tuple(finding for finding in self.sure if finding.status != "snoozed")

    @property
    def low(self) -> tuple[Finding, ...]:
        """Return findings of low confidence that are not snoozed.

        They are no more often correct than a guess (docs/evaluate.md).
        """
        return tuple(each for each in self.findings if each.status != "snoozed" and each.confidence.is_low)

    def about(self, chosen: Callable[[Finding], bool], segments: pl.DataFrame) -> Review:
        """Return the chosen findings, with the sensitivity of these ledger rows.

        The rate of wrong findings stays that of all findings. Only chosen findings are listed as wrong.
        """
        rates = self.reversals
        return replace(
            self,
            findings=tuple(filter(chosen, self.findings)),
            gone=tuple(filter(chosen, self.gone)),
            reversals=rates and replace(rates, findings=tuple(each for each in rates.findings if chosen(each.finding))),
            sensitivity=held_gpu_hours(segments),
        )

    @property
    def snoozed(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.status == "snoozed")


def review(inputs: Inputs, ledger: WindowLedger, now_ms: int | None = None) -> Review:
    """Return every finding of the window, and the outcome of those of one week before.

    `now_ms` is the wall clock's time.
    """
    found = find_in_window(inputs, ledger, now_ms=now_ms)
    return with_actions(found, found.last_week)


@dataclass(frozen=True)
class RuleFindings(WindowFindings):
    """The same with the context of the window, and the place where the lake keeps them.

    `as_of_ms` is the moment as of which snoozes count.
    """

    context: Context
    as_of_ms: int
    place: KeptFindings

    @property
    def last_week(self) -> LastWeek:
        """Return what the rules found one week earlier, which runs them again. Raises LakeError and ConfigError."""
        if self.context.inside.segments.is_empty():
            return LastWeek((), None)  # ended work and unobserved work cannot be distinguished
        return self.place.get(LastWeek, _last_week)


def find_in_window(
    inputs: Inputs, ledger: WindowLedger, inventory: Inventory | None = None, now_ms: int | None = None
) -> RuleFindings:
    """Return the findings of the rules in the window: the lake's, or made and kept there.

    Raises LakeError and ConfigError.
    """
    now_ms = SystemClock().now_ms() if now_ms is None else now_ms
    context = open_context(inputs, ledger, inventory, now_ms)
    end_ms = ledger.window.until_ms
    as_of_ms = now_ms if end_ms is None else min(end_ms, now_ms)
    place = KeptFindings(inputs, context)
    if ledger.inside.segments.is_empty():
        unseen, hours = FleetDemand.of(unseen_since_ms=context.until_ms), held_gpu_hours(context.inside.segments)
        return RuleFindings((), unseen, hours, pl.DataFrame(), {}, context, as_of_ms, place)
    found = place.get(WindowFindings, window_findings)
    small_workloads.give(context, found.small_work)
    short_runs_beside.give(context, found.short_beside)
    return RuleFindings(**vars(found), context=context, as_of_ms=as_of_ms, place=place)


def window_findings(context: Context) -> WindowFindings:
    """Return what the rules find in the window. Raises LakeError and ConfigError."""
    sensitivity = dict(held_gpu_hours(context.inside.segments))
    packed = small_workloads(context), dict(short_runs_beside(context))
    return WindowFindings(*findings_and_demand(context), sensitivity, *packed)


def _last_week(context: Context) -> LastWeek:
    before = week_before(context)
    found = () if before is None else run_rules(before)
    return LastWeek(found, reversals(context, before, found))


def with_actions(found: RuleFindings, last_week: LastWeek | None = None) -> Review:
    """Return the findings after people's actions. Only the actions are read from the lake.

    Compared with last week, a finding without an action is new or standing; without `last_week` it is open.
    """
    actions, before = load_actions(found.context.lake), last_week or LastWeek((), None)
    wrong = {each.finding.finding_id: each for each in (before.reversals.findings if before.reversals else ())}
    known = {each.finding_id for each in before.findings}

    def otherwise(finding: Finding) -> str:
        return "open" if last_week is None else "standing" if finding.finding_id in known else "new"

    return Review(
        context=found.context,
        findings=lifecycle.with_status(
            found.findings, otherwise, actions, wrong, found.as_of_ms, seen_until_ms=found.context.until_ms
        ),
        fleet=found.fleet,
        gone=lifecycle.ended_findings(before.findings, found.findings, wrong, _seen_to_the_end(found.context))
        if before.findings
        else (),
        reversals=before.reversals,
        sensitivity=found.sensitivity,
        actions=actions,
    )


def _seen_to_the_end(context: Context) -> frozenset[str]:
    """Return the GPUs that were observed in the last hour of the window.

    MIG instances and names without an inventory entry, such as pods, have ended if their host was observed.
    """
    known = context.inside.segments.filter(
        pl.col("state") != "unknown", pl.col("end") >= context.until_ms - SILENT_AFTER_MS
    )
    cards = [gpu for gpu in context.inventory.devices if not gpu.startswith(MIG_PREFIX)]
    rows = context.whole.lifetimes.filter(pl.col("host").is_in(known["host"].unique().to_list()))
    return frozenset(known["gpu"].unique()) | frozenset(rows.filter(~pl.col("gpu").is_in(cards))["gpu"].unique())


def run_rules(context: Context, rules: Sequence[Rule] = RULES) -> tuple[Finding, ...]:
    """Return the rules' findings, ranked: most reclaimable GPUs first, then highest cost, then most GPU time."""
    if all(rule.find_in_pools is None for rule in rules):  # none of them needs the demand
        return _ranked(_of_segments(context, rules, records=True))
    return findings_and_demand(context, rules)[0]


def found_by_rules(context: Context) -> tuple[Finding, ...]:
    """Return the same findings with the rules' own confidence, regardless of their record at this site."""
    return findings_and_demand(context, records=False)[0]


def findings_and_demand(
    context: Context, rules: Sequence[Rule] = RULES, *, records: bool = True
) -> tuple[tuple[Finding, ...], FleetDemand]:
    """Return the rules' findings, ranked, and the demand of every pool.

    The demand excludes GPUs that findings show as reclaimable.

    Rules about pools run last. With `records`, the site's own record of a rule may lower its confidence.
    """
    graded = _of_segments(context, rules, records=records)
    fleet = fleet_demand(context, going_by(graded))
    own = [
        finding
        for rule in rules
        if rule.find_in_pools is not None
        for finding in findings_of(context, rule, rule.find_in_pools(context, fleet))
    ]
    of_pools = graded_by_records(context, own) if records else own
    return _ranked([*graded, *of_pools]), fleet.graded(of_pools)


def _of_segments(context: Context, rules: Sequence[Rule], *, records: bool) -> list[Finding]:
    """Return the findings that rest on the ledger's segments alone."""
    found: list[Finding] = []
    for rule in rules:
        check_time()
        found += findings_of(context, rule, rule.find(context))
    return graded_by_records(context, found) if records else found


def _ranked(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    return _with_unique_ids(most_first(sorted(findings, key=lambda each: (each.finding_id, each.gpus))))


def _with_unique_ids(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return the findings with unique ids: where two have one id, the later id also includes its GPUs."""
    seen: set[str] = set()
    apart = []
    for finding in findings:
        each = finding
        while each.finding_id in seen:
            each = replace(each, subject=f"{each.subject}\0{'+'.join(each.gpus)}")
        seen.add(each.finding_id)
        apart.append(each)
    return tuple(apart)
