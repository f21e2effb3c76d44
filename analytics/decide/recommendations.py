"""Recommendations: one action on named GPUs each, with its findings, its value and the person who acts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Literal

from analytics.capacity.peak_demand import Backtest
from analytics.decide.right_sizing import RightSizing
from analytics.decide.value import TotalValue, Value, total_value
from analytics.inventory import NO_POOL
from analytics.ledger.sampled import Basis
from analytics.rules import RULES_BY_NAME
from analytics.workloads.model import Confidence, Finding
from analytics.workloads.packing import Packing
from analytics.workloads.pool_demand import FleetDemand, PoolDemand
from analytics.workloads.waste import WasteKind
from fallow.clock import DAY_MS

OPERATORS = "operators"
"""Who acts on GPUs without a user."""

_HORIZON_DAYS = {"release": 28, "right-size": 28, "schedule off-peak": 28}


@dataclass(frozen=True)
class Risk:
    """The cost of a wrong recommendation.

    Attributes:
        probability: the probability of use within `within_ms`; None is not known.
        within_ms: the time to which `probability` refers.
        tested: the back-test of the pool's demand; None is not known.
        waits: the user who would wait; None if jobs of the pool would wait.
    """

    probability: float | None = None
    within_ms: int | None = None
    tested: Backtest | None = None
    waits: str | None = None


def recommendation_id(finding: Finding) -> str:
    """Return the id of a recommendation with a leading finding: the finding's id with another first letter."""
    return "R" + finding.finding_id[1:]


def own_id(kind: str, subject: str) -> str:
    """Return the id of a recommendation without a leading finding."""
    return "R-" + hashlib.sha256(f"{kind}\0{subject}".encode()).hexdigest()[:10]


@dataclass(frozen=True)
class Recommendation:
    """One action on named GPUs.

    `decide` makes it for the whole fleet. `recommendations_in` narrows it to a part of the fleet and adds the fields
    from `status` on, which have their defaults until then.

    Attributes:
        finding: the leading finding, which people acknowledge or snooze. None for faults, for releasable GPUs without a
            finding, for packings, and if the finding also concerns others.
        gpus: the GPUs whose time it is about, and the GPUs to act on.
        gpus_now: the GPUs to act on at the end of the window. Each GPU is in one recommendation only.
        spare: the demand of the pool, if the GPUs are released because of it.
        evidence: the findings about its time, the leading one first.
        gpu_ms: the wasted time of the window that it acts on. No other recommendation has any of this time.
        unconfirmed_ms: the part of `gpu_ms` that is only sampled.
        cents: the cost of `gpu_ms`; None if none of it has a price.
        value: the value a year of acting on `gpus_now`; None if it is not known.
        deadline: the last day to act, a day of the site: the same on every channel.
    """

    recommendation_id: str
    kind: WasteKind
    finding: Finding | None
    gpus: tuple[str, ...]
    gpus_now: tuple[str, ...]
    confidence: Confidence
    spare: PoolDemand | None = None
    packing: Packing | None = None
    status: str = "open"
    action: str = ""
    evidence: tuple[Finding, ...] = ()
    pool: str = NO_POOL
    host: str = ""
    gpu_ms: float = 0.0
    unconfirmed_ms: float = 0.0
    cents: int | None = None
    currency: str = ""
    value: Value | None = None
    deadline: date = date.max
    next_command: str = ""
    risk: Risk = Risk()
    simulated: bool = False

    def __post_init__(self) -> None:
        """Add the GPUs to act on to `gpus`, even without wasted time of theirs."""
        object.__setattr__(self, "gpus", tuple(dict.fromkeys((*self.gpus, *self.gpus_now))))

    @property
    def user(self) -> str | None:
        """Return the user of the GPUs, if the recommendation is about one user's time."""
        return self.finding.user if self.finding is not None and self.kind.of_user else None

    @property
    def team(self) -> str | None:
        return self.finding.team if self.finding is not None and self.kind.of_user else None

    @property
    def owner(self) -> str:
        """Return who acts: the user, or operators if there is no user or the user has left the work."""
        of_operators = self.has_lost_user or self.action in ("release", "repair")
        return OPERATORS if self.user is None or of_operators else self.user

    @property
    def has_lost_user(self) -> bool:
        """Return True if the user who started the work has left."""
        return self.finding is not None and RULES_BY_NAME[self.finding.rule].has_lost_user(self.finding)

    @property
    def given_to(self) -> str | None:
        """Return the team, or else the job, that has the GPUs, if operators act because the user is unknown."""
        if self.owner != OPERATORS or self.finding is None or self.action in ("release", "repair"):
            return None
        return None if self.finding.user is not None else self.team or self.finding.job

    @property
    def horizon_ms(self) -> int:
        return _HORIZON_DAYS.get(self.action, 7) * DAY_MS

    @property
    def ranked(self) -> bool:
        """Return True if it frees GPU time with a known price."""
        return (
            self.value is not None
            and self.value.freed is not None
            and self.value.freed.point > 0
            and self.action != "ask"
            and not self.confidence.is_low
            and not self.is_snoozed
        )

    @property
    def basis(self) -> Basis | None:
        """Return the evidence of the wasted time; None if there is none."""
        if not self.gpu_ms:
            return None
        is_likely = any(each.basis is Basis.LIKELY for each in self.evidence)
        return Basis.of(self.unconfirmed, 1.0 if is_likely else 0.0)

    @property
    def unconfirmed(self) -> float:
        """Return the share of its time that is only sampled."""
        return self.unconfirmed_ms / self.gpu_ms if self.gpu_ms else 0.0

    @property
    def is_snoozed(self) -> bool:
        return self.status == "snoozed"


