"""Observed workloads, the cards that fit a workload (the cheapest first), and workloads for old cards of the fleet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from analytics.cards import Card, card, cards
from analytics.money.prices import PriceBook
from analytics.plan.model_needs import MemoryNeed
from analytics.rules.preallocated import cache_use
from analytics.states import UNUSED
from analytics.workloads.cards import Demand, Offer, present_gpus, priced, shelf
from analytics.workloads.ledger_rows import gpu_ms_of
from analytics.workloads.mig_profiles import MigFit, fits
from analytics.workloads.model import Context, once_per_context
from analytics.workloads.runs import NEED_MARGIN, PEAK_MAX_SHARE, RUN
from analytics.workloads.smaller_cards import demand_of
from analytics.workloads.work_kinds import BATCH, work_kinds
from analytics.workloads.workloads import RUN_MIN_MS, nvlinked, runs_with_workload, with_demand, workloads

COUNTS = (1, 2, 4, 8)
"""Numbers of cards over which a model is split, all on one host."""

PCIE = "PCIe"


@dataclass(frozen=True)
class CardOption:
    """Cards of one kind, or a part of a card, that fit the workload."""

    card: Card
    count: int
    need: MemoryNeed
    part: MigFit | None = None
    model: str | None = None
    """The fleet's own name of the card; None if the fleet does not have it."""
    there: int = 0
    """Number of these cards in the fleet."""
    hourly: float | None = None
    """Price of all these cards together; None if unknown."""
    origin: str | None = None
    """Source of the price: the site or the catalog."""
    basis: str | None = None
    """Kind of the price, as `Price.basis`."""
    is_tight: bool = False
    """True if the estimate fits, but not with its error margin."""

    @property
    def link(self) -> str | None:
        """Return the link that joins all cards, PCIe if another one joins fewer; None for a single card."""
        if self.count == 1:
            return None
        return self.card.link if self.card.link and self.count <= self.card.link_cards else PCIE

    @property
    def sm_share(self) -> float:
        """Return the share of a card's processors."""
        return 1.0 if self.part is None else self.part.sm_share

    @property
    def memory_share(self) -> float:
        """Return the share of a card's memory and bandwidth."""
        return 1.0 if self.part is None else self.part.memory_share


def card_options(
    offers: Iterable[Offer], need_of: Callable[[int], MemoryNeed], counts_of: Callable[[Offer], Sequence[int]]
) -> tuple[CardOption, ...]:
    """Return for each offer the fewest cards that fit, and for fleet cards the smallest part.

    They are sorted by certainty, kind of price and price. `need_of` gives the memory need per card for a number
    of cards, and `counts_of` the numbers of an offer's cards that can work together, in order.
    """
    found = [option for offer in offers for option in _options(offer, need_of, counts_of(offer))]
    return tuple(sorted(found, key=_rank))


def fleet_offers(context: Context) -> tuple[Offer, ...]:
    return tuple(offer for offer in shelf(context).fleet.values() if offer.gpus)


def unknown_models(context: Context) -> tuple[str, ...]:
    """Return the fleet's models that are not in the table of cards. Their fit is unknown."""
    there = present_gpus(context)
    devices = [each for each in context.inventory.devices.values() if each.gpu in there and not each.parent_gpu]
    models = {each.model for each in devices if each.model and card(each.model, each.mem_total_bytes) is None}
    return tuple(sorted(models))


def market_offers(context: Context, prices: PriceBook) -> tuple[Offer, ...]:
    """Return the cards that the fleet does not have, with consumer cards; without a price if none is known."""
    own = {offer.card for offer in fleet_offers(context)}
    return tuple(priced(Offer(each), prices.hourly(each.name, None)) for each in cards() if each not in own)


@once_per_context
def host_widths(context: Context) -> Mapping[str, int]:
    """Return the most cards of each of the fleet's models on a host."""
    there = present_gpus(context)
    per_host = Counter(
        (device.model, device.host)
        for device in context.inventory.devices.values()
        if device.model is not None and device.gpu in there
    )
    widths: dict[str, int] = {}
    for (model, _), number in per_host.items():
        widths[model] = max(number, widths.get(model, 0))
    return widths


def times_as_long(demand: Demand, present: Card, option: CardOption) -> float | None:
    """Return how many times as long such a workload takes, by peak rates, at least 1; None if a rate is unknown.

    `demand` is its use of its present card. Unused capacity of that card does not count.
    """
    rates = (present.fp16_tflops, option.card.fp16_tflops, present.bandwidth_gb_per_s, option.card.bandwidth_gb_per_s)
    rate, other_rate, flow, other_flow = rates
    if rate is None or other_rate is None or flow is None or other_flow is None:
        return None
    computing = demand.busy_share * rate / (other_rate * option.sm_share)
    reading = demand.bandwidth_share * flow / (other_flow * option.memory_share)
    return max(1.0, computing, reading)


