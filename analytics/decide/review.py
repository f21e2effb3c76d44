"""Runs every rule over a window, ranks what they found, and says how each finding stands and which rules know too little yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from analytics.decide import lifecycle
from analytics.decide.actions import Action, load_actions
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
from analytics.workloads.ledger_rows import held_gpu_hours
from analytics.workloads.model import Context, Finding, Rule
from fallow.clock import SystemClock


def is_in_scope(finding: Finding, scope: Scope, inventory: Inventory) -> bool:
    """Whether a finding is about the scope, also beside others."""
    return (
        (scope.of_gpus.is_all or any(scope.has_gpu(gpu, inventory) for gpu in finding.gpus))
        and (scope.team is None or scope.team in (finding.team or "").split(JOINER))
        and (scope.holder is None or scope.holder in (finding.holder or "").split(JOINER))
    )


def names_others(finding: Finding, scope: Scope, owners: Owners) -> bool:
    """Whether a finding is also about people who are not asked for: its words and its command name them."""
    names = (finding.holder or "").split(JOINER)
    others = scope.holder is not None and names != [scope.holder]
    if scope.team is None:
        return others or finding.beside_unknown
    strangers = len(names) > 1 and any(owners.team(name, None) != scope.team for name in names)
    return others or strangers or finding.team != scope.team or finding.beside_unknown


@dataclass(frozen=True)
class WaitingRule:
    """A rule, and the moment from which it can find something at the earliest."""

    rule: str
    from_ms: int


def waiting_rules(context: Context) -> tuple[WaitingRule, ...]:
    """The rules that need more history than there was at the end of the window, the first to speak first."""
    seen, first_ms = context.whole.lifetimes, context.whole.first_ms
    if seen.is_empty():
        return ()
    gpus = seen["gpu"].n_unique()
    found = (WaitingRule(rule.name, first_ms + rule.history.least_ms(context.settings, gpus)) for rule in RULES)
    return tuple(sorted((each for each in found if each.from_ms > context.until_ms), key=lambda each: each.from_ms))


@dataclass(frozen=True)
class Review:
    """The findings of a window as they stand.

    `findings` are all of them, ranked, each with its status; `gone` those of the window one week earlier that are not there
    any more; `reversals` how often those were wrong, None where there was no such window; `sensitivity` the GPU-hours held
    without a kernel by the shortest stretch that counts, in minutes.
    """

    context: Context
    findings: tuple[Finding, ...]
    gone: tuple[Finding, ...]
    reversals: Reversals | None
    sensitivity: Mapping[int, float]
    actions: Mapping[str, Sequence[Action]]

    @property
    def ended(self) -> tuple[Finding, ...]:
        """What became of last week's findings: those that were wrong, found again or not, then those that are closed or unseen."""
        wrong = () if self.reversals is None else tuple(map(lifecycle.reversed_by, self.reversals.findings))
        return (*wrong, *(finding for finding in self.gone if finding.status != "reversed"))

    @property
    def shown(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.status != "suppressed")

    def about(self, chosen: Callable[[Finding], bool], stretches: pl.DataFrame) -> Review:
        """The findings that are chosen and the sensitivity of these ledger rows.

        How often last week's findings were wrong stays the rate of all of them; which they were is told of the chosen ones.
        """
        rates = self.reversals
        return replace(
            self,
            findings=tuple(filter(chosen, self.findings)),
            gone=tuple(filter(chosen, self.gone)),
            reversals=rates and replace(rates, findings=tuple(each for each in rates.findings if chosen(each.finding))),
            sensitivity=held_gpu_hours(stretches),
        )

    @property
    def suppressed(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.status == "suppressed")


def review(inputs: Inputs, ledger: WindowLedger, now_ms: int | None = None) -> Review:
    """Every finding of the window, and what became of those of one week before; `now_ms` is the wall clock's time."""
    return with_actions(find_in_window(inputs, ledger, now_ms=now_ms))


