"""The decisions that somebody has put off: who did, and until when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from analytics.decide.actions import Action
from analytics.decide.opportunities import Opportunities, Opportunity
from analytics.language.plain_text import plain
from analytics.language.quantities import Moment
from analytics.language.sentences import tr, tr_many
from analytics.tables.opportunities import cost_cell, decision, who_acts
from analytics.tables.table import Cell, Column, LinkedCell, Table


def put_off(found: Opportunities, actions: Mapping[str, Sequence[Action]]) -> Table | None:
    """Those that are put off, by the `actions` on their findings; None where there are none."""
    listed = [each for each in found.listed if not each.is_standing]
    if not listed:
        return None
    return Table(
        name="put_off",
        title=tr("Put off on request"),
        question=tr("What is left out of the decisions because somebody asked for it, and until when?"),
        headline=tr_many(
            "{number} decision is put off: nobody is asked to act on it.",
            "{number} decisions are put off: nobody is asked to act on them.",
            len(listed),
        ),
        columns=(
            Column("opportunity", tr("decision"), "sentence"),
            Column("owner", tr("who acts"), "words"),
            Column("actor", tr("put off by"), "name"),
            Column("until", tr("until"), "words"),
            Column("reason", tr("reason"), "name"),
            Column("cost", tr("wasted in this window"), "money"),
        ),
        rows=tuple(_row(each, _suppression(each, actions)) for each in listed),
        wide=True,
    )


def _suppression(each: Opportunity, actions: Mapping[str, Sequence[Action]]) -> Action | None:
    """The newest one on its findings, the leading one first; None where the lake has none of them any more."""
    newest = (action for finding in each.evidence for action in _suppressions(actions.get(finding.finding_id, ())))
    return next(newest, None)


def _suppressions(actions: Sequence[Action]) -> Iterator[Action]:
    return (action for action in reversed(actions) if action.kind == "suppress")


def _row(each: Opportunity, by: Action | None) -> tuple[Cell, ...]:
    linked = LinkedCell(decision(each), "opportunity", each.opportunity_id, aside=each.opportunity_id)
    if by is None:
        return (linked, who_acts(each), None, tr("not known"), "", cost_cell(each))
    until = tr("until somebody reopens it") if by.expires_ms is None else Moment(by.expires_ms)
    reason = plain(by.reason, 200) if by.reason else ""
    return (linked, who_acts(each), by.by, until, reason, cost_cell(each))
