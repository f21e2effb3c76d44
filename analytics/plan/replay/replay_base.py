"""What every replay of a window starts from: its jobs, today's fleet, how its queue is taken to work, and how well that explains what was seen."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import product

import polars as pl

from analytics.frames import with_mapped
from analytics.intervals import SPAN_MS, clip, levels
from analytics.money.energy import MJ_PER_KWH
from analytics.plan.jobs import POOL_MODEL, PoolModel, TeamOf, blocks, located
from analytics.plan.replay.engine import Replayed, replay
from analytics.plan.replay.policy import Order, Priorities, ReplayPolicy
from analytics.plan.replay.replay_fleet import GpuFacts, HostGroup, ReplayFleet, fleet_today
from analytics.plan.replay.replay_jobs import RebuiltJobs, in_places, partition_key, rebuilt_jobs
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
    """The GPUs of one pool in a replay: how many there are, how long they were held, and how many at the same moment at the most.

    Times are GPU milliseconds in the window. Where jobs share GPUs, `held_ms` counts the part that each has of one, and `most` is None. `cost` is that of all GPUs of the pool over the window, None where a price is not known.
    """

    pool: str
    gpus: int
    there_ms: float
    held_ms: float
    most: float | None
    cost: float | None

    @property
    def utilization(self) -> float | None:
        return self.held_ms / self.there_ms if self.there_ms else None


@dataclass(frozen=True)
class FleetUse:
    """The pools of a fleet in a replay, and what became of its jobs.

    Attributes:
        kwh: what the GPUs draw over the window; None where their watts are not known.
        waits: those of all jobs; None where the replay of today is not near what was observed.
        lost: the jobs that could not run, though they fit on today's fleet.
    """

    pools: tuple[PoolUse, ...]
    kwh: float | None
    waits: WaitFigures | None = None
    lost: int = 0

    @property
    def total(self) -> PoolUse:
        """All pools together; `most` is the sum of what each needed at its highest moment."""
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
    """Waits of the jobs of one team, priority or of all: by the replay of today, and under the change. `name` is None where it is not known."""

    name: str | None
    today: WaitFigures
    then: WaitFigures

    @property
    def saved_ms(self) -> float:
        """GPU time that these jobs wait less; negative where they wait more."""
        return self.today.gpu_ms - self.then.gpu_ms


@dataclass(frozen=True)
class CutUser:
    """Whom an idle time-out would have hit: his jobs, the GPU time in the window that it frees, and how many of the jobs worked again later.

    `worked_ms` of the freed time is that in which the jobs did not stand idle; `cost` is what the freed time costs, None where a price is not known.
    """

    user: str | None
    team: str | None
    jobs: int
    freed_ms: float
    worked_ms: float
    cost: float | None
    worked_later: int


@dataclass(frozen=True)
class Unplaced:
    """Jobs that fit on today's fleet and could not run under the change, and why."""

    why: str
    jobs: int
    gpu_ms: float


@dataclass(frozen=True)
class ReplayOutcome:
    """One change against the replay of today.

    Attributes:
        teams: their waits, and `ranks` those of priorities, the largest gain first; empty where waits are not known.
        cuts: whom an idle time-out would have hit.
        unplaced: the jobs that could not run, by why.
        postponed: the jobs that came later because of off-peak hours.
        preempted: the jobs that lost their GPUs to others at least once.
    """

    today: FleetUse
    then: FleetUse
    teams: tuple[ComparedWaits, ...]
    ranks: tuple[ComparedWaits, ...]
    cuts: tuple[CutUser, ...]
    unplaced: tuple[Unplaced, ...]
    postponed: int
    preempted: int

    @property
    def waits(self) -> ComparedWaits | None:
        """Those of all jobs; None where the replay of today does not say what was observed."""
        today, then = self.today.waits, self.then.waits
        return None if today is None or then is None else ComparedWaits(None, today, then)

    @property
    def freed_ms(self) -> float:
        """GPU time in the window that idle time-outs free."""
        return sum(each.freed_ms for each in self.cuts)

    @property
    def spare(self) -> float | None:
        """By how many GPUs fewer jobs get by at the highest moment of each pool, on a fleet of the same size; negative where they need more. None where they share GPUs."""
        most = self.today.total.most, self.then.total.most
        return None if most[0] is None or most[1] is None else most[0] - most[1]


