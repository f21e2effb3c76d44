"""Pure judgement: does a CUDA version run on this driver, and does it know this card?"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from agent.doctor import catalog

if TYPE_CHECKING:
    from agent.doctor.catalog import Generation
    from agent.doctor.versions import Cuda, Version

CudaOrMajor = tuple[int, int | None]
"""(12, 8), or (12, None) for what is built for every 12.x."""

_DATA_CENTER = re.compile(r"(NVIDIA )?(Tesla|DGX|HGX|[ABHLMPTVK]\d{1,3}[A-Za-z]*\b|G[BH]\d{2,3}\b)")


class Fit(StrEnum):
    """How a CUDA version stands to a driver."""

    FULL = "full"
    """The driver has everything of it."""
    MINOR = "minor-version compatibility"
    """The driver is of the same major version, and lacks what is newer than itself."""
    TOO_NEW = "needs a newer driver"
    UNKNOWN = "not in the catalog"


class CardFit(StrEnum):
    """How a CUDA version stands to a card."""

    KNOWN = "known"
    CARD_TOO_NEW = "older than the card"
    CARD_DROPPED = "no longer knows the card"
    UNKNOWN = "not in the catalog"


@dataclass(frozen=True)
class DriverFit:
    """The judgement; `needs` is the oldest driver that would do, `full` the oldest that has everything."""

    fit: Fit
    needs: Version | None
    full: Version | None


def native_cuda(driver: Version) -> Cuda | None:
    """The newest CUDA version that a driver has everything of; None for one older than the catalog."""
    known = [cuda for cuda, needed in catalog.FULL_DRIVER.items() if driver >= needed]
    return max(known, default=None)


def judge_driver(cuda: CudaOrMajor, driver: Version) -> DriverFit:
    """Whether what is built with a CUDA version runs on a driver, by the tables of the catalog."""
    major, minor = cuda
    full = None if minor is None else catalog.FULL_DRIVER.get((major, minor))
    family = catalog.FAMILY_DRIVER.get(major)
    native = native_cuda(driver)
    if native is not None and (major < native[0] or (minor is not None and (major, minor) <= native)):
        return DriverFit(Fit.FULL, family or full, full)
    if family is None:
        if full is None:
            return DriverFit(Fit.UNKNOWN, None, None)
        return DriverFit(Fit.TOO_NEW, full, full)
    if driver < family:
        return DriverFit(Fit.TOO_NEW, family, full)
    return DriverFit(Fit.FULL if minor is None else Fit.MINOR, family, full)


def judge_card(cuda: CudaOrMajor, generation: Generation | None) -> CardFit:
    """Whether a CUDA version has code for a generation of cards."""
    if generation is None:
        return CardFit.UNKNOWN
    major, minor = cuda
    last = generation.last_cuda
    if major < generation.first_cuda[0] or (minor is not None and (major, minor) < generation.first_cuda):
        return CardFit.CARD_TOO_NEW
    if last is not None and (major > last[0] or (minor is not None and (major, minor) > last)):
        return CardFit.CARD_DROPPED
    return CardFit.KNOWN


def torch_lacks(cuda: Cuda, capability: tuple[int, int]) -> bool:
    """Whether PyTorch's wheels for a CUDA version leave out an old card that CUDA itself still knows."""
    for since, oldest in catalog.TORCH_OLDEST_CAPABILITY:
        if cuda >= since:
            return capability < oldest
    return False


def torch_build(driver: Version, capabilities: list[tuple[int, int]]) -> Cuda | None:
    """The newest build of PyTorch that runs on a driver and has code for all cards; None where there is none."""
    for cuda, oldest in catalog.TORCH_BUILDS:
        runs = judge_driver(cuda, driver).fit in (Fit.FULL, Fit.MINOR)
        if runs and all(
            capability >= oldest and judge_card(cuda, generation_of(capability)) in (CardFit.KNOWN, CardFit.UNKNOWN)
            for capability in capabilities
        ):
            return cuda
    return None


def newest_family(driver: Version) -> int | None:
    """The newest major version of CUDA that a driver runs; None for drivers older than such families."""
    return max((major for major, needed in catalog.FAMILY_DRIVER.items() if driver >= needed), default=None)


def generation_of(capability: tuple[int, int] | None) -> Generation | None:
    """The generation of a compute capability; None where the catalog has none."""
    return None if capability is None else catalog.GENERATIONS.get(capability)


def old_generation(device: int) -> Generation | None:
    """The generation of a PCI device id among those that newer drivers have dropped; None for all others."""
    return next((kind for first, last, kind in catalog.OLD_DEVICES if first <= device <= last), None)


def is_data_center(model: str) -> bool:
    """Whether a card takes forward-compatibility packages, by its name: no GeForce, RTX, Quadro or Titan."""
    return _DATA_CENTER.match(model) is not None
