"""One number for what can be given back: idle now, less the reserve, less what would break a block that jobs need.

And what another reserve would leave to give back, and what it would have been worth last week.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import polars as pl

from analytics.capacity.demand import hourly_most
from analytics.intervals import levels, merge
from analytics.states import IN_USE, UNUSED
from analytics.workloads.model import Context, once_per_context
from analytics.workloads.pool_need import PoolModel, PoolNeed, history_start_ms, pool_needs
from analytics.workloads.surplus import HISTORY_MIN_DAYS, MARGIN, Surplus, quantile_of
from fallow.clock import DAY_MS

MARGINS = (0.0, 0.05, 0.10, MARGIN, 0.20, 0.30, 0.50)
"""Reserves to compare: the share by which more is kept than was needed at once."""


@dataclass(frozen=True)
class Reserve:
    """What a reserve leaves to give back, and what it would have been worth last week.

    `short_hours` of `hours` is for how long more GPUs were needed at once than the estimate of a week earlier would have kept
    with this reserve, `short_gpus` by how many at most; None where no such week was observed.
    """

    margin: float
    kept: int
    safe_gpus: tuple[str, ...]
    short_hours: int | None
    hours: int | None
    short_gpus: int | None

    @property
    def safe(self) -> int:
        """How many GPUs it leaves to give back."""
        return len(self.safe_gpus)


@dataclass(frozen=True)
class PoolReclaimable:
    """The GPUs of one model in one pool that can be given back: `idle_now` - `reserve` - `broken_blocks` - `put_off` = `safe`.

    `unconfirmed` more may be idle: point samples alone say so, and each of them counts as needed. `missing` were in the pool within
    the history and are out of order or silent now: what they were needed for counts. `put_off` are left where they are because somebody suppressed a finding that names them.
    `reserve` is how many of the idle ones are kept for what the pool needs at once, `broken_blocks` how many more are kept so
    that its jobs on whole hosts still find them. `whole_nodes` of the safe GPUs are whole hosts. All of these are None where the need is not known:
    `known_from_ms` is when it will be. `safe_gpus` names them, whole hosts first, and `gpus_by_host` says which are on which host, the most first. `low` and `high` are what next week leaves
    without a reserve, None where no week can be compared.
    """

    pool: str
    model: str
    gpus: int
    idle_now: int
    unconfirmed: int
    missing: int
    history_days: float
    names: frozenset[str]
    reserve: int | None = None
    broken_blocks: int | None = None
    safe: int | None = None
    whole_nodes: int | None = None
    low: int | None = None
    high: int | None = None
    safe_gpus: tuple[str, ...] = ()
    gpus_by_host: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    whole_hosts: tuple[str, ...] = ()
    known_from_ms: int | None = None
    reserves: tuple[Reserve, ...] = ()
    put_off: int = 0

    @property
    def safe_by_host(self) -> Mapping[str, int]:
        """On which hosts how many of the safe GPUs are."""
        return {host: len(gpus) for host, gpus in self.gpus_by_host.items()}

    @property
    def default(self) -> Reserve | None:
        """The reserve that is kept."""
        return next((each for each in self.reserves if each.margin == MARGIN), None)


_SUMMED = ("idle_now", "unconfirmed", "missing", "reserve", "broken_blocks", "put_off", "safe", "whole_nodes")


@dataclass(frozen=True)
class Reclaimable:
    """The same of all pools and models, which it lists; `need_unknown` are idle GPUs of those whose need is not known.

    `idle_now` - `need_unknown` - `reserve` - `broken_blocks` - `put_off` = `safe`. `unseen_since_ms` is from when on nothing was seen up to
    the end that was asked for: no pool is listed then, and how many are idle is not known.
    """

    pools: tuple[PoolReclaimable, ...]
    idle_now: int
    unconfirmed: int
    missing: int
    need_unknown: int
    reserve: int
    broken_blocks: int
    put_off: int
    safe: int
    whole_nodes: int
    unseen_since_ms: int | None = None

    @classmethod
    def of(cls, pools: Iterable[PoolReclaimable], unseen_since_ms: int | None = None) -> Reclaimable:
        """The sums, over pools with something idle first."""
        each = tuple(sorted(pools, key=lambda one: (-(one.safe or 0), -one.idle_now, one.pool, one.model)))
        return cls(
            each,
            need_unknown=sum(one.idle_now for one in each if one.safe is None),
            unseen_since_ms=unseen_since_ms,
            **{name: sum(getattr(one, name) or 0 for one in each) for name in _SUMMED},
        )

    @property
    def safe_gpus(self) -> frozenset[str]:
        """The GPUs that are safe to give back."""
        return frozenset(gpu for each in self.pools for gpu in each.safe_gpus)

    def of_gpus(self, gpus: Collection[str]) -> Reclaimable:
        """That of the pools in which any of these GPUs is at the end of the window."""
        own = (each for each in self.pools if not each.names.isdisjoint(gpus))
        return Reclaimable.of(own, self.unseen_since_ms)

    def without(self, gpus: Collection[str]) -> Reclaimable:
        """That without GPUs that are left where they are on request: none that is needed takes their place."""
        return Reclaimable.of((_without(each, gpus) for each in self.pools), self.unseen_since_ms)

    @property
    def is_known(self) -> bool:
        """Whether the need of any pool is known."""
        return any(each.safe is not None for each in self.pools)


@once_per_context
def reclaimable(context: Context) -> Reclaimable:
    """What can be given back at the end of the window, whole GPUs only: parts of a card nobody takes away."""
    if context.fell_silent:
        return Reclaimable.of((), context.until_ms)
    needs, blocks = pool_needs(context), _whole_hosts_needed(context)
    return Reclaimable.of(_pool(context, need, blocks.get(of, 0)) for of, need in needs.items())


def _pool(context: Context, need: PoolNeed, hosts_needed: int) -> PoolReclaimable:
    whole = need.gpus.filter(pl.col("gpu_share") == 1)
    idle, sampled = _idle(context, whole)
    about: dict[str, Any] = {
        "pool": need.pool,
        "model": need.model,
        "gpus": whole.height,
        "idle_now": idle.height,
        "unconfirmed": sampled,
        "missing": need.members.filter(pl.col("gpu_share") == 1).height - whole.height,
        "names": frozenset(whole["gpu"]),
    }
    found = need.estimate
    if found is None:
        days = need.hours.height / 24
        return PoolReclaimable(
            **about,
            history_days=days,
            known_from_ms=context.until_ms + round(max(0.0, HISTORY_MIN_DAYS - days) * DAY_MS),
        )
    most = _Most(_idle_hosts(whole, idle), whole["host"].n_unique(), hosts_needed)
    beyond = _beyond(idle.height, found.left, sampled)
    safe, whole_hosts = most.of(beyond)
    low, high = found.next_week
    return PoolReclaimable(
        **about,
        reserve=idle.height - beyond,
        broken_blocks=beyond - len(safe),
        safe=len(safe),
        whole_nodes=sum(each.width for each in most.hosts if each.host in whole_hosts),
        low=None if low is None else min(low, idle.height),
        high=None if high is None else min(high, idle.height),
        safe_gpus=safe,
        gpus_by_host=_by_host(whole, safe),
        whole_hosts=whole_hosts,
        history_days=found.days,
        reserves=tuple(_reserve(need, found, margin, most, (idle.height, sampled)) for margin in MARGINS),
    )


def _without(pool: PoolReclaimable, gpus: Collection[str]) -> PoolReclaimable:
    if pool.names.isdisjoint(gpus):
        return pool
    left = _left(pool.safe_gpus, gpus)
    kept = {host: tuple(gpu for gpu in own if gpu in left) for host, own in pool.gpus_by_host.items()}
    by_host = {host: own for host, own in kept.items() if own}
    whole = tuple(host for host in pool.whole_hosts if by_host.get(host) == pool.gpus_by_host[host])
    return replace(
        pool,
        put_off=len(pool.safe_gpus) - len(left),
        safe=len(left),
        safe_gpus=left,
        gpus_by_host=by_host,
        whole_hosts=whole,
        whole_nodes=sum(len(by_host[host]) for host in whole),
        reserves=tuple(replace(each, safe_gpus=_left(each.safe_gpus, gpus)) for each in pool.reserves),
    )


def _left(safe: Sequence[str], gpus: Collection[str]) -> tuple[str, ...]:
    return tuple(gpu for gpu in safe if gpu not in gpus)


def _beyond(idle: int, left: int, sampled: int) -> int:
    """How many idle GPUs the need leaves, if all that nothing confirms to be idle are at work."""
    return min(idle, max(0, left - sampled))


def _by_host(whole: pl.DataFrame, gpus: Sequence[str]) -> dict[str, tuple[str, ...]]:
    host_of = dict(whole.select("gpu", "host").iter_rows())
    found: dict[str, list[str]] = defaultdict(list)
    for gpu in gpus:
        found[host_of[gpu]].append(gpu)
    return {host: tuple(own) for host, own in sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))}


def _idle(context: Context, whole: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Those that nobody uses, not held for less than `findings.held_min`, which is a pause; and how many more point samples alone call so."""
    age_ms = context.until_ms - pl.col("stretch_start")
    pause = (pl.col("state") != "free") & (age_ms < context.settings.held_min_ms)
    idle = whole.filter(pl.col("state").is_in(UNUSED) & ~pause)
    return idle.filter(~pl.col("is_sampled")), int(idle["is_sampled"].sum())


