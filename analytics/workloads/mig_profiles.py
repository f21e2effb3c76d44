"""Which MIG profile of its card would hold some work, and what makes one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from analytics.language.sentences import say
from analytics.money.cards import card
from analytics.workloads.look_commands import on_host
from analytics.workloads.resubmit_hints import job_kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from analytics.money.cards import MigProfile


@dataclass(frozen=True)
class Fit:
    """A profile with its shares of the card's SMs and of its memory and memory bandwidth."""

    profile: MigProfile
    sm_share: float
    memory_share: float


def fits(model: str) -> tuple[Fit, ...]:
    """The profiles that are a part of the card, the smallest first: 1g is a seventh of the SMs and an eighth of the memory."""
    whole = card(model)
    if whole is None or not whole.mig_profiles:
        return ()
    most = max(each.memory_bytes for each in whole.mig_profiles)
    parts = [each for each in whole.mig_profiles if each.slices < whole.mig_slices]
    found = [Fit(each, each.slices / whole.mig_slices, each.memory_bytes / most) for each in parts]
    return tuple(sorted(found, key=lambda fit: (fit.profile.slices, fit.profile.memory_bytes)))


def first_fit(model: str, *, sm_share: float, need_bytes: int, bandwidth_share: float | None) -> Fit | None:
    """The smallest profile with these shares of SMs and bandwidth and this memory; None where only the whole card has them.

    A profile's memory and bandwidth come in the same eighths. Bandwidth that was not measured is not asked for.
    """
    for fit in fits(model):
        holds = fit.profile.memory_bytes >= need_bytes and fit.memory_share >= (bandwidth_share or 0.0)
        if holds and fit.sm_share >= sm_share:
            return fit
    return None


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
    notes: list[str] = [say("drain the GPU first and turn MIG on while nothing runs on it: {command}", command=turn_on)]
    kind = job_kind(jobs)
    if kind == "slurm":
        notes.append(
            say(
                "submit it with #SBATCH --gres=gpu:{profile}:1; gres.conf says how the site calls the type",
                profile=profile,
            )
        )
    if kind == "pod":
        notes.append(
            say("give the pod the resource nvidia.com/mig-{profile}: 1 instead of nvidia.com/gpu", profile=profile)
        )
    return notes
