"""Cards for a model or workload: memory need, cards of the fleet and the market that fit, and their performance."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from importlib import resources

import polars as pl

from analytics.cards import card, words
from analytics.frames import with_mapped
from analytics.mig import MIG_PREFIX
from analytics.money.energy import KNOWN_MIN, MJ_PER_KWH
from analytics.money.prices import PriceBook
from analytics.plan.model_needs import (
    METHODS,
    MILLION,
    MemoryNeed,
    Serving,
    TokenBounds,
    Training,
    peak_rate,
    serving_bounds,
    serving_need,
    training_bounds,
    training_need,
)
from analytics.plan.model_shapes import STORED_BITS, ModelShape, has_experts
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
from analytics.rules.preallocated import bytes_per_parameter, parameters_of
from analytics.workloads.cards import Offer
from analytics.workloads.model import Context, once_per_context
from fallow.clock import HOUR_MS, SECOND_MS, floor_ms

OUTPUT_WEIGHT = 4.0
"""Input tokens that cost as much as an output token: an assumption that splits the measured cost, not its sum."""

_SERVER = ("host", "endpoint", "served")
_PAYER = ("namespace", "team")


@dataclass(frozen=True)
class MeasuredTokens:
    """A served model of one namespace and team on cards of one model, over the window, with hours without requests."""

    served: str
    card: str
    namespace: str | None
    team: str | None
    gpu_ms: float
    prompt_tokens: float | None
    """None if a server does not count them."""
    tokens: float
    """Generated tokens."""
    most_running: float | None
    cost: float | None
    """Cost of the GPU time; None if any part has no price."""
    kwh: float | None
    """Energy of the GPUs; None if known for less than 90 % of the time."""
    used_cost: float | None
    """Cost of the time with kernels: each hour's cost times utilization. None as `cost` and `kwh`, and for MIG."""
    is_whole: bool
    """False if some of the GPUs are MIG instances."""

    @property
    def all_tokens(self) -> float | None:
        """Return prompt and generated tokens; None if either is unknown."""
        return None if self.prompt_tokens is None else self.prompt_tokens + self.tokens

    @property
    def allocated_cost_per_million(self) -> float | None:
        """Return the whole cost per million tokens in and out (OpenCost: `allocation`); None if unknown or 0 tokens."""
        return None if self.cost is None or not self.all_tokens else self.cost / self.all_tokens * MILLION

    @property
    def used_cost_per_million(self) -> float | None:
        """Return the cost of the used time per million tokens in and out, OpenCost's basis `usage`; None as there."""
        return None if self.used_cost is None or not self.all_tokens else self.used_cost / self.all_tokens * MILLION

    @property
    def tflops_per_gpu(self) -> float | None:
        """Return the estimated TFLOP/s per GPU: 2 operations per token and active parameter; None if one is unknown."""
        active = active_parameters(self.served)
        if active is None or self.all_tokens is None or not self.gpu_ms:
            return None
        return 2 * active * self.all_tokens * SECOND_MS / self.gpu_ms / 1e12

    @property
    def peak_share(self) -> float | None:
        """Return these as a share of the card's dense peak in the weights' format; None if unknown or impossible."""
        known = card(self.card) if self.is_whole else None
        peak = None if known is None else peak_rate(known, round(8 * bytes_per_parameter(self.served)))[0]
        share = None if self.tflops_per_gpu is None or not peak else self.tflops_per_gpu / peak
        return None if share is None or share > 1 else share  # prompt tokens from a cache took no operations

    @property
    def tokens_per_gpu_s(self) -> float | None:
        return self.tokens * SECOND_MS / self.gpu_ms if self.gpu_ms else None

    @property
    def cost_per_million(self) -> float | None:
        """Return the cost of a million tokens; None if the cost is unknown, or without tokens."""
        return None if self.cost is None or not self.tokens else self.cost / self.tokens * MILLION

    @property
    def input_cost_per_million(self) -> float | None:
        """Return the cost of a million input tokens; None if the cost is unknown, or without tokens.

        Input and output tokens at these two prices cost what the GPUs cost.
        """
        if self.cost is None or self.prompt_tokens is None:
            return None
        weighed = self.prompt_tokens + OUTPUT_WEIGHT * self.tokens
        return self.cost / weighed * MILLION if weighed else None

    @property
    def output_cost_per_million(self) -> float | None:
        """Return the cost of a million output tokens beside that of input tokens; None as there."""
        return None if (cost := self.input_cost_per_million) is None else cost * OUTPUT_WEIGHT

    @property
    def kwh_per_million(self) -> float | None:
        """Return the energy of a million tokens; None if the energy is unknown, or without tokens."""
        return None if self.kwh is None or not self.tokens else self.kwh / self.tokens * MILLION


