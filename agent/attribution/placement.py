"""Which container, Slurm step and Ray job a process belongs to, read out of its cgroup paths and its environment.

Cgroups v1, v2 and hybrids, of the systemd and the cgroupfs driver; docs/attribution.md lists the forms. Of the environment
only the few variables that name a job are kept.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from agent.attribution.proc import printable

_ID = r"([0-9a-f]{64})"

# the systemd driver names the runtime in the scope; cri-o and podman also do so under cgroupfs.
# conmon, the helper beside such a container, has `conmon-` before the id and matches nothing.
_NAMED = re.compile(rf"(docker|cri-containerd|nerdctl|crio|libpod|libpod-payload)-{_ID}(?:\.scope)?")
# containerd that was handed a systemd path by a kubelet of the other driver
_COLONS = re.compile(rf"([^:]*):(cri-containerd|crio|docker):{_ID}")
_BARE = re.compile(_ID)
_POD_SLICE = re.compile(r"(?:.*-)?kubepods(?:-.*)?-pod([0-9a-f_]{32,36})\.slice")
_POD_FOLDER = re.compile(r"pod([0-9a-f-]{32,36})")
_STEPD_SCOPE = re.compile(r"(?:.+_)?slurmstepd\.scope")
_SLURM_ROOT = re.compile(r"slurm(?:_.+)?")
_SLURM_UID = re.compile(r"uid_[0-9]+")
_JOB = re.compile(r"job_([0-9]+)")
_STEP = re.compile(r"step_([0-9A-Za-z_+]+)")

_RUNTIME = {
    "docker": "docker",
    "cri-containerd": "containerd",
    "nerdctl": "containerd",
    "k8s.io": "containerd",
    "crio": "cri-o",
    "libpod": "podman",
    "libpod-payload": "podman",
    "libpod_parent": "podman",
}


@dataclass(frozen=True)
class Placement:
    """What a process's cgroups say; None where they say nothing."""

    container_runtime: str | None = None
    container_id: str | None = None
    pod_uid: str | None = None
    slurm_job_id: str | None = None
    slurm_step_id: str | None = None

    @property
    def known(self) -> bool:
        return self.container_id is not None or self.slurm_job_id is not None


def parse_cgroup(text: str) -> Placement:
    """The placement that the text of /proc/PID/cgroup describes; unknown forms leave their fields None."""
    container = slurm = None
    for path in dict.fromkeys(line.split(":", 2)[2] for line in text.splitlines() if line.count(":") >= 2):
        segments = path.split("/")
        # controllers end at different depths (a kind node without one, Slurm's job without its step): the deepest knows most
        container = max(container, _container(segments), key=_depth)
        slurm = max(slurm, _slurm(segments), key=_depth)
    placement = Placement() if container is None else container[1]
    return placement if slurm is None else replace(placement, slurm_job_id=slurm[1][0], slurm_step_id=slurm[1][1])


def _depth(found: tuple[int, object] | None) -> int:
    return -1 if found is None else found[0]


def _container(segments: list[str]) -> tuple[int, Placement] | None:
    """The innermost container and its depth: a node that is a container itself (kind) is not the workload's."""
    for index in range(len(segments) - 1, -1, -1):
        segment, parent = segments[index], segments[index - 1] if index else ""
        if match := _NAMED.fullmatch(segment):
            return index, Placement(_RUNTIME[match[1]], match[2], _pod_uid(segments[:index]))
        if match := _COLONS.fullmatch(segment):
            return index, Placement(_RUNTIME[match[2]], match[3], _pod_uid([match[1]]))
        if _BARE.fullmatch(segment):
            return index, Placement(_RUNTIME.get(parent), segment, _pod_uid(segments[:index]))
    return None


def _pod_uid(above: list[str]) -> str | None:
    """The UID of the pod right around a container, given the segments above it."""
    around = above[-1] if above else ""
    if match := _POD_SLICE.fullmatch(around):
        return match[1].replace("_", "-")  # systemd reads `-` in a slice's name as a level of its tree
    # a cgroup namespace cuts off the top of the path and writes `..` for it
    if (match := _POD_FOLDER.fullmatch(around)) and any(name == ".." or "kubepods" in name for name in above):
        return match[1]
    return None


def _slurm(segments: list[str]) -> tuple[int, tuple[str, str | None]] | None:
    """Job, step and their depth, where the path goes through Slurm's own part of the tree."""
    for index, segment in enumerate(segments):
        if not (job := _JOB.fullmatch(segment)) or not index:
            continue
        above = segments[index - 1]
        v2 = _STEPD_SCOPE.fullmatch(above)
        v1 = _SLURM_UID.fullmatch(above) and index > 1 and _SLURM_ROOT.fullmatch(segments[index - 2])
        if v1 or v2:
            below = segments[index + 1] if index + 1 < len(segments) else ""
            step = _STEP.fullmatch(below)
            return index + (step is not None), (job[1], step[1] if step else None)
    return None


_VARIABLES = (b"SLURM_JOB_ID", b"SLURM_STEP_ID", b"SLURM_JOB_ACCOUNT", b"RAY_JOB_ID")
_WANTED = re.compile(rb"(?:\A|\0)(" + b"|".join(_VARIABLES) + rb")=([^\0]{1,256})")
_NIL_RAY_JOB = re.compile(r"f+")
_NUMBER = re.compile(r"[0-9]{1,10}")
_FIRST_NAMED_STEP = 4_294_967_000
"""Numbers from here on are Slurm's own for steps that have names (slurm.h: SLURM_EXTERN_CONT and its neighbours)."""


@dataclass(frozen=True)
class JobIds:
    """Jobs that an environment names; None where it names none."""

    slurm_job_id: str | None = None
    slurm_step_id: str | None = None
    slurm_account: str | None = None
    ray_job_id: str | None = None


def parse_environ(environ: bytes) -> JobIds:
    """The jobs that these NUL-separated variables name; the first one of a name counts, as for getenv."""
    found: dict[bytes, str] = {}
    for match in _WANTED.finditer(environ):
        found.setdefault(match[1], printable(match[2]))
    job_id, step_id = found.get(b"SLURM_JOB_ID"), found.get(b"SLURM_STEP_ID")
    ray_job_id = found.get(b"RAY_JOB_ID")
    return JobIds(
        slurm_job_id=job_id if job_id and _NUMBER.fullmatch(job_id) else None,
        slurm_step_id=step_id if step_id and _NUMBER.fullmatch(step_id) and int(step_id) < _FIRST_NAMED_STEP else None,
        slurm_account=found.get(b"SLURM_JOB_ACCOUNT"),
        # a worker that Ray started ahead of any job carries the id that means none
        ray_job_id=None if ray_job_id is None or _NIL_RAY_JOB.fullmatch(ray_job_id) else ray_job_id,
    )
