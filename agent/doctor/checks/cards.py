"""How long do drivers go on knowing these cards, and this branch of the driver getting updates?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.doctor import catalog
from agent.doctor.case import NO_DRIVER
from agent.doctor.finding import Facts, Finding, ok, skipped, warning
from agent.doctor.judge import generation_of
from agent.doctor.remedies import last_branch
from agent.doctor.versions import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.doctor.case import Case
    from agent.doctor.look import GpuLook

_HOLD = {
    "debian": "sudo apt-mark hold 'nvidia-driver*' 'libnvidia-*'",
    "rhel": "sudo dnf versionlock add 'nvidia-*'",
}


def look(case: Case) -> Iterator[Finding]:
    """Each model once: the last driver branch and the last CUDA that know it."""
    told = {gpu.model: gpu for gpu in reversed(case.driver.gpus) if gpu.capability is not None}
    if not told:
        yield skipped(NO_DRIVER if case.driver_absent else "no GPU tells its compute capability")
    for model, gpu in sorted(told.items()):
        yield _card(case, model, gpu)


def _card(case: Case, model: str, gpu: GpuLook) -> Finding:
    generation, capability = generation_of(gpu.capability), shown(gpu.capability or ())
    facts: Facts = {
        "capability": capability,
        "generation": generation.name if generation else None,
        "first_cuda": shown(generation.first_cuda) if generation else None,
        "last_cuda": shown(generation.last_cuda) if generation and generation.last_cuda else None,
        "last_branch": generation.last_branch if generation else None,
    }
    if generation is None:
        return skipped(
            f"{model} (compute capability {capability}) is not in this catalog ({catalog.READ_ON})",
            facts,
            subject=model,
        )
    if generation.last_branch is None or generation.last_cuda is None:
        return ok(
            f"{model}: {generation.name}, known by current drivers and by CUDA {shown(generation.first_cuda)} and newer",
            facts,
            subject=model,
        )
    return warning(
        f"{model}: {generation.name} stays at driver branch {generation.last_branch} and CUDA {shown(generation.last_cuda)}; "
        "newer drivers do not know it",
        f"keep this host at branch {generation.last_branch}; the card goes on serving what is built for CUDA "
        f"{shown(generation.first_cuda)} to {shown(generation.last_cuda)}",
        _HOLD.get(case.host.distribution, "nvidia-smi --query-gpu=driver_version --format=csv"),
        facts,
        subject=model,
    )


def look_at_branch(case: Case) -> Iterator[Finding]:
    """Whether the installed branch still gets security updates."""
    if case.driver_version is None:
        yield skipped(NO_DRIVER)
        return
    number = case.driver_version[0]
    branch = catalog.BRANCHES.get(number)
    facts: Facts = {
        "branch": number,
        "kind": branch.kind if branch else None,
        "ends": branch.ends.isoformat() if branch else None,
    }
    if branch is None and number not in catalog.ENDED_BRANCHES:
        yield skipped(f"branch {number} is not in this catalog ({catalog.READ_ON})", facts)
    elif branch is not None and case.host.now.date() <= branch.ends:
        yield ok(f"branch {number} ({branch.kind}) gets updates until {branch.ends:%Y-%m}", facts)
    elif any(last_branch(gpu) == number for gpu in case.driver.gpus):
        yield ok(f"branch {number} gets no more updates, and is the last that knows a card in this host", facts)
    else:
        ended = f" since {branch.ends:%Y-%m}" if branch else ""
        yield warning(
            f"branch {number} gets no more updates{ended}, security fixes included",
            f"plan a move to branch {catalog.RECOMMENDED_BRANCH} (long-term support until "
            f"{catalog.BRANCHES[catalog.RECOMMENDED_BRANCH].ends:%Y-%m})",
            "nvidia-smi --query-gpu=driver_version --format=csv",
            facts,
        )
