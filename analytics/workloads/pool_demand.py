"""Demand of each pool and model, its releasable GPUs and its verdict: the only definition of demand.

Demand at a moment is the GPUs that work, or did within the last half hour; the GPUs that are held or reserved, unless a
finding of at least medium confidence says that they may go; and the GPUs that queued jobs could have used.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from typing import Any, Literal

import polars as pl

from analytics.capacity.forecast import Crossing, PoolOutlook, outlook
from analytics.capacity.jobs import PoolModel
from analytics.capacity.next_week import WeekAhead
from analytics.capacity.peak_demand import MARGIN, Backtest, PeakDemand
from analytics.proportions import Estimate
from analytics.scope import Scope
from analytics.workloads.model import Confidence, Finding

POOL_MIN_GPUS = 8
"""A whole host. The demand of smaller pools varies much."""

VerdictKind = Literal["release", "reclaim", "order", "keep", "unknown"]


@dataclass(frozen=True)
class PoolVerdict:
    """The verdict on a pool: release or reclaim GPUs, order GPUs by a date, keep the GPUs; or unknown."""

    kind: VerdictKind
    gpus: int = 0
    order_by: date | None = None
    orders: Estimate | None = None
    """Lower and upper number of GPUs to order, by the 80 % band of the forecast."""


@dataclass(frozen=True)
class Release:
    """The GPUs that a pool does not need, in the order of release.

    Attributes:
        now: unallocated GPUs.
        reclaim: by user, the GPUs that can go once that user releases them; empty for an unknown user.
        whole_hosts: hosts whose GPUs are all in `now`: none of another model, split, held, or out of order.
        host_of: the host of each of these GPUs.
        stays_unused: the probability that each of them stays unused where it is for `horizon_ms`; None if unknown.
        horizon_ms: the horizon of findings.
    """

    now: tuple[str, ...]
    reclaim: Mapping[str, tuple[str, ...]]
    whole_hosts: tuple[str, ...]
    host_of: Mapping[str, str]
    stays_unused: Mapping[str, float | None]
    horizon_ms: int

    @property
    def later(self) -> tuple[str, ...]:
        """Return the GPUs that users have to release first."""
        return tuple(gpu for gpus in self.reclaim.values() for gpu in gpus)

    @property
    def gpus(self) -> int:
        """Return the number of GPUs, now and later."""
        return len(self.now) + len(self.later)

    @cached_property
    def by_host(self) -> Mapping[str, tuple[str, ...]]:
        """Return the GPUs of `now` by host, the most first."""
        found: dict[str, list[str]] = {}
        for gpu in self.now:
            found.setdefault(self.host_of[gpu], []).append(gpu)
        return {host: tuple(gpus) for host, gpus in sorted(found.items(), key=lambda each: (-len(each[1]), each[0]))}

    @property
    def expected_unused(self) -> float | None:
        """Return the mean probability that a GPU of `now` stays unused where it is; None if any is unknown."""
        known = [self.stays_unused.get(gpu) for gpu in self.now]
        return None if not known or None in known else sum(filter(None, known)) / len(known)


@dataclass(frozen=True)
class Reserve:
    """The releasable GPUs with another reserve, and how its earlier estimates held."""

    margin: float
    kept: int
    releasable: int
    tested: Backtest | None
    """None if no week can be tested."""


@dataclass(frozen=True)
class PoolDemand:
    """The demand for the GPUs of a model in a pool, and its consequences.

    `free_now` + `reclaimable_now` = `reserve` + `growth` + `kept_for_hosts` + `snoozed` + `releasable`, in whole GPUs,
    if these are known.

    Attributes:
        capacity: GPUs in working order at the end of the window; a MIG instance counts its share.
        names: these GPUs.
        gpus: the number of whole GPUs among them.
        free_now: whole GPUs that are unallocated.
        reclaimable: by user, the whole GPUs that findings of at least medium confidence say may go; empty for an
            unknown user.
        uncertain: whole GPUs that may be unallocated: sampled at moments, or allocated by count alone. They count as
            demand.
        missing: whole GPUs of the last weeks that are out of order, silent or gone; their demand counts.
        hours: `time`, `there` (in working order), `demand`, `unknown` and `demand_or_unknown` of each whole hour, in
            GPUs.
        history_days: observed days that the peak rests on.
        known_from_ms: when the demand will be known; None if it is known.
        peak: None if too few hours were observed.
        backtest: how estimates of earlier weeks held; None if no week can be tested.
        next_week: next week's peak demand as an interval; None if no week can be compared.
        outlook: the forecast, and when the pool is full.
        policy: the same over the horizon that every verdict rests on.
        reserve: unused GPUs kept for peak demand and reserve; None if `release` is None.
        growth: unused GPUs kept because demand is forecast to grow; None if `release` is None.
        kept_for_hosts: unused GPUs kept so that jobs on whole hosts still find them; None if `release` is None.
        snoozed: unused GPUs that a snoozed finding names.
        release: None if the demand is not known well enough; `confidence` has the reason.
        confidence: of the release.
        reserves: the same with other reserves; empty if `release` is None.
    """

    pool: str
    model: str
    capacity: float
    names: frozenset[str]
    gpus: int
    free_now: int
    reclaimable: Mapping[str, tuple[str, ...]]
    uncertain: int
    missing: int
    hours: pl.DataFrame
    history_days: float
    known_from_ms: int | None
    outlook: PoolOutlook
    policy: PoolOutlook
    confidence: Confidence
    peak: PeakDemand | None = None
    backtest: Backtest | None = None
    next_week: WeekAhead | None = None
    reserve: int | None = None
    growth: int | None = None
    kept_for_hosts: int | None = None
    snoozed: int = 0
    release: Release | None = None
    reserves: tuple[Reserve, ...] = ()

    @property
    def key(self) -> PoolModel:
        return self.pool, self.model

    @property
    def reclaimable_now(self) -> int:
        """Return the number of GPUs that findings say may go."""
        return sum(map(len, self.reclaimable.values()))

    @property
    def releasable(self) -> int | None:
        """Return the number of releasable GPUs, with those that users have to release first; None if unknown."""
        return None if self.release is None else self.release.gpus

    @property
    def next_week_left(self) -> tuple[int, int] | tuple[None, None]:
        """Return the lowest and highest number of GPUs that next week's demand leaves, without any reserve."""
        if self.next_week is None:
            return None, None
        demands = (self.next_week.high, self.next_week.low)
        low, high = (max(0, math.floor(round(self.capacity - demand, 6))) for demand in demands)
        return low, high

    @property
    def verdict(self) -> PoolVerdict:
        """Return the only verdict; a pool that is just full keeps its GPUs.

        GPUs are ordered if demand will exceed them by half a GPU or more, after the GPUs that findings say may go and
        the GPUs to repair.
        """
        if self.release is None:
            return PoolVerdict("unknown")
        if self.release.now:
            return PoolVerdict("release", len(self.release.now))
        if self.release.reclaim:
            return PoolVerdict("reclaim", len(self.release.later))
        full, least = self.policy.full, self.policy.beyond(self.capacity + self.missing)
        if full is not None and full.likely is not None and least is not None and least.point > 0:
            return PoolVerdict("order", round(least.point), self.policy.order_by(full.likely), least)
        if self.reclaimable and not self.free_now:
            return PoolVerdict("reclaim", self.reclaimable_now)
        return PoolVerdict("keep")

    def graded(self, confidence: Confidence) -> PoolDemand:
        """Return the demand with another confidence of the release.

        With low confidence, the kept and releasable GPUs are unknown.
        """
        if confidence.grade != "low":
            return replace(self, confidence=confidence)
        kept: dict[str, Any] = dict.fromkeys(("reserve", "growth", "kept_for_hosts", "release"))
        return replace(self, confidence=confidence, **kept, snoozed=0, reserves=())

    def with_outlook(self, horizon_days: int, lead_days: int) -> PoolDemand:
        """Return the demand with another forecast length and time from order to use; the verdict's horizon stays."""
        shown = outlook(self.outlook.series, horizon_days, lead_days)
        return replace(self, outlook=shown, policy=replace(self.policy, lead_days=lead_days))


