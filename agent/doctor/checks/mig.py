"""MIG: may the instances be seen, and are there any?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.doctor.case import NO_DRIVER
from agent.doctor.finding import Facts, Finding, error, ok, skipped, warning
from agent.doctor.host import Host, exists, read
from agent.doctor.users import find_user

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.doctor.case import Case

_MONITOR = "driver/nvidia/capabilities/mig/monitor"


def look(case: Case) -> Iterator[Finding]:
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


def _barred(case: Case, facts: Facts) -> Finding | None:
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


def monitor_minor(host: Host) -> int | None:
    """The minor number of MIG's monitor right, None where the driver has none."""
    for line in (read(host.proc / _MONITOR) or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "DeviceFileMinor" and value.strip().isdigit():
            return int(value)
    return None
