"""Does what toolkits and Python environments were built with run on this driver and these cards?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.doctor import catalog
from agent.doctor.case import DoctorFinding, Facts, error, ok, skipped, warning
from agent.doctor.catalog import shown
from agent.doctor.cuda_installs import Environment, Package, Toolkit, find_environments, find_toolkits
from agent.doctor.judge import (
    NO_VERSION,
    CudaFit,
    CudaOrMajor,
    DriverFit,
    best_cuda,
    cards_text,
    cuda_for,
    cuda_text,
    fit_facts,
    judge_driver,
    newest_family,
    runs,
    too_new,
    torch_build,
    torch_lacks,
    unknown_cards,
    ways_out,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.doctor.case import Case
    from agent.doctor.catalog import Version
    from agent.doctor.look import GpuLook


def look_at_toolkits(case: Case) -> Iterator[DoctorFinding]:
    """Each toolkit: does the driver run what it compiles, and can it compile for these cards?"""
    toolkits = find_toolkits(case.host)
    if not toolkits:
        yield skipped("no CUDA toolkit here; programs from wheels and containers need none")
    for toolkit in toolkits:
        yield _judge_toolkit(case, toolkit)


def _judge_toolkit(case: Case, toolkit: Toolkit) -> DoctorFinding:
    title = f"CUDA toolkit {shown(toolkit.version)} in {toolkit.folder}"
    subject = str(toolkit.folder)
    facts: Facts = {"version": shown(toolkit.version), "active": toolkit.active}
    if case.driver_version is None:
        needs = catalog.FULL_DRIVER.get(toolkit.version)
        comes_with = f" comes with driver {shown(needs)};" if needs else ":"
        return skipped(f"{title}{comes_with} {NO_VERSION}", facts, subject=subject)
    fit = judge_driver(toolkit.version, case.driver_version)
    facts |= fit_facts(fit)
    strangers = unknown_cards(case, toolkit.version)
    if fit.fit is CudaFit.TOO_NEW:
        # one that only lies about breaks nothing
        how = error if toolkit.active else warning
        instead = f"a toolkit of CUDA {best_cuda(case)} or older"
        remedy = ways_out(case, toolkit.version, fit, instead)
        return how(f"{title} {too_new(case, fit)}", remedy, "nvidia-smi; nvcc --version", facts, subject=subject)
    if strangers:
        return warning(
            f"{title} cannot compile for {cards_text(strangers)}",
            f"for these cards use a toolkit of CUDA {cuda_for(strangers)}",
            f"{toolkit.folder}/bin/nvcc --list-gpu-arch",
            facts,
            subject=subject,
        )
    return runs(title, case, fit, facts, subject)


_TORCH = "torch"
_BUILDS = {"cpu": "CPUs alone", "rocm": "AMD's GPUs (ROCm)", "xpu": "Intel's GPUs"}
_NO_IMAGE = "no kernel image is available for execution on the device"


@dataclass(frozen=True)
class _Judged:
    """One package against the driver and the cards."""

    package: Package
    cuda: CudaOrMajor
    fit: DriverFit
    strangers: list[GpuLook]

    @property
    def badness(self) -> tuple[int, bool, CudaOrMajor]:
        """The greatest decides: it is the one whose import fails; torch speaks for its own runtime."""
        grade = 3 if self.fit.fit is CudaFit.TOO_NEW else 2 if self.strangers else int(self.fit.fit is not CudaFit.FULL)
        return grade, self.package.name == _TORCH, (self.cuda[0], self.cuda[1] or 0)


def look_at_pythons(case: Case) -> Iterator[DoctorFinding]:
    """Each environment with CUDA in it, by its worst package."""
    found = find_environments(case.host, case.options.pythons)
    for environment in found.environments:
        yield _judge_environment(case, environment)
    if not found.environments:
        yield skipped(f"no CUDA wheels in {found.looked_at} Python environment(s)", {"looked_at": found.looked_at})
    if not found.complete:
        yield skipped(
            f"the search ended after {found.looked_at} environments; name others with --python",
            {"looked_at": found.looked_at},
            subject="search",
        )


def _judge_environment(case: Case, environment: Environment) -> DoctorFinding:
    names = [f"{package.name} {package.version}" for package in environment.packages]
    subject = str(environment.folder)
    facts: Facts = {"packages": names, "active": environment.active}
    if case.driver_version is None:
        return skipped(f"{', '.join(names)} in {environment.folder}: {NO_VERSION}", facts, subject=subject)
    without = next((package for package in environment.packages if package.built_for), None)
    if without is not None and (environment.active or len(names) == 1):
        return _without_cuda(case, environment, without, facts)
    worst = max(_judged(case, environment, case.driver_version), key=lambda each: each.badness)
    package, cuda = worst.package, cuda_text(worst.cuda)
    title = f"{package.name} {package.version} (CUDA {cuda}) in {environment.folder}"
    facts |= {"worst": package.name, "cuda": cuda} | fit_facts(worst.fit)
    # an environment that only lies about breaks nothing
    how = error if environment.active else warning
    if worst.fit.fit is CudaFit.TOO_NEW:
        found, remedy = too_new(case, worst.fit), ways_out(case, worst.cuda, worst.fit, _build(case, package))
    elif worst.strangers:
        found = f"has no code for {cards_text(worst.strangers)}: programs fail with `{_NO_IMAGE}`"
        remedy = f"use {_build(case, package, worst.strangers)}"
    else:
        return runs(title, case, worst.fit, facts, subject)
    return how(f"{title} {found}", remedy, _list_packages(environment), facts, subject=subject)


def _without_cuda(case: Case, environment: Environment, package: Package, facts: Facts) -> DoctorFinding:
    """A torch that finds no GPU here: wrong where programs run in it, and no more than a fact where it lies about."""
    facts |= {"worst": package.name, "cuda": None, "built_for": package.built_for}
    found = f"{package.name} {package.version} in {environment.folder} is built for {_BUILDS[package.built_for]}"
    if not environment.active:
        return ok(f"{found}; it uses no GPU of NVIDIA", facts, subject=str(environment.folder))
    return error(
        f"{found}: `torch.cuda.is_available()` is False (`Torch not compiled with CUDA enabled`)",
        f"install {_build(case, package)}",
        _list_packages(environment),
        facts,
        subject=str(environment.folder),
    )


def _list_packages(environment: Environment) -> str:
    return f"{environment.folder}/bin/python -m pip list | grep -iE 'torch|cuda|nvidia|jax|cupy'"


def _judged(case: Case, environment: Environment, driver: Version) -> list[_Judged]:
    return [
        _Judged(package, package.cuda, judge_driver(package.cuda, driver), _strangers(case, package, package.cuda))
        for package in environment.packages
        if package.cuda is not None
    ]


def _strangers(case: Case, package: Package, cuda: CudaOrMajor) -> list[GpuLook]:
    """Cards without code: unknown to this CUDA, or left out of PyTorch's own builds."""
    strangers = unknown_cards(case, cuda)
    major, minor = cuda
    if strangers or package.name != _TORCH or minor is None:
        return strangers
    return [gpu for gpu in case.driver.gpus if gpu.capability and torch_lacks((major, minor), gpu.capability)]


def _build(case: Case, package: Package, strangers: list[GpuLook] | None = None) -> str:
    """Which build to take instead, by the name that the project gives it where that is known."""
    driver = case.driver_version or ()
    capabilities = [gpu.capability for gpu in case.driver.gpus if gpu.capability]
    if package.name == _TORCH and (build := torch_build(driver, capabilities)) is not None:
        return f"the cu{build[0]}{build[1]} build of torch (its version ends with +cu{build[0]}{build[1]})"
    if strangers:
        return f"a build of {package.name} for CUDA {cuda_for(strangers)}"
    family = newest_family(driver)
    return f"a build of {package.name} for CUDA {best_cuda(case) if family is None else f'{family}.x'} or older"