@dataclass(frozen=True)
class Waste:
    """The wasted time of a window and its whole cents.

    Waste is time that was down, unallocated, allocated but unused, held idle or stalled, and the unused part of low
    use. Cents are None if nothing has a price.

    Attributes:
        rest_ms: the part that no recommendation can act on: pauses, the reserve, fragments. `rest_cents` is its cost.
        open_ms: the part that only point samples show as idle. `open_cents` is its cost.
        unpriced_ms: time without a price, which no sum of money includes.
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
        return sum(self.state_ms.values())

    @property
    def cents(self) -> int | None:
        """Return the cents of all wasted time with a price."""
        return None if self.state_cents is None else sum(self.state_cents.values())

    @property
    def not_actionable_ms(self) -> float:
        """Return the time that no recommendation can act on."""
        return sum(self.rest_ms.values())

    @property
    def not_actionable_cents(self) -> int | None:
        """Return the cents of this time."""
        return None if self.rest_cents is None else sum(self.rest_cents.values())


@dataclass(frozen=True)
class Recommendations:
    """The recommendations of a window, ranked ones first, their sums, and the releasable GPUs.

    Attributes:
        fleet: the demand; None for people, because unallocated GPUs have no user.
        sizing: the proposal for each workload, once.
        weeks: start and end (ms) of the complete weeks behind every yearly figure, the newest first.
    """

    listed: tuple[Recommendation, ...]
    waste: Waste
    fleet: FleetDemand | None
    sizing: RightSizing
    weeks: tuple[tuple[int, int], ...]

    @property
    def ranked(self) -> tuple[Recommendation, ...]:
        """Return recommendations that free GPU time with a price, the highest value first."""
        return tuple(each for each in self.listed if each.ranked)

    @property
    def to_look_at(self) -> tuple[Recommendation, ...]:
        """Return recommendations without a known value."""
        return tuple(
            each for each in self.listed if not each.ranked and not each.is_snoozed and not each.confidence.is_low
        )

    @property
    def low(self) -> tuple[Recommendation, ...]:
        """Return recommendations of low confidence. No list and no headline has them; one row has their sum."""
        return tuple(each for each in self.listed if not each.is_snoozed and each.confidence.is_low)

    @property
    def value(self) -> TotalValue | None:
        """Return the total value of the ranked recommendations."""
        return value_of(self.ranked)

    @property
    def value_of_return(self) -> TotalValue | None:
        """Return the total value of ranked recommendations whose GPUs leave the pool."""
        return value_of(each for each in self.ranked if each.action == "release")


def value_of(listed: Iterable[Recommendation]) -> TotalValue | None:
    """Return the total value of recommendations; None if no value is known."""
    return total_value([each.value for each in listed if each.value is not None])


GroupBy = Literal["owner", "pool"]


@dataclass(frozen=True)
class RecommendationGroup:
    """The ranked recommendations of one owner or pool: GPUs to act on now, waste with its cents, and total value."""

    name: str
    listed: tuple[Recommendation, ...]

    @property
    def value(self) -> TotalValue | None:
        return value_of(self.listed)

    @property
    def gpus(self) -> int:
        """Return the number of GPUs; each GPU is in one recommendation."""
        return sum(len(each.gpus_now) for each in self.listed)

    @property
    def cents(self) -> int | None:
        """Return the cents; None if nothing has a price."""
        known = [each.cents for each in self.listed if each.cents is not None]
        return sum(known) if known else None


def grouped(found: Recommendations, by: GroupBy) -> tuple[RecommendationGroup, ...]:
    """Return the groups, the highest saving first."""
    own: dict[str, list[Recommendation]] = {}
    for each in found.ranked:
        own.setdefault(getattr(each, by), []).append(each)
    groups = [RecommendationGroup(name, tuple(listed)) for name, listed in own.items()]
    freed = {each.name: value.freed.point for each in groups if (value := each.value) and value.freed}
    return tuple(sorted(groups, key=lambda group: (-freed.get(group.name, 0.0), group.name)))
