"""Which work ran on newer cards although an older one of the fleet would do: the queue for the old cards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from analytics.plan.card_options import card_options, fleet_offers, host_widths, times_as_long
from analytics.plan.seen_work import PlacedWork, SeenWork, short_works
from analytics.states import UNUSED
from analytics.workloads.cards import Offer
from analytics.workloads.ledger_rows import gpu_ms_of
from analytics.workloads.model import Context
from analytics.workloads.runs import PEAK_MAX_SHARE
from analytics.workloads.work_kinds import BATCH

PATIENT_TIMES = 2.0
"""Batch jobs may take so many times as long on an old card (ours); who waits for an answer gets one as soon as before."""


@dataclass(frozen=True)
class OldCards:
    """The queue, the most GPU time first, each work with the card that would take it; `offers` are older, slower and no dearer than some other card of the fleet.

    `unmeasured` works on newer cards are left out: their need, or what they make use of, is not known. `idle_ms` is the GPU time
    that these cards stood free, reserved or held without use in the window, None where that is not asked for. `tests` are the short
    runs on newer cards whose peak an old one holds, `tests_ms` their GPU time; how fast they would be is not known.
    """

    queue: tuple[PlacedWork, ...]
    offers: tuple[Offer, ...]
    unmeasured: int
    tests: int = 0
    tests_ms: int = 0
    idle_ms: float | None = None

    @property
    def gpu_ms(self) -> int:
        """The GPU time of the queue."""
        return sum(each.work.gpu_ms for each in self.queue)


def old_cards(context: Context, works: Sequence[SeenWork], stretches: pl.DataFrame, *, with_idle: bool) -> OldCards:
    """What of these works would do on an older card than its own, each on the cheapest such card.

    Args:
        context: the window.
        works: those of the ledger rows.
        stretches: ledger rows, whose short runs are counted.
        with_idle: whether the reader may know how long the old cards stood unused.
    """
    offers = fleet_offers(context)
    older = {offer.model: [old for old in offers if _is_older(old, offer)] for offer in offers}
    old = {each.card.name: each for olds in older.values() for each in olds}
    ordered = tuple(sorted(old.values(), key=lambda each: (each.card.year, each.card.name)))
    newer = [(work, own) for work in works if (own := older.get(work.model))]
    queue = [found for work, own in newer if (found := _placed(context, work, own)) is not None]
    short = short_works(context, stretches)
    holds = {model: PEAK_MAX_SHARE * max(each.card.memory_bytes for each in own) for model, own in older.items() if own}
    tests = short.filter(pl.col("peak_bytes") <= pl.col("model").replace_strict(holds, default=0.0, return_dtype=pl.Float64))  # fmt: skip
    return OldCards(
        queue=tuple(queue),
        offers=ordered,
        unmeasured=sum(work.need is None or work.demand is None for work, _ in newer),
        tests=tests.height,
        tests_ms=int(tests["gpu_ms"].sum()),
        idle_ms=_idle_ms(context, ordered) if with_idle else None,
    )


def _idle_ms(context: Context, offers: Sequence[Offer]) -> float:
    models = {offer.model for offer in offers}
    gpus = [device.gpu for device in context.inventory.devices.values() if device.model in models]
    rows = context.inside.stretches.filter(pl.col("gpu").is_in(gpus), pl.col("state").is_in(UNUSED))
    return gpu_ms_of(rows)


def _is_older(offer: Offer, other: Offer) -> bool:
    """Whether a card came out before the other, computes less, and costs no more, as far as prices are known."""
    rate, other_rate = offer.card.fp16_tflops, other.card.fp16_tflops
    if rate is None or other_rate is None or rate >= other_rate or offer.card.year >= other.card.year:
        return False
    return offer.hourly is None or other.hourly is None or offer.hourly <= other.hourly


def _placed(context: Context, work: SeenWork, older: Sequence[Offer]) -> PlacedWork | None:
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
