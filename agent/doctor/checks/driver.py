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
    """The module, its flavour, and whether that flavour fits the cards."""
    host, kernel = case.host, case.kernel
    if host.wsl:
        yield skipped("Windows Subsystem for Linux: the driver is Windows' own")
    elif kernel.version is not None:
        yield _loaded(case)
    elif case.driver.driver_version is not None:
        yield ok(f"driver {case.driver.driver_version} answers; its module cannot be seen from here")
    elif host.tegra:
        yield skipped("a Jetson board: the driver comes with its system software")
    elif not case.driver_absent:
        yield skipped("the module cannot be seen from here, though its library is there (see driver.nvml)")
    elif not kernel.gpus:
        yield _no_gpu(host)
    else:
        yield _not_loaded(case)


def _loaded(case: Case) -> DoctorFinding:
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


def _no_gpu(host: HostFiles) -> DoctorFinding:
    if host.container:
        return error(
            f"this container ({host.container}) has no NVIDIA driver",
            "hand the GPUs in: `docker run --gpus all`, a resource limit `nvidia.com/gpu` in Kubernetes, or run on the host",
            "nvidia-smi",
            {"container": host.container},
        )
    return error(
        "there is no NVIDIA GPU on the PCI bus and no driver",
        "check that the card sits in its slot, has power and is handed to this virtual machine",
        "lspci -nn -d 10de:",
        {"gpus_on_bus": 0},
    )


def _not_loaded(case: Case) -> DoctorFinding:
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
            f"{what}: nouveau holds the card", "keep nouveau from loading and reboot", _block_nouveau(host), facts
        )
    if bound <= {"vfio-pci"}:
        return skipped("every GPU is handed to a virtual machine (vfio-pci); look inside that machine", facts)
    return _not_built(case, what, facts) or _refused(host, what, facts)


def _not_built(case: Case, what: str, facts: Facts) -> DoctorFinding | None:
    """The finding where the running kernel has no module; None where it has one."""
    host, built_for = case.host, kernels_with_module(case.host)
    if host.kernel in built_for:
        return None
    if built_for:
        return error(
            f"{what}: it was built for kernel {', '.join(built_for)}, not for the running {host.kernel}",
            "build it for the running kernel; the kernel was upgraded and the headers or DKMS were missing",
            _BUILD.get(host.distribution, _BUILD_ANYWHERE).format(kernel=host.kernel),
            facts | {"built_for": list(built_for)},
        )
    return error(
        f"{what}, and no kernel here has one",
        _which_driver(case),
        (
            {
                "debian": "sudo apt install nvidia-driver",
                "rhel": "sudo dnf install nvidia-open",
                "suse": "sudo zypper install nvidia-open",
            }.get(host.distribution, "lspci -nn -d 10de:")
        ),
        facts,
    )


def _refused(host: HostFiles, what: str, facts: Facts) -> DoctorFinding:
    if secure_boot(host):
        return error(
            f"{what}, and Secure Boot is on: a module that is not signed by a known key is refused "
            "(`Key was rejected by service`)",
            "enrol the key that DKMS signs with (then reboot and confirm), or turn Secure Boot off",
            "sudo mokutil --import /var/lib/dkms/mok.pub",
            facts,
        )
    return error(f"{what}; it is built for this kernel", "load it and read why it fails", _LOAD, facts)


def _which_driver(case: Case) -> str:
    """Old cards need their last branch, all others may have any newer one."""
    old = [found for gpu in case.kernel.gpus if (found := old_generation(gpu.device)) is not None]
    if not old:
        return f"install a driver, branch {compatibility.RECOMMENDED_BRANCH} or newer"
    oldest = min(old, key=lambda generation: generation.last_branch or 0)
    return f"install driver branch {oldest.last_branch}, the last that knows {oldest.name} cards"


def secure_boot(host: HostFiles) -> bool | None:
    """Whether Secure Boot is on, None where the firmware does not say: the variable's last byte."""
    try:
        return host.sys.joinpath(_SECURE_BOOT.lstrip("/")).read_bytes()[-1:] == b"\x01"
    except OSError:
        return None


def kernels_with_module(host: HostFiles) -> list[str]:
    """Releases of the kernels that an nvidia module was built for."""
    return [
        path.parent.name
        for path in host.glob("/lib/modules/*/modules.dep")
        if any("/nvidia.ko" in line.partition(":")[0] for line in (read(path, 1 << 24) or "").splitlines())
    ]


def _block_nouveau(host: HostFiles) -> str:
    rebuild = "sudo update-initramfs -u" if host.distribution == "debian" else "sudo dracut --force"
    return f"echo 'blacklist nouveau' | sudo tee /etc/modprobe.d/no-nouveau.conf && {rebuild} && sudo reboot"


def look_at_match(case: Case) -> Iterator[DoctorFinding]:
    """Whether the libraries on disk belong to the loaded module."""
    if case.kernel.version is None:
        yield skipped("no kernel module to compare with (see driver.module)")
        return

    libraries = versions_of(case.host, "libnvidia-ml.so.1")
    facts: Facts = {"module": case.kernel.version_text, "libraries": [shown(each) for each in libraries]}
    if not libraries:
        yield skipped("the version of the libraries cannot be read from their file names", facts)
    elif libraries[0] == case.kernel.version:
        yield ok(f"kernel module and libraries are both {case.kernel.version_text}", facts)
    else:
        yield _mismatch(case, shown(libraries[0]), facts)


def _mismatch(case: Case, library: str, facts: Facts) -> DoctorFinding:
    what = f"`Driver/library version mismatch`: the loaded module is {case.kernel.version_text}, the library {library}"
    if case.host.container:
        return error(
            f"{what}; this container holds the libraries of another driver",
            "recreate the container, so that it gets the host's libraries again; install no driver inside it",
            "nvidia-smi",
            facts,
        )
    return error(
        f"{what}; the driver was upgraded and the old module is still loaded",
        "stop what uses the GPUs and load the new module, or reboot; keep upgrades from happening by themselves",
        "sudo fuser -v /dev/nvidia*; sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia",
        facts,
    )


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
