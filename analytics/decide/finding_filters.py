"""Which findings the filters leave, and why it is none."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from analytics.decide.totals import most_first
from analytics.language.plain_text import count, plain
from analytics.names import JOINER, single_name
from analytics.render.review_text import Selection
from analytics.sections.evidence_text import money

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Sequence

    from analytics.decide.review import Review
    from analytics.money.owners import Owners
    from analytics.workloads.model import Finding

_NAMED = 8
"""Names in a hint; nobody reads more."""


@dataclass(frozen=True)
class Filters:
    """What was asked for; None and nothing leave everything."""

    rules: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    holder: str | None = None
    team: str | None = None
    min_cost: float | None = None

    @classmethod
    def of(cls, args: argparse.Namespace) -> Filters:
        """Those of the command line."""
        return cls(tuple(args.rule or ()), tuple(args.category or ()), args.holder, args.team, args.min_cost)

    def steps(self) -> list[tuple[str, Callable[[Finding], bool]]]:
        """The filters that are set, one by one: its name and whether it leaves a finding."""
        return [
            *([("rule", lambda each: each.rule in self.rules)] if self.rules else []),
            *([("category", lambda each: each.category in self.categories)] if self.categories else []),
            *([("holder", lambda each: _is_one(self.holder, each.holder))] if self.holder is not None else []),
            *([("team", lambda each: self.team in _names(each.team))] if self.team is not None else []),
            *([("min_cost", self._costs)] if self.min_cost is not None else []),
        ]

    def _costs(self, finding: Finding) -> bool:
        return finding.cost is not None and finding.cost >= (self.min_cost or 0.0)


def choose(found: Review, filters: Filters, *, with_suppressed: bool) -> Selection:
    """What the filters leave of the findings, of the suppressed ones and of last week's."""
    steps = filters.steps()
    offered = found.findings if with_suppressed else found.shown
    listed = _left(offered, steps)
    reason = _reason(offered, filters, found.context.owners) if steps and offered and not listed else ""
    return Selection(
        listed=most_first(listed),
        suppressed=_left(found.suppressed, steps),
        gone=_left(found.gone, steps),
        reason=reason,
        filtered=bool(steps),
    )


def _names(joined: str | None) -> tuple[str, ...]:
    """One of several holders is a holder, and one of several teams a team."""
    return () if joined is None else (joined, *joined.split(JOINER))


def _is_one(wanted: str | None, holder: str | None) -> bool:
    """Whether the holder is the one that is asked for, by the name as it is or as it is kept."""
    names = _names(holder)
    return wanted is not None and (wanted in names or single_name(wanted) in names)


def _left(findings: Iterable[Finding], steps: Sequence[tuple[str, Callable[[Finding], bool]]]) -> tuple[Finding, ...]:
    return tuple(finding for finding in findings if all(leaves(finding) for _, leaves in steps))


def _reason(findings: Sequence[Finding], filters: Filters, owners: Owners) -> str:
    """Which filter leaves nothing of what those before it leave, and what it could have been."""
    left = tuple(findings)
    for name, leaves in filters.steps():
        rest = tuple(filter(leaves, left))
        if not rest:
            which = count(len(left), "finding") + (
                "" if len(left) == len(findings) else " that the other filters leave"
            )
            return _WHY[name](f"none of the {which}", left, filters, owners)
        left = rest
    return ""


def _no_holder(none: str, left: Sequence[Finding], filters: Filters, _: Owners) -> str:
    wanted = str(filters.holder)
    names = sorted({name for each in left for name in (each.holder or "").split(JOINER) if name})
    return f"{none} has holder '{plain(wanted)}'; {_hint('holders with findings', wanted, names)}"


def _no_team(none: str, left: Sequence[Finding], filters: Filters, owners: Owners) -> str:
    wanted = str(filters.team)
    if not owners.by_name:
        return "no owners file: no finding has a team; set money.owners"
    if wanted not in owners.teams():
        return f"the owners file has no team '{plain(wanted)}'; {_hint('its teams', wanted, list(owners.teams()))}"
    names = sorted({name for each in left for name in (each.team or "").split(JOINER) if name})
    return f"{none} has team '{plain(wanted)}'; {_hint('teams with findings', wanted, names)}"


def _hint(what: str, wanted: str, names: Sequence[str]) -> str:
    near = get_close_matches(wanted, names, n=3)
    if near:
        return f"near it: {', '.join(map(plain, near))}"
    rest = ", …" if len(names) > _NAMED else ""
    return f"{what}: {', '.join(map(plain, names[:_NAMED])) or 'none'}{rest}"


def _no_cost(none: str, left: Sequence[Finding], filters: Filters, _: Owners) -> str:
    priced = [each for each in left if each.cost is not None]
    if not priced:
        return f"{none} has a price: see docs/money.md"
    most = max(priced, key=lambda each: each.cost or 0.0)
    return (
        f"{none} costs {money(filters.min_cost or 0.0, most.currency)} or more; "
        f"the most is {money(most.cost or 0.0, most.currency)}"
    )


_WHY: dict[str, Callable[[str, Sequence[Finding], Filters, Owners], str]] = {
    "rule": lambda none, _, filters, __: f"{none} is of rule {' or '.join(filters.rules)}",
    "category": lambda none, _, filters, __: f"{none} is of category {' or '.join(filters.categories)}",
    "holder": _no_holder,
    "team": _no_team,
    "min_cost": _no_cost,
}
