"""What queue, shortage and the days to come say of a window: made once, for commands, pages and the report."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial

import polars as pl

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
from analytics.plan.forecast import HORIZON_DAYS, DemandSeries, PoolOutlook, demand_series, lead_days, outlooks
from analytics.plan.jobs import POOL_MODEL, ended_by_limit, load_jobs
from analytics.plan.purchase import Market, PoolPurchase, measured_powers, need_curves, pool_purchases, with_spot_share
from analytics.plan.queue_waits import Waits, find_waits
from analytics.plan.replay.comparisons import ComparedScenario, SavedScenario, compared_scenarios
from analytics.plan.replay.replay_base import ReplayBase, replay_base
from analytics.plan.replay.replay_fleet import GpuFacts
from analytics.plan.replay.replay_jobs import work_needs
from analytics.plan.room_for_jobs import ASKED_SIZES, PoolRoom, pool_rooms
from analytics.plan.starving import StarvingPair
from analytics.report.coverage import Seen
from analytics.scope import Scope
from analytics.window import Inputs, WindowLedger
from analytics.workloads.model import Context
from analytics.workloads.sharing import is_best_effort
from fallow.clock import HOUR_MS


def _asked(**names: str | None) -> list[pl.Expr]:
    """Conditions on the columns of which a value is given."""
    return [pl.col(name) == value for name, value in names.items() if value is not None]


class Planning:
    """Everybody's, over one window; `context` is asked for only where something needs it."""

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
        self._held_min_ms = inputs.settings.integer("findings.held_min")
        self._zone_name = inputs.settings.text("report.timezone")

    def _placed(self) -> pl.DataFrame:
        """The ledger's rows of the window with their pools and models; not kept, for they take much memory."""
        return placed(self._ledger.inside.stretches, self._money.costs, self._inventory)

    @cached_property
    def jobs(self) -> pl.DataFrame:
        """Every job of the lake as the queue knows it: `analytics.plan.jobs.JOB_SCHEMA`."""
        return ended_by_limit(load_jobs(self._inputs.lake), self._ledger.summary.until_ms)

    @cached_property
    def rooms(self) -> tuple[PoolRoom, ...]:
        """Which jobs on several GPUs could start in each pool and model, and what would make room."""
        return self.rooms_for(ASKED_SIZES)

    def rooms_for(self, sizes: Sequence[int]) -> tuple[PoolRoom, ...]:
        """The same for jobs of these sizes."""
        priced = self._placed().join(self._money.costs.rates(), on=("gpu", "since"), how="left")
        return pool_rooms(priced, self.jobs, self._window, self._held_min_ms, sizes)

    @cached_property
    def waits(self) -> Waits:
        """Who waited for GPUs in the window, and why; everybody's."""
        rows, team_of = self._placed(), self._money.owners.team
        memory_gib = self._memory_gib(rows)
        return find_waits(self.jobs, rows, memory_gib, self._window, held_min_ms=self._held_min_ms, team_of=team_of)

    def _memory_gib(self, rows: pl.DataFrame) -> dict[str, int | None]:
        """The memory of each model's cards, that of the smallest; None where nobody knows it of all."""
        found = {}
        for (model,), own in rows.select("gpu", "model").unique().group_by("model"):
            sizes = [self._inventory.device(gpu, "").mem_total_bytes for gpu in own["gpu"]]
            known = [size for size in sizes if size is not None]
            found[str(model)] = round(min(known) / 2**30) if len(known) == len(sizes) else None
        return found

    def waits_of(self, scope: Scope) -> Waits:
        """Those of a scope's pool, model, team or user."""
        places = _asked(pool=scope.pool, model=scope.model)
        found = self.waits.where(*places, *_asked(team=scope.team, user=scope.holder))
        return replace(found, idle=found.idle.filter(*places)) if places else found

    @cached_property
    def endings(self) -> Endings:
        """Which GPUs come free in the next two weeks; everybody's."""
        return self.endings_for(ENDINGS_DAYS)

    def endings_for(self, days: int) -> Endings:
        """The same for so many days."""
        return find_endings(self._context(), self.jobs, days, time_zone(self._zone_name))

    @cached_property
    def new_cards(self) -> tuple[Arrival, ...]:
        """How the cards that came were used."""
        return arrivals(self._context())

    @cached_property
    def owned(self) -> Owned:
        """Everybody's GPU time and waits."""
        return self._owned_in(self._ledger)

    def _owned_in(self, ledger: WindowLedger) -> Owned:
        window = (ledger.summary.since_ms, ledger.summary.until_ms)
        return owned_in(ledger.inside, self.jobs, window, self._money, self._inventory)

    @cached_property
    def starving(self) -> tuple[StarvingPair, ...]:
        """Who starves while who hoards; everybody's."""
        return pairs_of(self.owned, self._money.owners, self._held_min_ms)

    def allocation(
        self, scope: Scope, part: WindowLedger, seen: Seen, calendar: Endings | None = None
    ) -> FleetAllocation:
        """Who has GPUs, who wants them and which come free, as far as a scope lets its reader know; `part` and `seen` are the report's."""
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
            arrivals=tuple(
                each for each in self.new_cards if scope.pool in (None, each.pool) and scope.model in (None, each.model)
            )
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
        """What part of the GPU time that was given out in a scope was used; None where none was; `part` is `self.part` of it."""
        return self._of_part(scope, part).accounts.total.efficiency

    def open_ms(self, scope: Scope, part: WindowLedger) -> float:
        """How much of that time point samples alone call idle, where it is enough to be said; else 0."""
        given = self._of_part(scope, part).accounts.total
        return given.allocated_open_ms if given.leaves_open else 0.0

    def _of_part(self, scope: Scope, part: WindowLedger) -> Owned:
        """The GPU time and the waits of a scope."""
        if scope.is_all:
            return self.owned
        own = self._owned_in(part)
        waits = self.owned.waits.filter(*_asked(team=scope.team, user=scope.holder))
        if not scope.of_gpus.is_all:
            waits = waits.filter(pl.col("pool").is_in(own.accounts.allocated["pool"].unique().implode()))
        return replace(own, waits=waits)

    @cached_property
    def purchases(self) -> tuple[PoolPurchase, ...]:
        """What the need of each pool and model would cost, bought, reserved and rented; raises ConfigError for offers that cannot be used."""
        return self.purchases_for(None)

    def purchases_for(self, spot_share: float | None) -> tuple[PoolPurchase, ...]:
        """The same where such a share of each hour's need may be interrupted; None: the work of best-effort owners."""
        settings, money, rows = self._inputs.settings, self._money, self._placed()
        lost_hours = settings.integer("plan.lost_per_interruption") / HOUR_MS
        market = Market(load_offers(settings, money.costs.prices), money.costs.prices, money.grid, lost_hours)
        curves = need_curves(rows, self.jobs, self._window, partial(is_best_effort, money.owners))
        if spot_share is not None:
            curves = tuple(with_spot_share(each, spot_share) for each in curves)
        return pool_purchases(curves, market, measured_powers(rows), self._window[1])

    def replay_base(self, scope: Scope) -> ReplayBase:
        """What replays of the jobs and GPUs of a pool, a model or all of them start from; made once, whoever asks at the same time."""
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
        )

    def scenarios_of(self, scope: Scope, saved: Sequence[SavedScenario]) -> tuple[ComparedScenario, ...]:
        """Saved scenarios over the jobs and GPUs of a pool or a model; nothing is replayed where there are none."""
        if not saved:
            return ()
        return tuple(compared_scenarios(self.replay_base(scope), saved, self._zone_name))

    @cached_property
    def demand(self) -> tuple[DemandSeries, ...]:
        """What each pool and model needed day by day, in the site's time zone."""
        return demand_series(self._context(), time_zone(self._zone_name))

    @cached_property
    def outlooks(self) -> tuple[PoolOutlook, ...]:
        """When each pool and model is full, over a quarter of a year."""
        return outlooks(self.demand, HORIZON_DAYS, lead_days(self._inputs.settings))

    def carbon(self, scope: Scope, part: WindowLedger, asked: AskedCarbon) -> Carbon:
        """Energy and carbon dioxide of a scope, and what holding and the choice of hours cost; `part` is `self.part` of it."""
        moves = not scope.is_personal and asked.intensity.flat is None
        basis = CarbonBasis(
            rollups=part.inside.rollups,
            jobs=job_names(self._inputs.lake) if moves else None,
            asked=asked,
            since_ms=part.summary.since_ms,
            until_ms=part.summary.until_ms,
        )
        money = self._money if scope.is_all else self._money.of(part.inside, self._inventory)
        return find_carbon(money, basis, for_people=scope.is_personal)
