"""Which CUDA runs on this driver, do variables hide the GPUs, and do toolkits and Python environments run here?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.doctor import compatibility
from agent.doctor.case import NO_DRIVER, DoctorFinding, Facts, error, ok, skipped, warning
from agent.doctor.compatibility import (
    NO_VERSION,
    CudaFit,
    CudaOrMajor,
    DriverFit,
    best_cuda,
    cards_text,
    cuda_for,
    cuda_text,
    fit_facts,
    generation_of,
    is_data_center,
    judge_driver,
    last_branch,
    native_cuda,
    newest_family,
    runs,
    too_new,
    torch_build,
    torch_lacks,
    unknown_cards,
    ways_out,
)
from agent.doctor.cuda_installs import Environment, Package, Toolkit, find_environments, find_toolkits
from agent.doctor.host import Copy, copies, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.doctor.case import Case
    from agent.doctor.look import GpuLook

_FIND_COPIES = "ldconfig -p | grep libcuda.so; echo $LD_LIBRARY_PATH"


def look_at_driver_cuda(case: Case) -> Iterator[DoctorFinding]:
    """Yield the newest CUDA that the driver runs, and whether libcuda.so.1 belongs to the driver."""
    driver = case.driver_version
    if driver is None:
        yield skipped(NO_VERSION)
        return
    native = native_cuda(driver)
    libraries = [copy for copy in copies(case.host, "libcuda.so.1") if not copy.stub]
    reported = case.driver.cuda_version
    facts: Facts = {
        "driver": shown(driver),
        "native_cuda": shown(native) if native else None,
        "cuda_by_libcuda": shown(reported) if reported else None,
        "libcuda": [str(copy.file) for copy in libraries],
    }
    if libraries and libraries[0].compat:
        yield _compat_finding(case, libraries[0], facts)
        return
    runs = (
        f"driver {shown(driver)} runs CUDA up to {shown(native)} with every feature"
        if native
        else f"driver {shown(driver)}"
    )
    if native and native[0] in compatibility.FAMILY_DRIVER:
        runs += f", and any {native[0]}.x without features newer than the driver"
    if reported is not None and native is not None and reported[0] > native[0]:
        yield warning(
            f"{runs}, but libcuda.so.1 reports {shown(reported)}: it does not belong to this driver",
            "find the copy that hides the driver's libcuda, such as a cuda-compat package",
            _FIND_COPIES,
            facts,
        )
    else:
        yield ok(runs, facts)


def _compat_finding(case: Case, copy: Copy, facts: Facts) -> DoctorFinding:
    """Return the finding for a compatibility package: only data center cards accept one, and only a newer one."""
    ordinary = [gpu.name for gpu in case.driver.gpus if gpu.model and not is_data_center(gpu.model)]
    remove = f"remove {copy.folder} from LD_LIBRARY_PATH and /etc/ld.so.conf.d"
    if copy.version is not None and case.driver_version is not None and copy.version < case.driver_version:
        return error(
            f"a compatibility package ({copy.file}) hides the newer driver {case.driver_text}: CUDA fails with 803, "
            "`unsupported display driver / cuda driver combination`",
            f"remove cuda-compat, or {remove}",
            _FIND_COPIES,
            facts,
        )
    if ordinary:
        return error(
            f"a compatibility package ({copy.file}), made for data center cards only, is in use: CUDA fails with 804 on"
            f" {', '.join(ordinary)}",
            f"{remove}; install a newer driver instead",
            _FIND_COPIES,
            facts,
        )
    return ok(f"driver {case.driver_text} with the compatibility package {copy.file}", facts)


_CUDA, _CONTAINER = "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"
_NO_GPU = "every CUDA program started here fails with `no CUDA-capable device is detected` (100)"
_LOOK = f"env | grep {_CUDA}; nvidia-smi -L"


def look_at_variables(case: Case) -> Iterator[DoctorFinding]:
    """Yield what CUDA_VISIBLE_DEVICES, and in a container NVIDIA_VISIBLE_DEVICES, hides from the caller's programs."""
    environment, count = case.host.environment, case.driver.gpu_count
    cuda, container = environment.get(_CUDA), environment.get(_CONTAINER)
    facts: Facts = {"cuda_visible_devices": cuda, "nvidia_visible_devices": container, "gpus": count}
    # with the Container Device Interface the variable is "void" by design, although the container has its GPUs
    if case.host.container and container in ("void", "none", "") and not count:
        yield error(
            f"{_CONTAINER}={container} keeps every GPU out of this container",
            "request GPUs for it: `docker run --gpus all`, or in Kubernetes a resource limit `nvidia.com/gpu`",
            f"env | grep {_CONTAINER}",
            facts,
        )
    elif case.driver_absent:
        yield skipped(NO_DRIVER, facts)
    elif cuda is None:
        yield ok(f"{_CUDA} is not set, so it hides no GPU", facts)
    else:
        yield _listed_devices_finding(case, cuda, facts)


