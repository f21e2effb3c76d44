"""Device nodes, whether the user may open them, and MIG instances."""

from __future__ import annotations

import errno
import stat
from typing import TYPE_CHECKING

from agent.doctor.case import NO_DRIVER, DoctorFinding, Facts, error, ok, skipped, warning
from agent.doctor.host import HostFiles, User, exists, find_user, group_name, listed, read

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent.doctor.case import Case

_MAKE = "sudo nvidia-modprobe -c 0 -u"
_MAKE_UVM = "sudo nvidia-modprobe -u -c 0"


def minors(host: HostFiles) -> list[int]:
    """Return the minor numbers of the GPUs (/dev/nvidia<minor>), from /proc/driver/nvidia/gpus."""
    files = listed(host.proc / "driver/nvidia/gpus", "*/information")
    return sorted(number for path in files for number in _numbers(path, "Device Minor"))


def _numbers(path: Path, name: str) -> list[int]:
    """Return the numbers behind `NAME:` in a file of the driver."""
    entries = (line.partition(":") for line in (read(path) or "").splitlines())
    return [int(value) for key, _, value in entries if key.strip() == name and value.strip().isdigit()]


def look_at_nodes(case: Case) -> Iterator[DoctorFinding]:
    """Yield whether /dev has the control node, one node per GPU and the node for CUDA's memory."""
    if case.host.wsl:
        yield skipped("Windows Subsystem for Linux uses /dev/dxg")
        return
    if case.driver_absent:
        yield skipped(NO_DRIVER)
        return
    dev = case.host.dev
    wanted = ["nvidiactl", *(f"nvidia{minor}" for minor in minors(case.host)), "nvidia-uvm"]
    missing = [name for name in wanted if not exists(dev / name)]
    present = [name for name in wanted if name not in missing]
    facts: Facts = {"present": list(present), "missing": list(missing)}
    if case.driver.state == "ok":
        # a driver that answers has its nodes; a container has nodes of its own GPUs only, while /proc shows all GPUs
        missing = [name for name in missing if name == "nvidia-uvm"]
    if not missing:
        yield ok(f"all device nodes exist: {', '.join(f'/dev/{name}' for name in present)}", facts)
    elif missing == ["nvidia-uvm"]:
        yield _missing_uvm_finding(case.host, facts)
    else:
        yield error(
            f"missing: {', '.join(f'/dev/{name}' for name in missing)}",
            "pass the devices into the container"
            if case.host.container
            else "create the nodes; neither udev nor nvidia-modprobe did",
            "nvidia-smi -L" if case.host.container else _MAKE,
            facts,
        )


def _missing_uvm_finding(host: HostFiles, facts: Facts) -> DoctorFinding:
    """Return the finding for a missing /dev/nvidia-uvm; a setuid nvidia-modprobe creates it for CUDA's first use."""
    missing = "/dev/nvidia-uvm is missing: monitoring is not affected"
    capabilities = host.environment.get("NVIDIA_DRIVER_CAPABILITIES", "")
    if host.container and capabilities and not {"all", "compute"} & set(capabilities.split(",")):
        return warning(
            f"{missing}, but CUDA fails: this container has only the driver capabilities {capabilities}",
            "add compute to NVIDIA_DRIVER_CAPABILITIES if programs need CUDA; monitoring needs no change",
            "env | grep NVIDIA_DRIVER_CAPABILITIES",
            facts,
        )
    fails = f"{missing}, but every CUDA program fails with `unknown error` (999)"
    if host.container:
        return error(fails, "pass the device into the container", "ls -l /dev/nvidia*", facts)
    if _is_setuid(host.at("/usr/bin/nvidia-modprobe")):
        return warning(
            f"{missing}, but the first CUDA program has to create it through nvidia-modprobe",
            "create it now, and at every boot with nvidia-persistenced or `nvidia-modprobe -u`",
            _MAKE_UVM,
            facts,
        )
    return error(
        fails, "create it now, and at every boot with nvidia-persistenced or `nvidia-modprobe -u`", _MAKE_UVM, facts
    )


def _is_setuid(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & stat.S_ISUID)
    except OSError:
        return False


