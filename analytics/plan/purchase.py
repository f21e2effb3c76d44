"""Cost of each pool's demand when bought, reserved, rented and mixed, and internal prices per hour of the day."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Literal

import numpy as np
import polars as pl

from analytics.capacity.demand import duration, hourly_most
from analytics.capacity.jobs import POOL_MODEL, PoolModel, queued_hours
from analytics.capacity.peak_demand import UNKNOWN_MAX
from analytics.cards import card
from analytics.frames import local_time, with_mapped
from analytics.intervals import SPAN_MS, merge
from analytics.money.energy import KNOWN_MIN, Grid
from analytics.money.offers import GpuOffer, is_of, useful_hourly
from analytics.money.prices import HOURS_PER_YEAR, PriceBook
from analytics.plan.purchase_mix import Mix, Option, cheapest, cheapest_mix
from analytics.scope import Scope
from analytics.states import ALLOCATED, IN_USE
from analytics.workloads.fleet_demand import demand_rows, pool_members, queued
from analytics.workloads.model import Context
from analytics.workloads.pool_demand import FleetDemand
from fallow.clock import HOUR_MS, WEEK_MS, floor_ms


@dataclass(frozen=True)
class NeedCurve:
    """The demand of a pool and model in a window."""

    pool: str
    model: str
    gpus: float
    """The most GPUs at once."""
    hours: pl.DataFrame
    """A row per whole hour with at least 90 % of the GPUs observed.

    `time`, demand (`need`), its part that must not be interrupted (`firm`), and allocated or queued GPUs (`taken`).
    """
    unseen: int
    """Hours that are left out."""

    @property
    def duration(self) -> pl.DataFrame:
        """Return the demand curve: the number of hours in which demand reached `gpus`."""
        return duration(self.hours["need"])


def need_curves(
    context: Context, fleet: FleetDemand, window: tuple[int, int], may_stop: Callable[[str | None, str | None], bool]
) -> tuple[NeedCurve, ...]:
    """Return the curve of each pool and model.

    Hours that are only partly in the window are left out. `may_stop`: whether the work of a user and an account may be
    interrupted.
    """
    if not fleet.pools:
        return ()
    own = pool_members(context).select("gpu", *POOL_MODEL)
    in_demand, waits = demand_rows(context, fleet.going), queued(context)
    stops = {"stops": pl.Boolean()}
    firm, firm_waits = (
        with_mapped(rows, ("user", "account"), stops, lambda *whose: (may_stop(*whose),)).filter(~pl.col("stops"))
        for rows in (in_demand, waits)
    )
    allocated = context.whole.segments.filter(pl.col("state").is_in(ALLOCATED), pl.col("gpu_share") > 0)
    everywhere = pl.concat([pool.hours for pool in fleet.pools])
    hours = everywhere.filter(pl.col("time") >= window[0], pl.col("time") + HOUR_MS <= window[1])
    for name, rows in (("firm", merge(firm)), ("taken", allocated)):
        most = hourly_most(rows.join(own, on="gpu"), POOL_MODEL, *window).rename({"most": name})
        hours = hours.join(most, on=(*POOL_MODEL, "time"), how="left", maintain_order="left")
    for name, rows in (("firm_queued", firm_waits), ("queued", waits)):
        hours = hours.join(queued_hours(rows, name), on=(*POOL_MODEL, "time"), how="left", maintain_order="left")
    hours = hours.fill_null(0.0).with_columns(
        need="demand", firm=pl.col("firm") + pl.col("firm_queued"), taken=pl.col("taken") + pl.col("queued")
    )
    found = hours.group_by(POOL_MODEL, maintain_order=True)
    return tuple(_curve(str(pool), str(model), own_hours) for (pool, model), own_hours in found)


def with_spot_share(curve: NeedCurve, share: float) -> NeedCurve:
    """Return the same demand, with a given share that may be interrupted in every hour."""
    return replace(curve, hours=curve.hours.with_columns(firm=pl.col("need") * (1 - share)))


def _curve(pool: str, model: str, hours: pl.DataFrame) -> NeedCurve:
    seen = hours.filter(pl.col("unknown") <= UNKNOWN_MAX * pl.col("there"))
    gpus = float(hours["there"].max() or 0.0)  # type: ignore[arg-type]  # a column of numbers
    return NeedCurve(pool, model, gpus, seen.select("time", "need", "firm", "taken"), hours.height - seen.height)


WEEKS_MIN = 2
"""Least number of weeks for a range."""
_WEEK_HOURS = WEEK_MS // HOUR_MS
_SEEN_MIN = 0.9


@dataclass(frozen=True)
class Power:
    """Power of a GPU in W while used and while free."""

    in_use_w: float
    free_w: float
    is_measured: bool
    """True if measured on the fleet's GPUs; else the power limit."""


@dataclass(frozen=True)
class Market:
    """Offers, current prices, PUE, price of energy, and the hours of work that an interruption loses."""

    offers: Sequence[GpuOffer]
    book: PriceBook
    grid: Grid
    lost_hours: float


