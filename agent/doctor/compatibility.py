"""Which CUDA runs on which driver and card: NVIDIA's tables, and the judgements by them that toolkits and wheels share."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from agent.doctor.case import DoctorFinding, Facts, TextEnum, ok, skipped
from agent.doctor.host import shown

if TYPE_CHECKING:
    from agent.doctor.case import Case
    from agent.doctor.host import Cuda, Version
    from agent.doctor.look import GpuLook

READ_ON = date(2026, 11, 21)
"""When the sources were read."""

FULL_DRIVER: dict[Cuda, Version] = {
    (13, 3): (610, 43, 2), (13, 2): (595, 45, 4), (13, 1): (590, 44, 1), (13, 0): (580, 65, 6),
    (12, 9): (575, 51, 3), (12, 8): (570, 26), (12, 6): (560, 28, 3), (12, 5): (555, 42, 2), (12, 4): (550, 54, 14),
    (12, 3): (545, 23, 6), (12, 2): (535, 54, 3), (12, 1): (530, 30, 2), (12, 0): (525, 60, 13),
    (11, 8): (520, 61, 5), (11, 7): (515, 43, 4), (11, 6): (510, 39, 1), (11, 5): (495, 29, 5), (11, 4): (470, 42, 1),
    (11, 3): (465, 19, 1), (11, 2): (460, 27, 3), (11, 1): (455, 23), (11, 0): (450, 51, 5),
    (10, 2): (440, 33), (10, 1): (418, 39), (10, 0): (410, 48), (9, 2): (396, 26), (9, 1): (390, 46), (9, 0): (384, 81),
    (8, 0): (367, 48), (7, 5): (352, 31), (7, 0): (346, 46),
}  # fmt: skip
"""The first Linux driver that has everything of a CUDA version, and the newest CUDA of each driver [1]."""

FAMILY_DRIVER: dict[int, Version] = {13: (580,), 12: (525, 60, 13), 11: (450, 80, 2)}
"""The first Linux driver that runs any CUDA of a major version, with what it lacks left out [1, 2]."""


@dataclass(frozen=True)
class CardGeneration:
    """A generation of cards and the CUDA versions and driver branches that know it; None: still supported."""

    name: str
    first_cuda: Cuda
    last_cuda: Cuda | None = None
    last_branch: int | None = None


_KEPLER_OLD = CardGeneration("Kepler", (6, 0), (10, 2), 470)
_KEPLER = CardGeneration("Kepler", (6, 0), (11, 8), 470)
_MAXWELL = CardGeneration("Maxwell", (6, 5), (12, 9), 580)
_PASCAL = CardGeneration("Pascal", (8, 0), (12, 9), 580)
_VOLTA = CardGeneration("Volta", (9, 0), (12, 9), 580)

GENERATIONS: dict[tuple[int, int], CardGeneration] = {
    (3, 0): _KEPLER_OLD, (3, 2): _KEPLER_OLD, (3, 5): _KEPLER, (3, 7): _KEPLER,
    (5, 0): _MAXWELL, (5, 2): _MAXWELL, (5, 3): _MAXWELL,
    (6, 0): _PASCAL, (6, 1): _PASCAL, (6, 2): _PASCAL,
    (7, 0): _VOLTA, (7, 2): _VOLTA,
    (7, 5): CardGeneration("Turing", (10, 0)),
    (8, 0): CardGeneration("Ampere", (11, 0)), (8, 6): CardGeneration("Ampere", (11, 1)), (8, 7): CardGeneration("Ampere", (11, 4)),
    (8, 9): CardGeneration("Ada", (11, 8)),
    (9, 0): CardGeneration("Hopper", (11, 8)),
    (10, 0): CardGeneration("Blackwell", (12, 8)), (10, 3): CardGeneration("Blackwell", (12, 9)),
    (10, 7): CardGeneration("Rubin", (13, 4)),
    (11, 0): CardGeneration("Blackwell", (13, 0)),
    (12, 0): CardGeneration("Blackwell", (12, 8)), (12, 1): CardGeneration("Blackwell", (12, 9)),
}  # fmt: skip
"""By compute capability [3, 6]."""

OLD_DEVICES: tuple[tuple[int, int, CardGeneration], ...] = (
    (0x0FC0, 0x103F, _KEPLER),
    (0x1180, 0x11FF, _KEPLER),
    (0x1280, 0x130B, _KEPLER),
    (0x1340, 0x1436, _MAXWELL),
    (0x1613, 0x1676, _MAXWELL),
    (0x174D, 0x17FD, _MAXWELL),
    (0x15C2, 0x15FF, _PASCAL),
    (0x1725, 0x172F, _PASCAL),
    (0x1B00, 0x1D56, _PASCAL),
    (0x1D81, 0x1DF6, _VOLTA),
)
"""Device ids on the PCI bus (first, last) of generations that drivers have dropped [7]: a driver that no longer knows a
card does not list it."""

FIRST_OPEN_CAPABILITY = (7, 5)
"""The open kernel module knows Turing and newer; older cards need the proprietary one [4]."""
FIRST_OPEN_ONLY_CAPABILITY = (10, 0)
"""From Blackwell on there is only the open kernel module [4]."""


@dataclass(frozen=True)
class Branch:
    """A data center driver branch and the month after which it gets no more updates."""

    kind: str
    ends: date


BRANCHES: dict[int, Branch] = {
    535: Branch("long-term support", date(2026, 6, 30)),
    570: Branch("production", date(2026, 2, 28)),
    580: Branch("long-term support", date(2028, 6, 30)),
    595: Branch("production", date(2027, 3, 31)),
    610: Branch("new feature", date(2026, 8, 31)),
}
"""[3]"""
ENDED_BRANCHES = frozenset(
    (390, 410, 418, 440, 450, 455, 460, 465, 470, 495, 510, 515, 525, 545, 550, 555, 560, 565, 575, 590)
)
"""Branches that [3] lists as ended, or no more; without a date."""
RECOMMENDED_BRANCH = 580
"""What to move to from an ended branch: supported longest, and the last one that knows every card since Maxwell."""

TORCH_OLDEST_CAPABILITY: tuple[tuple[Cuda, tuple[int, int]], ...] = (
    ((13, 0), (7, 5)),
    ((12, 8), (7, 0)),
    ((11, 8), (5, 0)),
)
"""From which CUDA on PyTorch's wheels leave out cards below which compute capability, newest first [5]."""
TORCH_BUILDS: tuple[tuple[Cuda, tuple[int, int]], ...] = (
    ((13, 0), (7, 5)),
    ((12, 8), (7, 5)),
    ((12, 6), (5, 0)),
    ((11, 8), (5, 0)),
)
"""Builds of PyTorch to advise, newest first, and the oldest card that every release of such a build has code for [5]."""