_SUMMED = ("free_now", "reclaimable_now", "uncertain", "missing", "reserve", "growth", "kept_for_hosts", "snoozed")


@dataclass(frozen=True)
class FleetDemand:
    """The demand of every pool and model, those with the most to release first.

    `free_now` + `reclaimable_now` = `demand_unknown` + `reserve` + `growth` + `kept_for_hosts` + `snoozed` +
    `releasable`.

    Attributes:
        demand_unknown: unused GPUs of pools whose demand is not known well enough.
        release_now: unallocated GPUs that can go.
        release_later: GPUs that can go once their users release them.
        going: the GPUs that findings say may go; while unused, they are no demand.
        unseen_since_ms: start of the unobserved time up to the requested end: no pool is listed then.
    """

    pools: tuple[PoolDemand, ...]
    going: frozenset[str]
    free_now: int
    reclaimable_now: int
    uncertain: int
    missing: int
    demand_unknown: int
    reserve: int
    growth: int
    kept_for_hosts: int
    snoozed: int
    release_now: int
    release_later: int
    unseen_since_ms: int | None = None

    @classmethod
    def of(
        cls, pools: Iterable[PoolDemand] = (), going: Iterable[str] = (), unseen_since_ms: int | None = None
    ) -> FleetDemand:
        own = tuple(sorted(pools, key=lambda pool: (-(pool.releasable or 0), -pool.free_now, pool.key)))
        releases = [pool.release for pool in own if pool.release is not None]
        return cls(
            own,
            frozenset(going),
            **{name: sum(getattr(pool, name) or 0 for pool in own) for name in _SUMMED},
            demand_unknown=sum(pool.free_now + pool.reclaimable_now for pool in own if pool.release is None),
            release_now=sum(len(release.now) for release in releases),
            release_later=sum(len(release.later) for release in releases),
            unseen_since_ms=unseen_since_ms,
        )

    @property
    def releasable(self) -> int:
        """Return the number of GPUs that can go, now and later."""
        return self.release_now + self.release_later

    @property
    def whole_hosts(self) -> tuple[str, ...]:
        """Return the hosts whose GPUs can all go now."""
        return tuple(host for pool in self.pools if pool.release is not None for host in pool.release.whole_hosts)

    @property
    def is_known(self) -> bool:
        return any(pool.release is not None for pool in self.pools)

    @property
    def worst(self) -> Backtest | None:
        """Return the largest shortfall of a pool with releasable GPUs; None if none was tested."""
        own = (pool.backtest for pool in self.pools if pool.release is not None and pool.release.now)
        tested = [each for each in own if each is not None]
        return max(tested, key=lambda each: (each.shortfall_hours, each.shortfall_gpus, each.hours), default=None)

    @cached_property
    def by_key(self) -> Mapping[PoolModel, PoolDemand]:
        return {pool.key: pool for pool in self.pools}

    @cached_property
    def released(self) -> frozenset[str]:
        """Return the unallocated GPUs that can go."""
        return frozenset(gpu for pool in self.pools if pool.release is not None for gpu in pool.release.now)

    @property
    def releasable_gpus(self) -> frozenset[str]:
        """Return the GPUs that can go, now and once their users release them."""
        releases = (pool.release for pool in self.pools if pool.release is not None)
        return frozenset(gpu for release in releases for gpu in (*release.now, *release.later))

    def of_gpus(self, gpus: Collection[str]) -> FleetDemand:
        """Return the pools that have any of these GPUs at the end of the window."""
        own = (pool for pool in self.pools if not pool.names.isdisjoint(gpus))
        return FleetDemand.of(own, self.going, self.unseen_since_ms)

    def graded(self, findings: Iterable[Finding]) -> FleetDemand:
        """Return the demand where findings about a release have the confidence of the site's own records."""
        grades = {finding.pool: finding.confidence for finding in findings if finding.pool is not None}
        own = (pool.graded(grades.get(pool.key, pool.confidence)) for pool in self.pools)
        return FleetDemand.of(own, self.going, self.unseen_since_ms)


