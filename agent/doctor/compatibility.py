"""Which CUDA runs on which driver and card: NVIDIA's tables, and rules on them for toolkits and wheels."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from agent.doctor.case import DoctorFinding, Facts, TextEnum, ok, skipped
from agent.doctor.host import shown

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date

    from agent.doctor.case import Case
    from agent.doctor.host import Cuda, Version
    from agent.doctor.look import GpuLook


@dataclass(frozen=True)
class CardGeneration:
    """A generation of cards, and the CUDA versions and driver branches that support it; None: still supported."""

    name: str
    first_cuda: Cuda
    last_cuda: Cuda | None = None
    last_branch: int | None = None


@dataclass(frozen=True)
class Branch:
    """A data center driver branch, and the last month of its updates."""

    kind: str
    ends: date


def _numbers(text: str) -> Version:
    return tuple(map(int, text.split(".")))


def _pair(text: str) -> tuple[int, int]:
    major, minor = _numbers(text)
    return major, minor


def _pairs(texts: Mapping[str, str]) -> tuple[tuple[Cuda, tuple[int, int]], ...]:
    return tuple((_pair(cuda), _pair(capability)) for cuda, capability in texts.items())


_TABLES: Mapping[str, Any] = tomllib.loads(
    files("agent.doctor").joinpath("compatibility.toml").read_text(encoding="utf-8")
)
"""NVIDIA's and PyTorch's own figures; the file describes its tables."""
READ_ON: date = _TABLES["read_on"]
"""The day when the sources were read."""
FULL_DRIVER: dict[Cuda, Version] = {_pair(cuda): _numbers(text) for cuda, text in _TABLES["full_driver"].items()}
FAMILY_DRIVER: dict[int, Version] = {int(major): _numbers(text) for major, text in _TABLES["family_driver"].items()}
GENERATIONS: dict[tuple[int, int], CardGeneration] = {}
OLD_DEVICES: list[tuple[int, int, CardGeneration]] = []
for _each in _TABLES["generations"]:
    _last = _each.get("last_cuda")
    _generation = CardGeneration(
        _each["name"], _pair(_each["first_cuda"]), _last and _pair(_last), _each.get("last_branch")
    )
    GENERATIONS |= dict.fromkeys(map(_pair, _each["capabilities"]), _generation)
    OLD_DEVICES += [(first, last, _generation) for first, last in _each.get("devices", ())]
FIRST_OPEN_CAPABILITY = _pair(_TABLES["first_open_capability"])
FIRST_OPEN_ONLY_CAPABILITY = _pair(_TABLES["first_open_only_capability"])
BRANCHES = {int(number): Branch(**branch) for number, branch in _TABLES["branches"].items()}
ENDED_BRANCHES = frozenset(_TABLES["ended_branches"])
RECOMMENDED_BRANCH: int = _TABLES["recommended_branch"]
TORCH_OLDEST_CAPABILITY = _pairs(_TABLES["torch"]["oldest_capability"])
TORCH_BUILDS = _pairs(_TABLES["torch"]["builds"])

CudaOrMajor = tuple[int, int | None]
"""(12, 8), or (12, None) for programs built for every 12.x."""

_DATA_CENTER = re.compile(r"(NVIDIA )?(Tesla|DGX|HGX|[ABHLMPTVK]\d{1,3}[A-Za-z]*\b|G[BH]\d{2,3}\b)")


class CudaFit(TextEnum):
    FULL = "full"
    """The driver supports all its features."""
    MINOR = "minor-version compatibility"
    """The driver has the same major version, but lacks newer features."""
    TOO_NEW = "needs a newer driver"
    UNKNOWN = "not in the catalog"


class CardSupport(TextEnum):
    KNOWN = "known"
    CARD_TOO_NEW = "older than the card"
    CARD_DROPPED = "no longer knows the card"
    UNKNOWN = "not in the catalog"


_UNFIT = (CardSupport.CARD_TOO_NEW, CardSupport.CARD_DROPPED)


@dataclass(frozen=True)
class DriverFit:
    """The judgement; `needs` is the oldest driver that runs it, `full` the oldest with all features."""

    fit: CudaFit
    needs: Version | None
    full: Version | None


def native_cuda(driver: Version) -> Cuda | None:
    """Return the newest CUDA version that a driver fully supports; None for a driver older than the catalog."""
    known = [cuda for cuda, needed in FULL_DRIVER.items() if driver >= needed]
    return max(known, default=None)


def judge_driver(cuda: CudaOrMajor, driver: Version) -> DriverFit:
    """Return whether programs built with a CUDA version run on a driver, by the tables of the catalog."""
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
    """Return whether a CUDA version has code for a generation of cards."""
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
    """Return whether PyTorch's wheels for a CUDA version omit an old card that CUDA itself still supports."""
    for since, oldest in TORCH_OLDEST_CAPABILITY:
        if cuda >= since:
            return capability < oldest
    return False


