"""MIG profiles as parts of a card: the first that fits some work, a card's split, and the layout on few cards.

The layout on the fewest cards is exact and needs no search. Every profile takes a power of two of memory slices and
begins at a multiple of it, and a larger profile takes more compute slices. So a place for a profile also fits every
smaller one, and two choices are always safe: larger profiles first, and for each profile the place nearest to the end
of the card, which larger profiles cannot use. This fits everything on a number of cards if any layout does, so the
smallest such number is the minimum. The number of cards is given from the start: opening cards one by one fills a card
with two 3g, and later 2g find no place. tests/findings/test_mig_layouts.py compares the result with an exhaustive
search.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from analytics.cards import MigProfile, card
from analytics.language.sentences import tr
from analytics.workloads.cards import job_kind
from analytics.workloads.commands import on_host
from analytics.workloads.workloads import sm_activity_measured, sm_activity_of_means


@dataclass(frozen=True)
class MigFit:
    """A profile with its shares of the card's SMs and of its memory and memory bandwidth."""

    profile: MigProfile
    sm_share: float
    memory_share: float
    card_slices: int
    """Compute slices of the whole card."""

    @property
    def memory_slices(self) -> int:
        return round(self.memory_share * memory_slices_of(self.card_slices))

    @property
    def starts(self) -> tuple[int, ...]:
        """Return the memory slices at which an instance may begin, as `nvidia-smi mig -lgipp` lists them.

        These are multiples of its own size with enough compute slices left: the last memory slice of eight has none.
        """
        most = self.card_slices - self.profile.slices
        return tuple(range(0, most + 1, self.memory_slices))


def memory_slices_of(card_slices: int) -> int:
    """Return a whole card's memory slices: 8 with 7 compute slices, else the same number (NVIDIA MIG user guide)."""
    return 8 if card_slices == 7 else card_slices


def fits(model: str) -> tuple[MigFit, ...]:
    """Return the profiles smaller than the card, the smallest first. 1g is 1/7 of the SMs and 1/8 of the memory."""
    whole = card(model)
    if whole is None or not whole.mig_profiles:
        return ()
    most = max(each.memory_bytes for each in whole.mig_profiles)
    parts = [each for each in whole.mig_profiles if each.slices < whole.mig_slices]
    found = [MigFit(each, each.slices / whole.mig_slices, each.memory_bytes / most, whole.mig_slices) for each in parts]
    return tuple(sorted(found, key=lambda fit: (fit.profile.slices, fit.profile.memory_bytes)))


def first_fit(model: str, *, sm_share: float, need_bytes: int, bandwidth_share: float | None) -> MigFit | None:
    """Return the smallest profile with these shares of SMs and bandwidth and this memory; None if no part has them.

    A profile's memory and bandwidth come in the same eighths. Bandwidth that was not measured is not required.
    """
    for fit in fits(model):
        holds = fit.profile.memory_bytes >= need_bytes and fit.memory_share >= (bandwidth_share or 0.0)
        if holds and fit.sm_share >= sm_share:
            return fit
    return None


def profile_for(row: Mapping[str, Any]) -> MigFit | None:
    """Return the first profile for a workload (`with_demand`), by SM activity, else by the time with any kernel."""
    busy_pct = row["util_pct"] if row["sm_pct"] is None else row["sm_pct"]
    flow_pct = row["dram_pct"]
    return first_fit(
        row["model"],
        sm_share=busy_pct / 100,
        need_bytes=max(row["need_bytes"], row["peak_bytes"]),
        bandwidth_share=None if flow_pct is None else flow_pct / 100,
    )


def part_measured(workloads: pl.DataFrame, sm_share: float) -> list[str]:
    if not workloads["sm_pct"].null_count():
        by_means = workloads.filter(pl.col("util_pct") > 100 * sm_share)
        return [*sm_activity_measured(workloads), *sm_activity_of_means(by_means)]
    return [tr("SM activity was not measured, so the time with any kernel is used instead: test first, then measure")]


def split_command(host: str, gpus: Sequence[str], profile: str, *, certain: bool) -> str:
    """Return the command that creates an instance on each GPU. It fails while MIG is off, so it is safe to type early.

    With `certain` false it only lists possible instances, because the GPUs may have another user by now.
    """
    if not certain:
        return on_host(host, "nvidia-smi", "mig", "-i", ",".join(gpus), "-lgip")
    return on_host(host, "sudo", "nvidia-smi", "mig", "-i", ",".join(gpus), "-cgi", profile, "-C")


def split_notes(host: str, gpus: Sequence[str], profile: str, jobs: Iterable[str | None]) -> list[str]:
    """Return the steps to do first, and how the work requests an instance."""
    turn_on = on_host(host, "sudo", "nvidia-smi", "-i", ",".join(gpus), "-mig", "1")
    notes: list[str] = [tr("drain the GPU first and turn MIG on while nothing runs on it: {command}", command=turn_on)]
    kind = job_kind(jobs)
    if kind == "slurm":
        notes.append(
            tr(
                "submit the job with #SBATCH --gres=gpu:{profile}:1; gres.conf has the site's name for the type",
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
    """A requested profile, by its number, and the memory slice at which it begins."""

    number: int
    start: int


Layout = tuple[PlacedInstance, ...]
"""The instances on a card."""


def fewest_cards(needs: Sequence[MigFit]) -> list[Layout]:
    """Return the instances on the fewest cards of a model; the first in `needs` lie together."""
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
    """Return the instances on this many cards; None if they do not fit."""
    taken = [0] * cards  # the memory slices of each card as bits
    on_card: list[list[PlacedInstance]] = [[] for _ in range(cards)]
    # the first card that may still have a place, by profile and start
    after: Counter[tuple[tuple[int, int], int]] = Counter()
    for number in sorted(range(len(needs)), key=lambda each: _size(needs[each]), reverse=True):
        place = _place(needs[number], taken, after)
        if place is None:
            return None
        card, start = place
        taken[card] |= _bits(needs[number], start)
        on_card[card].append(PlacedInstance(number, start))
    return [tuple(sorted(each, key=lambda one: one.start)) for each in on_card]


def _place(need: MigFit, taken: Sequence[int], after: Counter[tuple[tuple[int, int], int]]) -> tuple[int, int] | None:
    """Return the first card with the free place nearest to the end."""
    for start in reversed(need.starts):
        bits = _bits(need, start)
        # slices that are taken stay taken, so skipped cards need not be tried again
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
