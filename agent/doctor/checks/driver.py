"""Is the kernel module loaded, does the driver answer, through which library, and does each GPU?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from agent.doctor import compatibility
from agent.doctor.case import NO_DRIVER, DoctorFinding, Facts, error, ok, skipped, warning
from agent.doctor.compatibility import old_generation
from agent.doctor.host import copies, read, shown, versions_of
from agent.nvml.installation import INSTALL_HINT, driver_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.doctor.case import Case
    from agent.doctor.compatibility import CardGeneration
    from agent.doctor.host import HostFiles

_BUILD = {
    "debian": "sudo apt install linux-headers-{kernel} && sudo dkms autoinstall -k {kernel} && sudo modprobe nvidia",
    "rhel": "sudo dnf install kernel-devel-{kernel} && sudo dkms autoinstall -k {kernel} && sudo modprobe nvidia",
}
_BUILD_ANYWHERE = "sudo dkms autoinstall -k {kernel} && sudo modprobe nvidia"
_LOAD = "sudo modprobe nvidia; sudo dmesg | grep -iE 'nvrm|nvidia' | tail -20"
_SECURE_BOOT = "/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


def look_at_module(case: Case) -> Iterator[DoctorFinding]:
    """Yield whether the kernel module is loaded, its flavour, and whether that flavour supports the cards."""
    host, kernel = case.host, case.kernel
    if host.wsl:
        yield skipped("Windows Subsystem for Linux uses the driver of Windows")
    elif kernel.version is not None:
        yield _loaded_module_finding(case)
    elif case.driver.driver_version is not None:
        yield ok(f"driver {case.driver.driver_version} answers; its kernel module is not visible from here")
    elif host.tegra:
        yield skipped("this is a Jetson board: its driver is part of the system software")
    elif not case.driver_absent:
        yield skipped("the driver's library exists, but its kernel module is not visible from here (see driver.nvml)")
    elif not kernel.gpus:
        yield _no_gpu_error(host)
    else:
        yield _module_not_loaded_finding(case)


def _loaded_module_finding(case: Case) -> DoctorFinding:
    kernel = case.kernel
    flavour = {True: "open", False: "proprietary", None: "unknown"}[kernel.open_flavour]
    facts: Facts = {"version": kernel.version_text, "flavour": flavour, "kernel": case.host.kernel}
    strangers = [gpu.address for gpu in kernel.gpus if gpu.driver in ("nouveau", "nova", "nova_core")]
    if strangers:
        return error(
            f"nvidia {kernel.version_text} is loaded, but nouveau holds {', '.join(strangers)}",
            "keep nouveau from loading and reboot",
            _block_nouveau(case.host),
            facts,
        )
    wrong = [gpu.name for gpu in case.driver.gpus if not _fits(gpu.capability, open_flavour=kernel.open_flavour)]
    if wrong:
        return warning(
            f"the {flavour} kernel module does not support {', '.join(wrong)}",
            "install the other flavour: open for Turing and newer, proprietary for older cards",
            "cat /proc/driver/nvidia/version; sudo dmesg | grep -i nvrm | tail -5",
            facts,
        )
    how = {True: ", open kernel module", False: ", proprietary kernel module", None: ""}[kernel.open_flavour]
    return ok(f"nvidia {kernel.version_text}{how}", facts)


def _fits(capability: tuple[int, int] | None, *, open_flavour: bool | None) -> bool:
    if capability is None or open_flavour is None:
        return True
    if open_flavour:
        return capability >= compatibility.FIRST_OPEN_CAPABILITY
    return capability < compatibility.FIRST_OPEN_ONLY_CAPABILITY


def _no_gpu_error(host: HostFiles) -> DoctorFinding:
    if host.container:
        return error(
            f"this container ({host.container}) has no NVIDIA driver",
            "pass GPUs into it: `docker run --gpus all`, or in Kubernetes a resource limit `nvidia.com/gpu`; or run on"
            " the host",
            "nvidia-smi",
            {"container": host.container},
        )
    return error(
        "the PCI bus shows no NVIDIA GPU, and no driver is installed",
        "check that the card is seated, has power and is passed through to this virtual machine",
        "lspci -nn -d 10de:",
        {"gpus_on_bus": 0},
    )


def _module_not_loaded_finding(case: Case) -> DoctorFinding:
    host = case.host
    facts: Facts = {
        "gpus_on_bus": len(case.kernel.gpus),
        "bound_to": sorted({gpu.driver or "nothing" for gpu in case.kernel.gpus}),
        "kernel": host.kernel,
        "secure_boot": secure_boot(host),
    }
    what = f"{len(case.kernel.gpus)} GPU(s) on the PCI bus, but the nvidia kernel module is not loaded"
    bound = {gpu.driver for gpu in case.kernel.gpus}
    if "nouveau" in bound:
        return error(
            f"{what}: the nouveau driver uses the card",
            "prevent nouveau from loading, and reboot",
            _block_nouveau(host),
            facts,
        )
    if bound <= {"vfio-pci"}:
        return skipped(
            "every GPU is passed through to a virtual machine (vfio-pci); run the doctor inside that machine", facts
        )
    return _module_not_built_error(case, what, facts) or _module_refused_error(host, what, facts)


def _module_not_built_error(case: Case, what: str, facts: Facts) -> DoctorFinding | None:
    """Return the error where the running kernel has no module; None where it has a module."""
    host, built_for = case.host, kernels_with_module(case.host)
    if host.kernel in built_for:
        return None
    if built_for:
        return error(
            f"{what}: it was built for kernel {', '.join(built_for)}, but kernel {host.kernel} is running",
            "build the module for the running kernel; a kernel upgrade without its headers or DKMS left it out",
            _BUILD.get(host.distribution, _BUILD_ANYWHERE).format(kernel=host.kernel),
            facts | {"built_for": list(built_for)},
        )
    return error(
        f"{what}, and no installed kernel has it",
        _driver_advice(case),
        (
            {
                "debian": "sudo apt install nvidia-driver",
                "rhel": "sudo dnf install nvidia-open",
                "suse": "sudo zypper install nvidia-open",
            }.get(host.distribution, "lspci -nn -d 10de:")
        ),
        facts,
    )


def _module_refused_error(host: HostFiles, what: str, facts: Facts) -> DoctorFinding:
    if secure_boot(host):
        return error(
            f"{what}, and Secure Boot is on, which refuses a module without a known signature "
            "(`Key was rejected by service`)",
            "enrol the key that DKMS signs with (then reboot and confirm), or turn Secure Boot off",
            "sudo mokutil --import /var/lib/dkms/mok.pub",
            facts,
        )
    return error(
        f"{what}, although it was built for this kernel", "load the module and read why it fails", _LOAD, facts
    )


def _driver_advice(case: Case) -> str:
    """Return the advice which driver to install: old cards need the last branch that supports them."""
    old = [found for gpu in case.kernel.gpus if (found := old_generation(gpu.device)) is not None]
    if not old:
        return f"install a driver, branch {compatibility.RECOMMENDED_BRANCH} or newer"
    oldest = min(old, key=lambda generation: generation.last_branch or 0)
    return f"install driver branch {oldest.last_branch}, the last that supports {oldest.name} cards"


def secure_boot(host: HostFiles) -> bool | None:
    """Return whether Secure Boot is on, from the last byte of the firmware's variable; None where it is unreadable."""
    try:
        return host.sys.joinpath(_SECURE_BOOT.lstrip("/")).read_bytes()[-1:] == b"\x01"
    except OSError:
        return None