def measured_tokens(context: Context, gpus: Collection[str] | None = None) -> tuple[MeasuredTokens, ...]:
    """Return every served model, card, namespace and team whose servers count tokens, the most GPU time first.

    `gpus` None means all. An hour counts by the time that its scrapes describe. If several servers or models on a GPU
    had requests within an hour, the GPU is left out for that hour, because the time cannot be assigned.
    """
    hours = _server_hours(context)
    own = hours if gpus is None else hours.filter(pl.col("gpu").is_in(list(gpus)))
    is_utilized = pl.col("gpu_util_mean_pct").is_not_null()
    is_known, is_seen = (
        each.cast(pl.Int64).sum() >= KNOWN_MIN * HOUR_MS * pl.len()
        for each in (pl.col("energy_ms"), pl.col("observed_ms").filter(is_utilized))
    )
    cost, used = pl.col("rate") * pl.col("share"), pl.col("gpu_util_mean_pct") / 100
    used = used.fill_null(used.mean())  # an hour that was not seen counts as the others, not as unused
    is_priced = pl.col("rate").is_not_null().all()
    found = own.group_by("served", "card", *_PAYER).agg(
        gpu_ms=(pl.col("share") * HOUR_MS).sum(),
        prompt_tokens=pl.when(pl.col("prompt_tokens").null_count() == 0).then(pl.col("prompt_tokens").sum()),
        tokens=pl.col("tokens").sum(),
        most_running=pl.col("running_requests_max").max(),
        cost=pl.when(is_priced).then(cost.sum()),
        kwh=pl.when(is_known).then((pl.col("energy_mj") * pl.col("part")).sum() / MJ_PER_KWH),
        used_cost=pl.when(is_priced & is_seen).then((cost * used).sum()),
        is_whole=~pl.col("gpu").str.starts_with(MIG_PREFIX).any(),
    )
    ordered = found.sort("gpu_ms", "served", "card", *_PAYER, descending=[True, *[False] * 4])
    return tuple(MeasuredTokens(*row) for row in ordered.iter_rows())


@once_per_context
def _server_hours(context: Context) -> pl.DataFrame:
    """Return hours of a server on a GPU.

    `gpu`, `served`, `card`, `namespace`, `team`, `part` (share of the hour), `share` (of an hour of a GPU), `tokens`
    and `prompt_tokens` (this GPU's share), `rate`, energy and utilization.
    """
    since_ms = floor_ms(context.since_ms, HOUR_MS)  # the hour in which the observed time begins
    rows = context.rollups.serving(since_ms).filter(pl.col("gpu").is_not_null(), pl.col("scrape_count") > 0)
    rows = rows.with_columns(served=pl.coalesce("model", "engine"))  # TGI names no model
    alone = pl.struct("endpoint", "served").n_unique().over("host", "gpu", "time") == 1
    part = pl.min_horizontal(pl.col("answered_ms") / HOUR_MS, 1.0)
    rows = rows.filter(alone, pl.col("generated_tokens").is_not_null())
    rows = rows.with_columns(part=part, gpus=pl.len().over(*_SERVER, "time")).with_columns(
        tokens=pl.col("generated_tokens") / pl.col("gpus"), prompt_tokens=pl.col("prompt_tokens") / pl.col("gpus")
    )
    rows = _with_payers(context, rows)
    inventory, is_instance = context.inventory, pl.col("gpu").str.starts_with(MIG_PREFIX)
    known = rows.filter(pl.col("gpu").is_in(list(inventory.devices)))
    shares = context.whole.segments.filter(is_instance).group_by("gpu").agg(of_gpu=pl.col("gpu_share").last())
    known = known.join(shares, on="gpu", how="left").with_columns(
        share=pl.col("part") * pl.when(is_instance).then("of_gpu").otherwise(1.0)
    )
    known = _with_rates(context, known.drop_nulls("share"))
    priced = with_mapped(known, ("gpu",), {"card": pl.String()}, lambda gpu: (inventory.model(inventory.card_of(gpu)),))
    measured = ("energy_mj", "energy_ms", "observed_ms", "gpu_util_mean_pct")
    return priced.join(context.rollups.hourly(*measured, since_ms=since_ms), on=("host", "gpu", "time"), how="left")


def _with_rates(context: Context, rows: pl.DataFrame) -> pl.DataFrame:
    """Return hours with `rate`, the price of an hour of the whole GPU at that time; null without a price."""
    terms = [(gpu, each.since_ms, each.rate) for gpu, own in context.costs.terms.items() for each in own]
    rates = pl.DataFrame(terms, schema={"gpu": pl.String, "time": pl.Int64, "rate": pl.Float64}, orient="row")
    return rows.sort("time").join_asof(rates.sort("time"), on="time", by="gpu", check_sortedness=False)


