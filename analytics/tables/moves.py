"""Right-size findings: which user could move to which card, and the saving."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from analytics.decide.recommendations import Recommendations, recommendation_id
from analytics.decide.right_sizing import Proposal, RightSizing
from analytics.decide.totals import saving_of
from analytics.language.sentences import Amount, SentenceList, plain, tr, tr_many
from analytics.tables.basis import marked
from analytics.tables.findings import FINDING, USER, by_cost
from analytics.tables.names import CONFIDENCE, GPU_HOURS, card_name, more_with_hours, place_name
from analytics.tables.table import Table, column
from analytics.workloads.model import Finding
from analytics.workloads.workloads import SHARED, SPLIT

_SHOWN = 25


def moves(recommendations: Recommendations, findings: Iterable[Finding]) -> Table:
    """Return the findings, the largest saving first, then the highest cost."""
    found = by_cost(each for each in findings if each.category == "right_size")
    found.sort(key=lambda each: -(saving_of(each) or 0.0))  # unknown savings go last, by their cost
    rest = found[_SHOWN:]
    currency, sizing = recommendations.waste.currency, recommendations.sizing
    ranked = {each.recommendation_id for each in recommendations.ranked}
    moved = {each.finding_id for each in sizing.moves}
    counted = [each for each in found if each.finding_id in moved and recommendation_id(each) in ranked]
    others = _counted_elsewhere(sizing, found)
    return Table(
        name="moves",
        title=tr("Workloads that need less"),
        question=tr("Who should change what, and how much would it save in this window?"),
        headline=_headline(found, counted, currency),
        columns=(
            FINDING,
            USER,
            column("gpus", tr("GPUs"), "count", lambda each: len(each.gpus)),
            GPU_HOURS,
            column("card", tr("card"), "name", lambda each: card_name(str(each.evidence.numbers.get("model") or ""))),
            column("target", tr("card to move to"), "words", target_card),
            column("saving", tr("saving"), "money", lambda each: Amount(saving_of(each), currency)),
            column("instead", tr("counted instead"), "words", lambda each: _proposed(others.get(each.finding_id))),
            marked(column("cost", tr("cost"), "money", lambda each: Amount(each.cost, currency))),
            CONFIDENCE,
        ),
        rows=tuple(found[:_SHOWN]),
        notes=(more_with_hours([each.gpu_ms for each in rest]),) if rest else (),
        wide=True,
    )


def _headline(found: Sequence[Finding], counted: Sequence[Finding], currency: str | None) -> str:
    if not found:
        return tr("No finding is about the size of cards.")
    count = tr_many("{number} {finding|findings}.", len(found))
    if not counted:
        return SentenceList([count, tr("No recommendation with a known value rests on them.")], " ")
    together = tr_many(
        "{number} of them {saves {amount}|save {amount} together; each workload counts once}.",
        len(counted),
        amount=Amount(sum(saving_of(each) or 0.0 for each in counted), currency),
    )
    return SentenceList([count, together], " ")


def _counted_elsewhere(sizing: RightSizing, found: Sequence[Finding]) -> dict[str, Proposal]:
    """Return by unchosen finding what was chosen for its workloads.

    A MIG instance is chosen together with its packing.
    """
    chosen: dict[str, Proposal] = {each.packing_id: each for each in sizing.packings}
    chosen |= {each.finding_id: each for each in sizing.moves}
    parts = {
        each.finding_id: packing
        for packing in sizing.packings
        for each in found
        if each.rule in (SPLIT, SHARED) and set(each.gpus) <= set(packing.gpus)
    }
    return parts | {
        other.finding_id: chosen[name]
        for name, others in sizing.instead.items()
        for other in others
        if isinstance(other, Finding)
    }


def _proposed(chosen: Proposal | None) -> str:
    """Return what is proposed for the same workload, in words; empty if it is this finding."""
    if chosen is None:
        return ""
    if isinstance(chosen, Finding):
        return target_card(chosen)
    return tr("packing in {pool}", pool=place_name(chosen.pool))


def target_card(finding: Finding) -> str:
    """Return the proposed card, MIG instance or shared card, and whether the fleet has none."""
    numbers = finding.evidence.numbers
    if finding.rule == SHARED:
        return tr("one shared card")
    profile, card = numbers.get("mig_profile"), numbers.get("recommended_card")
    if profile:
        return tr("MIG instance {profile}", profile=str(profile))
    if not card:
        return "-"
    name = plain(str(card))
    if "recommended_in_fleet" in numbers and not numbers["recommended_in_fleet"]:
        return tr("{card} (not in this fleet)", card=name)
    return name
