"""Computation of each pool's demand at the end of a window, of its releasable GPUs, and of the confidence."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from analytics.capacity.demand import hourly_levels, hourly_most
from analytics.capacity.forecast import HORIZON_DAYS, demand_series, outlook
from analytics.capacity.jobs import POOL_MODEL, PoolModel, ended_by_limit, queued_hours, waiting
from analytics.capacity.next_week import PoolHours, WeekAhead, weeks_ahead
from analytics.capacity.peak_demand import (
    HISTORY_MIN_DAYS,
    MARGIN,
    PEAK_DAYS,
    Backtest,
    PeakDemand,
    backtests,
    kept_peak,
    known_days,
    quantile_of,
)
from analytics.intervals import SPAN_MS, levels, merge
from analytics.language.sentences import Number, tr
from analytics.ledger.day_owners import UNWATCHED_SOURCES
from analytics.ledger.sampled import UNCONFIRMED_MAX
from analytics.proportions import whole_ceil
from analytics.states import IDLE_ALLOCATED, IN_USE
from analytics.workloads.confidence import HISTORY_MIN_DAYS as GRADED_MIN_DAYS
from analytics.workloads.confidence import grade, observe, right_clocks, watched_enough
from analytics.workloads.ledger_rows import whole_number
from analytics.workloads.model import Confidence, Context, once_per_context
from analytics.workloads.persistence import stays
from analytics.workloads.pool_demand import MARGINS, POOL_MIN_GPUS, FleetDemand, PoolDemand, Release, Reserve
from analytics.workloads.window_end import counted_gpus, last_rows, newest_of_each_gpu
from fallow.clock import DAY_MS, MINUTE_MS, WEEK_MS

RECENT_MS = 30 * MINUTE_MS
"""A GPU counts as in demand for this long after it worked."""
HISTORY_MS = 16 * WEEK_MS


_SPANS = ("gpu", "time", "end", "gpu_share", "state")


def fleet_demand(context: Context, going: Collection[str], snoozed: Collection[str] = ()) -> FleetDemand:
    """Return the demand of every pool and model with GPUs in working order at the end of the window.

    Findings say that the GPUs in `going` may go: while unused, they are no demand. Those in `snoozed` stay in place.
    """
    if context.fell_silent:
        return FleetDemand.of(unseen_since_ms=context.until_ms)
    there = _working_gpus(context)
    if there.is_empty():
        return FleetDemand.of()
    members = pool_members(context)
    hours = _hours(context, members, going)
    pools = [
        _Pool(
            context,
            (str(pool), str(model)),
            gpus,
            *(frame.filter(pool=pool, model=model) for frame in (members, hours)),
        )
        for (pool, model), gpus in there.group_by(POOL_MODEL, maintain_order=True)
    ]
    ahead = weeks_ahead(
        {pool.key: PoolHours(pool.hours, pool.capacity, pool.quantile, None) for pool in pools}, context.until_ms
    )
    hosts_needed = _whole_hosts_needed(context, pools)
    return FleetDemand.of(
        (pool.demand(going, snoozed, ahead[pool.key], hosts_needed[pool.key]) for pool in pools), going
    )


def demand_rows(context: Context, going: Collection[str]) -> pl.DataFrame:
    """Return when GPUs were in demand, and their users. Rows with work are half an hour longer, so rows may overlap.

    Held and reserved rows of GPUs in `going` count up to the last use. Columns: `_SPANS`, user and account.
    """
    since_ms = history_start_ms(context)
    spans = context.whole.segments.select(*_SPANS, "user", "account")
    rows = spans.filter((pl.col("end") > since_ms) & (pl.col("gpu_share") > 0))
    is_used = pl.col("state").is_in(IN_USE)
    may_go = pl.col("gpu").is_in(pl.Series(sorted(going), dtype=pl.String).implode())
    last_used = pl.col("end").filter(is_used).max().over("gpu")
    is_over = may_go & (pl.col("time") >= last_used.fill_null(0))
    in_demand = is_used | (pl.col("state").is_in(IDLE_ALLOCATED) & ~is_over)
    tail_ms = pl.when(is_used).then(RECENT_MS).otherwise(0)
    return rows.filter(in_demand).with_columns(end=pl.col("end") + tail_ms)


@once_per_context
def queued(context: Context) -> pl.DataFrame:
    """Return the GPUs that jobs waited for up to the end of the window: `analytics.capacity.jobs.waiting`."""
    rows = context.whole.segments.select("gpu", "host", "time", "end").join(
        pool_members(context).drop("host"), on="gpu"
    )
    jobs = ended_by_limit(context.jobs(), context.until_ms)
    return waiting(jobs, rows, (history_start_ms(context), context.until_ms))


def history_start_ms(context: Context) -> int:
    return max(whole_number(context.whole.segments, pl.col("time").min()), context.until_ms - HISTORY_MS)


@once_per_context
def pool_members(context: Context) -> pl.DataFrame:
    """Return every GPU observed within the history, at its last place: gpu, host, gpu_share, pool and model.

    GPUs that are gone, silent or out of order are included: their demand has to go to other GPUs.
    """
    observed = (pl.col("end") > history_start_ms(context)) & (pl.col("state") != "unknown") & (pl.col("gpu_share") > 0)
    last = newest_of_each_gpu(context.whole.segments, observed)
    return _with_pools(context, last.select("gpu", "host", "gpu_share"))


@once_per_context
def gpus_on_host(context: Context) -> Mapping[str, int]:
    """Return the number of GPUs at the end of the window by host, in any state.

    Instances count; a GPU that is split into instances does not.
    """
    last = last_rows(context).filter(pl.col("gpu_share") > 0)
    return dict(last.group_by("host").len().iter_rows())


def _with_pools(context: Context, rows: pl.DataFrame) -> pl.DataFrame:
    gpus = [context.inventory.card_of(gpu) for gpu in rows["gpu"]]
    return rows.with_columns(
        pool=pl.Series([context.inventory.pool(gpu) for gpu in gpus], dtype=pl.String),
        model=pl.Series([context.inventory.model(gpu) for gpu in gpus], dtype=pl.String),
    )


def _working_gpus(context: Context) -> pl.DataFrame:
    """Return the GPUs that can work at the window's end.

    Columns: gpu, host, gpu_share, state, user, is_certain, used_ms (time in use in the last four weeks), pool, model.
    `is_certain`: if `state` is unallocated, this is certain. A process list or the memory was read, the state was not
    only sampled, and no allocation on the host is by count.
    """
    last = last_rows(context).filter((pl.col("state") != "unavailable") & (pl.col("gpu_share") > 0))
    is_sampled = pl.col("unconfirmed_ms") > UNCONFIRMED_MAX * SPAN_MS
    is_unwatched = pl.col("user_source").is_in(UNWATCHED_SOURCES).fill_null(value=False)
    is_counted = pl.col("host").is_in(list(counted_gpus(context)))
    used = (
        context.whole.segments.select(_SPANS)
        .filter((pl.col("end") > context.until_ms - PEAK_DAYS * DAY_MS) & pl.col("state").is_in(IN_USE))
        .group_by("gpu")
        .agg(used_ms=SPAN_MS.sum())
    )
    found = last.select(
        "gpu", "host", "gpu_share", "state", "user", is_certain=~(is_sampled | is_unwatched | is_counted)
    ).join(used, on="gpu", how="left", maintain_order="left")
    return _with_pools(context, found.with_columns(pl.col("used_ms").fill_null(0)))


def _hours(context: Context, members: pl.DataFrame, going: Collection[str]) -> pl.DataFrame:
    """Return by pool, model and whole hour the most GPUs at once: `there`, `demand`, `unknown`, `demand_or_unknown`."""
    since_ms, until_ms = history_start_ms(context), context.until_ms
    own = members.select("gpu", *POOL_MODEL)
    rows = context.whole.segments.select(_SPANS).filter((pl.col("end") > since_ms) & (pl.col("gpu_share") > 0))
    rows = rows.join(own, on="gpu")
    unknown = rows.filter(pl.col("state") == "unknown")
    wanted = merge(demand_rows(context, going)).join(own, on="gpu")
    columns = ("gpu", "time", "end", "gpu_share")
    either = merge(pl.concat([wanted.select(columns), unknown.select(columns)])).join(own, on="gpu")
    in_order = rows.filter(pl.col("state") != "unavailable")
    spans = {"there": in_order, "demand": wanted, "unknown": unknown, "demand_or_unknown": either}
    hours = hourly_levels(spans, POOL_MODEL, since_ms, until_ms).filter(pl.col("there") > 0)
    return (
        hours.join(queued_hours(queued(context)), on=(*POOL_MODEL, "time"), how="left", maintain_order="left")
        .with_columns(pl.col("demand", "demand_or_unknown") + pl.col("queued").fill_null(0.0))
        .drop("queued")
    )


@dataclass(frozen=True)
class _Split:
    left: int
    """GPUs left beside the reserve."""
    grown: int
    """GPUs left beside the reserve and growth."""
    taken: tuple[str, ...]
    going: tuple[str, ...]


@dataclass(frozen=True)
class _Pool:
    """A pool and model: its GPUs in working order, its members and its hours."""

    context: Context
    key: PoolModel
    there: pl.DataFrame
    members: pl.DataFrame
    hours: pl.DataFrame

    @property
    def capacity(self) -> float:
        return float(self.there["gpu_share"].sum())

    @property
    def quantile(self) -> float:
        return quantile_of(self.key[0])

    def demand(
        self, going: Collection[str], snoozed: Collection[str], next_week: WeekAhead | None, hosts_needed: int
    ) -> PoolDemand:
        """Return the demand and the release; see `fleet_demand`."""
        context, hours = self.context, self.hours
        whole = self.there.filter(pl.col("gpu_share") == 1)
        free = whole.filter((pl.col("state") == "free") & pl.col("is_certain"))
        held = whole.filter(pl.col("state").is_in(IDLE_ALLOCATED) & pl.col("gpu").is_in(list(going)))
        uncertain = whole.filter((pl.col("state") == "free") & ~pl.col("is_certain")).height
        series = demand_series(self.key, hours, self.capacity, context.until_ms, context.settings.zone)
        ahead = outlook(series, HORIZON_DAYS, context.settings.lead_days)
        about: dict[str, Any] = {
            "capacity": self.capacity,
            "names": frozenset(whole["gpu"]),
            "gpus": whole.height,
            "free_now": free.height,
            "reclaimable": _by_user(held),
            "uncertain": uncertain,
            "missing": self.members.filter(pl.col("gpu_share") == 1).height - whole.height,
            "hours": hours,
            "outlook": ahead,
            "policy": ahead,
        }
        known = kept_peak(hours, context.until_ms, self.quantile)
        if known is None:
            days = known_days(hours, context.until_ms)
            return PoolDemand(
                *self.key,
                **about,
                history_days=days,
                known_from_ms=context.until_ms + round(max(0.0, HISTORY_MIN_DAYS - days) * DAY_MS),
                confidence=Confidence((tr("the pool was observed for less than a week"),)),
            )
        peak, tested = known
        hosts = _Hosts.of(whole, free, held, gpus_on_host(context), hosts_needed)
        unused = free.height + held.height

        def beside(margin: float, tested: Backtest | None) -> _Split:
            if tested is not None and tested.shortfall_gpus > peak.reserve(margin):
                return _Split(0, 0, (), ())
            left = min(unused, self._left_gpus(peak.kept(margin), uncertain))
            grown = min(left, self._left_gpus(max(peak.kept(margin), whole_ceil(ahead.peak or 0.0)), uncertain))
            taken = hosts.take(grown)
            return _Split(left, grown, taken, tuple(gpu for gpu in taken if gpu not in snoozed))

        split = beside(MARGIN, tested)
        confidence = self._confidence(peak, tested, split.going)
        return PoolDemand(
            *self.key,
            **about,
            history_days=peak.days,
            known_from_ms=None,
            peak=peak,
            backtest=tested,
            next_week=next_week,
            reserve=unused - split.left,
            growth=split.left - split.grown,
            kept_for_hosts=split.grown - len(split.taken),
            snoozed=len(split.taken) - len(split.going),
            release=self._release(split.going, free, held, hosts),
            confidence=confidence,
            reserves=tuple(
                Reserve(
                    margin, min(peak.kept(margin), math.floor(self.capacity)), len(beside(margin, each).going), each
                )
                for margin, each in zip(
                    MARGINS, backtests(hours, context.until_ms, peak.quantile, MARGINS), strict=True
                )
            ),
        ).graded(confidence)

    def _left_gpus(self, kept: int, uncertain: int) -> int:
        """Return the whole GPUs left beside the kept GPUs and those that may be in demand."""
        return max(0, math.floor(round(self.capacity - kept, 6)) - uncertain)

    def _release(self, gpus: Sequence[str], free: pl.DataFrame, held: pl.DataFrame, hosts: _Hosts) -> Release:
        there = set(free["gpu"])
        now = [gpu for gpu in gpus if gpu in there]
        users = dict(held.select("gpu", pl.col("user").fill_null("")).iter_rows())
        known = stays(self.context)
        probabilities = {gpu: known[gpu].horizon if gpu in known else None for gpu in gpus}
        later = held.filter(
            pl.col("gpu").is_in(pl.Series([gpu for gpu in gpus if gpu in users], dtype=pl.String).implode())
        )
        return Release(
            tuple(now),
            _by_user(later),
            hosts.whole_among(now),
            {gpu: hosts.host_of[gpu] for gpu in gpus},
            probabilities,
            self.context.settings.horizon_ms,
        )

    def _confidence(self, peak: PeakDemand, tested: Backtest | None, gpus: Sequence[str]) -> Confidence:
        """Return the confidence of the release: how the GPUs were observed, and how earlier estimates held."""
        if not gpus:
            return Confidence(())
        rows = self.context.inside.segments
        rows = rows.filter(pl.col("gpu").is_in(pl.Series(gpus).implode()))
        failed = [*watched_enough(observe(self.context, gpus, rows)), *right_clocks(self.context, rows["host"])]
        if tested is None and peak.days >= GRADED_MIN_DAYS:
            failed.append(tr("no earlier week could be tested"))
        if tested is not None and tested.shortfall_hours:
            failed.append(
                tr(
                    "earlier estimates fell short in {short} of {hours} hours, by at most {gpus} GPUs",
                    short=Number(tested.shortfall_hours),
                    hours=Number(tested.hours),
                    gpus=Number(tested.shortfall_gpus),
                )
            )
        left = self._left_gpus(peak.kept_if_unknown, 0)
        if left < (len(gpus) + 1) // 2:
            failed.append(
                tr(
                    "if unobserved time counts as demand, only {low} of {point} remain",
                    low=Number(left),
                    point=Number(len(gpus)),
                )
            )
        if self.there.filter(pl.col("gpu_share") == 1).height < POOL_MIN_GPUS:
            failed.append(
                tr(
                    "the pool has {gpus} GPUs: the demand of fewer than {wanted} varies much",
                    gpus=Number(self.capacity),
                    wanted=Number(POOL_MIN_GPUS),
                )
            )
        return grade(failed)


def _by_user(gpus: pl.DataFrame) -> dict[str, tuple[str, ...]]:
    named = gpus.with_columns(pl.col("user").fill_null("")).sort("user", "gpu")
    return {str(user): tuple(own["gpu"]) for (user,), own in named.group_by("user", maintain_order=True)}


@dataclass(frozen=True)
class _Host:
    """The unused GPUs of a host with `width` GPUs: `free` are unallocated, a user has to release `held` ones."""

    name: str
    width: int
    free: tuple[str, ...]
    held: tuple[str, ...]


@dataclass(frozen=True)
class _Hosts:
    """The hosts of a pool with unused GPUs, the most unallocated first; on a host, the least used GPU first.

    `spare` is the number of hosts that may lose a GPU, so that enough whole hosts stay for jobs.
    """

    hosts: tuple[_Host, ...]
    spare: int
    host_of: Mapping[str, str]

    @classmethod
    def of(
        cls, whole: pl.DataFrame, free: pl.DataFrame, held: pl.DataFrame, width: Mapping[str, int], hosts_needed: int
    ) -> _Hosts:
        found: dict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
        for kind, gpus in enumerate((free, held)):
            for gpu, host in gpus.sort("used_ms", "gpu").select("gpu", "host").iter_rows():
                found[host][kind].append(gpu)
        hosts = [_Host(name, width[name], tuple(own[0]), tuple(own[1])) for name, own in found.items()]
        ordered = tuple(sorted(hosts, key=lambda host: (-len(host.free), -len(host.held), host.name)))
        return cls(ordered, whole["host"].n_unique() - hosts_needed, dict(whole.select("gpu", "host").iter_rows()))

    def take(self, number: int) -> tuple[str, ...]:
        """Return up to this many unused GPUs: whole unallocated hosts first, then unallocated GPUs, then users' GPUs.

        Each kind comes from as few hosts as possible.
        """
        taken: dict[str, tuple[str, ...]] = {}

        def take_from(host: _Host, gpus: tuple[str, ...]) -> None:
            left = number - sum(map(len, taken.values()))
            if gpus and left > 0 and (host.name in taken or len(taken) < self.spare):
                taken[host.name] = (*taken.get(host.name, ()), *gpus[:left])

        for host in self.hosts:
            if len(host.free) == host.width <= number - sum(map(len, taken.values())):
                take_from(host, host.free)
        whole = set(taken)
        for kind in ("free", "held"):
            for host in sorted(self.hosts, key=lambda each: each.name not in taken):
                if host.name not in whole:
                    take_from(host, getattr(host, kind))
        return tuple(gpu for gpus in taken.values() for gpu in gpus)

    def whole_among(self, gpus: Collection[str]) -> tuple[str, ...]:
        """Return the hosts whose GPUs are all in a set."""
        return tuple(host.name for host in self.hosts if len(host.free) == host.width and set(host.free) <= set(gpus))


def _whole_hosts_needed(context: Context, pools: Sequence[_Pool]) -> Mapping[PoolModel, int]:
    """Return by pool the number of hosts that single jobs used wholly at once, by the quantile of its peak.

    Hosts with a single GPU do not count.
    """
    found: dict[PoolModel, int] = {}
    since_ms = context.until_ms - PEAK_DAYS * DAY_MS
    rows = context.whole.segments.select(*_SPANS, "host", "job", "user").filter(
        pl.col("state").is_in(IN_USE) & (pl.col("gpu_share") == 1) & (pl.col("end") > since_ms)
    )
    since_ms = max(since_ms, history_start_ms(context))
    for pool in pools:
        # of a host that is gone all that it had; a card that left another host is no part of its block
        there, known = (frame.filter(pl.col("gpu_share") == 1) for frame in (pool.there, pool.members))
        gone = known.join(there, on="host", how="anti")
        width = pl.concat([frame.group_by("host").agg(width=pl.len()) for frame in (there, gone)])
        width = width.filter(pl.col("width") > 1)
        own = rows.filter(pl.col("gpu").is_in(pool.members["gpu"].implode()))
        found[pool.key] = _whole_at_once(own.join(width, on="host"), since_ms, context.until_ms, pool.quantile)
    return found


def _whole_at_once(rows: pl.DataFrame, since_ms: int, until_ms: int, quantile: float) -> int:
    by = ("host", "occupant", "width")
    named = rows.select("host", "width", "gpu", "time", "end", occupant=pl.coalesce("job", "user", pl.lit("")))
    # most occupants never had as many GPUs as the host has
    widely = named.group_by(by).agg(gpus=pl.col("gpu").n_unique()).filter(pl.col("gpus") >= pl.col("width"))
    wide = named.join(widely, on=by, how="semi", maintain_order="left")
    whole = merge(levels(wide, by).filter(pl.col("level") >= pl.col("width")).drop_nulls("end"), ("host",))
    if whole.is_empty():
        return 0
    hours = hourly_most(
        whole.with_columns(fleet=pl.lit(""), hosts=pl.lit(1.0)), ("fleet",), since_ms, until_ms, weight="hosts"
    )
    at_once = hours["most"].quantile(quantile, "higher")
    return 0 if at_once is None else int(at_once)
