"""What the need of each pool would cost, bought, reserved, rented and mixed, over a year that is like the window."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from analytics.money.cards import card
from analytics.money.energy import KNOWN_MIN, Grid
from analytics.money.offers import GpuOffer, is_of, useful_hourly
from analytics.money.prices import HOURS_PER_YEAR, PriceBook
from analytics.plan.need_curve import NeedCurve
from analytics.plan.price_mix import Hours, Mix, Option, cheapest, cheapest_mix
from analytics.plan.waiting_jobs import POOL_MODEL, PoolModel
from analytics.scope import Scope
from analytics.states import IN_USE
from fallow.clock import HOUR_MS, WEEK_MS, floor_ms

WEEKS_MIN = 2
"""Weeks that a range is said of."""
_WEEK_HOURS = WEEK_MS // HOUR_MS
_SEEN_MIN = 0.9


@dataclass(frozen=True)
class Power:
    """What a GPU draws while it is used and while it is free, in W; `is_measured` where the fleet's own GPUs said so, else its power limit."""

    in_use_w: float
    free_w: float
    is_measured: bool


@dataclass(frozen=True)
class Market:
    """The offers, the prices in force, PUE and price of energy, and the hours of work that an interruption loses."""

    offers: Sequence[GpuOffer]
    book: PriceBook
    grid: Grid
    lost_hours: float


@dataclass(frozen=True)
class PoolPrices:
    """The need of a pool and model, what there is to serve it, and the cheapest mix.

    `mix` is None where no option is known or none serves all of it; `weeks` are the mixes of each whole week alone, the newest first.
    `with_taken` is the mix if what was held or reserved without use were needed too. `unrated` are spot offers that cannot be priced.
    `power` is that of bought GPUs; None: unknown, no energy is in their cost.
    """

    curve: NeedCurve
    options: tuple[Option, ...]
    mix: Mix | None
    with_taken: Mix | None
    weeks: tuple[Mix, ...]
    unrated: tuple[GpuOffer, ...]
    power: Power | None

    @property
    def now_yearly(self) -> float | None:
        """What the GPUs that are there cost a year, used or not; None where the site states no price of theirs."""
        return None if self._own is None else self._own.fixed * self.curve.gpus * HOURS_PER_YEAR

    @property
    def flat_hourly(self) -> float | None:
        """A price per GPU-hour: the site's, else the cheapest on demand."""
        if self._own is not None:
            return self._own.fixed
        return None if self.rented is None else self.rented.used

    @property
    def _own(self) -> Option | None:
        return next((each for each in self.options if each.offer.kind == "own"), None)

    @property
    def rented(self) -> Option | None:
        """What is cheapest by use; None where nothing is offered."""
        return cheapest(self.options, "on_demand")

    def alone_yearly(self, option: Option) -> float | None:
        """What the whole need costs a year with one option alone; None for spot, which takes no firm work, and without any need."""
        need = self.curve.hours["need"].to_numpy()
        if option.offer.kind == "spot" or not len(need):
            return None
        mix = cheapest_mix(need, need, [option])
        return None if mix is None else mix.yearly_cost


def of_scope(found: Sequence[PoolPrices], scope: Scope) -> tuple[PoolPrices, ...]:
    """Those of the pool and the model that are asked for."""
    return tuple(
        each for each in found if scope.pool in (None, each.curve.pool) and scope.model in (None, each.curve.model)
    )


def pool_prices(
    curves: Sequence[NeedCurve], market: Market, powers: Mapping[PoolModel, Power], until_ms: int
) -> tuple[PoolPrices, ...]:
    """Of each curve.

    Args:
        curves: the needs.
        market: what there is to have, and at which price.
        powers: see `measured_powers`.
        until_ms: the end of the window, from which weeks are counted back.
    """
    return tuple(_of_pool(each, market, powers.get((each.pool, each.model)), until_ms) for each in curves)


def measured_powers(placed: pl.DataFrame) -> dict[PoolModel, Power]:
    """What the GPUs of each pool and model drew in use and free; only where at least 90 % of both times are known.

    Args:
        placed: the ledger's rows with `pool` and `model`.
    """
    times = placed.filter(pl.col("state").is_in([*IN_USE, "free"])).with_columns(
        in_use=pl.col("state") != "free", ms=pl.col("end") - pl.col("time")
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


def _of_pool(curve: NeedCurve, market: Market, measured: Power | None, until_ms: int) -> PoolPrices:
    power = (measured or _limit(curve.model)) if market.grid.price_per_kwh is not None else None
    known = [*_in_force(curve, market.book), *(each for each in market.offers if is_of(each, curve.model))]
    priced = [(each, _option(each, power, market)) for each in known]
    options = tuple(option for _, option in priced if option is not None)
    return PoolPrices(
        curve,
        options,
        _mix(curve.hours, "need", options),
        _mix(curve.hours, "taken", options),
        tuple(_weeks(curve.hours, options, until_ms)),
        tuple(each for each, option in priced if option is None),
        power,
    )


def _in_force(curve: NeedCurve, book: PriceBook) -> Iterator[GpuOffer]:
    """To go on at the site's own price, and to rent at the list price."""
    price = book.hourly(curve.model, curve.pool)
    if price is not None and price.origin == "site":
        yield GpuOffer("own", "", curve.model, price.hourly, price.date, price.source)
    listed = book.from_catalog(curve.model)
    if listed is not None:
        yield GpuOffer("on_demand", "", curve.model, listed.hourly, listed.date, listed.source)


def _limit(model: str) -> Power | None:
    """The power limit of the card, as if it always drew it; None where it is not known."""
    known = card(model)
    return None if known is None or known.tdp_w is None else Power(known.tdp_w, known.tdp_w, is_measured=False)


def _option(offer: GpuOffer, power: Power | None, market: Market) -> Option | None:
    """What a GPU of an offer costs; None for spot GPUs of which nobody knows how often they are taken away."""
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
    """None where there is no hour or no option."""
    if hours.is_empty() or not options:
        return None
    # what is held without use may not be interrupted: nobody knows what it waits for
    firm = hours["firm"] + (hours[need] - hours["need"])
    return cheapest_mix(_array(hours[need]), _array(firm), options)


def _array(values: pl.Series) -> Hours:
    return values.to_numpy()


def _weeks(hours: pl.DataFrame, options: Sequence[Option], until_ms: int) -> Iterator[Mix]:
    end_ms = floor_ms(until_ms, HOUR_MS)
    while not (own := hours.filter(pl.col("time") < end_ms)).is_empty():
        week = own.filter(pl.col("time") >= end_ms - WEEK_MS)
        mix = _mix(week, "need", options)
        if mix is not None and week.height >= _SEEN_MIN * _WEEK_HOURS:
            yield mix
        end_ms -= WEEK_MS
