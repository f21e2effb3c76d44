"""The base of every replay of a window: its jobs, today's fleet, the order of its queue, and how well that fits."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import product

import polars as pl

from analytics.capacity.jobs import POOL_MODEL, PoolModel, TeamOf, blocks, located
from analytics.frames import with_mapped
from analytics.intervals import SPAN_MS, clip, levels
from analytics.money.energy import MJ_PER_KWH
from analytics.plan.replay.engine import Replayed, replay
from analytics.plan.replay.policy import Order, Priorities, ReplayPolicy
from analytics.plan.replay.replay_fleet import GpuFacts, HostGroup, ReplayFleet, fleet_today
from analytics.plan.replay.replay_jobs import WORK_NEEDS, RebuiltJobs, in_places, partition_key, rebuilt_jobs
from analytics.plan.replay.replayed_waits import (
    Delays,
    ReplayCheck,
    WaitFigures,
    check_replay,
    checked_waits,
    learnt_delays,
    mean_error_ms,
    mean_waiting,
    wait_figures,
    with_delays,
    with_waits,
)
from fallow.clock import HOUR_MS
from fallow.errors import UsageError

Window = tuple[int, int]


@dataclass(frozen=True)
class PoolUse:
    """The GPUs of one pool in a replay: their number, their allocated time, and the most allocated at once.

    Times are GPU milliseconds in the window. Where jobs share GPUs, `held_ms` counts each job's part of a GPU, and
    `most` is None. `cost` is that of all GPUs of the pool over the window, None where a price is not known.
    """

    pool: str
    gpus: int
    there_ms: float
    held_ms: float
    most: float | None
    cost: float | None

    @property
    def utilization(self) -> float | None:
        """Return the allocated share of the GPU time."""
        return self.held_ms / self.there_ms if self.there_ms else None

    @property
    def unallocated_ms(self) -> float:
        """Return the GPU time in which no job has the GPUs."""
        return self.there_ms - self.held_ms


@dataclass(frozen=True)
class FleetUse:
    """The pools of a fleet in a replay, and what became of its jobs."""

    pools: tuple[PoolUse, ...]
    kwh: float | None
    """What the GPUs draw over the window; None where their watts are not known."""
    waits: WaitFigures | None = None
    """Those of all jobs; None where the replay of today is not near what was observed."""
    lost: int = 0
    """The jobs that could not run, though they fit on today's fleet."""

    def of_pool(self, name: str) -> PoolUse:
        """Return a pool, without GPUs where it does not exist."""
        found = (each for each in self.pools if each.pool == name)
        return next(found, PoolUse(name, 0, 0.0, 0.0, 0.0, 0.0))

    @property
    def total(self) -> PoolUse:
        """Return all pools together; `most` is the sum of the pools' peaks."""
        costs, most = [each.cost for each in self.pools], [each.most for each in self.pools]
        return PoolUse(
            pool="",
            gpus=sum(each.gpus for each in self.pools),
            there_ms=sum(each.there_ms for each in self.pools),
            held_ms=sum(each.held_ms for each in self.pools),
            most=None if None in most else sum(each for each in most if each is not None),
            cost=None if None in costs else sum(each for each in costs if each is not None),
        )


@dataclass(frozen=True)
class ComparedWaits:
    """Waits of a team's, a priority's or all jobs, in the replay of today and under the change.

    `name` is None for all jobs, or if unknown.
    """

    name: str | None
    today: WaitFigures
    then: WaitFigures

    @property
    def saved_ms(self) -> float:
        """Return the GPU time that these jobs wait less; negative where they wait more."""
        return self.today.gpu_ms - self.then.gpu_ms


@dataclass(frozen=True)
class ComparedPool:
    """One pool in both replays, without GPUs where it does not exist; `waits` is None if the replay does not fit."""

    today: PoolUse
    then: PoolUse
    waits: ComparedWaits | None

    @property
    def name(self) -> str:
        return self.today.pool

    @property
    def differs(self) -> bool:
        """Return whether any figure of the pool differs from today."""
        return self.today != self.then or (self.waits is not None and self.waits.today != self.waits.then)


@dataclass(frozen=True)
class CutUser:
    """A user whose jobs an idle time-out ends; None is unknown."""

    user: str | None
    team: str | None
    jobs: int
    freed_ms: float
    """GPU time of the window that the time-out frees."""
    worked_ms: float
    """The part of the freed time in which the jobs worked."""
    cost: float | None
    """That of the freed time."""
    worked_later: int
    """The jobs that worked again after the time-out."""