@dataclass(frozen=True)
class RuleFindings:
    """What the rules say of a window and of the one a week before, whatever people did about it.

    `as_of_ms` is the moment as of which suppressions count.
    """

    context: Context
    findings: tuple[Finding, ...]
    last_week: tuple[Finding, ...]
    reversals: Reversals | None
    sensitivity: Mapping[int, float]
    as_of_ms: int


def find_in_window(
    inputs: Inputs, ledger: WindowLedger, inventory: Inventory | None = None, now_ms: int | None = None
) -> RuleFindings:
    """Runs the rules over the window and over the week before; raises LakeError and ConfigError."""
    now_ms = SystemClock().now_ms() if now_ms is None else now_ms
    context = open_context(inputs, ledger, inventory, now_ms)
    end_ms = ledger.window.until_ms
    as_of_ms = now_ms if end_ms is None else min(end_ms, now_ms)
    sensitivity = held_gpu_hours(context.inside.stretches)
    if ledger.inside.stretches.is_empty():
        # whose work ended and whose was only not seen cannot be told apart
        return RuleFindings(context, (), (), None, sensitivity, as_of_ms)
    before = week_before(context)
    last_week = () if before is None else run_rules(before)
    return RuleFindings(
        context, run_rules(context), last_week, reversals(context, before, last_week), sensitivity, as_of_ms
    )


def with_actions(found: RuleFindings) -> Review:
    """How the findings stand after what people did: reads their actions from the lake, and nothing else."""
    actions, outcome = load_actions(found.context.lake), found.reversals
    wrong = {each.finding.finding_id: each for each in (outcome.findings if outcome else ())}
    known = (each.finding_id for each in found.last_week)
    gone = (
        lifecycle.ended_findings(found.last_week, found.findings, wrong, _seen_to_the_end(found.context))
        if found.last_week
        else ()
    )
    return Review(
        context=found.context,
        findings=lifecycle.with_status(
            found.findings, known, actions, wrong, found.as_of_ms, seen_until_ms=found.context.until_ms
        ),
        gone=gone,
        reversals=outcome,
        sensitivity=found.sensitivity,
        actions=actions,
    )


def _seen_to_the_end(context: Context) -> frozenset[str]:
    """The GPUs of which something was known in the last hour of the window.

    MIG instances and names without an entry in the inventory, such as pods, have ended where their host was seen.
    """
    known = context.inside.stretches.filter(
        pl.col("state") != "unknown", pl.col("end") >= context.until_ms - SILENT_AFTER_MS
    )
    cards = [gpu for gpu in context.inventory.devices if not gpu.startswith(MIG_PREFIX)]
    rows = context.whole.lifetimes.filter(pl.col("host").is_in(known["host"].unique().to_list()))
    return frozenset(known["gpu"].unique()) | frozenset(rows.filter(~pl.col("gpu").is_in(cards))["gpu"].unique())


def run_rules(context: Context, rules: Sequence[Rule] = RULES) -> tuple[Finding, ...]:
    """What the rules find, ranked: the most GPUs to take back first, then the highest cost, then the most GPU time."""
    return tuple(graded_by_records(context, found_by_rules(context, rules)))


def found_by_rules(context: Context, rules: Sequence[Rule] = RULES) -> tuple[Finding, ...]:
    """The same with the confidence that the rules give, whatever their record is here."""
    found: list[Finding] = []
    for rule in rules:
        check_time()
        found += rule.find(context)
    return _told_apart(most_first(sorted(found, key=lambda each: (each.finding_id, each.gpus))))


def _told_apart(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings with ids that are all different: where two would share one, the later also goes by its GPUs."""
    seen: set[str] = set()
    apart = []
    for finding in findings:
        each = finding
        while each.finding_id in seen:
            each = replace(each, subject=f"{each.subject}\0{'+'.join(each.gpus)}")
        seen.add(each.finding_id)
        apart.append(each)
    return tuple(apart)
