"""The decisions by who acts or by pool, and the first of them for an overview."""

from __future__ import annotations

from dataclasses import replace

from analytics.decide.opportunities import Opportunities
from analytics.decide.opportunity_groups import GroupBy, OpportunityGroup, grouped
from analytics.language.language import SentenceList
from analytics.language.quantities import Amount, GpuHours, Number, from_cents
from analytics.language.sentences import tr
from analytics.tables.give_back import give_back_sentence
from analytics.tables.names import place_name
from analytics.tables.opportunities import opportunities, owner_words, saving_words, to_look_at
from analytics.tables.table import Cell, Column, Table

_FIRST = 6
_IN_SHORT = ("opportunity", "owner", "saving", "confidence", "gpus", "pool", "cost")


def first_opportunities(found: Opportunities) -> Table:
    """The first of them, else of what is to be looked at, and what can be given back; all of them are on a page of their own."""
    whole, said = opportunities(found), []
    if not found.ranked and (looked_at := to_look_at(found)):
        whole, said = looked_at, [whole.headline]
    places = [place for place, column in enumerate(whole.columns) if column.key in _IN_SHORT]
    told = [] if found.reclaimable is None else [give_back_sentence(found.reclaimable)]
    return replace(
        whole,
        headline=SentenceList([*said, whole.headline, *told], " "),
        columns=tuple(whole.columns[place] for place in places),
        rows=tuple(tuple(row[place] for place in places) for row in whole.rows[:_FIRST]),
        shown=None,
        rest="",
        notes=(),
        wide=True,
    )


def by_group(found: Opportunities, by: GroupBy) -> Table:
    """A row for each owner or pool."""
    currency = found.waste.currency
    return Table(
        name=f"opportunities-by-{by}",
        title=tr("By who acts") if by == "owner" else tr("By pool"),
        question=tr("What do the decisions of each come to?"),
        headline=_headline(found, by),
        columns=(
            Column("name", tr("who acts") if by == "owner" else tr("pool"), "words" if by == "owner" else "pool"),
            Column("decisions", tr("decisions"), "count"),
            Column("gpus", tr("GPUs"), "count"),
            Column("saving", tr("worth a year"), "words"),
            Column("gpu_hours", tr("GPU-hours"), "gpu_hours"),
            Column("cost", tr("wasted in this window"), "money"),
        ),
        rows=tuple(_row(each, by, currency) for each in grouped(found, by)),
    )  # fmt: skip


def _headline(found: Opportunities, by: GroupBy) -> str:
    first = next((each for each in grouped(found, by) if each.saving is not None), None)
    if first is None or first.saving is None:
        return tr("No decision is known to save something in this window.")
    saving = saving_words(first.saving, found.waste.currency)
    return tr("The most, {saving} a year: {name}.", saving=saving, name=_name(first, by))


def _name(group: OpportunityGroup, by: GroupBy) -> str:
    return owner_words(group.name) if by == "owner" else place_name(group.name)


def _row(group: OpportunityGroup, by: GroupBy, currency: str) -> tuple[Cell, ...]:
    return (
        _name(group, by),
        Number(len(group.listed)),
        Number(group.gpus),
        "" if group.saving is None else saving_words(group.saving, currency),
        GpuHours(group.gpu_ms),
        Amount(from_cents(group.cents), currency),
    )