@dataclass(frozen=True)
class Unplaced:
    """Jobs that fit on today's fleet and could not run under the change, and why."""

    why: str
    jobs: int
    gpu_ms: float


@dataclass(frozen=True)
class ReplayOutcome:
    """One change against the replay of today."""

    today: FleetUse
    then: FleetUse
    pools: tuple[ComparedPool, ...]
    teams: tuple[ComparedWaits, ...]
    """Queue waits by team, the largest gain first; empty where waits are not known."""
    ranks: tuple[ComparedWaits, ...]
    """The same by priority."""
    cuts: tuple[CutUser, ...]
    unplaced: tuple[Unplaced, ...]
    postponed: int
    """The jobs that start later because of off-peak hours."""
    preempted: int
    """The jobs that lose their GPUs to other jobs."""
    window: Window
    is_same: bool = False
    """Whether every job runs at the same time on the same GPUs as today, on the same fleet."""
    is_today: bool = False
    """Whether nothing was changed."""
    idle_timeout_ms: int | None = None
    """That of the change; None without one."""

    @property
    def waits(self) -> ComparedWaits | None:
        """Return the queue waits of all jobs; None if the replay of today does not reproduce the observed ones."""
        today, then = self.today.waits, self.then.waits
        return None if today is None or then is None else ComparedWaits(None, today, then)

    @property
    def freed_ms(self) -> float:
        """Return the GPU time in the window that idle time-outs free."""
        return sum(each.freed_ms for each in self.cuts)

    @property
    def spare(self) -> float | None:
        """Return the GPUs by which the change lowers peak use, summed over pools; None if jobs share GPUs.

        Negative if the change raises the peak.
        """
        most = self.today.total.most, self.then.total.most
        return None if most[0] is None or most[1] is None else most[0] - most[1]


def replay_outcome(
    jobs: pl.DataFrame,
    today: Replayed,
    then: Replayed,
    window: Window,
    *,
    has_waits: bool,
    pools_with_waits: Collection[str] = (),
    idle_timeout_ms: int | None = None,
) -> ReplayOutcome:
    """Return what becomes of the jobs.

    `jobs` has REPLAY_JOB_SCHEMA and `rank`. The replay of today explains the queue waits of all jobs (`has_waits`), or
    of those in `pools_with_waits`. `idle_timeout_ms` is that of the change.
    """
    runs = then.runs
    ran = jobs.select("number", "user", "team", "ran_ms", "idle_intervals").join(runs, on="number")
    homeless = today.runs.drop_nulls("why_not")  # as they asked, they fit nowhere today: no change is to blame
    lost = ran.drop_nulls("why_not").join(homeless, on="number", how="anti")
    never = lost.group_by("why_not").agg(pl.len(), gpu_ms=(pl.col("gpus") * pl.col("ran_ms")).sum().cast(pl.Float64))
    waits = _compared(None, jobs, today, then, window) if has_waits else None
    before, after = fleet_use(today, window), fleet_use(then, window)
    return ReplayOutcome(
        today=replace(before, waits=None if waits is None else waits.today),
        then=replace(after, waits=None if waits is None else waits.then, lost=lost.height),
        pools=tuple(
            ComparedPool(
                before.of_pool(pool),
                after.of_pool(pool),
                _compared(pool, jobs.filter(pl.col("pool") == pool), today, then, window)
                if pool in pools_with_waits
                else None,
            )
            for pool in sorted({each.pool for use in (before, after) for each in use.pools})
        ),
        teams=_by(jobs, "team", today, then, window) if has_waits else (),
        ranks=_by(jobs, "rank", today, then, window) if has_waits else (),
        cuts=_cuts(ran, then.fleet, window),
        unplaced=tuple(Unplaced(*row) for row in never.sort("gpu_ms", "why_not", descending=[True, False]).iter_rows()),
        postponed=runs.join(today.runs.select("number", was="arrived"), on="number")
        .filter(pl.col("arrived") > pl.col("was"))
        .height,
        preempted=runs.filter(pl.col("preempted") > 0).height,
        window=window,
        is_same=today.fleet == then.fleet and today.runs.sort("number").equals(runs.sort("number")),
        idle_timeout_ms=idle_timeout_ms,
    )


def _compared(name: str | None, jobs: pl.DataFrame, today: Replayed, then: Replayed, window: Window) -> ComparedWaits:
    found = [jobs.join(each.runs.select("number", "begin"), on="number", how="left") for each in (today, then)]
    return ComparedWaits(name, *(wait_figures(with_waits(each, pl.col("begin"), window[1])) for each in found))


