"""The machine around the driver: processes that can be seen, their jobs, other samplers, the clock, containers."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from agent.attribution.lookups import SLUID_REMEDY, SLUIDS_ALONE, ControllerError, ask_controller, unknown_form
from agent.attribution.placement import parse_cgroup, parse_environ
from agent.attribution.proc import read_cgroup, read_environ
from agent.doctor.case import NO_DRIVER, DoctorFinding, Facts, error, ok, skipped, warning
from agent.doctor.host import exists, find_user, listed, read, shown, version

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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


def look_at_namespace(case: Case) -> Iterator[DoctorFinding]:
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


def look_at_samplers(case: Case) -> Iterator[DoctorFinding]:
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


def look_at_persistence(case: Case) -> Iterator[DoctorFinding]:
    """Whether the driver stays loaded while nobody uses a GPU."""
    asked = [gpu for gpu in case.driver.gpus if gpu.persistence is not None]
    if not asked:
        yield skipped(NO_DRIVER if case.driver_absent else "no GPU to ask")
        return
    off = [gpu.index for gpu in asked if not gpu.persistence]
    daemon = any(name == "nvidia-persiste" for _, name, _ in case.host.processes())
    facts: Facts = {"off": [str(index) for index in off], "daemon": daemon}
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


_NOT_BEFORE = datetime(2026, 11, 1, tzinfo=timezone.utc)
"""This software did not exist before."""
_NOT_AFTER = datetime(2056, 1, 1, tzinfo=timezone.utc)


def look_at_clock(case: Case) -> Iterator[DoctorFinding]:
    """The year, and what the kernel says of its synchronisation."""
    now, clock = case.host.now, case.host.clock()
    shown = f"{now:%Y-%m-%d %H:%M} UTC"
    facts: Facts = {
        "now": now.isoformat(timespec="seconds"),
        "synchronised": None if clock is None else clock.synchronised,
        "max_error_s": None if clock is None else clock.max_error_s,
    }
    if not _NOT_BEFORE <= now <= _NOT_AFTER:
        yield error(
            f"the clock says {shown}, which cannot be: rows would go to the wrong days",
            "set it, and keep it set by NTP",
            "sudo timedatectl set-ntp true",
            facts,
        )
    elif clock is None:
        yield skipped(f"it is {shown}; whether the clock is synchronised may not be asked here", facts)
    elif not clock.synchronised:
        yield warning(
            f"it is {shown}, and nothing keeps the clock: rows of several hosts will not line up",
            "run chrony or systemd-timesyncd",
            "timedatectl status",
            facts,
        )
    else:
        yield ok(f"it is {shown}, synchronised within {clock.max_error_s:.2g} s", facts)


_RUNTIMES = ("dockerd", "containerd", "crio", "podman")
_FOLDERS = ("/usr/bin", "/usr/local/bin", "/usr/sbin", "/usr/local/sbin")
_SPECS = ("/etc/cdi/nvidia.yaml", "/var/run/cdi/nvidia.yaml", "/run/cdi/nvidia.yaml", "/etc/cdi/nvidia.json")
_LIBRARY = re.compile(r"lib(?:cuda|nvidia-ml)\.so\.(\d+\.\d+(?:\.\d+)?)")


def look_at_containers(case: Case) -> Iterator[DoctorFinding]:
    """NVIDIA's container toolkit, and the driver version in its CDI specification."""
    host = case.host
    if case.driver_absent:
        yield skipped(NO_DRIVER)
        return
    if host.container:
        yield skipped("this is a container; ask on the host")
        return
    runtimes = [name for name in _RUNTIMES if any(exists(host.at(f"{folder}/{name}")) for folder in _FOLDERS)]
    toolkit = any(exists(host.at(f"{folder}/nvidia-ctk")) for folder in _FOLDERS)
    spec, written = _written_for(case)
    facts: Facts = {"runtimes": runtimes, "toolkit": toolkit, "specification": spec, "written_for": written}
    if not runtimes:
        yield skipped("no container runtime here", facts)
    elif not toolkit:
        yield warning(
            f"{', '.join(runtimes)} here, but not NVIDIA's container toolkit: containers get no GPU",
            "install nvidia-container-toolkit and tell the runtime",
            "nvidia-ctk --version",
            facts,
        )
    elif written and case.driver_version is not None and version(written) != case.driver_version:
        yield error(
            f"{spec} is written for driver {written}, here is {shown(case.driver_version)}: containers fail to start "
            "(`failed to fulfil mount request`)",
            "write it again after every change of the driver",
            f"sudo nvidia-ctk cdi generate --output={spec}",
            facts,
        )
    else:
        yield ok(f"NVIDIA's container toolkit beside {', '.join(runtimes)}", facts)


def _written_for(case: Case) -> tuple[str, str]:
    """(path, driver version) of the CDI specification; empty texts where there is none."""
    for path in _SPECS:
        text = read(case.host.at(path), 1 << 22)
        if text is not None:
            match = _LIBRARY.search(text)
            return path, match[1] if match else ""
    return "", ""


def look_at_jobs(case: Case) -> Iterator[DoctorFinding]:
    """Jobs that only a SLUID names, and paths of an unknown form; a host without such processes hears nothing."""
    sluids: dict[str, list[Path]] = {}
    strange: dict[str, str] = {}
    for folder in listed(case.host.proc, "[0-9]*"):
        placement = parse_cgroup(read_cgroup(str(folder)) or "")
        if placement.slurm_sluid is not None:
            sluids.setdefault(placement.slurm_sluid, []).append(folder)
        if placement.unknown_form is not None:
            strange.setdefault(*placement.unknown_form)
    for scheduler, path in strange.items():
        yield warning(
            unknown_form(scheduler, path),
            "report the path, so that fallow learns the form",
            "cat /proc/*/cgroup | sort | uniq -c",
            {"scheduler": scheduler, "path": path},
            subject=scheduler,
        )
    if sluids:
        yield _judge_sluids(case, sluids)


def _judge_sluids(case: Case, sluids: dict[str, list[Path]]) -> DoctorFinding:
    """One answer for all jobs: what tells the job of the first tells those of the others."""
    folders = next(iter(sluids.values()))
    sluid = next(iter(sluids))
    facts: Facts = {"jobs": len(sluids), "scontrol": _is_known_to_scontrol(case, sluid)}
    facts["environment"] = any(_names_job(case, folder) for folder in folders)
    if facts["scontrol"] or facts["environment"]:
        source = "scontrol" if facts["scontrol"] else "the environment"
        return ok(f"cgroup paths name Slurm jobs by SLUID, and {source} tells the job ids", facts, subject="SLUID")
    return warning(SLUIDS_ALONE, SLUID_REMEDY, f"scontrol show job {sluid}", facts, subject="SLUID")


def _is_known_to_scontrol(case: Case, sluid: str) -> bool:
    command = case.options.scontrol
    try:
        return bool(command) and ask_controller(command, sluid, case.options.timeout_s).job_id is not None
    except (ControllerError, FileNotFoundError):
        return False


def _names_job(case: Case, folder: Path) -> bool:
    """Whether the agent's user may read a job id in the environment of this process: root's, or the user's own."""
    user = find_user(case.options.user)
    try:
        if user is None or user.uid not in (0, folder.stat().st_uid):
            return False
    except OSError:
        return False
    return parse_environ(read_environ(str(folder)) or b"").slurm_job_id is not None