@dataclass(frozen=True)
class PoolPurchase:
    """The demand of a pool and model, the options that can serve it, and the cheapest mix."""

    curve: NeedCurve
    options: tuple[Option, ...]
    mix: Mix | None
    """None if no option is known, if none serves all demand, or without a whole week."""
    with_taken: Mix | None
    """The mix if GPUs that were held or reserved without use were needed too."""
    weeks: tuple[Mix, ...]
    """The mix of each whole week alone, the newest first."""
    whole_weeks: int
    """Whole weeks that were observed for at least 90 %; a year rests on at least one."""
    unrated: tuple[GpuOffer, ...]
    """Spot offers that cannot be priced."""
    power: Power | None
    """Power of bought GPUs; None is unknown, and their cost then excludes energy."""

    @property
    def now_yearly(self) -> float | None:
        """Return the yearly cost of the current GPUs, used or not; None if the site states no price for them."""
        return None if self._own is None else self._own.fixed * self.curve.gpus * HOURS_PER_YEAR

    @property
    def flat_hourly(self) -> float | None:
        """Return a price per GPU-hour: the site's, else the cheapest on demand."""
        if self._own is not None:
            return self._own.fixed
        return None if self.rented is None else self.rented.used

    @property
    def _own(self) -> Option | None:
        return next((each for each in self.options if each.offer.kind == "own"), None)

    @property
    def rented(self) -> Option | None:
        """Return the cheapest option that is paid by use; None without offers."""
        return cheapest(self.options, "on_demand")

    def alone_yearly(self, option: Option) -> float | None:
        """Return the yearly cost of all demand with a single option.

        None for spot, which takes no firm work, and without a whole week.
        """
        if option.offer.kind == "spot" or not self.whole_weeks:
            return None
        need = self.curve.hours["need"].to_numpy()
        mix = cheapest_mix(need, need, [option])
        return None if mix is None else mix.yearly_cost


def of_scope(found: Sequence[PoolPurchase], scope: Scope) -> tuple[PoolPurchase, ...]:
    return tuple(each for each in found if scope.has_place(each.curve.pool, each.curve.model))


def pool_purchases(
    curves: Sequence[NeedCurve], market: Market, powers: Mapping[PoolModel, Power], until_ms: int
) -> tuple[PoolPurchase, ...]:
    """Return the purchase of each curve. `powers` are `measured_powers`; weeks are counted back from `until_ms`."""
    return tuple(_of_pool(each, market, powers.get((each.pool, each.model)), until_ms) for each in curves)


def measured_powers(placed: pl.DataFrame) -> dict[PoolModel, Power]:
    """Return each pool and model's power per GPU, used and free, if both are known for at least 90 % of the time.

    `placed` are the ledger's rows with `pool` and `model`.
    """
    times = placed.filter(pl.col("state").is_in([*IN_USE, "free"])).with_columns(
        in_use=pl.col("state") != "free", ms=SPAN_MS
    )
    sums = times.group_by(*POOL_MODEL, "in_use").agg(pl.col("energy_mj", "energy_ms", "ms").sum())
    known = sums.filter(pl.col("energy_ms") >= KNOWN_MIN * pl.col("ms"), pl.col("energy_ms") > 0)
    watts = known.with_columns(w=pl.col("energy_mj") / pl.col("energy_ms")).pivot(
        "in_use", index=POOL_MODEL, values="w"
    )
    if not {"true", "false"} <= set(watts.columns):
        return {}
    both = watts.drop_nulls(["true", "false"]).select(*POOL_MODEL, "true", "false")
    return {(pool, model): Power(used, free, is_measured=True) for pool, model, used, free in both.iter_rows()}


def _of_pool(curve: NeedCurve, market: Market, measured: Power | None, until_ms: int) -> PoolPurchase:
    power = (measured or _power_limit(curve.model)) if market.grid.price_per_kwh is not None else None
    known = [*_current_offers(curve, market.book), *(each for each in market.offers if is_of(each, curve.model))]
    priced = [(each, _option(each, power, market)) for each in known]
    options = tuple(option for _, option in priced if option is not None)
    weeks = tuple(_whole_weeks(curve.hours, until_ms))
    of_weeks = (_mix(week, "need", options) for week in weeks)
    return PoolPurchase(
        curve,
        options,
        _mix(curve.hours, "need", options) if weeks else None,
        _mix(curve.hours, "taken", options) if weeks else None,
        tuple(mix for mix in of_weeks if mix is not None),
        len(weeks),
        tuple(each for each, option in priced if option is None),
        power,
    )


def _current_offers(curve: NeedCurve, book: PriceBook) -> Iterator[GpuOffer]:
    """Yield the current options: keep GPUs at the site's own price, and rent at the list price."""
    price = book.hourly(curve.model, curve.pool)
    if price is not None and price.origin == "site":
        yield GpuOffer("own", "", curve.model, price.hourly, price.date, price.source)
    listed = book.from_catalog(curve.model)
    if listed is not None and listed.listing == "on_demand":
        yield GpuOffer("on_demand", "", curve.model, listed.hourly, listed.date, listed.source)