def _by(jobs: pl.DataFrame, column: str, today: Replayed, then: Replayed, window: Window) -> tuple[ComparedWaits, ...]:
    parts = jobs.partition_by(column, as_dict=True)
    found = [_compared(None if name is None else str(name), own, today, then, window) for (name,), own in parts.items()]
    return tuple(
        sorted((each for each in found if each.today.jobs), key=lambda each: (-each.saved_ms, each.name or ""))
    )


def fleet_use(replayed: Replayed, window: Window) -> FleetUse:
    holds = clip(replayed.holds, *window, sums=())
    pools = sorted({group.pool for group in replayed.fleet.groups})
    return FleetUse(
        tuple(_pool_use(pool, replayed.fleet, holds, window) for pool in pools), _kwh(replayed, holds, window)
    )


def _pool_use(pool: str, fleet: ReplayFleet, holds: pl.DataFrame, window: Window) -> PoolUse:
    groups = [group for group in fleet.groups if group.pool == pool]
    own, span = holds.filter(pl.col("pool") == pool), window[1] - window[0]
    gpus = sum(group.gpus for group in groups)
    return PoolUse(
        pool,
        gpus,
        float(gpus * span),
        float(own.select((SPAN_MS * pl.col("gpus")).sum()).item()),
        _most(own),
        _cost(groups, span),
    )


def _shares(holds: pl.DataFrame) -> bool:
    return bool((holds["gpus"] % 1 > 0).any())


def _most(holds: pl.DataFrame) -> float | None:
    """Return the most GPUs held at once; a job may take GPUs when another ends. None where jobs share GPUs."""
    if _shares(holds):
        return None
    most = levels(holds, weight=pl.col("gpus"))["level"].max()
    return round(float(most or 0.0), 6)  # type: ignore[arg-type]  # of floats


def _cost(groups: list[HostGroup], span_ms: int) -> float | None:
    prices = [group.hourly_price for group in groups]
    if None in prices:
        return None
    return sum(group.gpus * (group.hourly_price or 0.0) for group in groups) * span_ms / HOUR_MS


def _kwh(replayed: Replayed, holds: pl.DataFrame, window: Window) -> float | None:
    """Return the energy of the GPUs; None if a needed draw is unknown, or if jobs share GPUs.

    By model, held and free GPUs draw what such GPUs drew on average; GPU time that a time-out frees drew what idle held
    GPUs draw.
    """
    if _shares(holds):
        return None
    runs = replayed.runs.drop_nulls("end")
    cut = dict(_cut_in(runs, window).group_by("model").agg(pl.col("freed_ms").sum()).iter_rows())
    held = dict(holds.group_by("model").agg((SPAN_MS * pl.col("gpus")).sum()).iter_rows())
    millijoules = 0.0
    for model in sorted({group.model for group in replayed.fleet.groups}):
        groups = [group for group in replayed.fleet.groups if group.model == model]
        there = sum(group.gpus for group in groups) * (window[1] - window[0])
        own, freed = held.get(model, 0.0), cut.get(model, 0.0)
        draws = [(groups[0].busy_w, own + freed), (groups[0].held_w, -freed), (groups[0].idle_w, there - own)]
        for watts, time_ms in draws:
            if watts is None and time_ms:
                return None
            millijoules += (watts or 0.0) * time_ms
    return millijoules / MJ_PER_KWH


def _cut_in(runs: pl.DataFrame, window: Window) -> pl.DataFrame:
    """Runs that a time-out ended, with `freed_ms`: the GPU time of the window that it freed."""
    cut = runs.filter(pl.col("cut_ms") > 0)
    since, until = (
        pl.max_horizontal("end", pl.lit(window[0])),
        pl.min_horizontal(pl.col("end") + pl.col("cut_ms"), pl.lit(window[1])),
    )
    return cut.with_columns(freed_ms=((until - since).clip(lower_bound=0) * pl.col("gpus")).cast(pl.Float64))


def _idle_after_cut(cut: pl.DataFrame, window: Window) -> pl.DataFrame:
    """Return `number` and `idle_ms`: the window's GPU time in which a job that was ended would have been idle."""
    idle_intervals = cut.select("number", "begin", "gpus", "ran_ms", "cut_ms", idle_interval="idle_intervals").explode(
        "idle_interval"
    )
    unnested = idle_intervals.with_columns(
        pl.col("idle_interval").struct.rename_fields(["idle_from", "idle_to"])
    ).unnest("idle_interval")
    since = pl.max_horizontal("idle_from", pl.col("ran_ms") - pl.col("cut_ms"), window[0] - pl.col("begin"))
    until = pl.min_horizontal("idle_to", "ran_ms", window[1] - pl.col("begin"))
    idle = (until - since).clip(lower_bound=0) * pl.col("gpus")
    return unnested.group_by("number").agg(idle_ms=idle.sum().cast(pl.Float64))


