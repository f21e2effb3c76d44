"""Sentences that toolkits and wheels share: what is wrong with a CUDA version here, and what would be right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.doctor import catalog
from agent.doctor.finding import Facts, Finding, ok, skipped
from agent.doctor.judge import (
    CardFit,
    CudaOrMajor,
    DriverFit,
    Fit,
    generation_of,
    is_data_center,
    judge_card,
    native_cuda,
)
from agent.doctor.versions import shown

if TYPE_CHECKING:
    from agent.doctor.case import Case
    from agent.doctor.look import GpuLook

NO_VERSION = "no driver to judge by (see driver.module)"


def cuda_text(cuda: CudaOrMajor) -> str:
    """12.8, or 12.x for what is built for all of them."""
    return f"{cuda[0]}.x" if cuda[1] is None else f"{cuda[0]}.{cuda[1]}"


def best_cuda(case: Case) -> str:
    """The newest CUDA that the driver has everything of."""
    native = native_cuda(case.driver_version) if case.driver_version else None
    return shown(native) if native else "an older version"


def fit_facts(fit: DriverFit) -> Facts:
    """The judgement for machines."""
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


def runs(title: str, case: Case, fit: DriverFit, facts: Facts, subject: str) -> Finding:
    """The finding for what does run, in full or by minor-version compatibility."""
    if fit.fit is Fit.UNKNOWN:
        return skipped(f"{title} is newer than this catalog ({catalog.READ_ON})", facts, subject=subject)
    if fit.fit is Fit.FULL:
        return ok(f"{title} runs on {case.driver_text}", facts, subject=subject)
    since = f"; everything of it from driver {shown(fit.full)} on" if fit.full else ""
    return ok(f"{title} runs on {case.driver_text} by minor-version compatibility{since}", facts, subject=subject)


def unknown_cards(case: Case, cuda: CudaOrMajor) -> list[GpuLook]:
    """Cards of this host that a CUDA version has no code for."""
    unfit = (CardFit.CARD_TOO_NEW, CardFit.CARD_DROPPED)
    return [gpu for gpu in case.driver.gpus if judge_card(cuda, generation_of(gpu.capability)) in unfit]


def cards_text(gpus: list[GpuLook]) -> str:
    """The cards with their compute capabilities."""
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
