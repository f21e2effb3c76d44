"""Opportunities by who acts or by pool: what a group of them comes to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from analytics.decide.opportunities import Opportunities, Opportunity, Saving

GroupBy = Literal["owner", "pool"]


@dataclass(frozen=True)
class OpportunityGroup:
    """The ranked opportunities of one owner or pool: `gpus` to act on now, the wasted time and its cents, what they save together."""

    name: str
    listed: tuple[Opportunity, ...]
    saving: Saving | None

    @property
    def gpus(self) -> int:
        """Each GPU is in one opportunity."""
        return sum(len(each.gpus_now) for each in self.listed)

    @property
    def gpu_ms(self) -> float:
        return sum(each.gpu_ms for each in self.listed)

    @property
    def cents(self) -> int | None:
        """None where nothing has a price."""
        known = [each.cents for each in self.listed if each.cents is not None]
        return sum(known) if known else None


def grouped(found: Opportunities, by: GroupBy) -> tuple[OpportunityGroup, ...]:
    """The groups, the one that saves most first."""
    own: dict[str, list[Opportunity]] = {}
    for each in found.ranked:
        own.setdefault(getattr(each, by), []).append(each)
    groups = [
        OpportunityGroup(name, tuple(listed), replace(found, listed=tuple(listed)).saving)
        for name, listed in own.items()
    ]
    return tuple(sorted(groups, key=lambda group: (-(group.saving.point if group.saving else 0.0), group.name)))