def replay_outcome(
    jobs: pl.DataFrame, today: Replayed, then: Replayed, window: Window, *, has_waits: bool
) -> ReplayOutcome:
    """What became of the jobs.

    Args:
        jobs: with REPLAY_JOB_SCHEMA and `rank`.
        today: the replay of today.
        then: the replay under the change.
        window: its start and end, in ms.
        has_waits: whether the replay of today says how long jobs waited.
    """
    runs = then.runs
    ran = jobs.select("number", "user", "team", "ran_ms", "idle_spells").join(runs, on="number")
    homeless = today.runs.drop_nulls("why_not")  # as they asked, they fit nowhere today: no change is to blame
    lost = ran.drop_nulls("why_not").join(homeless, on="number", how="anti")
    never = lost.group_by("why_not").agg(pl.len(), gpu_ms=(pl.col("gpus") * pl.col("ran_ms")).sum().cast(pl.Float64))
    waits = _compared(None, jobs, today, then, window) if has_waits else None
    return ReplayOutcome(
        today=replace(fleet_use(today, window), waits=None if waits is None else waits.today),
        then=replace(fleet_use(then, window), waits=None if waits is None else waits.then, lost=lost.height),
        teams=_by(jobs, "team", today, then, window) if has_waits else (),
        ranks=_by(jobs, "rank", today, then, window) if has_waits else (),
        cuts=_cuts(ran, then.fleet, window),
        unplaced=tuple(Unplaced(*row) for row in never.sort("gpu_ms", "why_not", descending=[True, False]).iter_rows()),
        postponed=runs.join(today.runs.select("number", was="arrived"), on="number")
        .filter(pl.col("arrived") > pl.col("was"))
        .height,
        preempted=runs.filter(pl.col("preempted") > 0).height,
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
    """How the pools of a replay were used in a window."""
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
    """The most GPUs that were held at the same moment; what ends makes room for what begins. None where jobs share them."""
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
    """What the GPUs draw: by model, held GPUs what they drew in the mean, free ones what free ones drew; what a time-out frees drew what idle held ones did. None where jobs share GPUs: nobody knows what these draw then."""
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
    """`number` and `idle_ms`: the GPU time of the window in which a job that was ended would have stood idle."""
    spells = cut.select("number", "begin", "gpus", "ran_ms", "cut_ms", spell="idle_spells").explode("spell")
    told = spells.with_columns(pl.col("spell").struct.rename_fields(["idle_from", "idle_to"])).unnest("spell")
    since = pl.max_horizontal("idle_from", pl.col("ran_ms") - pl.col("cut_ms"), window[0] - pl.col("begin"))
    until = pl.min_horizontal("idle_to", "ran_ms", window[1] - pl.col("begin"))
    idle = (until - since).clip(lower_bound=0) * pl.col("gpus")
    return told.group_by("number").agg(idle_ms=idle.sum().cast(pl.Float64))


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


_LEARNT_FROM = 10_000
"""More jobs of the first half would not tell more of how the queue works."""

_ORDERS: tuple[Order, ...] = ("backfill", "fifo")
"""Orders of a queue, first the one that is taken where several explain as much: Slurm backfills by default."""

_WAITING_MOST = 100
"""So many jobs wait in the mean where the `conservative` order is tried too: it plans each of them at each step."""


@dataclass(frozen=True)
class ReplayBase:
    """A window that can be replayed.

    Attributes:
        rebuilt: its jobs; waits count from when these asked.
        coming: the same as they come to the queue, later by what holds them beside GPUs.
        fleet: today's.
        policy: how the queue is taken to work today.
        delays: what else held jobs, see `analytics.plan.replay.replayed_waits`; empty where the GPUs alone explain the waits.
        today: the replay of today.
        check: that against what was observed.
        window: its start and end, in ms.
    """

    rebuilt: RebuiltJobs
    coming: pl.DataFrame
    fleet: ReplayFleet
    policy: ReplayPolicy
    delays: Delays
    today: Replayed
    check: ReplayCheck
    window: tuple[int, int]

    @property
    def homeless(self) -> int:
        """How many jobs fit nowhere on today's fleet, as they asked."""
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
) -> ReplayBase:
    """The base of a window, made of what `rebuilt_jobs` and `fleet_today` take; beyond `error_max` the replay says nothing.

    The order of the queue is the one that explains the waits of the jobs that asked in its first half best, and so are the delays, which are looked
    for only where none explains them to `error_max`. The check is of those that asked in its second half.
    """
    whole = placed.filter(~pl.col("instance"))
    rebuilt = rebuilt_jobs(jobs, placed, needs, window=window, team_of=team_of, places=places)
    known, claimed = located(jobs, whole)
    own_blocks = {(partition_key(*key[:2]), key[2]): hosts for key, hosts in blocks(known, claimed).items()}
    own = whole.filter(in_places(places))
    fleet = fleet_today(own, own_blocks, facts, window[1])
    middle = sum(window) // 2
    first = rebuilt.jobs["asked"].drop_nulls().sort().head(_LEARNT_FROM)
    until = middle if first.len() < _LEARNT_FROM else min(middle, int(first[-1]))
    early = rebuilt.jobs.filter(pl.coalesce("asked", "started") < until)
    policy, runs = _nearest(early, fleet, until)
    error = checked_waits(early, runs, until).error
    delays = learnt_delays(early, runs, until) if error is not None and error > error_max else {}
    coming = with_delays(rebuilt.jobs, delays)
    today = replay(coming, fleet, policy)
    check = check_replay(rebuilt.jobs, own, today, window, judged_from_ms=middle, error_max=error_max)
    return ReplayBase(rebuilt, coming, fleet, policy, delays, today, check, window)


