"""Queue, shortage and forecast of a window: computed once, for commands, pages and the report."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial

import polars as pl

from analytics.capacity.jobs import POOL_MODEL, QueueOrder, ended_by_limit, load_withheld
from analytics.inventory import Inventory
from analytics.language.languages import time_zone
from analytics.money.offers import load_offers
from analytics.money.priced_segments import placed
from analytics.money.window_money import Money
from analytics.plan.allocation import (
    Arrival,
    FleetAllocation,
    Owned,
    arrivals,
    owned_in,
    pairs_of,
    poolless_ms,
    tree_of,
)
from analytics.plan.carbon import AskedCarbon, Carbon, CarbonBasis, find_carbon
from analytics.plan.deferral import job_names
from analytics.plan.endings import HORIZON_DAYS as ENDINGS_DAYS
from analytics.plan.endings import Endings, find_endings
from analytics.plan.purchase import Market, PoolPurchase, measured_powers, need_curves, pool_purchases, with_spot_share
from analytics.plan.queue_waits import QueueWaits, find_waits
from analytics.plan.replay.comparisons import ComparedScenario, SavedScenario, compared_scenarios
from analytics.plan.replay.policy import ReplayPolicy
from analytics.plan.replay.replay_base import ReplayBase, queue_policy, replay_base
from analytics.plan.replay.replay_fleet import GpuFacts
from analytics.plan.replay.replay_jobs import work_needs
from analytics.plan.room_for_jobs import ASKED_SIZES, PoolRoom, pool_rooms
from analytics.plan.starving import StarvingPair
from analytics.report.coverage import Seen
from analytics.scope import Scope
from analytics.window import Inputs, WindowLedger
from analytics.workloads.model import Context
from analytics.workloads.pool_demand import FleetDemand
from analytics.workloads.sharing import is_best_effort
from fallow.clock import HOUR_MS


def _asked(**names: str | None) -> list[pl.Expr]:
    """Return conditions on the columns with a given value."""
    return [pl.col(name) == value for name, value in names.items() if value is not None]


class Planning:
    """Plans of the whole fleet over one window; `context` is made only when needed."""

    def __init__(
        self,
        inputs: Inputs,
        ledger: WindowLedger,
        inventory: Inventory,
        money: Money,
        context: Callable[[], Context],
    ) -> None:
        self._inputs = inputs
        self._ledger = ledger
        self._inventory = inventory
        self._money = money
        self._context = context
        self._replay_lock = threading.Lock()
        self._replay_bases: dict[Scope, ReplayBase] = {}
        self._window = (ledger.summary.since_ms, ledger.summary.until_ms)
        asked_ms = ledger.window.until_ms
        self._is_past = asked_ms is not None and self._window[1] >= asked_ms
        self._held_min_ms = inputs.settings.integer("findings.held_min")
        self._zone_name = inputs.settings.text("report.timezone")

    def _placed(self) -> pl.DataFrame:
        """Return the ledger's rows with their pools and models; not cached, because they need much memory."""
        return placed(self._ledger.inside.segments, self._money.costs, self._inventory)

    @cached_property
    def jobs(self) -> pl.DataFrame:
        """Return every job of the lake as the queue reads it: `analytics.capacity.jobs.JOB_SCHEMA`."""
        return ended_by_limit(self._context().jobs(), self._ledger.summary.until_ms)

    @cached_property
    def rooms(self) -> tuple[PoolRoom, ...]:
        """Return the job sizes that could start in each pool and model, and how to make room."""
        return self.rooms_for(ASKED_SIZES)

    def rooms_for(self, sizes: Sequence[int]) -> tuple[PoolRoom, ...]:
        """Return the same for jobs of these sizes."""
        priced = self._placed().join(self._money.costs.rates(), on=("gpu", "since"), how="left")
        return pool_rooms(priced, self.jobs, self._window, self._held_min_ms, sizes)

    @cached_property
    def waits(self) -> QueueWaits:
        """Who waited for GPUs in the window, and why; everybody's."""
        rows, policy = self._placed(), self.queue_policy
        return find_waits(
            self.jobs,
            rows,
            self._memory_gib(rows),
            self._window,
            held_min_ms=self._held_min_ms,
            order=QueueOrder(policy.order == "fifo", policy.priorities is not None),
            withheld=load_withheld(self._inputs.lake),
            is_past=self._is_past,
            team_of=self._money.owners.team,
        )

    @cached_property
    def queue_policy(self) -> ReplayPolicy:
        """Return how the queue of the whole fleet works."""
        return queue_policy(self.jobs, self._placed(), team_of=self._money.owners.team, window=self._window)

    def _memory_gib(self, rows: pl.DataFrame) -> dict[str, int | None]:
        """Return the memory of each model's smallest card; None if any model's memory is unknown."""
        found = {}
        for (model,), own in rows.select("gpu", "model").unique().group_by("model"):
            sizes = [self._inventory.device(gpu, "").mem_total_bytes for gpu in own["gpu"]]
            known = [size for size in sizes if size is not None]
            found[str(model)] = round(min(known) / 2**30) if len(known) == len(sizes) else None
        return found

    def waits_of(self, scope: Scope) -> QueueWaits:
        """Those of a scope's pool, model, team or user."""
        places = _asked(pool=scope.pool, model=scope.model)
        found = self.waits.where(*places, *_asked(team=scope.team, user=scope.user))
        return replace(found, idle=found.idle.filter(*places)) if places else found

    @cached_property
    def endings(self) -> Endings:
        """Return the GPUs that come free in the next two weeks, for the whole fleet."""
        return self.endings_for(ENDINGS_DAYS)

    def endings_for(self, days: int) -> Endings:
        """Return the same for this many days."""
        return find_endings(self._context(), self.jobs, days, time_zone(self._zone_name))

    @cached_property
    def new_cards(self) -> tuple[Arrival, ...]:
        """Return how new cards were taken into use."""
        return arrivals(self._context())

    @cached_property
    def owned(self) -> Owned:
        """Return GPU time and queue waits of all owners."""
        return self._owned_in(self._ledger)

    def _owned_in(self, ledger: WindowLedger) -> Owned:
        window = (ledger.summary.since_ms, ledger.summary.until_ms)
        return owned_in(ledger.inside, self.jobs, window, self._money, self._inventory)

    @cached_property
    def starving(self) -> tuple[StarvingPair, ...]:
        """Return teams that wait for GPUs while others hoard them, for the whole fleet."""
        return pairs_of(self.owned, self._money.owners, self._held_min_ms)

    def allocation(
        self, scope: Scope, part: WindowLedger, seen: Seen, calendar: Endings | None = None
    ) -> FleetAllocation:
        """Return allocated, requested and ending GPUs, limited to the scope of the reader.

        `part` and `seen` are those of the report.
        """
        calendar, own = calendar or self.endings, self._of_part(scope, part)
        pools = set(own.accounts.allocated["pool"])
        for_all = not scope.is_personal
        return FleetAllocation(
            tree=tree_of(own, scope, self._money.owners),
            pairs=tuple(each for each in self.starving if scope.of_gpus.is_all or each.pool in pools)
            if for_all
            else None,
            endings=calendar.of_scope(scope),
            calendar=calendar,
            arrivals=tuple(each for each in self.new_cards if scope.has_place(each.pool, each.model))
            if for_all
            else None,
            waits=own.waits.height,
            poolless_ms=poolless_ms(own.waits),
            has_owners=bool(self._money.owners.by_name),
            currency=self._money.currency,
            seen=seen.share,
            open_ms=self.open_ms(scope, part),
        )

    def used_share(self, scope: Scope, part: WindowLedger) -> float | None:
        """Return the used share of the scope's allocated GPU time; None without any. `part` is `self.part` of it."""
        return self._of_part(scope, part).accounts.total.efficiency

    def open_ms(self, scope: Scope, part: WindowLedger) -> float:
        """Return how much of that time is only sampled as idle, if it is enough to mention; else 0."""
        given = self._of_part(scope, part).accounts.total
        return given.allocated_open_ms if given.leaves_open else 0.0

    def _of_part(self, scope: Scope, part: WindowLedger) -> Owned:
        """Return the GPU time and the queue waits of a scope."""
        if scope.is_all:
            return self.owned
        own = self._owned_in(part)
        waits = self.owned.waits.filter(*_asked(team=scope.team, user=scope.user))
        if not scope.of_gpus.is_all:
            waits = waits.filter(pl.col("pool").is_in(own.accounts.allocated["pool"].unique().implode()))
        return replace(own, waits=waits)

    def purchases_for(self, fleet: FleetDemand, spot_share: float | None = None) -> tuple[PoolPurchase, ...]:
        """Return the cost of each pool's and model's demand, bought, reserved and rented.

        Raises ConfigError for unusable offers.

        Args:
            fleet: the demand.
            spot_share: the share of each hour's demand that may be interrupted; by default the work of best-effort
                owners.
        """
        settings, money, rows = self._inputs.settings, self._money, self._placed()
        lost_hours = settings.integer("plan.lost_per_interruption") / HOUR_MS
        market = Market(load_offers(settings, money.costs.prices), money.costs.prices, money.grid, lost_hours)
        curves = need_curves(self._context(), fleet, self._window, partial(is_best_effort, money.owners))
        if spot_share is not None:
            curves = tuple(with_spot_share(each, spot_share) for each in curves)
        return pool_purchases(curves, market, measured_powers(rows), self._window[1])

    def replay_base(self, scope: Scope) -> ReplayBase:
        """Return the start of replays of some jobs and GPUs, or of all; computed once for concurrent callers."""
        with self._replay_lock:
            if scope.of_gpus not in self._replay_bases:
                self._replay_bases[scope.of_gpus] = self._replay_base(scope)
            return self._replay_bases[scope.of_gpus]

    def _replay_base(self, scope: Scope) -> ReplayBase:
        rows = self._placed()
        own = rows.filter(*_asked(pool=scope.pool, model=scope.model))
        return replay_base(
            jobs=self.jobs,
            placed=rows,
            needs=work_needs(self._context()),
            facts=GpuFacts(lambda gpu: self._inventory.device(gpu, "").mem_total_bytes, self._money.costs.rate_of),
            team_of=self._money.owners.team,
            window=self._window,
            error_max=self._inputs.settings.number("plan.replay_error_pct") / 100,
            places=frozenset(own.select(POOL_MODEL).unique().rows()),
            policy=self.queue_policy,
        )

    def scenarios_of(self, scope: Scope, saved: Sequence[SavedScenario]) -> tuple[ComparedScenario, ...]:
        """Return saved scenarios over the jobs and GPUs of a pool or a model; without scenarios nothing is replayed."""
        if not saved:
            return ()
        return tuple(compared_scenarios(self.replay_base(scope), saved, self._zone_name))

    def carbon(self, scope: Scope, part: WindowLedger, asked: AskedCarbon) -> Carbon:
        """Return energy and CO2 of a scope, and the cost of held GPUs and of the choice of hours.

        `part` is `self.part` of the scope.
        """
        moves = not scope.is_personal and asked.intensity.flat is None
        basis = CarbonBasis(
            jobs=job_names(self._inputs.lake) if moves else None,
            asked=asked,
            since_ms=part.summary.since_ms,
            until_ms=part.summary.until_ms,
        )
        money = self._money if scope.is_all else self._money.of(part.inside, self._inventory)
        return find_carbon(money, basis, for_people=scope.is_personal)