def _cuts(ran: pl.DataFrame, fleet: ReplayFleet, window: Window) -> tuple[CutUser, ...]:
    prices = {(group.pool, group.model): group.hourly_price for group in fleet.groups}
    price = {"price": pl.Float64()}
    cut = with_mapped(_cut_in(ran, window), POOL_MODEL, price, lambda *place: (prices.get(place),))
    cut = cut.join(_idle_after_cut(cut, window), on="number", how="left")
    found = cut.group_by("user", "team").agg(
        jobs=pl.len(),
        freed_ms=pl.col("freed_ms").sum(),
        worked_ms=(pl.col("freed_ms") - pl.col("idle_ms").fill_null(0)).sum(),
        cost=pl.when(pl.col("price").null_count() == 0).then((pl.col("freed_ms") * pl.col("price") / HOUR_MS).sum()),
        worked_later=pl.col("worked_later").sum(),
    )
    return tuple(CutUser(*row) for row in found.sort("freed_ms", "user", descending=[True, False]).iter_rows())


_LEARNT_FROM = 5_000
"""More jobs of the first half would not tell more of how the queue works."""

_ORDERS: tuple[Order, ...] = ("backfill", "fifo")
"""Orders of a queue, first the one that is taken where several explain as much: Slurm backfills by default."""

_WAITING_MOST = 100
"""Mean number of waiting jobs up to which the `conservative` order is tried too: it plans each job at each step."""


@dataclass(frozen=True)
class ReplayBase:
    """A window that can be replayed, with the fleet and the policy of today."""

    rebuilt: RebuiltJobs
    """Its jobs; waits count from when these asked."""
    coming: pl.DataFrame
    """The same as they come to the queue, later by what holds them beside GPUs."""
    fleet: ReplayFleet
    policy: ReplayPolicy
    delays: Delays
    """What else held jobs, see `analytics.plan.replay.replayed_waits`; empty where the GPUs alone explain the waits."""
    today: Replayed
    check: ReplayCheck
    window: tuple[int, int]

    @property
    def homeless(self) -> int:
        """Return the number of jobs that, as requested, fit nowhere on today's fleet."""
        return self.today.runs["why_not"].count()


def replay_base(
    jobs: pl.DataFrame,
    placed: pl.DataFrame,
    needs: pl.DataFrame,
    *,
    facts: GpuFacts,
    team_of: TeamOf,
    window: tuple[int, int],
    error_max: float,
    places: frozenset[PoolModel],
    policy: ReplayPolicy,
) -> ReplayBase:
    """Return the base of a window, from what `rebuilt_jobs` and `fleet_today` take.

    The replay shows no figure whose error exceeds `error_max`. `policy` is how the queue works, see `queue_policy`. The
    delays explain the waits of the jobs submitted in the window's first half; they are learnt only where its order does
    not explain these to `error_max`. The check uses the jobs submitted in its second half.
    """
    rebuilt = rebuilt_jobs(jobs, placed, needs, window=window, team_of=team_of, places=places)
    own = placed.filter(~pl.col("instance"), in_places(places))
    fleet = _fleet(jobs, placed, facts, window, places)
    middle = sum(window) // 2
    early, until = _early(rebuilt.jobs, middle)
    policy, runs = _refined(early, fleet, policy, until)
    error = checked_waits(early, runs, until).error
    delays = learnt_delays(early, runs, until) if error is not None and error > error_max else {}
    coming = with_delays(rebuilt.jobs, delays)
    today = replay(coming, fleet, policy)
    check = check_replay(rebuilt.jobs, own, today, window, judged_from_ms=middle, error_max=error_max)
    return ReplayBase(rebuilt, coming, fleet, policy, delays, today, check, window)


def _fleet(
    jobs: pl.DataFrame, placed: pl.DataFrame, facts: GpuFacts, window: Window, places: frozenset[PoolModel]
) -> ReplayFleet:
    """Return today's hosts of some pools and models."""
    whole = placed.filter(~pl.col("instance"))
    own_blocks = {(partition_key(*key[:2]), key[2]): hosts for key, hosts in blocks(*located(jobs, whole)).items()}
    return fleet_today(whole.filter(in_places(places)), own_blocks, facts, window[1])


