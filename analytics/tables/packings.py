"""What would come free as whole cards if small workloads lay together, by MIG or on shared cards, and which would lie where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from analytics.decide.recommendations import Recommendations
from analytics.glossary import term
from analytics.language.language import SentenceList
from analytics.language.plain_text import plain
from analytics.language.quantities import Amount, Bytes, Number
from analytics.language.sentences import tr, tr_many
from analytics.tables.names import CONFIDENCE, MODEL, POOL, place_name
from analytics.tables.recommendations import saving_words
from analytics.tables.table import LinkedCell, Table, column, fact, flag, record_column, rows_column
from analytics.workloads.packing import MIG, SM_ACTIVITY, PackedCard, PackedWork, Packing

_LISTED = 25
_GPU_LETTERS = 16


def packing_list(recommendations: Recommendations, *, for_people: bool) -> Table:
    """A row for each pool and model in which cards come free."""
    sizing = recommendations.sizing
    found = sizing.packings
    worth = {each.recommendation_id: each.saving for each in recommendations.listed}
    return Table(
        name="packings",
        title=tr("What packing would free"),
        question=tr(
            "What would MIG free? Whole cards that small workloads would leave if they lay together on others."
        ),
        headline=_OF_ALL if for_people else _headline(found),
        columns=(
            POOL,
            MODEL,
            column("kind", tr("by means of"), "words", packing_kind, "kind"),
            column("workloads", tr("workloads"), "count", lambda packing: len(packing.works)),
            column("gpus", tr("GPUs now"), "count", lambda packing: len(packing.gpus)),
            column("cards", tr("cards needed"), "count", lambda packing: len(packing.cards)),
            column("freed_gpus", tr("GPUs freed"), "count", lambda packing: len(packing.freed_gpus)),
            column("freed_hosts", tr("whole hosts"), "count", lambda packing: len(packing.freed_hosts)),
            column(
                "saving", tr("would save"), "money", lambda packing: Amount(packing.saving, packing.currency), "saving"
            ),
            column(
                "saving_per_year",
                tr("worth a year"),
                "words",
                lambda packing: (
                    tr("not known")
                    if (saving := worth.get(packing.recommendation_id)) is None
                    else saving_words(saving, packing.currency)
                ),
                lambda packing: (saving := worth.get(packing.recommendation_id)) and asdict(saving),
                json_type="object",
            ),
            CONFIDENCE,
        ),
        rows=tuple(found),
        lines=tuple(_doubts(found)),
        notes=tuple(_notes(found)),
        terms=(term("packing"),),
        wide=True,
    )


_OF_ALL = tr("A packing puts the work of a whole pool together: choose all teams.")


def _headline(found: Sequence[Packing]) -> str:
    if not found:
        return tr("No packing frees a card: no pool has small workloads that fill fewer cards together.")
    return SentenceList([_frees(each) for each in found], " ")


def _frees(packing: Packing) -> str:
    """The answer for one pool: MIG would free 3 of 8 GPUs, for 11 workloads fit on 5."""
    gpus, works, cards = (Number(len(each)) for each in (packing.gpus, packing.works, packing.cards))
    model, pool, freed = place_name(packing.model), place_name(packing.pool), len(packing.freed_gpus)
    if packing.kind == MIG:
        return tr(
            "MIG would free {number} of {gpus} GPUs ({model}, {pool}): {works} workloads fit on {cards}.",
            number=freed,
            gpus=gpus,
            model=model,
            pool=pool,
            works=works,
            cards=cards,
        )
    return tr(
        "Sharing might free {number} of {gpus} GPUs ({model}, {pool}): {works} workloads on {cards}.",
        number=freed,
        gpus=gpus,
        model=model,
        pool=pool,
        works=works,
        cards=cards,
    )


def packing_kind(packing: Packing) -> str:
    return tr("MIG") if packing.kind == MIG else tr("sharing")


def _doubts(found: Sequence[Packing]) -> Iterator[str]:
    """What speaks against being sure, by packing; and where more may come free than was found."""
    for each in found:
        place = tr("{pool}, {model}", pool=place_name(each.pool), model=place_name(each.model))
        if each.confidence.failed:
            yield tr("{label}: {value}", label=place, value=SentenceList(each.confidence.failed, "; "))
        if each.at_most > len(each.freed_gpus):
            yield tr(
                "{place}: the pool was searched in parts; at most {number} could come free",
                place=place,
                number=each.at_most,
            )


def _notes(found: Sequence[Packing]) -> Iterator[str]:
    if not found:
        return
    yield tr(
        "The saving is the price of the time that the moved work spent on the cards that come free, and counts no work twice."
    )
    if any(each.measured_by != SM_ACTIVITY for each in found):
        yield tr("Where SM activity was not measured the time with any kernel stands for it: try it, then measure.")


_NAMES = ("holder", "account", "job")
PACKING_COLUMNS = (
    fact("packing_id", "words", nullable=False),
    fact("recommendation_id", "recommendation", about="The decision to pack, which says what it is worth a year."),
    fact("kind", "words", about="mig or sharing."),
    fact("pool", "pool"),
    fact("model", "name"),
    fact("freed_gpus", "gpu", json_type="array"),
    fact("freed_hosts", "host", json_type="array"),
    fact(
        "freed_at_most",
        "count",
        "at_most",
        about="What no packing of these works could free more than; the number of freed GPUs where that is proven.",
    ),
    fact("measured_by", "words", about="sm or busy time."),
    fact(
        "saving",
        "money",
        about="The price of the time that the moved works spent on the freed GPUs in the window; null without a price.",
    ),
    fact("currency", "words", lambda packing: None if packing.saving is None else packing.currency),
    CONFIDENCE,
    fact("failed_conditions", "words", "confidence.failed", "array"),
    flag("simulated"),
    rows_column(
        "cards",
        (
            fact("host", "host"),
            fact("gpu", "gpu"),
            fact("command", "words"),
            rows_column(
                "works",
                (
                    *(fact(name, "words") for name in _NAMES),
                    fact("host", "host"),
                    fact("gpu", "gpu", about="Where it is now."),
                    *(fact(name, "number") for name in ("gpu_ms", "memory_bytes", "busy_pct", "sm_pct")),
                    record_column(
                        "slowdown",
                        (fact("expected", "number"), fact("at_most", "number")),
                        about="Times as long: by what the work uses, and if its kernels never overlap with the rest.",
                    ),
                    fact("profile", "words", about="The MIG profile; null on a shared card."),
                    fact("start", "count", about="The memory slice at which the instance begins."),
                ),
            ),
        ),
    ),
)
"""Of a `Packing`, for programs."""


@dataclass(frozen=True)
class _PlacedWork:
    """A workload, and the card of a packing on which it would lie."""

    card: PackedCard
    work: PackedWork


def packed_cards(packings: Sequence[Packing]) -> Table | None:
    """A row for each workload of a packing, card by card; None where there is no packing."""
    found = [_PlacedWork(card, work) for packing in packings for card in packing.cards for work in card.works]
    if not found:
        return None
    return Table(
        name="packed_cards",
        title=tr("Which work on which card"),
        question=tr("Which workloads would lie together, and what would it cost each of them?"),
        headline=_cards_headline([each.work for each in found], len({each.card.gpu for each in found})),
        columns=(
            column("card", tr("card"), "gpu", lambda placed: _linked(placed.card.gpu)),
            column("host", tr("host"), "host", lambda placed: plain(placed.card.host)),
            column("place", tr("place"), "words", lambda placed: _place(placed.work)),
            column(
                "holder",
                tr("user"),
                "name",
                lambda placed: _known(placed.work.holder, tr("(user not known)")),
                "work.holder",
            ),
            column("job", tr("job"), "name", lambda placed: _known(placed.work.job, tr("no job")), "work.job"),
            column(
                "from",
                tr("now on"),
                "gpu",
                lambda placed: tr("stays") if placed.work.gpu == placed.card.gpu else _linked(placed.work.gpu),
                "work.gpu",
            ),
            column("memory_bytes", tr("memory needed"), "number", lambda placed: Bytes(placed.work.memory_bytes)),
            column(
                "sm_share",
                tr("SM activity, 95th percentile"),
                "share",
                lambda placed: _ratio(placed.work.sm_pct),
                digits=0,
            ),
            column(
                "busy_share",
                tr("utilization, 95th percentile"),
                "share",
                lambda placed: _ratio(placed.work.busy_pct),
                digits=0,
            ),
            column(
                "slowdown",
                tr("times as long"),
                "words",
                lambda placed: _slower(placed.work),
                "work.slowdown.expected",
                json_type="number",
            ),
            fact("slowdown_at_most", "number", "work.slowdown.at_most"),
        ),
        rows=tuple(found[:_LISTED]),
        notes=tuple(_cards_notes(len(found))),
        wide=True,
    )


def _cards_headline(works: Sequence[PackedWork], cards: int) -> str:
    return tr_many(
        "{works} workloads on {number} card: {factor} times as long is the most that any of them would take.",
        "{works} workloads on {number} cards: {factor} times as long is the most that any of them would take.",
        cards,
        works=len(works),
        factor=Number(max(each.slowdown.at_most for each in works), 1),
    )


def _place(work: PackedWork) -> str:
    if work.profile is None:
        return tr("whole card, shared")
    return tr("{profile} at slice {start}", profile=work.profile, start=str(work.start))


def _known(name: str | None, unknown: str) -> str:
    return unknown if name is None else plain(name, 60)


def _ratio(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def _slower(work: PackedWork) -> str:
    expected, worst = Number(work.slowdown.expected, 1), Number(work.slowdown.at_most, 1)
    return tr("{expected}, at most {worst}", expected=expected, worst=worst)


def _linked(gpu: str) -> LinkedCell:
    return LinkedCell(plain(gpu, _GPU_LETTERS), "gpu", gpu)


def _cards_notes(works: int) -> Iterator[str]:
    yield tr(
        "Times as long: as expected by what the work uses, and at most, if its kernels never overlap with the rest of it."
    )
    yield tr("Before a card is split: drain it, and turn MIG on while nothing runs on it.")
    if works > _LISTED:
        yield tr("The table has the first {number} of {all}.", number=_LISTED, all=works)
