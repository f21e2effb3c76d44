"""What would come free as whole cards if small workloads lay together: by MIG, or on cards that several share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analytics.decide.opportunities import Saving
from analytics.glossary import term
from analytics.language.language import SentenceList
from analytics.language.quantities import Amount, Number
from analytics.language.sentences import tr
from analytics.report.model import Report
from analytics.tables.names import place_name
from analytics.tables.opportunities import saving_words
from analytics.tables.table import Cell, Column, Table
from analytics.workloads.packing_model import MIG, SM_ACTIVITY, Packing


def packing_list(report: Report) -> Table:
    """A row for each pool and model in which cards come free."""
    sizing = report.right_sizing
    found = sizing.packings
    worth = {each.opportunity_id: each.saving for each in report.opportunities.listed}
    return Table(
        name="packings",
        title=tr("What packing would free"),
        question=tr(
            "What would MIG free? Whole cards that small workloads would leave if they lay together on others."
        ),
        headline=_OF_ALL if report.scope.is_personal else _headline(found),
        columns=(
            Column("pool", tr("pool"), "pool"),
            Column("model", tr("model"), "name"),
            Column("kind", tr("by means of"), "words"),
            Column("workloads", tr("workloads"), "count"),
            Column("gpus", tr("GPUs now"), "count"),
            Column("cards", tr("cards needed"), "count"),
            Column("freed", tr("GPUs freed"), "count"),
            Column("hosts", tr("whole hosts"), "count"),
            Column("saving", tr("would save"), "money"),
            Column("saving_per_year", tr("worth a year"), "words"),
            Column("confidence", tr("confidence"), "grade"),
        ),
        rows=tuple(_row(each, worth.get(each.opportunity_id)) for each in found),
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
            number=Number(freed), gpus=gpus, model=model, pool=pool, works=works, cards=cards,
        )  # fmt: skip
    return tr(
        "Sharing might free {number} of {gpus} GPUs ({model}, {pool}): {works} workloads on {cards}.",
        number=Number(freed), gpus=gpus, model=model, pool=pool, works=works, cards=cards,
    )  # fmt: skip


def packing_kind(packing: Packing) -> str:
    return tr("MIG") if packing.kind == MIG else tr("sharing")


def _row(packing: Packing, worth: Saving | None) -> tuple[Cell, ...]:
    return (
        place_name(packing.pool),
        place_name(packing.model),
        packing_kind(packing),
        *(
            Number(len(each))
            for each in (packing.works, packing.gpus, packing.cards, packing.freed_gpus, packing.freed_hosts)
        ),
        Amount(packing.saving, packing.currency),
        tr("not known") if worth is None else saving_words(worth, packing.currency),
        tr(packing.confidence.grade),
    )


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
                number=Number(each.at_most),
            )


def _notes(found: Sequence[Packing]) -> Iterator[str]:
    if not found:
        return
    yield tr("The saving is the price of the time that the moved work spent on the cards that come free, and counts no work twice.")  # fmt: skip
    if any(each.measured_by != SM_ACTIVITY for each in found):
        yield tr("Where SM activity was not measured the time with any kernel stands for it: try it, then measure.")
