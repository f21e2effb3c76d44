"""Which card for which model or work: what it needs, which cards of the fleet and of the market hold it, and what they can give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from analytics.money.prices import PriceBook
from analytics.plan.card_options import (
    COUNTS,
    CardOption,
    card_options,
    fleet_offers,
    host_widths,
    market_offers,
    times_as_long,
    unknown_models,
)
from analytics.plan.measured_tokens import MeasuredTokens
from analytics.plan.memory_need import METHODS, STORED_BITS, MemoryNeed, Serving, Training, serving_need, training_need
from analytics.plan.model_shape import ModelShape
from analytics.plan.seen_work import PlacedWork, SeenWork
from analytics.plan.token_bounds import TokenBounds, serving_bounds, training_bounds
from analytics.rules.preallocated import parameters_of
from analytics.workloads.cards import Offer
from analytics.workloads.model import Context

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
        return tuple(PlacedWork(work, each, _times(work, each)) for each in options)

    return SeenFit(work, placed(fleet_offers(context)), placed(market_offers(context, prices)))


def _times(work: SeenWork, option: CardOption) -> float | None:
    if work.demand is None or work.present is None:
        return None
    return times_as_long(work.demand, work.present, option)


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
