"""Does the driver answer, through which library, and does each GPU?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from agent.doctor.case import NO_DRIVER, DoctorFinding, Facts, error, ok, skipped, warning
from agent.doctor.catalog import shown
from agent.doctor.installed import copies
from agent.doctor.judge import old_generation
from agent.nvml.installation import INSTALL_HINT, driver_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.doctor.case import Case
    from agent.doctor.catalog import CardGeneration

_READ_LOG = "sudo dmesg -T | grep -iE 'nvrm|xid' | tail -20"


def look_at_driver(case: Case) -> Iterator[DoctorFinding]:
    """Whether nvmlInit succeeds within the timeout."""
    driver = case.driver
    facts: Facts = {
        "library": driver.library,
        "driver_version": driver.driver_version,
        "nvml_version": driver.nvml_version,
        "gpus": driver.gpu_count,
        "code": driver.code,
    }
    if driver.state == "hung":
        yield error(
            f"{driver.step} does not return within {case.options.timeout_s:g} s",
            "read the kernel log; a driver that blocks there needs a GPU reset or a reboot, and `kill -9` on what hangs "
            "has frozen hosts",
            _READ_LOG,
            facts,
        )
    elif driver.state == "crashed" and not driver.step and driver.detail.startswith("exit code"):
        found = f"Python cannot start the process that asks the driver ({driver.detail})"
        yield error(found, INSTALL_HINT, f"{sys.executable} -P -m agent.doctor.probe /dev", facts)
    elif driver.state == "crashed":
        yield error(
            f"the driver's library crashed in {driver.step or 'its start'} ({driver.detail})",
            "reinstall the driver's libraries so that they match the module (see driver.match)",
            _READ_LOG,
            facts,
        )
    elif driver.state == "refused" and case.driver_absent:
        yield skipped(NO_DRIVER, facts)
    elif driver.state == "refused":
        advice = driver_error(driver.code, driver.message)
        yield error(f"nvmlInit fails with {driver.code}: {advice.message}", advice.hint, _READ_LOG, facts)
    else:
        yield ok(f"driver {driver.driver_version} answers and lists {driver.gpu_count} GPU(s)", facts)


def look_at_gpus(case: Case) -> Iterator[DoctorFinding]:
    """Each GPU: on the bus, listed, and able to answer."""
    driver = case.driver
    if driver.state != "ok":
        yield skipped(NO_DRIVER if case.driver_absent else "the driver does not answer (see driver.nvml)")
        return
    yield from _not_listed(case)
    for step in driver.hung:
        gpu, _, call = step.partition(": ")
        yield error(
            f"{gpu}: {call} does not return within {case.options.timeout_s:g} s",
            "drain the host and reset this GPU; `kill -9` on what hangs has frozen hosts",
            f"sudo nvidia-smi --gpu-reset -i {gpu.removeprefix('GPU ')}",
            {"call": call},
            subject=gpu,
        )
    broken = [gpu for gpu in driver.gpus if gpu.error]
    for each in broken:
        yield error(
            f"{each.name}: {each.error}",
            "drain it and reset it; if it comes back like that, power-cycle the host and have the card looked at",
            f"sudo nvidia-smi --gpu-reset -i {each.index}",
            subject=each.uuid or f"GPU {each.index}",
        )
    if not driver.gpu_count and not case.kernel.gpus:
        yield error("the driver is loaded and lists no GPU", "read why in the kernel log", _READ_LOG, {"gpus": 0})
    elif not broken and not driver.hung and driver.gpus:
        models = sorted({gpu.model for gpu in driver.gpus})
        yield ok(
            f"all {driver.gpu_count} GPU(s) answer: {', '.join(models)}", {"gpus": driver.gpu_count, "models": models}
        )


def _not_listed(case: Case) -> Iterator[DoctorFinding]:
    """Cards that should be there and that the driver leaves out: it has dropped them, or they do not start."""
    count, expected = case.driver.gpu_count, case.options.expected_gpus
    if count is None:
        return
    if expected:
        if count < expected:
            yield error(
                f"agent.expected_gpus is {expected}, the driver lists {count}",
                "a card failed to start or fell off the bus: read the kernel log, then power-cycle the host; or correct the setting",
                _READ_LOG,
                {"expected": expected, "listed": count},
                subject="bus",
            )
        return
    on_bus = [gpu for gpu in case.kernel.gpus if gpu.is_hosts_own]
    handed_in_partly = case.host.container and case.host.environment.get("NVIDIA_VISIBLE_DEVICES") != "all"
    if handed_in_partly or len(on_bus) <= count:
        return
    facts: Facts = {"on_bus": [gpu.address for gpu in on_bus], "listed": count}
    dropped = {gpu.address: old for gpu in on_bus if (old := _dropped(case, gpu.device)) is not None}
    what = f"the PCI bus shows {len(on_bus)} GPU(s), the driver lists {count}"
    if dropped:
        names = ", ".join(f"{address} ({generation.name})" for address, generation in dropped.items())
        branch = min(generation.last_branch or 0 for generation in dropped.values())
        yield error(
            f"{what}: driver {case.driver_text} no longer knows {names}",
            f"install driver branch {branch}, the last that knows all of them, and keep this host there",
            "sudo dmesg | grep -i 'legacy\\|not supported by'",
            facts | {"dropped": list(dropped), "last_branch": branch},
            subject="bus",
        )
    else:
        yield error(
            f"{what}",
            "a card failed to start or fell off the bus: read the kernel log, then power-cycle the host",
            _READ_LOG,
            facts,
            subject="bus",
        )


def _dropped(case: Case, device: int) -> CardGeneration | None:
    old, driver = old_generation(device), case.driver_version
    return old if old is not None and driver is not None and driver[0] > (old.last_branch or driver[0]) else None


def look_at_calls(case: Case) -> Iterator[DoctorFinding]:
    """Which of the agent's calls this user is refused."""
    gpus = [gpu for gpu in case.driver.gpus if not gpu.error]
    if not gpus:
        yield skipped(NO_DRIVER if case.driver_absent else "no GPU to ask")
        return
    denied = sorted({call for gpu in gpus for call in gpu.denied})
    unsupported = sorted({call for gpu in gpus for call in gpu.unsupported})
    facts: Facts = {"denied": list(denied), "unsupported": list(unsupported)}
    if denied:
        yield warning(
            f"this user may not call {', '.join(denied)}: what they tell stays unknown",
            "run the agent as a user with the right, or lift the driver's limit on profiling and accounting",
            "cat /proc/driver/nvidia/params",
            facts,
        )
    else:
        unknown = f"; not supported by the card: {', '.join(unsupported)}" if unsupported else ""
        yield ok(f"no call is refused{unknown}", facts)


