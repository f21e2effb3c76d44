"""Smaller, older or cheaper cards that fit a run, and the request for such a card."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import polars as pl

from analytics.cards import CUDA, ROCM, Card, card, cards
from analytics.language.sentences import tr
from analytics.money.prices import Price, listed
from analytics.workloads.commands import quote, watch_command
from analytics.workloads.model import Context, once_per_context
from analytics.workloads.runs import PEAK_MAX_SHARE
from fallow.clock import DAY_MS

BFLOAT16_SINCE = 2020
"""Year of Ampere. Older cards have no bfloat16, in which most models are trained today."""
WORTH_MOVING = 0.2
"""A card is cheaper if it saves at least this share of the price: a smaller saving is not worth a move."""
PRESENT_MS = DAY_MS
"""A GPU without any row for longer may have gone, so no work is moved onto it."""
_NOT_FOR_SERVERS = ("GeForce", "TITAN", "Quadro", "RTX")
"""Cards that are not bought for servers; they are recommended only if the fleet has them."""


@dataclass(frozen=True)
class Demand:
    """Demand of a run: peak memory, and shares of the present card's processors and memory bandwidth."""

    peak_bytes: int
    busy_share: float
    bandwidth_share: float
    less_memory: bool = False  # a card with as much memory is no answer


@dataclass(frozen=True)
class Offer:
    card: Card
    model: str | None = None
    """The fleet's own name; None for the catalog's cards."""
    gpus: int = 0
    """GPUs of this card in the fleet at the window's end: 0 for the catalog's, and for cards not there then."""
    hourly: float | None = None
    """Lowest price of a GPU-hour in the context's currency; None if unknown."""
    origin: str | None = None
    """Source of the price, the site or the built-in catalog; None if unknown."""
    basis: str | None = None
    """Kind of the price, as `Price.basis`."""

    def is_comparable(self, price: Price | Offer) -> bool:
        """Return whether a price is of the same kind."""
        return self.basis == price.basis


@dataclass(frozen=True)
class Shelf:
    """Cards to choose from: the fleet's by model name, and the catalog's."""

    fleet: Mapping[str, Offer]
    catalog: tuple[Offer, ...]

    def choose(self, model: str, demand: Demand) -> Offer | None:
        """Return the cheapest card that fits, of the fleet if it has one, else of the catalog; None without one.

        It runs the present card's software, has less of something, holds the peak with the required room, reaches the
        rates that the run uses, and is not more expensive. If prices are unknown, the least powerful card comes first.
        """
        present = self.fleet.get(model)
        if present is None:
            return None
        return next((each for each in self._cheaper[model] if _does(each.card, present.card, demand)), None)

    @cached_property
    def _cheaper(self) -> Mapping[str, tuple[Offer, ...]]:
        """Return by model of the fleet the cards that are not more expensive, the best first."""
        of_fleet = sorted((each for each in self.fleet.values() if each.gpus), key=_rank)
        offers = (*of_fleet, *sorted(self.catalog, key=_rank))
        return {
            model: tuple(each for each in offers if _is_cheaper(each, present)) for model, present in self.fleet.items()
        }


@once_per_context
def shelf(context: Context) -> Shelf:
    """Return the cards and prices of the fleet and the catalog, without cards that exist only split."""
    fleet: dict[str, Offer] = {}
    there = present_gpus(context)
    for device in sorted(context.inventory.devices.values(), key=lambda each: (each.model or "", each.gpu)):
        known = card(device.model, device.mem_total_bytes)
        if device.model is None or known is None or device.parent_gpu or device.mig_enabled:
            continue
        before = fleet.get(device.model, Offer(known, device.model))
        price = context.costs.price_of(device.gpu)
        cheaper = price is not None and (before.hourly is None or float(price.hourly) < before.hourly)
        offer = priced(before, price) if cheaper else before
        fleet[device.model] = replace(offer, gpus=before.gpus + (device.gpu in there))
    servers = (each for each in cards() if not each.name.startswith(_NOT_FOR_SERVERS))
    return Shelf(fleet, tuple(_listed_offers(servers, context.costs.currency)))


def priced(offer: Offer, price: Price | None) -> Offer:
    """Return the offer at a price; as it is without one."""
    if price is None:
        return offer
    return replace(offer, hourly=float(price.hourly), origin=price.origin, basis=price.basis)


@once_per_context
def present_gpus(context: Context) -> frozenset[str]:
    """Return the GPUs of the fleet at the window's end: those with a row in the window's last PRESENT_MS."""
    seen = context.whole.lifetimes.filter(pl.col("last_seen") > context.until_ms - PRESENT_MS)
    return frozenset(seen["gpu"].to_list())


def _listed_offers(those: Iterable[Card], currency: str) -> Iterator[Offer]:
    """Yield the cards with a list price. A card that no provider rents out is no alternative."""
    for each in those:
        price = listed(each.name)
        if price is not None:
            offer = priced(Offer(each), price)
            yield offer if price.currency == currency else replace(offer, hourly=None)