def _with_payers(context: Context, rows: pl.DataFrame) -> pl.DataFrame:
    """Return hours of servers with `namespace` and `team` of the server's pod, else of the GPU's last user in them."""
    held = context.whole.segments.filter(pl.col("account").is_not_null() | pl.col("user").is_not_null())
    held = held.select("host", "gpu", "account", "user", at="time", until="end").sort("at")
    known = rows.with_columns(at=pl.col("time") + HOUR_MS - 1).sort("at")
    met = known.join_asof(held, on="at", by=["host", "gpu"], strategy="backward", check_sortedness=False)
    in_hour = pl.when(pl.col("until") > pl.col("time"))  # an earlier user pays nothing
    met = met.with_columns(user=in_hour.then("user"), namespace=pl.coalesce("namespace", in_hour.then("account")))
    payers = met.select("user", "namespace").unique()
    teams = [context.owners.team(user, namespace) for user, namespace in payers.iter_rows()]
    named = payers.with_columns(team=pl.Series(teams, dtype=pl.String))
    return met.join(named, on=["user", "namespace"], how="left", nulls_equal=True).drop(
        "account", "user", "at", "until"
    )


_ACTIVE = re.compile(r"(?<![a-z0-9])a(\d+(?:\.\d+)?)b(?![a-z0-9])")


def active_parameters(served: str) -> float | None:
    """Return the parameters that work on each token, by a model's name.

    `Qwen3-30B-A3B` states 3e9, and some models with experts are in expert_models.csv; others are None. Of a model
    without experts all parameters work.
    """
    name = served.rpartition("/")[2].lower().replace("_", "-")
    if (found := _ACTIVE.search(name)) is not None:
        return float(found[1]) * 1e9
    listed = [each for each in _expert_models() if f"{name}-".startswith(f"{each}-") and "distill" not in name]
    if listed:
        return _expert_models()[max(listed, key=len)]
    return None if has_experts(served) else parameters_of(served)


@cache
def _expert_models() -> Mapping[str, float]:
    text = resources.files(__package__).joinpath("expert_models.csv").read_text(encoding="utf-8")
    return {row["model"]: float(row["active_parameters"]) for row in csv.DictReader(text.splitlines())}


@dataclass(frozen=True)
class ApiPrice:
    """What a provider asks for a model behind an API, per million tokens."""

    provider: str
    input_per_million: float
    output_per_million: float
    date: date
    source: str


def api_price(served: str, prices: PriceBook) -> ApiPrice | None:
    """Return a served model's lowest price by its name (api_prices.csv); None without one in a known currency."""
    text = resources.files("analytics.money").joinpath("api_prices.csv").read_text(encoding="utf-8")
    found = [
        ApiPrice(
            row["provider"],
            float(row["input"]) * float(rate),
            float(row["output"]) * float(rate),
            date.fromisoformat(row["date"]),
            row["source"],
        )
        for row in csv.DictReader(text.splitlines())
        if words(row["model"]) <= words(served) and (rate := prices.rate(row["currency"])) is not None
    ]
    return min(found, key=lambda each: each.output_per_million, default=None)


_SAME_SIZE = 0.05
"""Served models count as the same size if their names state parameter counts this close: 7B may be 7.24."""


@dataclass(frozen=True)
class FittedOption:
    """Cards that fit a model, their upper bounds, and the cost here of tokens of a model of this size on such cards."""

    option: CardOption
    bounds: TokenBounds
    measured: MeasuredTokens | None


@dataclass(frozen=True)
class ModelFit:
    """Memory need of a model per card, and in its other forms (weights in 16, 8, 4 bits; all kinds of training)."""

    shape: ModelShape
    work: Serving | Training
    need: MemoryNeed
    forms: tuple[tuple[Serving | Training, MemoryNeed], ...]
    fleet: tuple[FittedOption, ...]
    """Cards of this fleet: sure ones first, then the cheapest first."""
    market: tuple[FittedOption, ...]
    """Other cards, in the same order."""
    unknown: tuple[str, ...]
    """Models of the fleet without card data."""


@dataclass(frozen=True)
class SeenFit:
    """An observed workload, with the cards of the fleet and the market that fit it."""

    work: SeenWork
    fleet: tuple[PlacedWork, ...]
    market: tuple[PlacedWork, ...]


def fit_model(
    context: Context, prices: PriceBook, shape: ModelShape, work: Serving | Training, measured: Sequence[MeasuredTokens]
) -> ModelFit:
    """Return the cards that fit a model.

    Fleet cards work together within a host, others in up to COUNTS. To serve, they divide the model's heads.
    `measured`: cost of served models here, of the scope that the reader may see.
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
    """Return the cards for an observed workload: as many on a single host, and for one card also parts of a card."""
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
    """Return the measured tokens of models of about this size, by their names."""
    known = [(parameters_of(each.served), each) for each in measured]
    return tuple(
        each
        for parameters, each in known
        if parameters is not None and abs(parameters / shape.parameters - 1) <= _SAME_SIZE
    )