def _options(offer: Offer, need_of: Callable[[int], MemoryNeed], counts: Sequence[int]) -> Iterator[CardOption]:
    if offer.card.is_alone:
        counts = [count for count in counts if count == 1]
    if 1 in counts and offer.model is not None:  # no provider rents out a part of a card at its share of the price
        alone = need_of(1)
        for part in fits(offer.card.name):
            if alone.total <= part.profile.memory_bytes:
                yield _option(offer, 1, alone, part)
                break
    for count in counts:
        need = need_of(count)
        if need.total <= offer.card.memory_bytes:
            yield _option(offer, count, need, None)
            break


def _option(offer: Offer, count: int, need: MemoryNeed, part: MigFit | None) -> CardOption:
    memory = offer.card.memory_bytes if part is None else part.profile.memory_bytes
    share = 1.0 if part is None else part.sm_share
    return CardOption(
        card=offer.card,
        count=count,
        need=need,
        part=part,
        model=offer.model,
        there=offer.gpus,
        hourly=None if offer.hourly is None else offer.hourly * count * share,
        origin=offer.origin,
        basis=offer.basis,
        is_tight=need.high > memory,
    )


PRICE_KINDS = ("site", "on_demand", "spot", "lowest")
"""Kinds of prices, in the order of tables: an option is cheaper than another only within a kind."""


def price_rank(option: CardOption) -> tuple[int, float]:
    """Return the sort key of an option's price: by kind, the cheapest first, and those without a price last."""
    if option.hourly is None:
        return len(PRICE_KINDS), 0.0
    return PRICE_KINDS.index(option.basis or PRICE_KINDS[0]), option.hourly


def _rank(option: CardOption) -> tuple[bool, tuple[int, float], int, float, str]:
    memory = option.card.memory_bytes * option.memory_share
    return (option.is_tight, price_rank(option), option.count, memory, option.card.name)


@dataclass(frozen=True)
class SeenWork:
    """A workload (a job on cards of one model, or bare processes on one GPU) on `gpus` cards of up to `hosts` hosts."""

    user: str | None
    job: str | None
    kind: str
    model: str
    gpus: int
    hosts: int
    gpu_ms: int
    days: int
    peak_bytes: int | None
    """Highest memory on any card."""
    usual_bytes: int | None
    """Memory that 98 % of the hourly peaks do not exceed."""
    is_reserved: bool
    """True if the workload reserved memory in advance, or may have: only `served_bytes` then shows its need."""
    served_bytes: int | None
    """Need with the margin of right-sizing, for a server with known cache use and a model of known size; else None."""
    is_linked: bool
    """True if its cards communicated over NVLink."""
    demand: Demand | None
    """Use of the card; None if not measured."""
    present: Card | None
    """The present card; None if its model is not in the table of cards."""

    @property
    def need(self) -> MemoryNeed | None:
        """Return the memory need per card; a card that surely fits has room beside the peak. None if unknown."""
        if self.served_bytes is not None:
            return MemoryNeed((("measured", self.served_bytes / NEED_MARGIN),), float(self.served_bytes))
        if self.peak_bytes is None or self.is_reserved:
            return None
        return MemoryNeed((("measured", float(self.peak_bytes)),), self.peak_bytes / PEAK_MAX_SHARE)


@dataclass(frozen=True)
class PlacedWork:
    work: SeenWork
    option: CardOption
    times: float | None
    """Factor of the run time, at most, by peak rates; None if unknown."""


def seen_workloads(context: Context, segments: pl.DataFrame) -> tuple[SeenWork, ...]:
    """Return the workloads of an hour or more with any of these ledger rows, the most GPU time first."""
    asked = runs_with_workload(context).join(segments.select(RUN).unique(), on=RUN, how="semi", nulls_equal=True)
    own = set(asked["work"].to_list())
    return tuple(seen for work, seen in _all_workloads(context) if work in own)


@once_per_context
def _all_workloads(context: Context) -> tuple[tuple[int, SeenWork], ...]:
    """Return the workloads of all users with their numbers, the most GPU time first."""
    found = with_demand(context, workloads(context)).join(work_kinds(context), on="work", how="left")
    linked = set(nvlinked(context)["work"].to_list())
    ordered = found.sort(pl.col("gpu_ms"), "work", descending=[True, False])
    return tuple(
        (row["work"], _seen(context, row, is_linked=row["work"] in linked)) for row in ordered.iter_rows(named=True)
    )


def _seen(context: Context, row: dict[str, Any], *, is_linked: bool) -> SeenWork:
    same = ("user", "job", "kind", "model", "gpus", "hosts", "gpu_ms", "days", "peak_bytes")
    return SeenWork(
        **{name: row[name] for name in same},
        usual_bytes=row["q98_bytes"],
        is_reserved=row["need_bytes"] is None,
        served_bytes=_served_bytes(context, row["work"]) if row["preallocated"] else None,
        is_linked=is_linked,
        demand=demand_of(row, less_memory=False),
        present=card(row["model"], row["card_bytes"]),
    )


