"""Which workload would lie on which card of a packing, in what place, and how much longer it would take there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analytics.language.plain_text import plain
from analytics.language.quantities import Bytes, Number, Share
from analytics.language.sentences import tr, tr_many
from analytics.report.model import Report
from analytics.tables.table import Cell, Column, LinkedCell, Table
from analytics.workloads.packing_model import PackedCard, PackedWork

_LISTED = 25
_GPU_LETTERS = 16


def packed_cards(report: Report) -> Table | None:
    """A row for each workload of a packing, card by card; None where there is no packing."""
    found = [(card, work) for each in report.right_sizing.packings for card in each.cards for work in card.works]
    if not found:
        return None
    return Table(
        name="packed-cards",
        title=tr("Which work on which card"),
        question=tr("Which workloads would lie together, and what would it cost each of them?"),
        headline=_headline([work for _, work in found], len({card.gpu for card, _ in found})),
        columns=(
            Column("card", tr("card"), "gpu"),
            Column("host", tr("host"), "host"),
            Column("place", tr("place"), "words"),
            Column("holder", tr("user"), "name"),
            Column("job", tr("job"), "name"),
            Column("from", tr("now on"), "gpu"),
            Column("memory", tr("memory needed"), "number"),
            Column("sm", tr("SM activity, 95th percentile"), "share"),
            Column("busy", tr("utilization, 95th percentile"), "share"),
            Column("slower", tr("times as long"), "words"),
        ),
        rows=tuple(_row(card, work) for card, work in found[:_LISTED]),
        notes=tuple(_notes(len(found))),
        wide=True,
    )


def _headline(works: Sequence[PackedWork], cards: int) -> str:
    return tr_many(
        "{works} workloads on {number} card: {factor} times as long is the most that any of them would take.",
        "{works} workloads on {number} cards: {factor} times as long is the most that any of them would take.",
        cards,
        works=Number(len(works)),
        factor=Number(max(each.slowdown.at_most for each in works), 1),
    )


def _row(card: PackedCard, work: PackedWork) -> tuple[Cell, ...]:
    return (
        _linked(card.gpu),
        plain(card.host),
        tr("whole card, shared")
        if work.profile is None
        else tr("{profile} at slice {start}", profile=work.profile, start=str(work.start)),
        tr("(user not known)") if work.holder is None else plain(work.holder, 60),
        tr("no job") if work.job is None else plain(work.job, 60),
        tr("stays") if work.gpu == card.gpu else _linked(work.gpu),
        Bytes(work.memory_bytes),
        *(None if pct is None else Share(pct / 100, 0) for pct in (work.sm_pct, work.busy_pct)),
        tr(
            "{expected}, at most {worst}",
            expected=Number(work.slowdown.expected, 1),
            worst=Number(work.slowdown.at_most, 1),
        ),
    )


def _linked(gpu: str) -> LinkedCell:
    return LinkedCell(plain(gpu, _GPU_LETTERS), "gpu", gpu)


def _notes(works: int) -> Iterator[str]:
    yield tr("Times as long: as expected by what the work uses, and at most, if its kernels never overlap with the rest of it.")  # fmt: skip
    yield tr("Before a card is split: drain it, and turn MIG on while nothing runs on it.")
    if works > _LISTED:
        yield tr("The table has the first {number} of {all}.", number=Number(_LISTED), all=Number(works))