CudaOrMajor = tuple[int, int | None]
"""(12, 8), or (12, None) for what is built for every 12.x."""

_DATA_CENTER = re.compile(r"(NVIDIA )?(Tesla|DGX|HGX|[ABHLMPTVK]\d{1,3}[A-Za-z]*\b|G[BH]\d{2,3}\b)")


class CudaFit(TextEnum):
    FULL = "full"
    """The driver has everything of it."""
    MINOR = "minor-version compatibility"
    """The driver is of the same major version, and lacks what is newer than itself."""
    TOO_NEW = "needs a newer driver"
    UNKNOWN = "not in the catalog"


class CardSupport(TextEnum):
    KNOWN = "known"
    CARD_TOO_NEW = "older than the card"
    CARD_DROPPED = "no longer knows the card"
    UNKNOWN = "not in the catalog"


@dataclass(frozen=True)
class DriverFit:
    """The judgement; `needs` is the oldest driver that would do, `full` the oldest that has everything."""

    fit: CudaFit
    needs: Version | None
    full: Version | None


def native_cuda(driver: Version) -> Cuda | None:
    """The newest CUDA version that a driver has everything of; None for one older than the catalog."""
    known = [cuda for cuda, needed in FULL_DRIVER.items() if driver >= needed]
    return max(known, default=None)


def judge_driver(cuda: CudaOrMajor, driver: Version) -> DriverFit:
    """Whether what is built with a CUDA version runs on a driver, by the tables of the catalog."""
    major, minor = cuda
    full = None if minor is None else FULL_DRIVER.get((major, minor))
    family = FAMILY_DRIVER.get(major)
    native = native_cuda(driver)
    if native is not None and (major < native[0] or (minor is not None and (major, minor) <= native)):
        return DriverFit(CudaFit.FULL, family or full, full)
    if family is None:
        if full is None:
            return DriverFit(CudaFit.UNKNOWN, None, None)
        return DriverFit(CudaFit.TOO_NEW, full, full)
    if driver < family:
        return DriverFit(CudaFit.TOO_NEW, family, full)
    return DriverFit(CudaFit.FULL if minor is None else CudaFit.MINOR, family, full)


def judge_card(cuda: CudaOrMajor, generation: CardGeneration | None) -> CardSupport:
    """Whether a CUDA version has code for a generation of cards."""
    if generation is None:
        return CardSupport.UNKNOWN
    major, minor = cuda
    last = generation.last_cuda
    if major < generation.first_cuda[0] or (minor is not None and (major, minor) < generation.first_cuda):
        return CardSupport.CARD_TOO_NEW
    if last is not None and (major > last[0] or (minor is not None and (major, minor) > last)):
        return CardSupport.CARD_DROPPED
    return CardSupport.KNOWN


def torch_lacks(cuda: Cuda, capability: tuple[int, int]) -> bool:
    """Whether PyTorch's wheels for a CUDA version leave out an old card that CUDA itself still knows."""
    for since, oldest in TORCH_OLDEST_CAPABILITY:
        if cuda >= since:
            return capability < oldest
    return False


