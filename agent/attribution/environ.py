"""The few variables of a process's environment that say which job it belongs to; nothing else of it is kept."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agent.attribution.text import printable

_KEYS = (b"SLURM_JOB_ID", b"SLURM_STEP_ID", b"SLURM_JOB_ACCOUNT", b"RAY_JOB_ID")
_WANTED = re.compile(rb"(?:\A|\0)(" + b"|".join(_KEYS) + rb")=([^\0]{1,256})")
_NIL_RAY_JOB = re.compile(r"f+")
_NUMBER = re.compile(r"[0-9]{1,10}")
_FIRST_NAMED_STEP = 4_294_967_000
"""Numbers from here on are Slurm's own for steps that have names (slurm.h: SLURM_EXTERN_CONT and its neighbours)."""


@dataclass(frozen=True)
class Job:
    """Jobs that an environment names; None where it names none."""

    slurm_job_id: str | None = None
    slurm_step_id: str | None = None
    slurm_account: str | None = None
    ray_job_id: str | None = None


def parse_environ(environ: bytes) -> Job:
    """The jobs that these NUL-separated variables name; the first one of a name counts, as for getenv."""
    found: dict[bytes, str] = {}
    for match in _WANTED.finditer(environ):
        found.setdefault(match[1], printable(match[2]))
    job_id, step_id = found.get(b"SLURM_JOB_ID"), found.get(b"SLURM_STEP_ID")
    ray_job_id = found.get(b"RAY_JOB_ID")
    return Job(
        slurm_job_id=job_id if job_id and _NUMBER.fullmatch(job_id) else None,
        slurm_step_id=step_id if step_id and _NUMBER.fullmatch(step_id) and int(step_id) < _FIRST_NAMED_STEP else None,
        slurm_account=found.get(b"SLURM_JOB_ACCOUNT"),
        # a worker that Ray started ahead of any job carries the id that means none
        ray_job_id=None if ray_job_id is None or _NIL_RAY_JOB.fullmatch(ray_job_id) else ray_job_id,
    )
