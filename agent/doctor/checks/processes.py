"""Which processes can be seen, and which of them watch the same GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.doctor.case import NO_DRIVER
from agent.doctor.finding import Facts, Finding, ok, skipped, warning
from agent.doctor.host import read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.doctor.case import Case

_SHARE_PIDS = {
    "kubernetes": "kubectl explain pod.spec.hostPID",
    "docker": "docker run --pid=host",
    "podman": "podman run --pid=host",
}
_SAMPLERS = {
    "nv-hostengine": "DCGM's host engine",
    "dcgm-exporter": "DCGM exporter",
    "nvidia_gpu_exporter": "nvidia_gpu_exporter",
    "nvitop-exporter": "nvitop-exporter",
    "gpustat": "gpustat",
    "nvtop": "nvtop",
    "omnistat-monitor": "omnistat",
    "gcm": "gcm",
}
_COMM_LENGTH = 15
_PROFILERS = ("nsys", "ncu", "nv-nsight-cu-cli")


def look_at_namespace(case: Case) -> Iterator[Finding]:
    """Whether the driver's process lists will be whole, and whether their owners can be read."""
    initial = case.host.initial_pid_namespace
    hidden = _hidepid(read(case.host.proc / "mounts") or "")
    said = case.options.sees_all_processes
    facts: Facts = {"initial_namespace": initial, "hidepid": hidden, "container": case.host.container, "setting": said}
    if said == "yes" or (said == "auto" and initial):
        if hidden:
            yield warning(
                f"/proc is mounted with hidepid={hidden}: users and names of other people's processes stay unknown",
                "let the agent's group see them (mount option gid=), or run the agent as root",
                "findmnt -no OPTIONS /proc",
                facts,
            )
        else:
            yield ok("every process of this machine can be seen", facts)
    elif initial is None:
        yield skipped("/proc does not tell the PID namespace", facts)
    else:
        yield warning(
            "this is not the host's PID namespace: the driver hides other people's processes, so who holds a GPU stays unknown",
            "share the host's PID namespace; where this namespace holds all users of the GPUs, set agent.sees_all_processes = 'yes'",
            _SHARE_PIDS.get(case.host.container, "docker run --pid=host"),
            facts,
        )


def _hidepid(mounts: str) -> str:
    """The value of /proc's hidepid option where it hides anything, else empty."""
    for line in mounts.splitlines():
        _, place, kind, options, *_ = [*line.split(), "", "", "", ""]
        if place == "/proc" and kind == "proc":
            values = [option.removeprefix("hidepid=") for option in options.split(",") if option.startswith("hidepid=")]
            return next((value for value in values if value not in ("0", "off")), "")
    return ""


def look_at_samplers(case: Case) -> Iterator[Finding]:
    """Other collectors and profilers at work on this host."""
    found, profilers = [], []
    for pid, name, command in case.host.processes():
        program = command.split(" ", 1)[0].rpartition("/")[2] or name
        for known, what in _SAMPLERS.items():
            if program == known or name == known[:_COMM_LENGTH]:
                found.append(f"{what} (pid {pid})")
        if program in _PROFILERS or name in _PROFILERS:
            profilers.append(f"{name} (pid {pid})")
    facts: Facts = {"samplers": list(found), "profilers": list(profilers)}
    if not found and not profilers:
        yield ok("no other collector runs here", facts)
        return
    who = ", ".join([*found, *profilers])
    yield warning(
        f"also at work here: {who}; fallow lives beside them and takes no lock on the profiling counters, but each collector "
        "asks the driver on its own and costs its share",
        "keep one of them where two tell the same; DCGM's profiling metrics and Nsight exclude one another",
        "nvidia-smi; ps -fC nv-hostengine,dcgm-exporter",
        facts,
    )


def look_at_persistence(case: Case) -> Iterator[Finding]:
    """Whether the driver stays loaded while nobody uses a GPU."""
    asked = [gpu for gpu in case.driver.gpus if gpu.persistence is not None]
    if not asked:
        yield skipped(NO_DRIVER if case.driver_absent else "no GPU to ask")
        return
    off = [gpu.index for gpu in asked if not gpu.persistence]
    daemon = any(name == "nvidia-persiste" for _, name, _ in case.host.processes())
    facts: Facts = {
        "off": [str(index) for index in off],
        "daemon": daemon,
    }
    if off:
        yield warning(
            f"persistence mode is off on GPU {', '.join(map(str, off))}: whenever the last program ends, the card is shut "
            "down; the next start takes seconds, and counters of energy and errors begin anew",
            "start the persistence daemon, now and at every boot",
            "sudo systemctl enable --now nvidia-persistenced",
            facts,
        )
    else:
        yield ok(f"persistence mode is on for {len(asked)} GPU(s)", facts)
