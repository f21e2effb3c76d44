"""What the need of each pool would cost, bought, reserved, rented and mixed, and what an hour should cost within the house."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Literal

import numpy as np
import polars as pl

from analytics.capacity.demand import duration, hourly_levels
from analytics.frames import local_time, with_mapped
from analytics.intervals import SPAN_MS, by_hour
from analytics.money.cards import card
from analytics.money.energy import KNOWN_MIN, Grid
from analytics.money.offers import GpuOffer, is_of, useful_hourly
from analytics.money.prices import HOURS_PER_YEAR, PriceBook
from analytics.plan.jobs import IS_COUNTED, POOL_MODEL, PoolModel, jobs_in_window, located
from analytics.plan.purchase_mix import Mix, Option, cheapest, cheapest_mix
from analytics.scope import Scope
from analytics.states import ALLOCATED, IN_USE
from analytics.workloads.surplus import UNKNOWN_MAX
from fallow.clock import HOUR_MS, WEEK_MS, floor_ms


@dataclass(frozen=True)
class NeedCurve:
    """The need of one pool and model.

    `hours` has one row for each whole hour of which at least 90 % of the GPUs were observed: `time`, and the GPUs of the `need` (the most in
    use at once, and those that jobs waited for, on average over the hour), of the `firm` part of it (whose work must not be interrupted), and
    `taken` (the need, and what was held or reserved without use). `gpus` are there at most at once; `unseen` hours were left out.
    """

    pool: str
    model: str
    gpus: float
    hours: pl.DataFrame
    unseen: int

    @property
    def duration(self) -> pl.DataFrame:
        """The demand curve: in how many hours at least so many `gpus` were needed."""
        return duration(self.hours["need"])


def need_curves(
    placed: pl.DataFrame,
    jobs: pl.DataFrame,
    window: tuple[int, int],
    may_stop: Callable[[str | None, str | None], bool],
) -> tuple[NeedCurve, ...]:
    """The curves, by pool and model.

    Args:
        placed: the ledger's rows of the window with `pool` and `model`; a MIG instance counts its share.
        jobs: with JOB_SCHEMA; what a job waits for counts while it waits, where its pool is known.
        window: its start and end in ms; hours that are not wholly in it are left out.
        may_stop: whether the work of a user and an account may be interrupted.
    """
    rows = placed.filter(pl.col("gpu_share") > 0)
    own = [*POOL_MODEL, "time", "end", "gpu_share", "holder", "account", "state"]
    asked = _asked(placed, jobs, window)
    rows, asked = (
        with_mapped(each, ("holder", "account"), {"stops": pl.Boolean()}, lambda *whose: (may_stop(*whose),))
        for each in (rows.select(own), asked)
    )
    in_use = rows.filter(pl.col("state").is_in(IN_USE))
    spans = {
        "there": rows,
        "in_use": in_use,
        "firm": in_use.filter(~pl.col("stops")),
        "taken": rows.filter(pl.col("state").is_in(ALLOCATED)),
        "unknown": rows.filter(pl.col("state") == "unknown"),
    }
    hours = hourly_levels(spans, POOL_MODEL, *window).filter(pl.col("there") > 0)
    for each in (_mean(asked, "asked"), _mean(asked.filter(~pl.col("stops")), "firm_asked")):
        hours = hours.join(each, on=(*POOL_MODEL, "time"), how="left", maintain_order="left")
    hours = hours.fill_null(0.0)
    hours = hours.with_columns(
        need=pl.col("in_use") + pl.col("asked"),
        firm=pl.col("firm") + pl.col("firm_asked"),
        taken=pl.col("taken") + pl.col("asked"),
    )
    found = hours.group_by(POOL_MODEL, maintain_order=True)
    return tuple(_curve(str(pool), str(model), own_hours) for (pool, model), own_hours in found)


def with_spot_share(curve: NeedCurve, share: float) -> NeedCurve:
    """The same need, of which another share may be interrupted in every hour."""
    return replace(curve, hours=curve.hours.with_columns(firm=pl.col("need") * (1 - share)))


def _mean(asked: pl.DataFrame, name: str) -> pl.DataFrame:
    """The GPUs that were waited for in each hour, as long as they were: ten minutes count a sixth."""
    waited = pl.col("gpus") * SPAN_MS / HOUR_MS
    return by_hour(asked).group_by(*POOL_MODEL, time="hour").agg(waited.sum().alias(name))


def _asked(placed: pl.DataFrame, jobs: pl.DataFrame, window: tuple[int, int]) -> pl.DataFrame:
    """The GPUs that jobs waited for, while they waited."""
    known, _ = located(jobs, placed)
    waiting = jobs_in_window(known, *window).filter(
        IS_COUNTED, pl.col("pool").is_not_null(), pl.col("until") > pl.col("begin")
    )
    return waiting.select(
        *POOL_MODEL,
        pl.col("begin").cast(pl.Int64).alias("time"),
        pl.col("until").cast(pl.Int64).alias("end"),
        pl.col("gpus").cast(pl.Float64),
        pl.col("user").alias("holder"),
        "account",
    )


def _curve(pool: str, model: str, hours: pl.DataFrame) -> NeedCurve:
    seen = hours.filter(pl.col("unknown") <= UNKNOWN_MAX * pl.col("there"))
    gpus = float(hours["there"].max() or 0.0)  # type: ignore[arg-type]  # a column of numbers
    return NeedCurve(pool, model, gpus, seen.select("time", "need", "firm", "taken"), hours.height - seen.height)


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
class PoolPurchase:
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


def of_scope(found: Sequence[PoolPurchase], scope: Scope) -> tuple[PoolPurchase, ...]:
    """Those of the pool and the model that are asked for."""
    return tuple(
        each for each in found if scope.pool in (None, each.curve.pool) and scope.model in (None, each.curve.model)
    )


def pool_purchases(
    curves: Sequence[NeedCurve], market: Market, powers: Mapping[PoolModel, Power], until_ms: int
) -> tuple[PoolPurchase, ...]:
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
    power = (measured or _limit(curve.model)) if market.grid.price_per_kwh is not None else None
    known = [*_in_force(curve, market.book), *(each for each in market.offers if is_of(each, curve.model))]
    priced = [(each, _option(each, power, market)) for each in known]
    options = tuple(option for _, option in priced if option is not None)
    return PoolPurchase(
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
    return cheapest_mix(hours[need].to_numpy(), firm.to_numpy(), options)


def _weeks(hours: pl.DataFrame, options: Sequence[Option], until_ms: int) -> Iterator[Mix]:
    end_ms = floor_ms(until_ms, HOUR_MS)
    while not (own := hours.filter(pl.col("time") < end_ms)).is_empty():
        week = own.filter(pl.col("time") >= end_ms - WEEK_MS)
        mix = _mix(week, "need", options)
        if mix is not None and week.height >= _SEEN_MIN * _WEEK_HOURS:
            yield mix
        end_ms -= WEEK_MS


Priority = Literal["urgent", "normal", "deferrable"]

WEIGHTS: Mapping[Priority, float] = {"urgent": 1.5, "normal": 1.0, "deferrable": 0.5}
"""What an hour costs relative to normal work: a choice, not a measurement."""

_DAY_HOURS = 24
_EMPTY = 0.5
"""The price of an empty pool over that of a half full one; a full one is as far above."""


@dataclass(frozen=True)
class InternalPrices:
    """A day's schedule for a pool and model, in the site's time zone.

    `load` is the share of the GPUs that was needed in each hour of the day, on average, at most 1; None where no such hour was observed.
    `factors` are the price of a GPU-hour over the flat price `flat`, by priority and hour. `flat` is None where none is known.
    """

    pool: str
    model: str
    load: tuple[float | None, ...]
    factors: Mapping[Priority, tuple[float | None, ...]]
    flat: float | None

    @property
    def spread(self) -> float:
        """How far the fullest hour is above the emptiest."""
        known = [each for each in self.load if each is not None]
        return max(known) - min(known) if known else 0.0


def internal_prices(curve: NeedCurve, flat: float | None, zone: tzinfo) -> InternalPrices | None:
    """The schedule for a need; None where no hour of it was observed, or nothing was needed.

    price(hour, priority) = k x flat x (1/2 + load(hour)) x weight(priority), where k makes what the observed need pays the same as at the flat
    price: whoever changes nothing pays as much in all. Firm work counts as normal, work that may be interrupted as deferrable.

    Args:
        curve: the need.
        flat: the price of a GPU-hour now.
        zone: whose hours they are.
    """
    by_hour = curve.hours.group_by(hour=local_time("time", str(zone)).dt.hour()).agg(
        pl.col("need", "firm").mean(), hours=pl.len()
    )
    if not by_hour["need"].sum():
        return None
    load, firm, other = (np.full(_DAY_HOURS, np.nan) for _ in range(3))
    at = by_hour["hour"].to_numpy()
    need = by_hour["need"].to_numpy()
    load[at] = np.minimum(need / curve.gpus, 1.0)
    firm[at] = by_hour["firm"].to_numpy() * by_hour["hours"].to_numpy()
    other[at] = (need - by_hour["firm"].to_numpy()) * by_hour["hours"].to_numpy()
    weighed = np.nansum((_EMPTY + load) * (firm * WEIGHTS["normal"] + other * WEIGHTS["deferrable"]))
    hourly = (_EMPTY + load) * np.nansum(firm + other) / weighed
    return InternalPrices(
        curve.pool, curve.model, _known(load), {name: _known(hourly * weight) for name, weight in WEIGHTS.items()}, flat
    )


def internal_prices_of(pools: Sequence[PoolPurchase], zone: tzinfo) -> tuple[InternalPrices, ...]:
    """Of each pool, at the site's price in force, else at the cheapest one on demand."""
    schedules = (internal_prices(each.curve, each.flat_hourly, zone) for each in pools)
    return tuple(each for each in schedules if each is not None)


def _known(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[float | None, ...]:
    return tuple(None if np.isnan(each) else float(each) for each in values)
