"""Which work ran on newer cards although an older one of the fleet would do: the queue for the old cards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analytics.plan.card_options import CardOption, card_options, fleet_offers, host_widths, times_as_long
from analytics.plan.seen_work import SeenWork
from analytics.workloads.cards import Offer
from analytics.workloads.model import Context
from analytics.workloads.work_kinds import BATCH

PATIENT_TIMES = 2.0
"""Batch jobs may take so many times as long on an old card (ours); who waits for an answer gets one as soon as before."""


@dataclass(frozen=True)
class OldCardWork:
    """A work and the card of the fleet that would take it; `times` as long at most, by peak rates."""

    work: SeenWork
    option: CardOption
    times: float


@dataclass(frozen=True)
class OldCards:
    """The queue, the most GPU time first; `offers` are the fleet's cards that are older, slower and
    no dearer than some other of its cards.

    `unmeasured` works on newer cards are left out: their need, or what they make use of, is not known.
    """

    queue: tuple[OldCardWork, ...]
    offers: tuple[Offer, ...]
    unmeasured: int


def old_cards(context: Context, works: Sequence[SeenWork]) -> OldCards:
    """What of these works would do on an older card than its own, each on the cheapest such card."""
    offers = fleet_offers(context)
    old = tuple(offer for offer in offers if any(_is_older(offer, other) for other in offers))
    of_model = {offer.model: offer for offer in offers}
    newer = [
        (work, older)
        for work in works
        if (present := of_model.get(work.model)) and (older := [offer for offer in old if _is_older(offer, present)])
    ]
    queue = [found for work, older in newer if (found := _placed(context, work, older)) is not None]
    unmeasured = sum(work.need is None or work.demand is None for work, _ in newer)
    return OldCards(tuple(queue), tuple(sorted(old, key=lambda each: (each.card.year, each.card.name))), unmeasured)


def _is_older(offer: Offer, other: Offer) -> bool:
    """Whether a card came out before the other, computes less, and costs no more, as far as prices are known."""
    rate, other_rate = offer.card.fp16_tflops, other.card.fp16_tflops
    if rate is None or other_rate is None or rate >= other_rate or offer.card.year >= other.card.year:
        return False
    return offer.hourly is None or other.hourly is None or offer.hourly <= other.hourly


def _placed(context: Context, work: SeenWork, older: Sequence[Offer]) -> OldCardWork | None:
    need, demand, present = work.need, work.demand, work.present
    if need is None or demand is None or present is None or work.is_linked or work.hosts > 1:
        return None
    most = PATIENT_TIMES if work.kind == BATCH else 1.0
    wide = [each for each in older if host_widths(context).get(each.model or "", 0) >= work.gpus]
    for option in card_options(wide, lambda _: need, lambda _: (work.gpus,)):
        times = times_as_long(demand, present, option)
        if option.part is None and not option.is_tight and times is not None and times <= most:
            return OldCardWork(work, option, times)
    return None
