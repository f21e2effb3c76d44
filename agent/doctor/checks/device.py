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
    """Minor numbers of the GPUs by /proc/driver/nvidia/gpus: /dev/nvidia<minor>."""
    found = []
    for path in listed(host.proc / "driver/nvidia/gpus", "*/information"):
        for line in (read(path) or "").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "Device Minor" and value.strip().isdigit():
                found.append(int(value))
    return sorted(found)


def look_at_nodes(case: Case) -> Iterator[DoctorFinding]:
    """Whether /dev has the control node, one node per GPU and the one for CUDA's memory."""
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
        # who answers has its nodes; a container is given those of its own GPUs only, while /proc shows all of them
        missing = [name for name in missing if name == "nvidia-uvm"]
    if not missing:
        yield ok(f"all there: {', '.join(f'/dev/{name}' for name in present)}", facts)
    elif missing == ["nvidia-uvm"]:
        yield _no_uvm(case.host, facts)
    else:
        yield error(
            f"missing: {', '.join(f'/dev/{name}' for name in missing)}",
            "hand the devices into the container"
            if case.host.container
            else "make them; udev or nvidia-modprobe did not",
            "nvidia-smi -L" if case.host.container else _MAKE,
            facts,
        )


def _no_uvm(host: HostFiles, facts: Facts) -> DoctorFinding:
    """Without the node of CUDA's memory: the first CUDA program makes it where nvidia-modprobe has root's rights."""
    missing = "/dev/nvidia-uvm is missing: monitoring works"
    capabilities = host.environment.get("NVIDIA_DRIVER_CAPABILITIES", "")
    if host.container and capabilities and not {"all", "compute"} & set(capabilities.split(",")):
        return warning(
            f"{missing}, CUDA does not: this container has the driver's {capabilities} alone",
            "for CUDA add compute to NVIDIA_DRIVER_CAPABILITIES; for monitoring it is well as it is",
            "env | grep NVIDIA_DRIVER_CAPABILITIES",
            facts,
        )
    fails = f"{missing}, every CUDA program fails with `unknown error` (999)"
    if host.container:
        return error(fails, "hand the device into the container", "ls -l /dev/nvidia*", facts)
    if _setuid(host.at("/usr/bin/nvidia-modprobe")):
        return warning(
            f"{missing}, and the first CUDA program has to make it by nvidia-modprobe",
            "make it now, and at every boot by nvidia-persistenced or `nvidia-modprobe -u`",
            _MAKE_UVM,
            facts,
        )
    return error(
        fails, "make it now, and at every boot by nvidia-persistenced or `nvidia-modprobe -u`", _MAKE_UVM, facts
    )


def _setuid(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & stat.S_ISUID)
    except OSError:
        return False


def look_at_rights(case: Case) -> Iterator[DoctorFinding]:
    """Whether the user may open them, by their mode and in fact."""
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
        yield _closed(user, closed, facts)
    elif case.driver.control_errno == errno.EPERM:
        yield error(
            "the nodes' modes are open, yet the kernel refuses them (EPERM): this container's right to the devices was revoked, "
            "as `systemctl daemon-reload` on the host does",
            "recreate the container; on the host, make the links that keep the right",
            "sudo nvidia-ctk system create-dev-char-symlinks --create-all",
            facts,
        )
    else:
        yield ok(f"{user.name} may open {len(nodes)} device node(s)", facts)


def _closed(user: User, closed: list[Path], facts: Facts) -> DoctorFinding:
    group = group_name(closed[0].stat().st_gid)
    names = ", ".join(str(node) for node in closed)
    if group in ("", "root"):
        return error(
            f"{user.name} may not open {names} (group root)",
            "let the driver make them for everybody (NVreg_DeviceFileMode=0666) or for a group of their own",
            "grep DeviceFile /proc/driver/nvidia/params; ls -l /dev/nvidia*",
            facts,
        )
    return error(
        f"{user.name} may not open {names}",
        f"put {user.name} into the group {group} and log in again (a service has to be restarted)",
        f"sudo usermod -aG {group} {user.name}",
        facts,
    )


_MONITOR = "driver/nvidia/capabilities/mig/monitor"


def look_at_mig(case: Case) -> Iterator[DoctorFinding]:
    """Rights to the monitor capability, and cards that are split into nothing."""
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
    barred = _barred(case, facts)
    if barred is not None:
        yield barred
    elif empty:
        names = ", ".join(gpu.name for gpu in empty)
        yield warning(
            f"MIG is on and has no instance on {names}: no CUDA program can use it",
            "make instances, or turn MIG off",
            f"sudo nvidia-smi mig -i {empty[0].index} -lgip",
            facts,
        )
    else:
        yield ok(f"MIG is on for {len(split)} GPU(s); {facts['instances']} instance(s) can be seen", facts)


def _barred(case: Case, facts: Facts) -> DoctorFinding | None:
    user, minor = find_user(case.options.user), facts["monitor_minor"]
    if user is None or user.uid == 0 or minor is None:
        return None
    node = case.host.dev / f"nvidia-caps/nvidia-cap{minor}"
    if not exists(node):
        return error(
            f"the node of MIG's monitor right, {node}, is missing: only this user's own instances can be seen",
            "make it; in a container, ask for it with NVIDIA_MIG_MONITOR_DEVICES=all",
            f"sudo nvidia-modprobe -f /proc/{_MONITOR}",
            facts,
        )
    if not user.may_read(node):
        return error(
            f"{user.name} may not open {node}, MIG's monitor right: instances of others cannot be seen",
            "let the agent's user read it (the driver sets the mode at load time)",
            f"sudo chmod 444 {node}",
            facts,
        )
    return None


def monitor_minor(host: HostFiles) -> int | None:
    """The minor number of MIG's monitor right, None where the driver has none."""
    for line in (read(host.proc / _MONITOR) or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "DeviceFileMinor" and value.strip().isdigit():
            return int(value)
    return None
