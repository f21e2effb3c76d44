"""Do variables of the environment hide GPUs from the programs that start in it?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.doctor.case import NO_DRIVER
from agent.doctor.finding import Facts, Finding, error, ok, skipped, warning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.doctor.case import Case

_CUDA, _CONTAINER = "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"
_NO_GPU = "every CUDA program started here fails with `no CUDA-capable device is detected` (100)"
_LOOK = f"env | grep {_CUDA}; nvidia-smi -L"


def look(case: Case) -> Iterator[Finding]:
    """CUDA_VISIBLE_DEVICES, and in a container NVIDIA_VISIBLE_DEVICES, as the caller's programs would see them."""
    environment, count = case.host.environment, case.driver.gpu_count
    cuda, container = environment.get(_CUDA), environment.get(_CONTAINER)
    facts: Facts = {"cuda_visible_devices": cuda, "nvidia_visible_devices": container, "gpus": count}
    # with the Container Device Interface the variable is void by design, and the GPUs are there
    if case.host.container and container in ("void", "none", "") and not count:
        yield error(
            f"{_CONTAINER}={container} keeps every GPU out of this container",
            "start it with the GPUs asked for: `docker run --gpus all`, in Kubernetes a resource limit `nvidia.com/gpu`",
            f"env | grep {_CONTAINER}",
            facts,
        )
    elif case.driver_absent:
        yield skipped(NO_DRIVER, facts)
    elif cuda is None:
        yield ok(f"{_CUDA} is not set: nothing is hidden", facts)
    else:
        yield _listed(case, cuda, facts)


def _listed(case: Case, value: str, facts: Facts) -> Finding:
    entries = [entry.strip() for entry in value.split(",")]
    wrong = next((position for position, entry in enumerate(entries) if not _known(case, entry)), len(entries))
    if wrong == len(entries):
        return ok(f"{_CUDA}={value}: {len(entries)} device(s) for programs started here", facts)
    if entries[wrong] in ("", "-1", "NoDevFiles") and wrong == 0:
        return error(
            f"{_CUDA}={value!r} hides every GPU: {_NO_GPU}",
            "unset it, or inside a job ask the scheduler for a GPU",
            f"unset {_CUDA}",
            facts,
        )
    there = "" if case.driver.gpu_count is None else f", of {case.driver.gpu_count} GPU(s) here"
    if wrong == 0:
        return error(
            f"{_CUDA}={value} begins with what is no device{there}: {_NO_GPU}",
            "name GPUs that are there (they count from 0), or unset it",
            _LOOK,
            facts,
        )
    # CUDA Programming Guide, "CUDA Environment Variables": only the devices before the first wrong one are visible
    return warning(
        f"{_CUDA}={value}: {entries[wrong]!r} is no device{there}; only the {wrong} before it can be used",
        "name GPUs that are there (they count from 0), or unset it",
        _LOOK,
        facts,
    )


def _known(case: Case, entry: str) -> bool:
    """Whether an entry names a device, as far as that can be judged; with MIG, positions count instances."""
    driver = case.driver
    if entry.isdecimal():
        return driver.gpu_count is None or any(gpu.mig for gpu in driver.gpus) or int(entry) < driver.gpu_count
    if entry.startswith("GPU-"):
        told = bool(driver.gpus) and all(gpu.uuid for gpu in driver.gpus) and len(driver.gpus) == driver.gpu_count
        return not told or any(gpu.uuid.startswith(entry) for gpu in driver.gpus)
    return entry.startswith("MIG-")
