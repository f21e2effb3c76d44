"""The jobs of schedulers: whether the cgroups of the processes here say which job each of them belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.attribution.lookups import SLUID_REMEDY, SLUIDS_ALONE, ControllerError, ask_controller, unknown_form
from agent.attribution.placement import parse_cgroup, parse_environ
from agent.attribution.proc import read_cgroup, read_environ
from agent.doctor.case import DoctorFinding, Facts, ok, warning
from agent.doctor.host import find_user, listed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent.doctor.case import Case


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
