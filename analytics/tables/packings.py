"""Whole cards that come free if small workloads share other cards, by MIG or without; the place of each workload."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from analytics.decide.recommendations import Recommendations
from analytics.glossary import term
from analytics.language.sentences import Bytes, Number, SentenceList, plain, tr, tr_many
from analytics.tables.names import CONFIDENCE, MODEL, POOL, card_name, place_name
from analytics.tables.table import Column, LinkedCell, Table, column, column_of, fact, flag, record_column, rows_column
from analytics.tables.value import FREED, freed_words
from analytics.workloads.packing import MIG, SM_ACTIVITY, PackedCard, PackedWork, Packing

_LISTED = 25
_GPU_LETTERS = 16


def packing_list(recommendations: Recommendations, *, for_people: bool) -> Table:
    """Return a row per pool and model in which cards come free."""
    sizing = recommendations.sizing
    found = sizing.packings
    worth = {each.recommendation_id: each.value for each in recommendations.listed}
    return Table(
        name="packings",
        title=tr("GPUs that packing frees"),
        question=tr("How many whole cards come free if small workloads share other cards?"),
        headline=tr("A packing covers the workloads of a whole pool. Choose all teams to see it.")
        if for_people
        else _headline(found),
        columns=(
            POOL,
            MODEL,
            column(
                "kind",
                tr("by means of"),
                "words",
                lambda each: tr("MIG") if each.kind == MIG else tr("sharing"),
                "kind",
            ),
            column("workloads", tr("workloads"), "count", lambda packing: len(packing.workloads)),
            column("gpus", tr("GPUs now"), "count", lambda packing: len(packing.gpus)),
            column("cards", tr("cards needed"), "count", lambda packing: len(packing.cards)),
            column("freed_gpus", tr("GPUs freed"), "count", lambda packing: len(packing.freed_gpus)),
            column("freed_hosts", tr("whole hosts"), "count", lambda packing: len(packing.freed_hosts)),
            column(
                "freed",
                FREED,
                "words",
                lambda packing: freed_words(worth.get(packing.recommendation_id), packing.currency),
                lambda packing: (value := worth.get(packing.recommendation_id)) and value.freed and asdict(value.freed),
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


def _headline(found: Sequence[Packing]) -> str:
    if not found:
        return tr("Packing frees no card: no pool has small workloads that fit on fewer cards.")
    return SentenceList([_frees(each) for each in found], " ")


def _frees(packing: Packing) -> str:
    """The answer for one pool: MIG would free 3 of 8 GPUs, for 11 workloads fit on 5."""
    gpus, workloads, cards = (Number(len(each)) for each in (packing.gpus, packing.workloads, packing.cards))
    model, pool, freed = card_name(packing.model), place_name(packing.pool), len(packing.freed_gpus)
    return tr(
        "MIG frees {number} of {gpus} GPUs ({model}, {pool}): {works} workloads fit on {cards}."
        if packing.kind == MIG
        else "Sharing may free {number} of {gpus} GPUs ({model}, {pool}): {works} workloads on {cards}.",
        number=freed,
        gpus=gpus,
        model=model,
        pool=pool,
        works=workloads,
        cards=cards,
    )


def _doubts(found: Sequence[Packing]) -> Iterator[str]:
    """Yield doubts by packing, and where more cards may come free than the search found."""
    for each in found:
        place = tr("{pool}, {model}", pool=place_name(each.pool), model=card_name(each.model))
        if each.confidence.failed:
            yield tr("{label}: {value}", label=place, value=SentenceList(each.confidence.failed, "; "))
        if each.at_most > len(each.freed_gpus):
            yield tr(
                "{place}: the search was partial; at most {number} GPUs can come free",
                place=place,
                number=each.at_most,
            )


def _notes(found: Sequence[Packing]) -> Iterator[str]:
    if not found:
        return
    yield tr(
        "The value of a packing is the price of the time that the moved workloads spent on the freed cards. Each"
        " workload counts once."
    )
    if any(each.measured_by != SM_ACTIVITY for each in found):
        yield tr(
            "Where SM activity was not measured, the time with any kernel is used instead. Test the packing, then"
            " measure."
        )


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
        about=(
            "The price of the time that the moved works spent on the freed GPUs in the four complete weeks and the days"
            " since; null without a price."
        ),
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
                "workloads",
                (
                    *(fact(name, "words") for name in ("user", "account", "job")),
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
"""Columns of a `Packing`, for programs."""


@dataclass(frozen=True)
class _PlacedWork:
    card: PackedCard
    work: PackedWork


def packed_cards(packings: Sequence[Packing]) -> Table | None:
    """A row for each workload of a packing, card by card; None where there is no packing."""
    found = [_PlacedWork(card, work) for packing in packings for card in packing.cards for work in card.workloads]
    if not found:
        return None
    return Table(
        name="packed_cards",
        title=tr("Workloads by card"),
        question=tr("Which workloads would share a card, and how much slower would they run?"),
        headline=tr_many(
            "{works} workloads share {number} {card|cards}; the slowest takes at most {factor} times as long.",
            len({each.card.gpu for each in found}),
            works=len(found),
            factor=Number(max(each.work.slowdown.at_most for each in found), 1),
        ),
        columns=(
            column("card", tr("card"), "gpu", lambda placed: _linked(placed.card.gpu)),
            column("host", tr("host"), "host", lambda placed: plain(placed.card.host)),
            column("place", tr("place"), "words", lambda placed: _place(placed.work)),
            _name("user", tr("user"), tr("(unknown user)")),
            _name("job", tr("job"), tr("no job")),
            column(
                "from",
                tr("now on"),
                "gpu",
                lambda placed: tr("stays") if placed.work.gpu == placed.card.gpu else _linked(placed.work.gpu),
                "work.gpu",
            ),
            column("memory_bytes", tr("memory needed"), "number", lambda placed: Bytes(placed.work.memory_bytes)),
            _percentile("sm_share", tr("SM activity, 95th percentile"), "work.sm_pct"),
            _percentile("busy_share", tr("utilization, 95th percentile"), "work.busy_pct"),
            column(
                "slowdown",
                tr("slowdown"),
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


def _place(work: PackedWork) -> str:
    if work.profile is None:
        return tr("whole card, shared")
    return tr("{profile} at slice {start}", profile=work.profile, start=str(work.start))


def _name(key: str, title: str, missing: str) -> Column:
    return column_of(f"work.{key}", column(key, title, "name", lambda name: plain(name, 60), "", missing=missing))


def _percentile(key: str, title: str, path: str) -> Column:
    return column_of(path, column(key, title, "share", lambda percent: percent / 100, digits=0))


def _slower(work: PackedWork) -> str:
    expected, worst = Number(work.slowdown.expected, 1), Number(work.slowdown.at_most, 1)
    return tr("{expected}, at most {worst}", expected=expected, worst=worst)


def _linked(gpu: str) -> LinkedCell:
    return LinkedCell(plain(gpu, _GPU_LETTERS), "gpu", gpu)


def _cards_notes(workloads: int) -> Iterator[str]:
    yield tr(
        "Slowdown: the factor expected from what the workload uses, and the highest factor, if its kernels never"
        " overlap with its other work."
    )
    yield tr("Before a card is split: drain it, and turn MIG on while nothing runs on it.")
    if workloads > _LISTED:
        yield tr("The table has the first {number} of {all}.", number=_LISTED, all=workloads)