def going_by(findings: Iterable[Finding]) -> frozenset[str]:
    """Return the GPUs that findings of at least medium confidence say may go, without the releasable GPUs of pools."""
    own = (finding for finding in findings if finding.pool is None and finding.confidence.grade != "low")
    return frozenset(gpu for finding in own for gpu in finding.reclaimable_gpus)


def most_urgent_first(pools: Iterable[PoolDemand], scope: Scope) -> tuple[PoolDemand, ...]:
    """Return a scope's pools by the likely day to order, then the earliest; pools without a forecast come last."""
    return tuple(sorted((pool for pool in pools if scope.has_place(*pool.key)), key=_urgency))


def _urgency(pool: PoolDemand) -> tuple[bool, date, date, PoolModel]:
    full = pool.outlook.full or Crossing(None, None, None)
    by = [date.max if day is None else pool.outlook.order_by(day) for day in (full.likely, full.earliest)]
    return pool.outlook.full is None, by[0], by[1], pool.key


@dataclass(frozen=True)
class WhatIfReserve:
    """The pools with an unused GPU and a known demand, each with the effect of this reserve."""

    margin: float
    pools: tuple[tuple[PoolDemand, Reserve], ...]
    is_known: bool

    @property
    def releasable(self) -> int | None:
        """Return the releasable GPUs; None if that is unknown for every unused GPU."""
        if not self.pools and not self.is_known:
            return None
        return sum(reserve.releasable for _, reserve in self.pools)

    @property
    def worst(self) -> tuple[PoolDemand, Backtest] | None:
        """Return the pool whose earlier estimates had the longest shortfall; None if no week can be tested."""
        tested = [(pool, reserve.tested) for pool, reserve in self.pools if reserve.tested is not None]
        return max(tested, key=lambda each: (each[1].shortfall_hours, each[1].shortfall_gpus), default=None)


def what_if_reserve(found: FleetDemand, margin: float) -> WhatIfReserve:
    """Return the effect of a reserve on each pool, for a reserve of MARGINS."""
    pools = (
        (pool, reserve)
        for pool in found.pools
        for reserve in pool.reserves
        if pool.free_now + pool.reclaimable_now and reserve.margin == margin
    )
    return WhatIfReserve(margin, tuple(pools), found.unseen_since_ms is None and not found.demand_unknown)


MARGINS: Sequence[float] = (0.0, 0.05, 0.10, MARGIN, 0.20, 0.30, 0.50)
"""Reserves to compare: the share by which the kept GPUs exceed the peak demand."""
