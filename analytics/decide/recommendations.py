"""Recommendations: one action on named GPUs each, with the findings that it rests on, what it is worth and who acts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from analytics.decide.right_sizing import RightSizing
from analytics.inventory import NO_POOL
from analytics.rules import RULES_BY_NAME
from analytics.workloads.model import Confidence, Finding
from analytics.workloads.packing import Packing
from analytics.workloads.reclaimable import PoolReclaimable, Reclaimable
from analytics.workloads.waste import WasteKind
from fallow.clock import DAY_MS

OPERATORS = "operators"
"""Who acts on GPUs without a user."""

_HORIZON_DAYS = {"return": 28, "right-size": 28, "schedule off-peak": 28}


@dataclass(frozen=True)
class Saving:
    """What is saved in a year, in the report's currency: `point` by the mean of the last four weeks, the others by the least and the most."""

    low: float
    point: float
    high: float


@dataclass(frozen=True)
class Risk:
    """What it costs to be wrong: how probable use within `within_ms` is, and for how long and of how many GPUs a pool would have been short last week.

    None is not known. `waits` is who would wait: a holder, or a pool's jobs where it is None.
    """

    probability: float | None = None
    within_ms: int | None = None
    short_hours: int | None = None
    hours: int | None = None
    short_gpus: int | None = None
    waits: str | None = None


def recommendation_id(finding: Finding) -> str:
    """Return the id of the recommendation which a finding leads: its own with another letter."""
    return "R" + finding.finding_id[1:]


def own_id(kind: str, subject: str) -> str:
    """Return the id of a recommendation that no finding leads."""
    return "R-" + hashlib.sha256(f"{kind}\0{subject}".encode()).hexdigest()[:10]


@dataclass(frozen=True)
class Recommendation:
    """One action on named GPUs.

    `decide` makes it for the whole fleet. `recommendations_in` narrows it to a part of the fleet and adds the fields from
    `status` on, which have their defaults until then.

    Attributes:
        finding: what it stands on, which people acknowledge or put off. None of faults, spare GPUs without a finding and
            packings, and where the finding is about others.
        gpus: those whose time it is about.
        gpus_now: those to act on at the end of the window, each in one recommendation only.
        spare: what can be given back of its pool, where that is what it rests on.
        evidence: the findings about its time, the one that leads first.
        gpu_ms: the wasted time of the window that it would act on; no other recommendation has any of it.
        unconfirmed_ms: what of `gpu_ms` rests on point samples alone.
        cents: what `gpu_ms` cost; None where nothing of it has a price.
        saving: None where none is known.
        deadline_ms: the end of the last day to act, exclusive.
        at_list_price: any of `gpus_now` has a public list's price, not the site's own.
    """

    recommendation_id: str
    kind: WasteKind
    finding: Finding | None
    gpus: tuple[str, ...]
    gpus_now: tuple[str, ...]
    confidence: Confidence
    spare: PoolReclaimable | None = None
    packing: Packing | None = None
    status: str = "standing"
    action: str = ""
    evidence: tuple[Finding, ...] = ()
    pool: str = NO_POOL
    host: str = ""
    gpu_ms: float = 0.0
    unconfirmed_ms: float = 0.0
    cents: int | None = None
    currency: str = ""
    saving: Saving | None = None
    deadline_ms: int = 0
    next_command: str = ""
    risk: Risk = Risk()
    simulated: bool = False
    at_list_price: bool = False

    @property
    def holder(self) -> str | None:
        """The user of its GPUs, where it is about the time of one."""
        return self.finding.holder if self.finding is not None and self.kind.of_holder else None

    @property
    def team(self) -> str | None:
        """The team of that user."""
        return self.finding.team if self.finding is not None and self.kind.of_holder else None

    @property
    def owner(self) -> str:
        """Who acts: the user, and the operators where there is none or where the work has lost its user."""
        of_operators = self.has_lost_user or self.action in ("return", "repair")
        return OPERATORS if self.holder is None or of_operators else self.holder

    @property
    def has_lost_user(self) -> bool:
        """Whether the user who started the work has left."""
        return self.finding is not None and RULES_BY_NAME[self.finding.rule].has_lost_user(self.finding)

    @property
    def given_to(self) -> str | None:
        """The team, else the job, that its GPUs were given to, where operators have to act because no user is known."""
        if self.owner != OPERATORS or self.finding is None or self.action in ("return", "repair"):
            return None
        return None if self.finding.holder is not None else self.team or self.finding.job

    @property
    def horizon_ms(self) -> int:
        """How far ahead the action looks."""
        return _HORIZON_DAYS.get(self.action, 7) * DAY_MS

    @property
    def ranked(self) -> bool:
        """Whether it is known to save something; others are to be looked at."""
        return (
            self.saving is not None
            and self.saving.point > 0
            and self.action != "ask"
            and self.confidence.grade != "low"
            and self.is_standing
        )

    @property
    def unconfirmed(self) -> float:
        """The share of its time that rests on point samples alone."""
        return self.unconfirmed_ms / self.gpu_ms if self.gpu_ms else 0.0

    @property
    def is_standing(self) -> bool:
        """True unless snoozed."""
        return self.status != "suppressed"


