"""Which card for which model or work: what it needs, which cards of the fleet and of the market hold it, and what they can give."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import polars as pl

from analytics.frames import with_mapped
from analytics.money.energy import KNOWN_MIN, MJ_PER_KWH
from analytics.money.prices import PriceBook
from analytics.plan.model_needs import (
    METHODS,
    STORED_BITS,
    MemoryNeed,
    ModelShape,
    Serving,
    TokenBounds,
    Training,
    serving_bounds,
    serving_need,
    training_bounds,
    training_need,
)
from analytics.plan.seen_work import (
    COUNTS,
    CardOption,
    PlacedWork,
    SeenWork,
    card_options,
    fleet_offers,
    host_widths,
    market_offers,
    times_as_long,
    unknown_models,
)
from analytics.rules.preallocated import parameters_of
from analytics.workloads.cards import Offer
from analytics.workloads.model import Context, once_per_context
from fallow.clock import HOUR_MS, SECOND_MS

MILLION = 1e6
_SERVER = ("host", "endpoint", "model")


@dataclass(frozen=True)
class MeasuredTokens:
    """One served model on cards of one model, over the window; hours in which nobody asked are in it.

    `tokens` are generated ones. `cost` is that of its GPU time, None where any of it has no price; `kwh` the energy of its
    GPUs, None where it is known for less than 90 % of the time.
    """

    served: str
    card: str
    gpu_ms: float
    tokens: float
    most_running: float | None
    cost: float | None
    kwh: float | None

    @property
    def tokens_per_gpu_s(self) -> float | None:
        return self.tokens * SECOND_MS / self.gpu_ms if self.gpu_ms else None

    @property
    def cost_per_million(self) -> float | None:
        """None where the cost is not known, or where there were no tokens."""
        return None if self.cost is None or not self.tokens else self.cost / self.tokens * MILLION

    @property
    def kwh_per_million(self) -> float | None:
        """None where the energy is not known, or where there were no tokens."""
        return None if self.kwh is None or not self.tokens else self.kwh / self.tokens * MILLION


def measured_tokens(context: Context, gpus: Collection[str] | None = None) -> tuple[MeasuredTokens, ...]:
    """Every served model and card whose servers count tokens, the most GPU time first; of some GPUs, or of all.

    An hour counts by its share of the scrapes that a whole hour of that server has. GPUs on which several servers or models
    were asked within one hour are left out for that hour: whose time it was is not known.
    """
    hours = _server_hours(context)
    own = hours if gpus is None else hours.filter(pl.col("gpu").is_in(list(gpus)))
    is_known = pl.col("energy_ms").cast(pl.Int64).sum() >= KNOWN_MIN * HOUR_MS * pl.len()
    found = own.group_by("model", "card").agg(
        gpu_ms=(pl.col("part") * HOUR_MS).sum(),
        tokens=pl.col("tokens").sum(),
        most_running=pl.col("running_requests_max").max(),
        cost=pl.when(pl.col("rate").is_not_null().all()).then((pl.col("rate") * pl.col("part")).sum()),
        kwh=pl.when(is_known).then((pl.col("energy_mj") * pl.col("part")).sum() / MJ_PER_KWH),
    )
    ordered = found.sort("gpu_ms", "model", "card", descending=[True, False, False])
    return tuple(MeasuredTokens(*row) for row in ordered.iter_rows())


@once_per_context
def _server_hours(context: Context) -> pl.DataFrame:
    """Hours of one server on one GPU: `gpu`, `model`, `card`, `part` (share of the hour), `tokens` (this GPU's share), `rate`, energy."""
    rows = context.rollups.serving(context.since_ms).filter(
        pl.col("gpu").is_not_null(), pl.col("model").is_not_null(), pl.col("scrape_count") > 0
    )
    alone = pl.struct("endpoint", "model").n_unique().over("host", "gpu", "time") == 1
    whole = pl.col("scrape_count").max().over(_SERVER)
    rows = rows.filter(alone).with_columns(part=pl.col("scrape_count") / whole, gpus=pl.len().over(*_SERVER, "time"))
    seconds = pl.col("part") * (HOUR_MS / SECOND_MS) / pl.col("gpus")
    rows = rows.filter(pl.col("generated_tokens_mean_per_s").is_not_null()).with_columns(
        tokens=pl.col("generated_tokens_mean_per_s") * seconds
    )
    inventory, rate_of = context.inventory, context.costs.rate_of
    known = rows.filter(pl.col("gpu").is_in(list(inventory.devices)))
    schema = {"card": pl.String(), "rate": pl.Float64()}
    priced = with_mapped(known, ("gpu",), schema, lambda gpu: (inventory.model(inventory.card_of(gpu)), rate_of(gpu)))
    energy = context.rollups.hourly("energy_mj", "energy_ms", since_ms=context.since_ms)
    return priced.join(energy, on=("host", "gpu", "time"), how="left")


_SAME_SIZE = 0.05
"""Served models whose names state a number of parameters so near are of the same size: 7B may be 7.24."""


@dataclass(frozen=True)
class FittedOption:
    """Some cards that hold a model, what they can give at most, and what tokens of a model of that size cost on such a card here."""

    option: CardOption
    bounds: TokenBounds
    measured: MeasuredTokens | None


@dataclass(frozen=True)
class ModelFit:
    """What a model needs of one card in this work, and in the work's other forms (weights of 16, 8, 4 bits; all ways to train).

    `fleet` are the cards of this fleet, `market` others; each sure ones first, the cheapest first. `unknown` are models of the
    fleet that nothing is known of.
    """

    shape: ModelShape
    work: Serving | Training
    need: MemoryNeed
    forms: tuple[tuple[Serving | Training, MemoryNeed], ...]
    fleet: tuple[FittedOption, ...]
    market: tuple[FittedOption, ...]
    unknown: tuple[str, ...]


@dataclass(frozen=True)
class SeenFit:
    """A work that was seen, on each of the fleet's cards and of the market's that hold it."""

    work: SeenWork
    fleet: tuple[PlacedWork, ...]
    market: tuple[PlacedWork, ...]


def fit_model(
    context: Context, prices: PriceBook, shape: ModelShape, work: Serving | Training, measured: Sequence[MeasuredTokens]
) -> ModelFit:
    """Cards of the fleet work together within a host, others in up to COUNTS; to serve, they divide the model's heads.

    `measured` is what served models cost here, as far as the reader may know it.
    """
    need_of = _need_of(shape, work)
    served = () if isinstance(work, Training) else _same_size(measured, shape)

    def fitted(offers: Sequence[Offer], most_of: Callable[[Offer], int]) -> tuple[FittedOption, ...]:
        def counts(offer: Offer) -> tuple[int, ...]:
            divides = shape.heads if isinstance(work, Serving) else COUNTS[-1]
            return tuple(count for count in COUNTS if count <= most_of(offer) and divides % count == 0)

        return tuple(
            FittedOption(
                each, _bounds(shape, work, each), next((own for own in served if own.card == each.model), None)
            )
            for each in card_options(offers, need_of, counts)
        )

    forms: list[Serving | Training] = (
        [replace(work, method=method) for method in METHODS]
        if isinstance(work, Training)
        else [replace(work, bits=bits) for bits in STORED_BITS]
    )
    widths = host_widths(context)
    return ModelFit(
        shape=shape,
        work=work,
        need=need_of(1),
        forms=tuple((form, _need_of(shape, form)(1)) for form in forms),
        fleet=fitted(fleet_offers(context), lambda offer: widths.get(offer.model or "", 1)),
        market=fitted(market_offers(context, prices), lambda _: COUNTS[-1]),
        unknown=unknown_models(context),
    )


def fit_seen(context: Context, prices: PriceBook, work: SeenWork) -> SeenFit:
    """The cards for work that was seen: as many as it had, on one host each time; parts of cards for work on one."""
    need = work.need
    if need is None or work.hosts > 1:
        return SeenFit(work, (), ())
    widths = host_widths(context)

    def counts(offer: Offer) -> tuple[int, ...]:
        fits = offer.model is None or widths.get(offer.model, 1) >= work.gpus
        return (work.gpus,) if fits else ()

    def placed(offers: Sequence[Offer]) -> tuple[PlacedWork, ...]:
        options = card_options(offers, lambda _: need, counts)
        demand, present = work.demand, work.present
        if demand is None or present is None:
            return tuple(PlacedWork(work, each, None) for each in options)
        return tuple(PlacedWork(work, each, times_as_long(demand, present, each)) for each in options)

    return SeenFit(work, placed(fleet_offers(context)), placed(market_offers(context, prices)))


def _need_of(shape: ModelShape, work: Serving | Training) -> Callable[[int], MemoryNeed]:
    if isinstance(work, Training):
        return lambda cards: training_need(shape, work, cards)
    return lambda cards: serving_need(shape, work, cards)


def _bounds(shape: ModelShape, work: Serving | Training, option: CardOption) -> TokenBounds:
    if isinstance(work, Training):
        return training_bounds(shape, work, option.card, option.count, sm_share=option.sm_share)
    return serving_bounds(
        shape, work, option.card, option.count, sm_share=option.sm_share, memory_share=option.memory_share
    )


def _same_size(measured: Sequence[MeasuredTokens], shape: ModelShape) -> tuple[MeasuredTokens, ...]:
    """What models of about that size cost here, by what their names say."""
    known = [(parameters_of(each.served), each) for each in measured]
    return tuple(
        each
        for parameters, each in known
        if parameters is not None and abs(parameters / shape.parameters - 1) <= _SAME_SIZE
    )
