"""MIG profiles as parts of a card: which is the first that holds some work, how a card is split, and how instances lie on few cards.

The layout on as few cards as can be is exact, and needs no search. Every profile takes a power of two of memory slices, begins at a multiple of that, and a larger one takes more compute
slices. So a place that holds a profile holds every smaller one, and two choices never hurt: larger profiles first, and of
the places for one those at the end of the card, which larger ones cannot use. What this fits on a number of cards is all
that any layout does; the least number for which it fits everything is therefore the least there is. The cards are a
given number from the start: whoever opens them one by one fills a card with two 3g, and later 2g find no place.
tests/findings/test_mig_layouts.py compares it with an exhaustive search.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from analytics.language.sentences import tr
from analytics.money.cards import MigProfile, card
from analytics.workloads.cards import job_kind
from analytics.workloads.commands import on_host
from analytics.workloads.workloads import sm_activity_measured, sm_activity_of_means


@dataclass(frozen=True)
class MigFit:
    """A profile with its shares of the card's SMs and of its memory and memory bandwidth; `card_slices` are those of the whole card."""

    profile: MigProfile
    sm_share: float
    memory_share: float
    card_slices: int

    @property
    def memory_slices(self) -> int:
        """How many of the card's memory slices an instance takes."""
        return round(self.memory_share * memory_slices_of(self.card_slices))

    @property
    def starts(self) -> tuple[int, ...]:
        """The memory slices at which an instance may begin, as `nvidia-smi mig -lgipp` lists them.

        Multiples of its own size, as far as that many compute slices are left: the last memory slice of eight has none.
        """
        most = self.card_slices - self.profile.slices
        return tuple(range(0, most + 1, self.memory_slices))


def memory_slices_of(card_slices: int) -> int:
    """Memory slices of a whole card: eight beside seven compute slices, else as many as these (NVIDIA MIG user guide)."""
    return 8 if card_slices == 7 else card_slices


def fits(model: str) -> tuple[MigFit, ...]:
    """The profiles that are a part of the card, the smallest first: 1g is a seventh of the SMs and an eighth of the memory."""
    whole = card(model)
    if whole is None or not whole.mig_profiles:
        return ()
    most = max(each.memory_bytes for each in whole.mig_profiles)
    parts = [each for each in whole.mig_profiles if each.slices < whole.mig_slices]
    found = [MigFit(each, each.slices / whole.mig_slices, each.memory_bytes / most, whole.mig_slices) for each in parts]
    return tuple(sorted(found, key=lambda fit: (fit.profile.slices, fit.profile.memory_bytes)))


def first_fit(model: str, *, sm_share: float, need_bytes: int, bandwidth_share: float | None) -> MigFit | None:
    """The smallest profile with these shares of SMs and bandwidth and this memory; None where only the whole card has them.

    A profile's memory and bandwidth come in the same eighths. Bandwidth that was not measured is not asked for.
    """
    for fit in fits(model):
        holds = fit.profile.memory_bytes >= need_bytes and fit.memory_share >= (bandwidth_share or 0.0)
        if holds and fit.sm_share >= sm_share:
            return fit
    return None


def profile_for(row: Mapping[str, Any]) -> MigFit | None:
    """The first profile for a work (`with_demand`): by SM activity; by the time with any kernel, which is never less, where that was not measured."""
    busy_pct = row["util_pct"] if row["sm_pct"] is None else row["sm_pct"]
    flow_pct = row["dram_pct"]
    return first_fit(
        row["model"],
        sm_share=busy_pct / 100,
        need_bytes=max(row["need_bytes"], row["peak_bytes"]),
        bandwidth_share=None if flow_pct is None else flow_pct / 100,
    )


def part_measured(works: pl.DataFrame, sm_share: float) -> list[str]:
    if not works["sm_pct"].null_count():
        by_means = works.filter(pl.col("util_pct") > 100 * sm_share)
        return [*sm_activity_measured(works), *sm_activity_of_means(by_means)]
    return [tr("SM activity was not measured; the time with any kernel stands in for it: try it, then measure")]


def split_command(host: str, gpus: Sequence[str], profile: str, *, certain: bool) -> str:
    """What makes one instance on each GPU. It refuses as long as MIG is off, so it is safe to type too soon.

    With `certain` false it only lists what could be made: the GPUs may be somebody else's by now.
    """
    if not certain:
        return on_host(host, "nvidia-smi", "mig", "-i", ",".join(gpus), "-lgip")
    return on_host(host, "sudo", "nvidia-smi", "mig", "-i", ",".join(gpus), "-cgi", profile, "-C")


def split_notes(host: str, gpus: Sequence[str], profile: str, jobs: Iterable[str | None]) -> list[str]:
    """What has to be done before, and how the work asks for an instance."""
    turn_on = on_host(host, "sudo", "nvidia-smi", "-i", ",".join(gpus), "-mig", "1")
    notes: list[str] = [tr("drain the GPU first and turn MIG on while nothing runs on it: {command}", command=turn_on)]
    kind = job_kind(jobs)
    if kind == "slurm":
        notes.append(
            tr(
                "submit it with #SBATCH --gres=gpu:{profile}:1; gres.conf has the site's name for the type",
                profile=profile,
            )
        )
    if kind == "pod":
        notes.append(
            tr("give the pod the resource nvidia.com/mig-{profile}: 1 instead of nvidia.com/gpu", profile=profile)
        )
    return notes


@dataclass(frozen=True)
class PlacedInstance:
    """One of the profiles that were asked for, by its number, and the memory slice at which it begins."""

    number: int
    start: int


Layout = tuple[PlacedInstance, ...]
"""What lies on one card."""


def fewest_cards(needs: Sequence[MigFit]) -> list[Layout]:
    """The instances on as few cards of one model as can be; those that come first in `needs` lie together."""
    if not needs:
        return []
    memory = memory_slices_of(needs[0].card_slices)
    slices = sum(need.memory_slices for need in needs)
    for cards in range(-(-slices // memory), len(needs) + 1):
        found = layouts(needs, cards)
        if found is not None:
            return found
    raise AssertionError  # a card each is always enough


def layouts(needs: Sequence[MigFit], cards: int) -> list[Layout] | None:
    """The instances on so many cards; None where they do not fit."""
    taken = [0] * cards  # the memory slices of each card as bits
    on_card: list[list[PlacedInstance]] = [[] for _ in range(cards)]
    after: Counter[tuple[tuple[int, int], int]] = (
        Counter()
    )  # the first card that may still have a place, by profile and start
    for number in sorted(range(len(needs)), key=lambda each: _size(needs[each]), reverse=True):
        place = _place(needs[number], taken, after)
        if place is None:
            return None
        card, start = place
        taken[card] |= _bits(needs[number], start)
        on_card[card].append(PlacedInstance(number, start))
    return [tuple(sorted(each, key=lambda one: one.start)) for each in on_card]


def _place(need: MigFit, taken: Sequence[int], after: Counter[tuple[tuple[int, int], int]]) -> tuple[int, int] | None:
    """The first card with a free place as near to its end as any has one."""
    for start in reversed(need.starts):
        bits = _bits(need, start)
        # what is taken stays taken, so that cards that were passed over need not be looked at again
        seen = after[_size(need), start]
        card = next((each for each in range(seen, len(taken)) if not taken[each] & bits), len(taken))
        after[_size(need), start] = card
        if card < len(taken):
            return card, start
    return None


def _bits(need: MigFit, start: int) -> int:
    return ((1 << need.memory_slices) - 1) << start


def _size(need: MigFit) -> tuple[int, int]:
    return need.profile.slices, need.memory_slices