@dataclass(frozen=True)
class Waste:
    """The wasted time of a window and its whole cents: unavailable, free, reserved, held, and the unused part of low.

    `rest_ms` and `rest_cents` of it are what no recommendation can act on: pauses, the reserve, fragments. `open_ms` and `open_cents`
    of it are idle by point samples alone. Cents are None where nothing has a price; `unpriced_ms` is in no sum of money.
    """

    state_ms: Mapping[str, float]
    state_cents: Mapping[str, int] | None
    rest_ms: Mapping[str, float]
    rest_cents: Mapping[str, int] | None
    open_ms: float
    open_cents: int | None
    unpriced_ms: float
    currency: str

    @property
    def gpu_ms(self) -> float:
        """All of it."""
        return sum(self.state_ms.values())

    @property
    def cents(self) -> int | None:
        """All of it that has a price."""
        return None if self.state_cents is None else sum(self.state_cents.values())

    @property
    def not_actionable_ms(self) -> float:
        """What no recommendation can act on."""
        return sum(self.rest_ms.values())

    @property
    def not_actionable_cents(self) -> int | None:
        """The cents of that."""
        return None if self.rest_cents is None else sum(self.rest_cents.values())


@dataclass(frozen=True)
class Recommendations:
    """The recommendations of a window, those that are ranked first, what they add up to, and what can be given back.

    `reclaimable` is None of people: free GPUs have no user. `sizing` is what is proposed for each work, once.
    """

    listed: tuple[Recommendation, ...]
    waste: Waste
    reclaimable: Reclaimable | None
    sizing: RightSizing

    @property
    def ranked(self) -> tuple[Recommendation, ...]:
        """Those that are known to save something, the most first."""
        return tuple(each for each in self.listed if each.ranked)

    @property
    def to_look_at(self) -> tuple[Recommendation, ...]:
        """Those without a known saving, or too unsure of it."""
        return tuple(each for each in self.listed if not each.ranked and each.is_standing)

    @property
    def saving(self) -> Saving | None:
        """What the ranked ones are worth together; the bounds are sums of bounds, which is wider than the sum's own."""
        return _sum(self.ranked)

    @property
    def given_back(self) -> Saving | None:
        """Of that what the GPUs cost that are given back."""
        return _sum(each for each in self.ranked if each.action == "return")

    @property
    def at_list_price(self) -> bool:
        """Whether that counts with the prices of a public list."""
        return any(each.at_list_price for each in self.ranked)

    @property
    def freed(self) -> Saving | None:
        """Of that GPU time that others can use: the bill stays until the time is used or the GPUs go too."""
        return _sum(each for each in self.ranked if each.action != "return")


def _sum(listed: Iterable[Recommendation]) -> Saving | None:
    known = [each.saving for each in listed if each.saving is not None]
    if not known:
        return None
    return Saving(*(sum(getattr(each, name) for each in known) for name in ("low", "point", "high")))


GroupBy = Literal["owner", "pool"]


@dataclass(frozen=True)
class RecommendationGroup:
    """The ranked recommendations of one owner or pool: `gpus` to act on now, the wasted time and its cents, what they save together."""

    name: str
    listed: tuple[Recommendation, ...]

    @property
    def saving(self) -> Saving | None:
        return _sum(self.listed)

    @property
    def gpus(self) -> int:
        """Each GPU is in one recommendation."""
        return sum(len(each.gpus_now) for each in self.listed)

    @property
    def gpu_ms(self) -> float:
        return sum(each.gpu_ms for each in self.listed)

    @property
    def cents(self) -> int | None:
        """None where nothing has a price."""
        known = [each.cents for each in self.listed if each.cents is not None]
        return sum(known) if known else None


def grouped(found: Recommendations, by: GroupBy) -> tuple[RecommendationGroup, ...]:
    """The groups, the one that saves most first."""
    own: dict[str, list[Recommendation]] = {}
    for each in found.ranked:
        own.setdefault(getattr(each, by), []).append(each)
    groups = [RecommendationGroup(name, tuple(listed)) for name, listed in own.items()]
    return tuple(sorted(groups, key=lambda group: (-(group.saving.point if group.saving else 0.0), group.name)))
