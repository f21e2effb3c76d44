"""Checks of the machine around the driver: visible processes, their jobs, other samplers, the clock, containers."""

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
    """Yield whether the driver's process lists are complete, and whether the users of the processes are readable."""
    initial = case.host.initial_pid_namespace
    hidden = _hidepid_value(read(case.host.proc / "mounts") or "")
    setting = case.options.sees_all_processes
    facts: Facts = {
        "initial_namespace": initial,
        "hidepid": hidden,
        "container": case.host.container,
        "setting": setting,
    }
    if setting == "yes" or (setting == "auto" and initial):
        if hidden:
            yield warning(
                f"/proc is mounted with hidepid={hidden}: users and names of other users' processes stay unknown",
                "give the agent's group access (mount option gid=), or run the agent as root",
                "findmnt -no OPTIONS /proc",
                facts,
            )
        else:
            yield ok("every process of this machine is visible", facts)
    elif initial is None:
        yield skipped("/proc does not show the PID namespace", facts)
    else:
        yield warning(
            "this is not the host's PID namespace: the driver hides processes outside it, so the user of a GPU stays"
            " unknown",
            "share the host's PID namespace; if all processes on the GPUs run in this namespace, set"
            " agent.sees_all_processes = 'yes'",
            _SHARE_PIDS.get(case.host.container, "docker run --pid=host"),
            facts,
        )


def _hidepid_value(mounts: str) -> str:
    """Return the value of /proc's hidepid option where it hides processes, else an empty text."""
    for line in mounts.splitlines():
        _, place, kind, options, *_ = [*line.split(), "", "", "", ""]
        if place == "/proc" and kind == "proc":
            values = [option.removeprefix("hidepid=") for option in options.split(",") if option.startswith("hidepid=")]
            return next((value for value in values if value not in ("0", "off")), "")
    return ""


def look_at_samplers(case: Case) -> Iterator[DoctorFinding]:
    """Yield the other collectors and profilers that run on this host."""
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
        f"also running here: {who}; fallow can run beside them and does not lock the profiling counters, "
        "but every collector queries the driver and has its own cost",
        "stop a collector whose data another also collects; DCGM's profiling metrics and Nsight exclude each other",
        "nvidia-smi; ps -fC nv-hostengine,dcgm-exporter",
        facts,
    )


def look_at_persistence(case: Case) -> Iterator[DoctorFinding]:
    """Yield whether the driver stays loaded while no program uses a GPU."""
    asked = [gpu for gpu in case.driver.gpus if gpu.persistence is not None]
    if not asked:
        yield skipped(NO_DRIVER if case.driver_absent else "no GPU to ask")
        return
    off = [gpu.index for gpu in asked if not gpu.persistence]
    daemon = any(name == "nvidia-persiste" for _, name, _ in case.host.processes())
    facts: Facts = {"off": [str(index) for index in off], "daemon": daemon}
    if off:
        yield warning(
            f"persistence mode is off on GPU {', '.join(map(str, off))}: when the last program ends, the driver shuts"
            " the card down; the next start takes seconds, and counters of energy and errors restart at 0",
            "start the persistence daemon, now and at every boot",
            "sudo systemctl enable --now nvidia-persistenced",
            facts,
        )
    else:
        yield ok(f"persistence mode is on for {len(asked)} GPU(s)", facts)


_NOT_BEFORE = datetime(2026, 11, 1, tzinfo=timezone.utc)
"""fallow did not exist before this date."""
_NOT_AFTER = datetime(2056, 1, 1, tzinfo=timezone.utc)


