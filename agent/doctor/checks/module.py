"""Is the kernel module loaded, and if not, what stands in its way?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.doctor import catalog
from agent.doctor.case import DoctorFinding, Facts, error, ok, skipped, warning
from agent.doctor.catalog import shown
from agent.doctor.host import read
from agent.doctor.installed import versions_of
from agent.doctor.judge import old_generation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.doctor.case import Case
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
        return capability >= catalog.FIRST_OPEN_CAPABILITY
    return capability < catalog.FIRST_OPEN_ONLY_CAPABILITY


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
    return error(f"{what}, and no kernel here has one", _which_driver(case), _install(host), facts)


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
        return f"install a driver, branch {catalog.RECOMMENDED_BRANCH} or newer"
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


def _install(host: HostFiles) -> str:
    return {
        "debian": "sudo apt install nvidia-driver",
        "rhel": "sudo dnf install nvidia-open",
        "suse": "sudo zypper install nvidia-open",
    }.get(host.distribution, "lspci -nn -d 10de:")


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
