"""Which findings the filters of a command or the scope of a report leave."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from analytics.decide.review import Review
from analytics.decide.totals import most_first
from analytics.inventory import Inventory
from analytics.money.owners import Owners
from analytics.names import JOINER, single_name
from analytics.scope import Scope
from analytics.workloads.model import Finding

Step = tuple[str, Callable[[Finding], bool]]


@dataclass(frozen=True)
class Filters:
    """What was asked for; None and empty leave everything."""

    rules: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    holder: str | None = None
    team: str | None = None
    min_cost: float | None = None

    @classmethod
    def from_args(cls, args: argparse.Namespace) -> Filters:
        return cls(tuple(args.rule or ()), tuple(args.category or ()), args.holder, args.team, args.min_cost)

    def steps(self) -> list[Step]:
        """The filters that are set, one by one: its field and whether it leaves a finding."""
        return [
            *([("rules", lambda each: each.rule in self.rules)] if self.rules else []),
            *([("categories", lambda each: each.category in self.categories)] if self.categories else []),
            *([("holder", lambda each: _is_one(self.holder, each.holder))] if self.holder is not None else []),
            *([("team", lambda each: self.team in _names(each.team))] if self.team is not None else []),
            *([("min_cost", self._costs)] if self.min_cost is not None else []),
        ]

    def _costs(self, finding: Finding) -> bool:
        return finding.cost is not None and self.min_cost is not None and finding.cost >= self.min_cost


@dataclass(frozen=True)
class Selection:
    """What the filters leave: findings in their order, those that are suppressed, and those of last week that are gone.

    Where nothing is left, `emptied_by` names the filter that left nothing of `before`, which those before it had left of
    `offered`.
    """

    listed: Sequence[Finding]
    suppressed: Sequence[Finding]
    gone: Sequence[Finding]
    filters: Filters
    offered: int
    emptied_by: str | None = None
    before: tuple[Finding, ...] = ()

    @property
    def filtered(self) -> bool:
        return bool(self.filters.steps())


def choose(found: Review, filters: Filters, *, with_suppressed: bool) -> Selection:
    steps = filters.steps()
    offered = found.findings if with_suppressed else found.shown
    left = offered
    before: tuple[Finding, ...] = ()
    emptied_by: str | None = None
    for name, leaves in steps:
        rest = tuple(filter(leaves, left))
        if left and not rest:
            emptied_by, before = name, left
        left = rest
    suppressed, gone = (_left(each, steps) for each in (found.suppressed, found.gone))
    return Selection(most_first(left), suppressed, gone, filters, len(offered), emptied_by, before)


def _left(findings: Iterable[Finding], steps: Sequence[Step]) -> tuple[Finding, ...]:
    return tuple(finding for finding in findings if all(leaves(finding) for _, leaves in steps))


def _names(joined: str | None) -> tuple[str, ...]:
    """One of several holders is a holder, and one of several teams a team."""
    return () if joined is None else (joined, *joined.split(JOINER))


def _is_one(wanted: str | None, holder: str | None) -> bool:
    """Whether the holder is the one that is asked for, by the name as it is or as it is kept."""
    names = _names(holder)
    return wanted is not None and (wanted in names or single_name(wanted) in names)


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