def look_at_clock(case: Case) -> Iterator[DoctorFinding]:
    """Yield whether the date is plausible and whether the kernel's clock is synchronised."""
    now, clock = case.host.now, case.host.clock()
    shown = f"{now:%Y-%m-%d %H:%M} UTC"
    facts: Facts = {
        "now": now.isoformat(timespec="seconds"),
        "synchronised": None if clock is None else clock.synchronised,
        "max_error_s": None if clock is None else clock.max_error_s,
    }
    if not _NOT_BEFORE <= now <= _NOT_AFTER:
        yield error(
            f"the clock shows {shown}, which is impossible: rows would go to the wrong days",
            "set the clock, and keep it correct with NTP",
            "sudo timedatectl set-ntp true",
            facts,
        )
    elif clock is None:
        yield skipped(f"it is {shown}; this process may not ask whether the clock is synchronised", facts)
    elif not clock.synchronised:
        yield warning(
            f"it is {shown}, and nothing synchronises the clock: rows of several hosts will not match in time",
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
    """Yield whether NVIDIA's container toolkit is installed and its CDI specification names the running driver."""
    host = case.host
    if case.driver_absent:
        yield skipped(NO_DRIVER)
        return
    if host.container:
        yield skipped("this is a container; ask on the host")
        return
    runtimes = [name for name in _RUNTIMES if any(exists(host.at(f"{folder}/{name}")) for folder in _FOLDERS)]
    toolkit = any(exists(host.at(f"{folder}/nvidia-ctk")) for folder in _FOLDERS)
    spec, written = _specification(case)
    facts: Facts = {"runtimes": runtimes, "toolkit": toolkit, "specification": spec, "written_for": written}
    if not runtimes:
        yield skipped("no container runtime here", facts)
    elif not toolkit:
        yield warning(
            f"{', '.join(runtimes)} is installed without NVIDIA's container toolkit: containers get no GPU",
            "install nvidia-container-toolkit and configure the runtime for it",
            "nvidia-ctk --version",
            facts,
        )
    elif written and case.driver_version is not None and version(written) != case.driver_version:
        yield error(
            f"{spec} is for driver {written}, but driver {shown(case.driver_version)} is loaded: containers fail to"
            " start (`failed to fulfil mount request`)",
            "generate the file again after every change of the driver",
            f"sudo nvidia-ctk cdi generate --output={spec}",
            facts,
        )
    else:
        yield ok(f"NVIDIA's container toolkit is installed for {', '.join(runtimes)}", facts)


def _specification(case: Case) -> tuple[str, str]:
    """Return the path and the driver version of the CDI specification; empty texts where there is none."""
    for path in _SPECS:
        text = read(case.host.at(path), 1 << 22)
        if text is not None:
            match = _LIBRARY.search(text)
            return path, match[1] if match else ""
    return "", ""


def look_at_jobs(case: Case) -> Iterator[DoctorFinding]:
    """Yield Slurm jobs that only a SLUID names, and cgroup paths of an unknown form; nothing on other hosts."""
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
            "report the path, so that fallow can support the form",
            "cat /proc/*/cgroup | sort | uniq -c",
            {"scheduler": scheduler, "path": path},
            subject=scheduler,
        )
    if sluids:
        yield _sluid_finding(case, sluids)


def _sluid_finding(case: Case, sluids: dict[str, list[Path]]) -> DoctorFinding:
    """Return one finding for all jobs: the source that gives the first job's id gives all ids."""
    folders = next(iter(sluids.values()))
    sluid = next(iter(sluids))
    facts: Facts = {"jobs": len(sluids), "scontrol": _is_known_to_scontrol(case, sluid)}
    facts["environment"] = any(_names_job(case, folder) for folder in folders)
    if facts["scontrol"] or facts["environment"]:
        source = "scontrol" if facts["scontrol"] else "the environment"
        return ok(f"cgroup paths name Slurm jobs by SLUID, and {source} gives the job ids", facts, subject="SLUID")
    return warning(SLUIDS_ALONE, SLUID_REMEDY, f"scontrol show job {sluid}", facts, subject="SLUID")


def _is_known_to_scontrol(case: Case, sluid: str) -> bool:
    command = case.options.scontrol
    try:
        return bool(command) and ask_controller(command, sluid, case.options.timeout_s).job_id is not None
    except (ControllerError, FileNotFoundError):
        return False


def _names_job(case: Case, folder: Path) -> bool:
    """Return whether the agent's user may read a job id in this process's environment: as root, or as its user."""
    user = find_user(case.options.user)
    try:
        if user is None or user.uid not in (0, folder.stat().st_uid):
            return False
    except OSError:
        return False
    return parse_environ(read_environ(str(folder)) or b"").slurm_job_id is not None