def kernels_with_module(host: HostFiles) -> list[str]:
    """Return the releases of the kernels for which an nvidia module was built."""
    return [
        path.parent.name
        for path in host.glob("/lib/modules/*/modules.dep")
        if any("/nvidia.ko" in line.partition(":")[0] for line in (read(path, 1 << 24) or "").splitlines())
    ]


def _block_nouveau(host: HostFiles) -> str:
    rebuild = "sudo update-initramfs -u" if host.distribution == "debian" else "sudo dracut --force"
    return f"echo 'blacklist nouveau' | sudo tee /etc/modprobe.d/no-nouveau.conf && {rebuild} && sudo reboot"


def look_at_match(case: Case) -> Iterator[DoctorFinding]:
    """Yield whether the libraries on disk have the version of the loaded module."""
    if case.kernel.version is None:
        yield skipped("there is no kernel module to compare with (see driver.module)")
        return

    libraries = versions_of(case.host, "libnvidia-ml.so.1")
    facts: Facts = {"module": case.kernel.version_text, "libraries": [shown(each) for each in libraries]}
    if not libraries:
        yield skipped("the file names of the libraries do not show their version", facts)
    elif libraries[0] == case.kernel.version:
        yield ok(f"kernel module and libraries both have version {case.kernel.version_text}", facts)
    else:
        yield _mismatch_error(case, shown(libraries[0]), facts)


