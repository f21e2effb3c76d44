"""The choice among several ways to use less for the same workload: another card, or a place in a packing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from analytics.decide.totals import saving_of, work_places
from analytics.workloads.model import GRADES, Context, Finding
from analytics.workloads.packing import Packing, packings

Proposal: TypeAlias = Finding | Packing


@dataclass(frozen=True)
class RightSizing:
    """The proposal for each workload, once: packings, and findings about another card with a known saving.

    `instead` has, by the id of a proposal, the other proposals about some of the same workloads.
    """

    packings: tuple[Packing, ...]
    moves: tuple[Finding, ...]
    instead: Mapping[str, tuple[Proposal, ...]]

    def of(self, ids: Collection[str]) -> RightSizing:
        """Return the choice among some packings and findings."""
        return RightSizing(
            tuple(each for each in self.packings if each.packing_id in ids),
            tuple(each for each in self.moves if each.finding_id in ids),
            {
                name: kept
                for name, others in self.instead.items()
                if (kept := tuple(each for each in others if proposal_id(each) in ids))
            },
        )

    @property
    def saving(self) -> float | None:
        """Return the sum of the known savings; None if none is known."""
        proposals: tuple[Proposal, ...] = (*self.packings, *self.moves)
        known = [value for each in proposals if (value := known_saving(each)) is not None]
        return sum(known) if known else None


def right_sizing(
    context: Context,
    findings: Iterable[Finding],
    packed: Sequence[Packing] | None = None,
    taken: frozenset[str] = frozenset(),
) -> RightSizing:
    """Return the choice among packings and findings: highest confidence first, then largest saving.

    By default the packings are those of the whole fleet. If a finding wins a GPU, its pool is packed again without the
    GPU. Packings with an unknown saving come last. GPUs in `taken` have another recommendation.
    """
    moves = [each for each in findings if saving_of(each) is not None]
    all_packings = packings(context, taken) if packed is None else packed
    left, offered = _by_worth(moves), list(all_packings)
    chosen: list[Proposal] = []
    decided = taken
    while left or offered:
        best = _by_worth([*left, *offered])[0]
        chosen.append(best)
        left = [each for each in left if not _is_same_work(each, best)]
        if isinstance(best, Packing):
            offered.remove(best)
        elif any(_is_same_work(each, best) for each in offered):
            decided |= frozenset(best.gpus)
            ids = {each.packing_id for each in offered}
            offered = [each for each in packings(context, decided) if each.packing_id in ids]
    return RightSizing(
        tuple(each for each in chosen if isinstance(each, Packing)),
        tuple(each for each in chosen if isinstance(each, Finding)),
        _instead(chosen, [*moves, *all_packings]),
    )


def known_saving(proposal: Proposal) -> float | None:
    """Return the saving in its window; None if it is not known."""
    return proposal.saving if isinstance(proposal, Packing) else saving_of(proposal)


def proposal_id(proposal: Proposal) -> str:
    return proposal.packing_id if isinstance(proposal, Packing) else proposal.finding_id


def _by_worth(proposals: Iterable[Proposal]) -> list[Proposal]:
    def key(each: Proposal) -> tuple[bool, int, float, str]:
        saving = known_saving(each)
        return saving is None, GRADES.index(each.confidence.grade), -(saving or 0.0), proposal_id(each)

    return sorted(proposals, key=key)


def _is_same_work(one: Proposal, other: Proposal) -> bool:
    """Return True for the same workload.

    A packing is about all work on its GPUs, a finding about the work of its users.
    """
    if isinstance(one, Packing) or isinstance(other, Packing):
        return not set(one.gpus).isdisjoint(other.gpus)
    return not work_places(one).isdisjoint(work_places(other))


def _instead(chosen: Iterable[Proposal], offered: Iterable[Proposal]) -> dict[str, tuple[Proposal, ...]]:
    ids = {proposal_id(each) for each in chosen}
    rest = [each for each in offered if proposal_id(each) not in ids]
    found = {proposal_id(each): tuple(one for one in rest if _is_same_work(one, each)) for each in chosen}
    return {name: others for name, others in found.items() if others}