def look_at_library(case: Case) -> Iterator[DoctorFinding]:
    """Which copy of libnvidia-ml.so.1 the loader takes, and whether others lie about."""
    found = copies(case.host, "libnvidia-ml.so.1")
    real = [copy for copy in found if not copy.stub]
    facts: Facts = {"loaded": case.driver.library, "copies": [str(copy.file) for copy in found]}
    if found and found[0].stub:
        yield error(
            f"the loader takes the toolkit's stub, which only serves linking: {found[0].file}",
            "take the stubs folder out of LD_LIBRARY_PATH (and of /etc/ld.so.conf.d)",
            "echo $LD_LIBRARY_PATH",
            facts,
        )
    elif len({copy.version for copy in real}) > 1:
        versions = ", ".join(f"{copy.file} ({shown(copy.version) if copy.version else '?'})" for copy in real)
        yield warning(
            f"several versions of the library: {versions}",
            "remove what is left of older drivers, so that every program loads the same one",
            "ldconfig -p | grep -E 'libnvidia-ml|libcuda.so'",
            facts,
        )
    elif case.driver.library or real:
        yield ok(f"libnvidia-ml.so.1 is {case.driver.library or real[0].file}", facts)
    elif case.driver_absent:
        yield skipped(NO_DRIVER, facts)
    else:
        yield error(
            "the module is loaded, but the loader finds no libnvidia-ml.so.1",
            "install the driver's libraries of the same version; in a container, ask for the capability `utility`",
            "ldconfig -p | grep libnvidia-ml",
            facts,
        )