def _listed_devices_finding(case: Case, value: str, facts: Facts) -> DoctorFinding:
    entries = [entry.strip() for entry in value.split(",")]
    wrong = next((position for position, entry in enumerate(entries) if not _is_device(case, entry)), len(entries))
    if wrong == len(entries):
        return ok(f"{_CUDA}={value}: programs started here can use {len(entries)} device(s)", facts)
    if entries[wrong] in ("", "-1", "NoDevFiles") and wrong == 0:
        return error(
            f"{_CUDA}={value!r} hides every GPU: {_NO_GPU}",
            "unset the variable, or request a GPU from the scheduler if this is a job",
            f"unset {_CUDA}",
            facts,
        )
    there = "" if case.driver.gpu_count is None else f" (this host has {case.driver.gpu_count} GPU(s))"
    if wrong == 0:
        return error(
            f"the first entry of {_CUDA}={value} is not a device{there}: {_NO_GPU}",
            "name GPUs that exist (numbers start at 0), or unset the variable",
            _LOOK,
            facts,
        )
    # CUDA Programming Guide, "CUDA Environment Variables": only the devices before the first wrong one are visible
    return warning(
        f"{_CUDA}={value}: {entries[wrong]!r} is not a device{there}; programs can use only the {wrong} before it",
        "name GPUs that exist (numbers start at 0), or unset the variable",
        _LOOK,
        facts,
    )


def _is_device(case: Case, entry: str) -> bool:
    """Return whether an entry names a device; True where that is unknown. With MIG, positions count instances."""
    driver = case.driver
    if entry.isdecimal():
        return driver.gpu_count is None or any(gpu.mig for gpu in driver.gpus) or int(entry) < driver.gpu_count
    if entry.startswith("GPU-"):
        complete = bool(driver.gpus) and all(gpu.uuid for gpu in driver.gpus) and len(driver.gpus) == driver.gpu_count
        return not complete or any(gpu.uuid.startswith(entry) for gpu in driver.gpus)
    return entry.startswith("MIG-")


_HOLD = {"debian": "sudo apt-mark hold 'nvidia-driver*' 'libnvidia-*'", "rhel": "sudo dnf versionlock add 'nvidia-*'"}


def look_at_cards(case: Case) -> Iterator[DoctorFinding]:
    """Yield, once per model, the last driver branch and the last CUDA that support the card."""
    models = {gpu.model: gpu for gpu in reversed(case.driver.gpus) if gpu.capability is not None}
    if not models:
        yield skipped(NO_DRIVER if case.driver_absent else "no GPU reports its compute capability")
    for model, gpu in sorted(models.items()):
        yield _card_finding(case, model, gpu)


def _card_finding(case: Case, model: str, gpu: GpuLook) -> DoctorFinding:
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
            f"{model} (compute capability {capability}) is not in the catalog of {compatibility.READ_ON}",
            facts,
            subject=model,
        )
    if generation.last_branch is None or generation.last_cuda is None:
        return ok(
            f"{model}: {generation.name}; current drivers and CUDA {shown(generation.first_cuda)} or newer support it",
            facts,
            subject=model,
        )
    return warning(
        f"{model}: driver branch {generation.last_branch} and CUDA {shown(generation.last_cuda)} are the last for "
        f"{generation.name}; newer drivers do not support this card",
        f"keep this host at branch {generation.last_branch}; the card still runs programs built for CUDA "
        f"{shown(generation.first_cuda)} to {shown(generation.last_cuda)}",
        _HOLD.get(case.host.distribution, "nvidia-smi --query-gpu=driver_version --format=csv"),
        facts,
        subject=model,
    )