def slowdown(present: Card, other: Card) -> float | None:
    """Return how many times as long a compute-bound step takes on the other, by peak FP16 rate; None if unknown."""
    if not present.fp16_tflops or not other.fp16_tflops:
        return None
    return present.fp16_tflops / other.fp16_tflops


def _does(other: Card, present: Card, demand: Demand) -> bool:
    rate, had = other.fp16_tflops, present.fp16_tflops
    flow, flowed = other.bandwidth_gb_per_s, present.bandwidth_gb_per_s
    if rate is None or had is None or flow is None or flowed is None or other.software != present.software:
        return False
    keeps_up = rate >= demand.busy_share * had and flow >= demand.bandwidth_share * flowed
    slower_only = rate < had and other.memory_bytes == present.memory_bytes
    smaller = other.memory_bytes < present.memory_bytes or (slower_only and not demand.less_memory)
    return keeps_up and smaller and demand.peak_bytes <= PEAK_MAX_SHARE * other.memory_bytes


def _is_cheaper(offer: Offer, present: Offer) -> bool:
    """Return whether the card is clearly cheaper; without comparable prices, whether it has no more of anything."""
    if offer.hourly is not None and present.hourly is not None:
        if offer.is_comparable(present):
            return offer.hourly <= (1 - WORTH_MOVING) * present.hourly
        if offer.hourly >= present.hourly:
            return False
    slower = (offer.card.fp16_tflops or 0.0) <= (present.card.fp16_tflops or 0.0)
    return slower and (offer.card.bandwidth_gb_per_s or 0.0) <= (present.card.bandwidth_gb_per_s or 0.0)


def _rank(offer: Offer) -> tuple[bool, float, float, int, str]:
    """Return the sort key: cards with a price first, by price; then the least powerful, with the least memory."""
    rate = offer.card.fp16_tflops or 0.0
    return (offer.hourly is None, offer.hourly or 0.0, rate, offer.card.memory_bytes, offer.card.name)


KINDS = ("slurm", "pod", "ray", "allocation")
"""First parts of job names."""


def job_kind(jobs: Iterable[str | None]) -> str | None:
    """Return the system that started all of these jobs; None for bare processes, and if the jobs differ."""
    kinds = {None if job is None else job.partition(":")[0] for job in jobs}
    only = kinds.pop() if len(kinds) == 1 else None
    return only if only in KINDS else None


def slurm_type(wanted: Card, others: Iterable[Card] = ()) -> str:
    """Return the usual name of the card in a Slurm gres, with its memory if another card has the same name."""

    def short(each: Card) -> str:
        words = each.name.lower().split()
        return words[0] if words[0][-1].isdigit() or words[0][-1:] == "s" else "_".join(words)

    same = any(short(each) == short(wanted) and each.memory_bytes != wanted.memory_bytes for each in others)
    return f"{short(wanted)}_{round(wanted.memory_bytes / 2**30)}gb" if same else short(wanted)


def product_label(model: str, software: str = CUDA) -> str | None:
    """Return the node label of a model, as the feature discovery of its maker sets it; None if that is unknown."""
    if software == CUDA:
        return f"nvidia.com/gpu.product={model.replace(' ', '-')}"
    return f"amd.com/gpu.product-name={model.replace(' ', '_')}" if software == ROCM else None


def ask_for(
    context: Context, jobs: Sequence[str | None], offer: Offer, *, present: str, gpus_per_host: int
) -> tuple[str, str]:
    """Return the command or directive that requests a fleet card for work on the present model, and how to use it."""
    kind, model = job_kind(jobs), offer.model or offer.card.name
    if kind == "slurm":
        others = [each.card for each in shelf(context).fleet.values()]
        directive = f"#SBATCH --gres=gpu:{slurm_type(offer.card, others)}:{gpus_per_host}"
        return (
            directive,
            tr(
                "submit the job with this directive instead of {present}; gres.conf has the site's name for the type",
                present=present,
            ),
        )
    if kind == "pod" and (label := product_label(model, offer.card.software)) is not None:
        says = tr(
            "give the pod the nodeSelector {selector}; the command lists the nodes that have it",
            selector=label.replace("=", ": "),
        )
        return f"kubectl get nodes -l {quote(label)}", says
    if kind == "ray":
        kind_of_card = slurm_type(offer.card).upper()
        return _there(context, model), tr('start the work with accelerator_type="{card}"', card=kind_of_card)
    return _there(context, model), tr(
        "start the workload on a host with that card; the command shows how busy such a host is"
    )


def _there(context: Context, model: str) -> str:
    hosts = sorted(each.host for each in context.inventory.devices.values() if each.model == model)
    return watch_command(hosts[0]) if hosts else ""