def torch_build(driver: Version, capabilities: list[tuple[int, int]]) -> Cuda | None:
    """Return the newest build of PyTorch that runs on a driver and has code for all cards; None where there is none."""
    for cuda, oldest in TORCH_BUILDS:
        runs = judge_driver(cuda, driver).fit in (CudaFit.FULL, CudaFit.MINOR)
        if runs and all(
            capability >= oldest and judge_card(cuda, generation_of(capability)) not in _UNFIT
            for capability in capabilities
        ):
            return cuda
    return None


def newest_family(driver: Version) -> int | None:
    """Return the newest major version of CUDA that a driver runs; None for drivers older than these families."""
    return max((major for major, needed in FAMILY_DRIVER.items() if driver >= needed), default=None)


def generation_of(capability: tuple[int, int] | None) -> CardGeneration | None:
    """Return the generation of a compute capability; None where the catalog has none."""
    return None if capability is None else GENERATIONS.get(capability)


def old_generation(device: int) -> CardGeneration | None:
    """Return the generation of a PCI device id that newer drivers have dropped; None for other ids."""
    return next((kind for first, last, kind in OLD_DEVICES if first <= device <= last), None)


def is_data_center(model: str) -> bool:
    """Return whether a card accepts forward-compatibility packages, by name: not a GeForce, RTX, Quadro or Titan."""
    return _DATA_CENTER.match(model) is not None


NO_VERSION = "no driver to judge by (see driver.module)"


def cuda_text(cuda: CudaOrMajor) -> str:
    """Return 12.8, or 12.x for programs built for every 12.x."""
    return f"{cuda[0]}.x" if cuda[1] is None else f"{cuda[0]}.{cuda[1]}"


def best_cuda(case: Case) -> str:
    """Return the newest CUDA that the driver fully supports."""
    native = native_cuda(case.driver_version) if case.driver_version else None
    return shown(native) if native else "an older version"


def fit_facts(fit: DriverFit) -> Facts:
    return {
        "fit": fit.fit.value,
        "needs_driver": shown(fit.needs) if fit.needs else None,
        "full_driver": shown(fit.full) if fit.full else None,
    }


def too_new(case: Case, fit: DriverFit) -> str:
    """Return the sentence about a program newer than the driver, with the program's own error message."""
    needs = shown(fit.needs) if fit.needs else "of the same release"
    return (
        f"needs driver {needs} or newer, but driver {case.driver_text} is loaded: programs fail with "
        "`CUDA driver version is insufficient for CUDA runtime version`"
    )


def ways_out(case: Case, cuda: CudaOrMajor, fit: DriverFit, instead: str) -> str:
    """Return the remedies: an older build, and where the cards allow it a newer driver or a compatibility package."""
    needs = fit.needs or (0,)
    staying = [gpu.name for gpu in case.driver.gpus if (last_branch(gpu) or needs[0]) < needs[0]]
    if staying:
        return f"use {instead}; a driver that new no longer supports {', '.join(staying)}"
    ways = [f"use {instead}", f"install driver {shown(needs)} or newer"]
    models = [gpu.model for gpu in case.driver.gpus if gpu.model]
    if cuda[1] is not None and models and all(is_data_center(model) for model in models):
        ways.append(f"install the package cuda-compat-{cuda[0]}-{cuda[1]} beside the driver (data center cards only)")
    return ", or ".join(ways)


def runs(title: str, case: Case, fit: DriverFit, facts: Facts, subject: str) -> DoctorFinding:
    """Return the finding for programs that run, with all features or by minor-version compatibility."""
    if fit.fit is CudaFit.UNKNOWN:
        return skipped(f"{title} is newer than the catalog of {READ_ON}", facts, subject=subject)
    if fit.fit is CudaFit.FULL:
        return ok(f"{title} runs on {case.driver_text}", facts, subject=subject)
    since = f"; all features need driver {shown(fit.full)} or newer" if fit.full else ""
    return ok(f"{title} runs on {case.driver_text} by minor-version compatibility{since}", facts, subject=subject)


def unknown_cards(case: Case, cuda: CudaOrMajor) -> list[GpuLook]:
    """Return the cards of this host for which a CUDA version has no code."""
    return [gpu for gpu in case.driver.gpus if judge_card(cuda, generation_of(gpu.capability)) in _UNFIT]


def cards_text(gpus: list[GpuLook]) -> str:
    return ", ".join(f"{gpu.name}, compute capability {shown(gpu.capability or ())}" for gpu in gpus)


def cuda_for(gpus: list[GpuLook]) -> str:
    """Return the CUDA versions that support all these cards, as text."""
    known = [generation for gpu in gpus if (generation := generation_of(gpu.capability)) is not None]
    first = max(generation.first_cuda for generation in known)
    last = min((generation.last_cuda for generation in known if generation.last_cuda), default=None)
    return f"{shown(first)} or newer" if last is None else f"{shown(first)} to {shown(last)}"


def last_branch(gpu: GpuLook) -> int | None:
    """Return the last driver branch that supports a card; None where newer branches do, or the card is unknown."""
    generation = generation_of(gpu.capability)
    return None if generation is None else generation.last_branch