def look_at_branch(case: Case) -> Iterator[DoctorFinding]:
    """Yield whether the installed driver branch still gets security updates."""
    if case.driver_version is None:
        yield skipped(NO_DRIVER)
        return
    number = case.driver_version[0]
    branch = compatibility.BRANCHES.get(number)
    facts: Facts = {
        "branch": number,
        "kind": branch.kind if branch else None,
        "ends": branch.ends.isoformat() if branch else None,
    }
    if branch is None and number not in compatibility.ENDED_BRANCHES:
        yield skipped(f"branch {number} is not in the catalog of {compatibility.READ_ON}", facts)
    elif branch is not None and case.host.now.date() <= branch.ends:
        yield ok(f"branch {number} ({branch.kind}) gets updates until {branch.ends:%Y-%m}", facts)
    elif any(last_branch(gpu) == number for gpu in case.driver.gpus):
        yield ok(f"branch {number} gets no more updates, and is the last that supports a card in this host", facts)
    else:
        ended = f" after {branch.ends:%Y-%m}" if branch else ""
        yield warning(
            f"updates for branch {number}, including security fixes, ended{ended}",
            f"plan a move to branch {compatibility.RECOMMENDED_BRANCH} (long-term support until "
            f"{compatibility.BRANCHES[compatibility.RECOMMENDED_BRANCH].ends:%Y-%m})",
            "nvidia-smi --query-gpu=driver_version --format=csv",
            facts,
        )


def look_at_toolkits(case: Case) -> Iterator[DoctorFinding]:
    """Yield for each toolkit whether the driver runs its programs and whether it compiles for these cards."""
    toolkits = find_toolkits(case.host)
    if not toolkits:
        yield skipped("no CUDA toolkit is installed; programs from wheels and containers need none")
    for toolkit in toolkits:
        yield _toolkit_finding(case, toolkit)


def _toolkit_finding(case: Case, toolkit: Toolkit) -> DoctorFinding:
    title = f"CUDA toolkit {shown(toolkit.version)} in {toolkit.folder}"
    subject = str(toolkit.folder)
    facts: Facts = {"version": shown(toolkit.version), "active": toolkit.active}
    if case.driver_version is None:
        needs = compatibility.FULL_DRIVER.get(toolkit.version)
        comes_with = f" comes with driver {shown(needs)};" if needs else ":"
        return skipped(f"{title}{comes_with} {NO_VERSION}", facts, subject=subject)
    fit = judge_driver(toolkit.version, case.driver_version)
    facts |= fit_facts(fit)
    strangers = unknown_cards(case, toolkit.version)
    if fit.fit is CudaFit.TOO_NEW:
        # an installed toolkit that is not active breaks nothing
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
class _PackageJudgement:
    """One package, judged against the driver and the cards."""

    package: Package
    cuda: CudaOrMajor
    fit: DriverFit
    strangers: list[GpuLook]

    @property
    def badness(self) -> tuple[int, bool, CudaOrMajor]:
        """Return a sort key. The package with the greatest decides, as its import fails; torch precedes its runtime."""
        grade = 3 if self.fit.fit is CudaFit.TOO_NEW else 2 if self.strangers else int(self.fit.fit is not CudaFit.FULL)
        return grade, self.package.name == _TORCH, (self.cuda[0], self.cuda[1] or 0)


def look_at_pythons(case: Case) -> Iterator[DoctorFinding]:
    """Yield one finding per Python environment that contains CUDA, about its worst package."""
    found = find_environments(case.host, case.options.pythons)
    for environment in found.environments:
        yield _environment_finding(case, environment)
    if not found.environments:
        yield skipped(
            f"none of {found.looked_at} Python environment(s) contains a CUDA wheel", {"looked_at": found.looked_at}
        )
    if not found.complete:
        yield skipped(
            f"the search stopped after {found.looked_at} environments; name others with --python",
            {"looked_at": found.looked_at},
            subject="search",
        )


