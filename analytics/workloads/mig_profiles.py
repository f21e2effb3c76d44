"""MIG profiles as parts of a card: which is the first that holds some work, and how a card is split."""

from __future__ import annotations

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