@dataclass(frozen=True)
class _IdleHost:
    """The idle GPUs of a host with `width` GPUs: those that nobody has, and those that somebody would have to let go."""

    host: str
    width: int
    free: tuple[str, ...]
    others: tuple[str, ...]

    @property
    def gpus(self) -> tuple[str, ...]:
        return (*self.free, *self.others)


def _idle_hosts(whole: pl.DataFrame, idle: pl.DataFrame) -> tuple[_IdleHost, ...]:
    """The hosts with idle GPUs, the most free and then the most idle first; of those of a host the least used."""
    width = dict(whole.group_by("host").len().iter_rows())
    found: dict[str, tuple[list[str], list[str]]] = {}
    for gpu, host, state in idle.sort("used_ms", "gpu").select("gpu", "host", "state").iter_rows():
        found.setdefault(host, ([], []))[state != "free"].append(gpu)
    hosts = [_IdleHost(host, width[host], tuple(free), tuple(others)) for host, (free, others) in found.items()]
    return tuple(sorted(hosts, key=lambda each: (-len(each.free), -len(each.others), each.host)))


@dataclass(frozen=True)
class _Most:
    """How many can go without breaking a block; `host_count` is how many hosts there are."""

    hosts: tuple[_IdleHost, ...]
    host_count: int
    hosts_needed: int

    def of(self, beyond: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Of so many GPUs those that can go, and the hosts that go as a whole.

        A host with any GPU gone is no whole host any more, and hosts are only broken while more whole ones stay than jobs needed at
        once. Whole hosts go first, then GPUs that nobody has, from as few hosts as possible, and last those that somebody has to let go.
        """
        gone: dict[str, tuple[str, ...]] = {}
        for each in self.hosts:
            if len(each.gpus) == each.width and self._may_take(gone, each, beyond) >= each.width:
                gone[each.host] = each.gpus
        whole = tuple(gone)
        for kind in ("free", "others"):
            for each in sorted(self.hosts, key=lambda host: host.host not in gone):
                if each.host in whole:
                    continue
                taken = getattr(each, kind)[: self._may_take(gone, each, beyond)]
                if taken:
                    gone[each.host] = (*gone.get(each.host, ()), *taken)
        return tuple(gpu for gpus in gone.values() for gpu in gpus), whole

    def _may_take(self, gone: Mapping[str, tuple[str, ...]], host: _IdleHost, beyond: int) -> int:
        """How many more GPUs may go from a host."""
        is_broken, spare = host.host in gone, self.host_count - self.hosts_needed
        if not is_broken and len(gone) >= spare:
            return 0
        return max(0, beyond - sum(map(len, gone.values())))


def _reserve(need: PoolNeed, found: Surplus, margin: float, most: _Most, idle: tuple[int, int]) -> Reserve:
    kept, tested = found.wanted_with(margin), need.backtest(margin)
    safe, _ = most.of(_beyond(idle[0], found.left_of(kept), idle[1]))
    if tested is None:
        return Reserve(margin, min(kept, math.floor(need.count)), safe, None, None, None)
    over = max(0.0, tested.largest - tested.enough)
    return Reserve(margin, min(kept, math.floor(need.count)), safe, tested.exceeded, tested.hours, int(-(-over // 1)))


def _whole_hosts_needed(context: Context) -> Mapping[PoolModel, int]:
    """Per pool and model how many hosts single jobs had wholly at work at once, by the quantile of the need; hosts with one GPU are no block."""
    found: dict[PoolModel, int] = defaultdict(int)
    since_ms = history_start_ms(context)
    rows = context.whole.stretches.filter(pl.col("state").is_in(IN_USE) & (pl.col("gpu_share") == 1))
    for of, need in pool_needs(context).items():
        width = need.members.filter(pl.col("gpu_share") == 1).group_by("host").agg(width=pl.len())
        width = width.filter(pl.col("width") > 1)
        own = rows.filter(pl.col("gpu").is_in(need.members["gpu"].implode()) & (pl.col("end") > since_ms))
        found[of] = _whole_at_once(own.join(width, on="host"), since_ms, context.until_ms, quantile_of(need.pool))
    return found


def _whole_at_once(rows: pl.DataFrame, since_ms: int, until_ms: int, quantile: float) -> int:
    by = ("host", "whom", "width")
    named = rows.with_columns(whom=pl.coalesce("job", "holder", pl.lit("")))
    whole = merge(levels(named, by).filter(pl.col("level") >= pl.col("width")).drop_nulls("end"), ("host",))
    if whole.is_empty():
        return 0
    hours = hourly_most(
        whole.with_columns(fleet=pl.lit(""), hosts=pl.lit(1.0)), ("fleet",), since_ms, until_ms, weight="hosts"
    )
    at_once = hours["most"].quantile(quantile, "higher")
    return 0 if at_once is None else int(at_once)


class PoolReserve(NamedTuple):
    """A pool, and what a reserve means for it."""

    pool: PoolReclaimable
    reserve: Reserve


@dataclass(frozen=True)
class WhatIfReserve:
    """The pools with an idle GPU and a known need, each with what this reserve means for it.

    `worst` is the pool that would have been short for longest last week; None where no such week was observed.
    """

    margin: float
    pools: tuple[PoolReserve, ...]
    is_known: bool

    @property
    def safe(self) -> int | None:
        """The GPUs that could go; None where that is known of no idle one."""
        if not self.pools and not self.is_known:
            return None
        return sum(reserve.safe for _, reserve in self.pools)

    @property
    def worst(self) -> PoolReserve | None:
        tested = [each for each in self.pools if each.reserve.short_hours is not None]
        return max(tested, key=lambda each: (each.reserve.short_hours or 0, each.reserve.short_gpus or 0), default=None)


def what_if_reserve(found: Reclaimable, margin: float) -> WhatIfReserve:
    """With one of `MARGINS` as the reserve."""
    pools = (
        PoolReserve(pool, reserve)
        for pool in found.pools
        for reserve in pool.reserves
        if pool.idle_now and reserve.margin == margin
    )
    is_known = found.unseen_since_ms is None and not found.need_unknown
    return WhatIfReserve(margin, tuple(pools), is_known)


def reserve_steps(found: Reclaimable) -> tuple[WhatIfReserve, ...]:
    """With each reserve that is compared."""
    return tuple(what_if_reserve(found, margin) for margin in MARGINS)