def _mismatch_error(case: Case, library: str, facts: Facts) -> DoctorFinding:
    what = (
        f"`Driver/library version mismatch`: the loaded module has version {case.kernel.version_text}, the library"
        f" {library}"
    )
    if case.host.container:
        return error(
            f"{what}; this container contains the libraries of another driver",
            "recreate the container, so that it gets the host's libraries; do not install a driver inside it",
            "nvidia-smi",
            facts,
        )
    return error(
        f"{what}; the driver was upgraded and the old module is still loaded",
        "stop the programs on the GPUs and load the new module, or reboot; switch off automatic driver upgrades",
        "sudo fuser -v /dev/nvidia*; sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia",
        facts,
    )


_READ_LOG = "sudo dmesg -T | grep -iE 'nvrm|xid' | tail -20"


def look_at_driver(case: Case) -> Iterator[DoctorFinding]:
    """Yield whether nvmlInit succeeds within the timeout."""
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
            f"{driver.step} did not return within {case.options.timeout_s:g} s",
            "read the kernel log; a driver that blocks needs a GPU reset or a reboot; do not use `kill -9` on the "
            "blocked process, which has frozen hosts",
            _READ_LOG,
            facts,
        )
    elif driver.state == "crashed" and not driver.step and driver.detail.startswith("exit code"):
        found = f"Python cannot start the process that queries the driver ({driver.detail})"
        yield error(found, INSTALL_HINT, f"{sys.executable} -P -m agent.doctor.probe /dev", facts)
    elif driver.state == "crashed":
        yield error(
            f"the driver's library crashed in {driver.step or 'startup'} ({driver.detail})",
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
    """Yield for each GPU whether the bus shows it, the driver lists it, and it answers."""
    driver = case.driver
    if driver.state != "ok":
        yield skipped(NO_DRIVER if case.driver_absent else "the driver does not answer (see driver.nvml)")
        return
    yield from _missing_gpu_errors(case)
    for step in driver.hung:
        gpu, _, call = step.partition(": ")
        yield error(
            f"{gpu}: {call} did not return within {case.options.timeout_s:g} s",
            "drain the host and reset this GPU; do not use `kill -9` on the blocked process, which has frozen hosts",
            f"sudo nvidia-smi --gpu-reset -i {gpu.removeprefix('GPU ')}",
            {"call": call},
            subject=gpu,
        )
    broken = [gpu for gpu in driver.gpus if gpu.error]
    for each in broken:
        yield error(
            f"{each.name}: {each.error}",
            "drain this GPU and reset it; if the error returns, power-cycle the host and have the card inspected",
            f"sudo nvidia-smi --gpu-reset -i {each.index}",
            subject=each.uuid or f"GPU {each.index}",
        )
    if not driver.gpu_count and not case.kernel.gpus:
        yield error(
            "the driver is loaded but lists no GPU", "read the reason in the kernel log", _READ_LOG, {"gpus": 0}
        )
    elif not broken and not driver.hung and driver.gpus:
        models = sorted({gpu.model for gpu in driver.gpus})
        yield ok(
            f"all {driver.gpu_count} GPU(s) answer: {', '.join(models)}", {"gpus": driver.gpu_count, "models": models}
        )


def _missing_gpu_errors(case: Case) -> Iterator[DoctorFinding]:
    """Yield an error for GPUs missing from the driver's list: it dropped the card, or the card failed to start."""
    count, expected = case.driver.gpu_count, case.options.expected_gpus
    if count is None:
        return
    if expected:
        if count < expected:
            yield error(
                f"agent.expected_gpus is {expected}, but the driver lists {count}",
                "a card failed to start or fell off the bus: read the kernel log, then power-cycle the host; or correct"
                " the setting",
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
    dropped = {gpu.address: old for gpu in on_bus if (old := _dropping_generation(case, gpu.device)) is not None}
    what = f"the PCI bus shows {len(on_bus)} GPU(s), but the driver lists {count}"
    if dropped:
        names = ", ".join(f"{address} ({generation.name})" for address, generation in dropped.items())
        branch = min(generation.last_branch or 0 for generation in dropped.values())
        yield error(
            f"{what}: driver {case.driver_text} no longer supports {names}",
            f"install driver branch {branch}, the last that supports all these cards, and keep this host at that"
            " branch",
            "sudo dmesg | grep -i 'legacy\\|not supported by'",
            facts | {"dropped": list(dropped), "last_branch": branch},
            subject="bus",
        )
    else:
        yield error(
            what,
            "a card failed to start or fell off the bus: read the kernel log, then power-cycle the host",
            _READ_LOG,
            facts,
            subject="bus",
        )


def _dropping_generation(case: Case, device: int) -> CardGeneration | None:
    old, driver = old_generation(device), case.driver_version
    return old if old is not None and driver is not None and driver[0] > (old.last_branch or driver[0]) else None


def look_at_calls(case: Case) -> Iterator[DoctorFinding]:
    """Yield which of the agent's calls the driver refuses to this user."""
    gpus = [gpu for gpu in case.driver.gpus if not gpu.error]
    if not gpus:
        yield skipped(NO_DRIVER if case.driver_absent else "no GPU to ask")
        return
    denied = sorted({call for gpu in gpus for call in gpu.denied})
    unsupported = sorted({call for gpu in gpus for call in gpu.unsupported})
    facts: Facts = {"denied": list(denied), "unsupported": list(unsupported)}
    if denied:
        yield warning(
            f"this user may not call {', '.join(denied)}: the values that they return stay unknown",
            "run the agent as a user who may call them, or lift the driver's restriction on profiling and accounting",
            "cat /proc/driver/nvidia/params",
            facts,
        )
    else:
        unknown = f"; the card does not support: {', '.join(unsupported)}" if unsupported else ""
        yield ok(f"the driver refuses no call{unknown}", facts)


def look_at_library(case: Case) -> Iterator[DoctorFinding]:
    """Yield which copy of libnvidia-ml.so.1 the loader uses, and whether there are copies of other versions."""
    found = copies(case.host, "libnvidia-ml.so.1")
    real = [copy for copy in found if not copy.stub]
    facts: Facts = {"loaded": case.driver.library, "copies": [str(copy.file) for copy in found]}
    if found and found[0].stub:
        yield error(
            f"the loader uses the toolkit's stub, which is for linking only: {found[0].file}",
            "remove the stubs folder from LD_LIBRARY_PATH (and from /etc/ld.so.conf.d)",
            "echo $LD_LIBRARY_PATH",
            facts,
        )
    elif len({copy.version for copy in real}) > 1:
        versions = ", ".join(f"{copy.file} ({shown(copy.version) if copy.version else '?'})" for copy in real)
        yield warning(
            f"several versions of the library are installed: {versions}",
            "remove the libraries of older drivers, so that every program loads the same version",
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
            "install the driver's libraries of the same version; in a container, request the capability `utility`",
            "ldconfig -p | grep libnvidia-ml",
            facts,
        )