def _nearest(jobs: pl.DataFrame, fleet: ReplayFleet, until_ms: int) -> tuple[ReplayPolicy, pl.DataFrame]:
    """The order of the queue that is nearest to the waits of jobs up to a moment, job by job, and its runs; the first where nothing can be told."""
    ranked = (None, Priorities("priority")) if jobs["priority"].n_unique() > 1 else (None,)
    policies = [ReplayPolicy(order=order, priorities=priorities) for order, priorities in product(_ORDERS, ranked)]
    tried = [(policy, replay(jobs, fleet, policy).runs) for policy in policies]
    since_ms = int(jobs["asked"].min() or 0)  # type: ignore[arg-type]  # of integers
    if mean_waiting(jobs, tried[0][1], since_ms, until_ms) <= _WAITING_MOST:
        more = [ReplayPolicy(order="conservative", priorities=priorities) for priorities in ranked]
        tried += [(policy, replay(jobs, fleet, policy).runs) for policy in more]
    return min(tried, key=lambda each: mean_error_ms(jobs, each[1], until_ms))


def scenario_outcome(base: ReplayBase, policy: ReplayPolicy) -> ReplayOutcome:
    """What a policy would have made of the jobs, against the replay of today; make it of `base.policy`, so that only what it changes differs.

    Raises UsageError where it names pools, or values to rank jobs by, that are not there.
    """
    _check_ranks(base.rebuilt.jobs, policy.priorities)
    then = replay(base.coming, base.fleet, policy)
    return replay_outcome(base.rebuilt.jobs, base.today, then, base.window, has_waits=base.check.has_waits)


def _check_ranks(jobs: pl.DataFrame, priorities: Priorities | None) -> None:
    """What is named to go first has to be there, or nothing would be otherwise and nobody would know why."""
    if priorities is None or not priorities.values:
        return
    known = set(jobs[priorities.by].drop_nulls())
    if unknown := [value for value in priorities.values if value not in known]:
        there = ", ".join(sorted(known)) or "none"
        raise UsageError(f"no job of this window has the {priorities.by} {unknown[0]}", f"there are {there}")


def of_pools(base: ReplayBase, pools: Collection[str]) -> ReplayBase:
    """The jobs and GPUs of some pools, and how well their waits are explained."""
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
        check=replace(base.check, waits=checked_waits(late, runs, base.window[1])),
    )