def torch_build(driver: Version, capabilities: list[tuple[int, int]]) -> Cuda | None:
    """The newest build of PyTorch that runs on a driver and has code for all cards; None where there is none."""
    for cuda, oldest in TORCH_BUILDS:
        runs = judge_driver(cuda, driver).fit in (CudaFit.FULL, CudaFit.MINOR)
        if runs and all(
            capability >= oldest
            and judge_card(cuda, generation_of(capability)) in (CardSupport.KNOWN, CardSupport.UNKNOWN)
            for capability in capabilities
        ):
            return cuda
    return None


def newest_family(driver: Version) -> int | None:
    """The newest major version of CUDA that a driver runs; None for drivers older than such families."""
    return max((major for major, needed in FAMILY_DRIVER.items() if driver >= needed), default=None)


def generation_of(capability: tuple[int, int] | None) -> CardGeneration | None:
    """The generation of a compute capability; None where the catalog has none."""
    return None if capability is None else GENERATIONS.get(capability)


def old_generation(device: int) -> CardGeneration | None:
    """The generation of a PCI device id among those that newer drivers have dropped; None for all others."""
    return next((kind for first, last, kind in OLD_DEVICES if first <= device <= last), None)


def is_data_center(model: str) -> bool:
    """Whether a card takes forward-compatibility packages, by its name: no GeForce, RTX, Quadro or Titan."""
    return _DATA_CENTER.match(model) is not None


NO_VERSION = "no driver to judge by (see driver.module)"


def cuda_text(cuda: CudaOrMajor) -> str:
    """12.8, or 12.x for what is built for all of them."""
    return f"{cuda[0]}.x" if cuda[1] is None else f"{cuda[0]}.{cuda[1]}"


def best_cuda(case: Case) -> str:
    """The newest CUDA that the driver has everything of."""
    native = native_cuda(case.driver_version) if case.driver_version else None
    return shown(native) if native else "an older version"


def fit_facts(fit: DriverFit) -> Facts:
    return {
        "fit": fit.fit.value,
        "needs_driver": shown(fit.needs) if fit.needs else None,
        "full_driver": shown(fit.full) if fit.full else None,
    }


def too_new(case: Case, fit: DriverFit) -> str:
    """What a person sees when a program is newer than the driver, in the words of the program's own error."""
    needs = shown(fit.needs) if fit.needs else "of its own time"
    return (
        f"needs driver {needs} or newer, here is {case.driver_text}: programs fail with "
        "`CUDA driver version is insufficient for CUDA runtime version`"
    )


def ways_out(case: Case, cuda: CudaOrMajor, fit: DriverFit, instead: str) -> str:
    """An older build; a newer driver where the cards allow it; a compatibility package where they take one."""
    needs = fit.needs or (0,)
    staying = [gpu.name for gpu in case.driver.gpus if (last_branch(gpu) or needs[0]) < needs[0]]
    if staying:
        return f"use {instead}; a driver that new no longer knows {', '.join(staying)}"
    ways = [f"use {instead}", f"install driver {shown(needs)} or newer"]
    models = [gpu.model for gpu in case.driver.gpus if gpu.model]
    if cuda[1] is not None and models and all(is_data_center(model) for model in models):
        ways.append(f"put the package cuda-compat-{cuda[0]}-{cuda[1]} beside the driver (data center cards only)")
    return ", or ".join(ways)


def runs(title: str, case: Case, fit: DriverFit, facts: Facts, subject: str) -> DoctorFinding:
    """The finding for what does run, in full or by minor-version compatibility."""
    if fit.fit is CudaFit.UNKNOWN:
        return skipped(f"{title} is newer than this catalog ({READ_ON})", facts, subject=subject)
    if fit.fit is CudaFit.FULL:
        return ok(f"{title} runs on {case.driver_text}", facts, subject=subject)
    since = f"; everything of it from driver {shown(fit.full)} on" if fit.full else ""
    return ok(f"{title} runs on {case.driver_text} by minor-version compatibility{since}", facts, subject=subject)


def unknown_cards(case: Case, cuda: CudaOrMajor) -> list[GpuLook]:
    """Cards of this host that a CUDA version has no code for."""
    unfit = (CardSupport.CARD_TOO_NEW, CardSupport.CARD_DROPPED)
    return [gpu for gpu in case.driver.gpus if judge_card(cuda, generation_of(gpu.capability)) in unfit]


def cards_text(gpus: list[GpuLook]) -> str:
    return ", ".join(f"{gpu.name}, compute capability {shown(gpu.capability or ())}" for gpu in gpus)


def cuda_for(gpus: list[GpuLook]) -> str:
    """The CUDA versions that know all of these cards."""
    known = [generation for gpu in gpus if (generation := generation_of(gpu.capability)) is not None]
    first = max(generation.first_cuda for generation in known)
    last = min((generation.last_cuda for generation in known if generation.last_cuda), default=None)
    return f"{shown(first)} or newer" if last is None else f"{shown(first)} to {shown(last)}"


def last_branch(gpu: GpuLook) -> int | None:
    """The last driver branch that knows a card; None where newer ones do, or nobody can say."""
    generation = generation_of(gpu.capability)
    return None if generation is None else generation.last_branch