def _early(jobs: pl.DataFrame, middle: int) -> tuple[pl.DataFrame, int]:
    """Return the jobs of a window's first half, or the first _LEARNT_FROM of them, and the end of their requests."""
    first = jobs["asked"].drop_nulls().sort().head(_LEARNT_FROM)
    until = middle if first.len() < _LEARNT_FROM else min(middle, int(first[-1]))
    return jobs.filter(pl.coalesce("asked", "started") < until), until


def queue_policy(jobs: pl.DataFrame, placed: pl.DataFrame, *, team_of: TeamOf, window: Window) -> ReplayPolicy:
    """Return how the queue of all pools works: the order that is nearest to the waits of the window's first half.

    The first order where the data do not decide. Queue waits, replays and what-ifs of every part of the fleet start
    from it. A replay may find that a scheduler that lets later jobs go first plans for every job, which takes minutes
    to try.
    """
    places = frozenset(placed.select(POOL_MODEL).unique().rows())
    no_needs = pl.DataFrame(schema=WORK_NEEDS)
    rebuilt = rebuilt_jobs(jobs, placed, no_needs, window=window, team_of=team_of, places=places)
    early, until = _early(rebuilt.jobs, sum(window) // 2)
    fleet = _fleet(jobs, placed, GpuFacts(lambda _: None, lambda _: None), window, places)
    ranked = (None, Priorities("priority")) if early["priority"].n_unique() > 1 else (None,)
    policies = [ReplayPolicy(order=order, priorities=priorities) for order, priorities in product(_ORDERS, ranked)]
    return min(policies, key=lambda each: mean_error_ms(early, replay(early, fleet, each).runs, until))


def _refined(
    jobs: pl.DataFrame, fleet: ReplayFleet, policy: ReplayPolicy, until_ms: int
) -> tuple[ReplayPolicy, pl.DataFrame]:
    """Return the policy and its runs. Where later jobs may go first, `conservative` replaces it if that is nearer."""
    runs = replay(jobs, fleet, policy).runs
    since_ms = int(jobs["asked"].min() or 0)  # type: ignore[arg-type]  # of integers
    if policy.order != "backfill" or mean_waiting(jobs, runs, since_ms, until_ms) > _WAITING_MOST:
        return policy, runs
    planned = replace(policy, order="conservative")
    tried = [(policy, runs), (planned, replay(jobs, fleet, planned).runs)]
    return min(tried, key=lambda each: mean_error_ms(jobs, each[1], until_ms))


def scenario_outcome(base: ReplayBase, policy: ReplayPolicy) -> ReplayOutcome:
    """Return the outcome of a policy against the replay of today.

    Derive `policy` from `base.policy`, so that only its changes differ. Raises UsageError for pools, or values to rank
    jobs by, that do not exist.
    """
    _check_ranks(base.rebuilt.jobs, policy.priorities)
    then = replay(base.coming, base.fleet, policy)
    outcome = replay_outcome(
        base.rebuilt.jobs,
        base.today,
        then,
        base.window,
        has_waits=base.check.has_waits,
        pools_with_waits=base.check.pools_with_waits,
        idle_timeout_ms=policy.idle_timeout_ms,
    )
    return replace(outcome, is_today=policy == base.policy)


def _check_ranks(jobs: pl.DataFrame, priorities: Priorities | None) -> None:
    """Raise UsageError for a ranking value that no job has, which would change nothing without notice."""
    if priorities is None or not priorities.values:
        return
    known = set(jobs[priorities.by].drop_nulls())
    if unknown := [value for value in priorities.values if value not in known]:
        there = ", ".join(sorted(known)) or "none"
        raise UsageError(f"no job of this window has the {priorities.by} {unknown[0]}", f"there are {there}")


def of_pools(base: ReplayBase, pools: Collection[str]) -> ReplayBase:
    """Return the base of some pools: their jobs and GPUs, and how well the replay explains their waits."""
    jobs, coming = (each.filter(pl.col("pool").is_in(list(pools))) for each in (base.rebuilt.jobs, base.coming))
    fleet = ReplayFleet(tuple(group for group in base.fleet.groups if group.pool in pools))
    runs, holds = (
        each.join(jobs.select("number"), on="number", how="semi") for each in (base.today.runs, base.today.holds)
    )
    late = jobs.filter(pl.col("asked") >= base.check.since_ms)
    return replace(
        base,
        rebuilt=replace(base.rebuilt, jobs=jobs),
        coming=coming,
        fleet=fleet,
        today=Replayed(runs, holds, fleet),
        check=replace(
            base.check,
            waits=checked_waits(late, runs, base.window[1]),
            pools=tuple(each for each in base.check.pools if each.pool in pools),
        ),
    )