def short_workloads(context: Context, segments: pl.DataFrame) -> pl.DataFrame:
    """Return `model`, `peak_bytes` and `gpu_ms` of runs on a whole card that `seen_workloads` omits as too short."""
    own = runs_with_workload(context).join(segments.select(RUN).unique(), on=RUN, how="semi", nulls_equal=True)
    return own.filter(
        pl.col("ended") - pl.col("began") < RUN_MIN_MS,
        pl.col("single") & pl.col("whole_card") & ~pl.col("service") & (pl.col("gpu_count") == 1),
        pl.col("util_mean_pct") > 0,
        pl.col("peak_bytes").is_not_null() & ~pl.col("reserving"),
    ).select("model", "peak_bytes", "gpu_ms")


def _served_bytes(context: Context, work: int) -> int | None:
    use = cache_use(context, runs_with_workload(context).filter(pl.col("work") == work))
    return None if use is None else use.need_bytes


PATIENT_TIMES = 2.0
"""Batch jobs may take this many times as long on an old card (ours). Interactive work may not take longer."""


@dataclass(frozen=True)
class OldCards:
    """Workloads that old cards could take: the queue, the most GPU time first, each workload with its card."""

    queue: tuple[PlacedWork, ...]
    offers: tuple[Offer, ...]
    """Cards that are older and slower than another card of the fleet, and no more expensive."""
    unmeasured: int
    """Workloads on newer cards that are left out, because their need or use is unknown."""
    tests: int = 0
    """Short runs on newer cards whose memory peak fits on an old card. Their speed there is unknown."""
    tests_ms: int = 0
    """GPU time of these runs."""
    idle_ms: float | None = None
    """GPU time in which the old cards were free, reserved or held without use; None if not requested."""

    @property
    def gpu_ms(self) -> int:
        return sum(each.work.gpu_ms for each in self.queue)


def old_cards(context: Context, seen: Sequence[SeenWork], segments: pl.DataFrame, *, with_idle: bool) -> OldCards:
    """Return the workloads that fit on an older card than their own, each on the cheapest such card.

    Short runs in `segments` are counted. `with_idle`: the reader may know the unused time of the old cards.
    """
    offers = fleet_offers(context)
    older = {offer.model: [old for old in offers if _is_older(old, offer)] for offer in offers}
    old = {each.card.name: each for olds in older.values() for each in olds}
    ordered = tuple(sorted(old.values(), key=lambda each: (each.card.year, each.card.name)))
    newer = [(work, own) for work in seen if (own := older.get(work.model))]
    queue = [found for work, own in newer if (found := _old_card_placement(context, work, own)) is not None]
    short = short_workloads(context, segments)
    holds = {model: PEAK_MAX_SHARE * max(each.card.memory_bytes for each in own) for model, own in older.items() if own}
    most_bytes = pl.col("model").replace_strict(holds, default=0.0, return_dtype=pl.Float64)
    tests = short.filter(pl.col("peak_bytes") <= most_bytes)
    models = {offer.model for offer in ordered}
    gpus = [device.gpu for device in context.inventory.devices.values() if device.model in models]
    idle = context.inside.segments.filter(pl.col("gpu").is_in(gpus), pl.col("state").is_in(UNUSED))
    return OldCards(
        queue=tuple(queue),
        offers=ordered,
        unmeasured=sum(work.need is None or work.demand is None for work, _ in newer),
        tests=tests.height,
        tests_ms=int(tests["gpu_ms"].sum()),
        idle_ms=gpu_ms_of(idle) if with_idle else None,
    )


def _is_older(offer: Offer, other: Offer) -> bool:
    """Return whether a card runs the other's software, is older, computes less, and is not known to cost more."""
    rate, other_rate = offer.card.fp16_tflops, other.card.fp16_tflops
    if offer.card.software != other.card.software or offer.card.year >= other.card.year:
        return False
    if rate is None or other_rate is None or rate >= other_rate:
        return False
    return offer.hourly is None or other.hourly is None or offer.hourly <= other.hourly


def _old_card_placement(context: Context, work: SeenWork, older: Sequence[Offer]) -> PlacedWork | None:
    need, demand, present = work.need, work.demand, work.present
    if need is None or demand is None or present is None or work.is_linked or work.hosts > 1:
        return None
    most = PATIENT_TIMES if work.kind == BATCH else 1.0
    wide = [each for each in older if host_widths(context).get(each.model or "", 0) >= work.gpus]
    for option in card_options(wide, lambda _: need, lambda _: (work.gpus,)):
        times = times_as_long(demand, present, option)
        if option.part is None and not option.is_tight and times is not None and times <= most:
            return PlacedWork(work, option, times)
    return None