def _power_limit(model: str) -> Power | None:
    """Return the card's power limit, as if the card always drew it; None if unknown."""
    known = card(model)
    return None if known is None or known.tdp_w is None else Power(known.tdp_w, known.tdp_w, is_measured=False)


def _option(offer: GpuOffer, power: Power | None, market: Market) -> Option | None:
    """Return the cost of a GPU of an offer; None for spot GPUs with an unknown interruption rate."""
    hourly = float(offer.hourly)
    if offer.kind == "spot":
        useful = useful_hourly(offer, market.lost_hours)
        return None if useful is None else Option(offer, 0.0, useful)
    if offer.kind == "on_demand":
        return Option(offer, 0.0, hourly)
    if offer.kind != "buy" or power is None or market.grid.price_per_kwh is None:
        return Option(offer, hourly, 0.0)
    per_watt = market.grid.pue * market.grid.price_per_kwh / 1000
    return Option(offer, hourly + power.free_w * per_watt, (power.in_use_w - power.free_w) * per_watt)


def _mix(hours: pl.DataFrame, need: str, options: Sequence[Option]) -> Mix | None:
    """Return the cheapest mix; None without options."""
    if not options:
        return None
    # GPUs held without use may not be interrupted: their purpose is unknown
    firm = hours["firm"] + (hours[need] - hours["need"])
    return cheapest_mix(hours[need].to_numpy(), firm.to_numpy(), options)


def _whole_weeks(hours: pl.DataFrame, until_ms: int) -> Iterator[pl.DataFrame]:
    end_ms = floor_ms(until_ms, HOUR_MS)
    while not (own := hours.filter(pl.col("time") < end_ms)).is_empty():
        week = own.filter(pl.col("time") >= end_ms - WEEK_MS)
        if week.height >= _SEEN_MIN * _WEEK_HOURS:
            yield week
        end_ms -= WEEK_MS


Priority = Literal["urgent", "normal", "deferrable"]

WEIGHTS: Mapping[Priority, float] = {"urgent": 1.5, "normal": 1.0, "deferrable": 0.5}
"""Price of an hour relative to normal work: a choice, not a measurement."""

_DAY_HOURS = 24
_EMPTY_FACTOR = 0.5
"""Price of an empty pool, relative to a half full pool. A full pool is as far above."""


@dataclass(frozen=True)
class InternalPrices:
    """The schedule of a day for a pool and model, in the site's time zone."""

    pool: str
    model: str
    load: tuple[float, ...]
    """Mean share of the GPUs in demand, by hour of the day, at most 1."""
    factors: Mapping[Priority, tuple[float, ...]]
    """Price of a GPU-hour relative to `flat`, by priority and hour."""
    flat: float | None
    """Current flat price of a GPU-hour; None if unknown."""

    @property
    def spread(self) -> float:
        """Return the difference between the highest and the lowest load."""
        return max(self.load) - min(self.load)


def internal_prices(curve: NeedCurve, flat: float | None, zone: tzinfo) -> InternalPrices | None:
    """Return the price schedule for a demand curve; None without demand, or if an hour of the day was never observed.

    price(hour, priority) = k x flat x (1/2 + load(hour)) x weight(priority). k makes the observed demand pay the same
    total as at
    the flat price: without a change in behaviour the total cost stays the same. Firm work counts as normal,
    interruptible work as
    deferrable.

    `flat` is the current price of a GPU-hour; the hours are those of `zone`.
    """
    by_hour = curve.hours.group_by(hour=local_time("time", str(zone)).dt.hour()).agg(
        pl.col("need", "firm").mean(), hours=pl.len()
    )
    if by_hour.height < _DAY_HOURS or not by_hour["need"].sum():
        return None
    need, mean_firm, hours = (by_hour.sort("hour")[name].to_numpy() for name in ("need", "firm", "hours"))
    load = np.minimum(need / curve.gpus, 1.0)
    firm, other = mean_firm * hours, (need - mean_firm) * hours
    weighed = np.sum((_EMPTY_FACTOR + load) * (firm * WEIGHTS["normal"] + other * WEIGHTS["deferrable"]))
    hourly = (_EMPTY_FACTOR + load) * np.sum(firm + other) / weighed
    factors = {name: tuple((hourly * weight).tolist()) for name, weight in WEIGHTS.items()}
    return InternalPrices(curve.pool, curve.model, tuple(load.tolist()), factors, flat)


def internal_prices_of(pools: Sequence[PoolPurchase], zone: tzinfo) -> tuple[InternalPrices, ...]:
    """Return the schedule of each pool, at the site's current price, else at the cheapest price on demand."""
    schedules = (internal_prices(each.curve, each.flat_hourly, zone) for each in pools)
    return tuple(each for each in schedules if each is not None)