def _environment_finding(case: Case, environment: Environment) -> DoctorFinding:
    names = [f"{package.name} {package.version}" for package in environment.packages]
    subject = str(environment.folder)
    facts: Facts = {"packages": names, "active": environment.active}
    driver = case.driver_version
    if driver is None:
        return skipped(f"{', '.join(names)} in {environment.folder}: {NO_VERSION}", facts, subject=subject)
    without = next((package for package in environment.packages if package.built_for), None)
    if without is not None and (environment.active or len(names) == 1):
        return _torch_without_cuda_finding(case, environment, without, facts)
    judged = [
        _PackageJudgement(each, each.cuda, judge_driver(each.cuda, driver), _unsupported_cards(case, each, each.cuda))
        for each in environment.packages
        if each.cuda is not None
    ]
    worst = max(judged, key=lambda each: each.badness)
    package, cuda = worst.package, cuda_text(worst.cuda)
    title = f"{package.name} {package.version} (CUDA {cuda}) in {environment.folder}"
    facts |= {"worst": package.name, "cuda": cuda} | fit_facts(worst.fit)
    # an environment that is not active breaks nothing
    how = error if environment.active else warning
    if worst.fit.fit is CudaFit.TOO_NEW:
        found, remedy = too_new(case, worst.fit), ways_out(case, worst.cuda, worst.fit, _build_advice(case, package))
    elif worst.strangers:
        found = f"has no code for {cards_text(worst.strangers)}: programs fail with `{_NO_IMAGE}`"
        remedy = f"use {_build_advice(case, package, worst.strangers)}"
    else:
        return runs(title, case, worst.fit, facts, subject)
    return how(f"{title} {found}", remedy, _packages_command(environment), facts, subject=subject)


def _torch_without_cuda_finding(case: Case, environment: Environment, package: Package, facts: Facts) -> DoctorFinding:
    """Return the finding for a torch without CUDA: an error in the active environment, elsewhere only a fact."""
    facts |= {"worst": package.name, "cuda": None, "built_for": package.built_for}
    found = f"{package.name} {package.version} in {environment.folder} is built for {_BUILDS[package.built_for]}"
    if not environment.active:
        return ok(f"{found}; it uses no NVIDIA GPU", facts, subject=str(environment.folder))
    return error(
        f"{found}: `torch.cuda.is_available()` is False (`Torch not compiled with CUDA enabled`)",
        f"install {_build_advice(case, package)}",
        _packages_command(environment),
        facts,
        subject=str(environment.folder),
    )


def _packages_command(environment: Environment) -> str:
    return f"{environment.folder}/bin/python -m pip list | grep -iE 'torch|cuda|nvidia|jax|cupy'"


def _unsupported_cards(case: Case, package: Package, cuda: CudaOrMajor) -> list[GpuLook]:
    """Return the cards that the package has no code for, in this CUDA or in PyTorch's own builds."""
    strangers = unknown_cards(case, cuda)
    major, minor = cuda
    if strangers or package.name != _TORCH or minor is None:
        return strangers
    return [gpu for gpu in case.driver.gpus if gpu.capability and torch_lacks((major, minor), gpu.capability)]


def _build_advice(case: Case, package: Package, strangers: list[GpuLook] | None = None) -> str:
    """Return the name of a build that runs here: the project's own name for the build where it is known."""
    driver = case.driver_version or ()
    capabilities = [gpu.capability for gpu in case.driver.gpus if gpu.capability]
    if package.name == _TORCH and (build := torch_build(driver, capabilities)) is not None:
        return f"the cu{build[0]}{build[1]} build of torch (its version ends with +cu{build[0]}{build[1]})"
    if strangers:
        return f"a build of {package.name} for CUDA {cuda_for(strangers)}"
    family = newest_family(driver)
    return f"a build of {package.name} for CUDA {best_cuda(case) if family is None else f'{family}.x'} or older"
