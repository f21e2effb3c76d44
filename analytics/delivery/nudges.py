"""Whom to tell of which findings: only their own, each once in a while."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from analytics.delivery.journal import ABANDONED, SENDING
from analytics.delivery.model import SENT, UNKNOWN
from fallow.clock import from_ms

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import tzinfo

    from analytics.decide.actions import Action
    from analytics.delivery.contacts import Contacts
    from analytics.delivery.journal import Journal
    from analytics.workloads.model import Finding

CATEGORIES = ("reclaim", "right_size", "efficiency")
"""What a holder can do something about; demand and coverage are for whoever runs the fleet."""

_LEFT_ALONE = ("acknowledged", "suppressed", "closed", "unseen", "reversed")
_TOLD = (SENT, UNKNOWN, SENDING, ABANDONED)


@dataclass(frozen=True)
class Nudge:
    """What one address is told: findings with the names that led to it, and how often each was told before."""

    address: str
    findings: tuple[Finding, ...]
    names: tuple[str, ...]
    told: Mapping[str, int]


@dataclass(frozen=True)
class Chosen:
    """The nudges, and the findings of which nobody is told, each with why."""

    nudges: tuple[Nudge, ...]
    held_back: tuple[tuple[Finding, str], ...]


@dataclass(frozen=True)
class Past:
    """What was told before: the actions on findings and the record of what was sent, since when it counts."""

    actions: Mapping[str, Sequence[Action]]
    journal: Journal
    since_ms: int
    again_on: str | None = None
    """A day whose nudges that may have arrived, or not, count as not told: they are to go again."""

    def knows(self, finding_id: str, address: str, others: Collection[str]) -> bool:
        """Whether this address was told of the finding, or somebody who is none of the others was."""
        return (finding_id, f"mailto:{address}") in self._sent or any(
            action.kind == "notify" and action.time_ms > self.since_ms and action.channel not in others
            for action in self.actions.get(finding_id, ())
        )

    @cached_property
    def _sent(self) -> frozenset[tuple[str, str]]:
        """Findings and where they went, or may have gone unless it is to go again."""
        return frozenset(
            (finding_id, entry.delivery.target)
            for entry in self.journal.entries
            if entry.delivery.purpose == "nudge"
            and entry.step in _TOLD
            and entry.time_ms > self.since_ms
            and self.journal.standing(entry.delivery).step in self._told(entry.delivery.week)
            for finding_id in entry.finding_ids
        )

    def _told(self, day: str) -> tuple[str, ...]:
        return (SENT, SENDING) if day == self.again_on else _TOLD


def choose(findings: Iterable[Finding], contacts: Contacts, past: Past) -> Chosen:
    """What to tell whom, by address; findings keep their order."""
    to_tell: dict[str, list[tuple[Finding, str]]] = defaultdict(list)
    held_back = []
    for finding in findings:
        if why := _alone(finding):
            held_back.append((finding, why))
            continue
        reached = contacts.of(finding)
        channels = {f"mailto:{address}" for address in reached}
        fresh = {
            address: name
            for address, name in reached.items()
            if not past.knows(finding.finding_id, address, channels - {f"mailto:{address}"})
        }
        if not fresh:
            held_back.append((finding, "told lately" if reached else "no address, or wants no nudges"))
        for address, name in fresh.items():
            to_tell[address].append((finding, name))
    return Chosen(tuple(_nudge(address, own, past) for address, own in sorted(to_tell.items())), tuple(held_back))


def day_of(now_ms: int, zone: tzinfo) -> str:
    """The day of a nudge: nobody gets two on one day."""
    return from_ms(now_ms).astimezone(zone).date().isoformat()


def _alone(finding: Finding) -> str:
    if finding.status in _LEFT_ALONE:
        return finding.status
    if finding.category not in CATEGORIES:
        return f"{finding.category}: not for a holder"
    return "" if finding.holder else "no holder"


def _nudge(address: str, own: Sequence[tuple[Finding, str]], past: Past) -> Nudge:
    told = {
        finding.finding_id: sum(action.kind == "notify" for action in past.actions.get(finding.finding_id, ()))
        for finding, _ in own
    }
    return Nudge(address, tuple(finding for finding, _ in own), tuple(sorted({name for _, name in own})), told)