def look_at_rights(case: Case) -> Iterator[DoctorFinding]:
    """Yield whether the user may open the device nodes, by their mode and by opening the control node."""
    user = find_user(case.options.user)
    nodes = [
        node for node in listed(case.host.dev, "nvidia*") if node.name[6:] in ("ctl", "-uvm") or node.name[6:].isdigit()
    ]
    if user is None:
        yield error(f"there is no user {case.options.user}", "check --user", f"getent passwd {case.options.user}")
        return
    if not nodes:
        yield skipped("no device nodes to open (see device.nodes)" if not case.driver_absent else NO_DRIVER)
        return
    closed = [node for node in nodes if not user.may_use(node)]
    facts: Facts = {"user": user.name, "control_errno": case.driver.control_errno, "closed": [str(n) for n in closed]}
    if closed:
        yield _rights_error(user, closed, facts)
    elif case.driver.control_errno == errno.EPERM:
        yield error(
            "the modes of the nodes allow access, but the kernel refuses it (EPERM): this container lost its device"
            " access, for example through `systemctl daemon-reload` on the host",
            "recreate the container; on the host, create the links that preserve device access",
            "sudo nvidia-ctk system create-dev-char-symlinks --create-all",
            facts,
        )
    else:
        yield ok(f"{user.name} may open {len(nodes)} device node(s)", facts)


def _rights_error(user: User, closed: list[Path], facts: Facts) -> DoctorFinding:
    group = group_name(closed[0].stat().st_gid)
    names = ", ".join(str(node) for node in closed)
    if group in ("", "root"):
        return error(
            f"{user.name} may not open {names} (group root)",
            "let the driver create them for all users (NVreg_DeviceFileMode=0666) or for a dedicated group",
            "grep DeviceFile /proc/driver/nvidia/params; ls -l /dev/nvidia*",
            facts,
        )
    return error(
        f"{user.name} may not open {names}",
        f"add {user.name} to the group {group} and log in again (restart a service)",
        f"sudo usermod -aG {group} {user.name}",
        facts,
    )


_MONITOR = "driver/nvidia/capabilities/mig/monitor"


def look_at_mig(case: Case) -> Iterator[DoctorFinding]:
    """Yield whether the user may see all MIG instances, and cards in MIG mode without an instance."""
    split = [gpu for gpu in case.driver.gpus if gpu.mig]
    if not case.driver.gpus:
        yield skipped(NO_DRIVER if case.driver_absent else "no GPU to ask")
        return
    if not split:
        yield skipped("MIG is off on every GPU")
        return
    empty = [gpu for gpu in split if gpu.mig_instances == 0]
    facts: Facts = {
        "gpus": [gpu.uuid for gpu in split],
        "instances": sum(gpu.mig_instances or 0 for gpu in split),
        "monitor_minor": monitor_minor(case.host),
    }
    barred = _mig_rights_error(case, facts)
    if barred is not None:
        yield barred
    elif empty:
        names = ", ".join(gpu.name for gpu in empty)
        yield warning(
            f"MIG is on without an instance on {names}: no CUDA program can use the card",
            "create instances, or turn MIG off",
            f"sudo nvidia-smi mig -i {empty[0].index} -lgip",
            facts,
        )
    else:
        yield ok(f"MIG is on for {len(split)} GPU(s); {facts['instances']} instance(s) are visible", facts)


def _mig_rights_error(case: Case, facts: Facts) -> DoctorFinding | None:
    user, minor = find_user(case.options.user), facts["monitor_minor"]
    if user is None or user.uid == 0 or minor is None:
        return None
    node = case.host.dev / f"nvidia-caps/nvidia-cap{minor}"
    if not exists(node):
        return error(
            f"{node}, the node of MIG's monitor capability, is missing: only this user's own instances are visible",
            "create the node; in a container, request it with NVIDIA_MIG_MONITOR_DEVICES=all",
            f"sudo nvidia-modprobe -f /proc/{_MONITOR}",
            facts,
        )
    if not user.may_read(node):
        return error(
            f"{user.name} may not open {node}, MIG's monitor capability: instances of other users are not visible",
            "let the agent's user read the node (the driver sets its mode when it loads)",
            f"sudo chmod 444 {node}",
            facts,
        )
    return None


def monitor_minor(host: HostFiles) -> int | None:
    """Return the minor number of MIG's monitor capability; None where the driver has none."""
    return next(iter(_numbers(host.proc / _MONITOR, "DeviceFileMinor")), None)
