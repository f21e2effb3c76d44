"""The container, service, Slurm step and Ray job of a process, from its cgroup paths and its environment.

Cgroups v1, v2 and hybrids, of the systemd and the cgroupfs driver; docs/attribution.md lists the forms. Of the
environment only the variables that name a job are kept.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from agent.attribution.proc import printable, printable_text

_ID = r"(?P<id>[0-9a-f]{64})"
_NAME = r"(?P<name>[^/]+)"
_STEP = r"(?:/step_(?P<step>[0-9A-Za-z_+]+))?(?![^/])"

_CONTAINERS: tuple[tuple[str | None, re.Pattern[str]], ...] = tuple(
    (runtime, re.compile(form))
    for runtime, form in (
        # the systemd driver names the runtime in the scope; cri-o and podman also do so under cgroupfs.
        # conmon, the helper beside such a container, has `conmon-` before the id and matches nothing.
        ("docker", rf".*/docker-{_ID}(\.scope)?"),
        ("docker", rf"docker/{_ID}"),
        ("containerd", rf".*/(cri-containerd|nerdctl)-{_ID}(\.scope)?"),
        ("containerd", rf"k8s\.io/{_ID}"),
        ("cri-o", rf".*/crio-{_ID}(\.scope)?"),
        ("podman", rf".*/libpod(-payload)?-{_ID}(\.scope)?"),
        ("podman", rf"libpod_parent/{_ID}"),
        # a runtime that got a systemd path from a kubelet with the other driver
        ("containerd", rf".*/(?P<pod>[^:]*):cri-containerd:{_ID}"),
        ("cri-o", rf".*/(?P<pod>[^:]*):crio:{_ID}"),
        ("docker", rf".*/(?P<pod>[^:]*):docker:{_ID}"),
        (None, rf".*/{_ID}"),
        # LXD and Incus run their containers by LXC
        ("lxc", rf".*/lxc\.payload\.{_NAME}"),
        ("lxc", rf"lxc(\.payload)?/{_NAME}"),
        # libvirt registers a virtual machine as qemu-NUMBER-NAME, which is not a container
        ("systemd-nspawn", rf".*/machine-(?!qemu\\x2d){_NAME}\.scope"),
        ("systemd-nspawn", rf".*/systemd-nspawn@{_NAME}\.service"),
    )
)
"""Runtimes and the forms of a container's folder, as `PARENT/FOLDER`; `pod` is a pod's slice with the same name."""

_SLURM = tuple(
    map(
        re.compile,
        (
            rf"/slurm(?:_[^/]+)?/uid_[0-9]+/job_(?P<job>[0-9]+){_STEP}",
            rf"/(?:[^/]+_)?slurmstepd\.scope/job_(?P<job>[0-9]+){_STEP}",
            # Slurm 26.05 on, without CgroupJobIdPaths=yes: print_sluid writes `s` and 13 digits of Crockford's base 32
            rf"/(?:[^/]+_)?slurmstepd\.scope/(?P<sluid>s[0-9A-HJKMNP-TV-Z]{{13}}){_STEP}",
        ),
    )
)
"""Forms of a job in Slurm's part of the tree: cgroup v1, and cgroup v2 by job id or SLUID."""

_SLURM_NAME = "Slurm"
_SCHEDULERS = (
    (
        _SLURM_NAME,
        re.compile(r"(?:/\.\.)*/slurm(?:_[^/]+)?/(?!system(?:/|$))|.*/(?:[^/]+_)?slurmstepd\.scope/(?!system(?:/|$))"),
    ),
    ("Kubernetes", re.compile(r"(?!.*conmon-).*kubepods")),
)
"""The forms of a scheduler's paths, without the scheduler's own processes."""

_POD_SLICE = re.compile(r"(?:.*-)?kubepods(?:-.*)?-pod([0-9a-f_]{32,36})\.slice")
_POD_FOLDER = re.compile(r"pod([0-9a-f-]{32,36})")
_UNIT = re.compile(r"(?!user@[0-9]+\.service$)(?!systemd-nspawn@).+\.service|(?:app|run)-.+\.scope")
"""Services, and units of a desktop or systemd-run. Sessions and users' managers do not name their programs."""
_ESCAPED = re.compile(r"\\x([0-9a-f]{2})")


@dataclass(frozen=True)
class Placement:
    """The facts in a process's cgroup paths; None is unknown."""

    container_runtime: str | None = None
    container_id: str | None = None
    pod_uid: str | None = None
    slurm_job_id: str | None = None
    slurm_step_id: str | None = None
    slurm_sluid: str | None = None
    """Slurm's other name of a job, where the folder has it instead of the job id."""
    container: str | None = None
    """The container's name, where containers of the host have names."""
    unit: str | None = None
    """The systemd unit; None for processes of a scheduler, which are in the scheduler's own unit."""
    unknown_form: tuple[str, str] | None = None
    """The scheduler of the process and the path, where the path has no form in the tables above."""

    @property
    def known(self) -> bool:
        """Return whether the cgroup paths contain any fact."""
        return any((self.container_id, self.container, self.slurm_job_id, self.slurm_sluid, self.unit))


def parse_cgroup(text: str) -> Placement:
    """Return the placement by the text of /proc/PID/cgroup; unknown forms leave their fields None."""
    lines = (line.split(":", 2)[2].removesuffix(" (deleted)") for line in text.splitlines() if line.count(":") >= 2)
    paths = tuple(dict.fromkeys(lines))
    # depths differ between controllers (a kind node without one, Slurm's job without its step): the deepest knows most
    container, slurm, unit = (
        max((find(path) for path in paths), key=lambda found: found[0], default=(-1, Placement()))
        for find in (_container, _slurm, _unit)
    )
    found = {name: value for _, part in (container, slurm) for name, value in vars(part).items() if value is not None}
    whose = next(filter(None, map(_scheduler, paths)), None)
    if whose is None:
        return Placement(**found, unit=unit[1].unit)
    depth, _ = slurm if whose[0] == _SLURM_NAME else container
    return Placement(**found, unknown_form=whose if depth < 0 else None)


_Found = tuple[int, Placement]
"""The depth of a path's facts, -1 without facts."""
_NOTHING: _Found = (-1, Placement())


def _container(path: str) -> _Found:
    """Return the innermost container: the outer container may be a node (kind), not the workload's."""
    segments = path.split("/")
    for index in range(len(segments) - 1, -1, -1):
        pair = f"{segments[index - 1] if index else ''}/{segments[index]}"
        for runtime, form in _CONTAINERS:
            if match := form.fullmatch(pair):
                part = match.groupdict()
                above = segments[:index] if part.get("pod") is None else [part["pod"]]
                name = part.get("name")
                return index, Placement(
                    container_runtime=runtime,
                    container_id=part.get("id"),
                    pod_uid=_pod_uid(above),
                    container=None if name is None else _unescaped(name),
                )
    return _NOTHING


def _pod_uid(above: list[str]) -> str | None:
    """Return the UID of the pod that directly contains a container, from the path segments above it."""
    around = above[-1] if above else ""
    if match := _POD_SLICE.fullmatch(around):
        return match[1].replace("_", "-")  # `-` in a slice's name is a level of systemd's tree
    # a cgroup namespace replaces the top of the path with `..`
    if (match := _POD_FOLDER.fullmatch(around)) and any(name == ".." or "kubepods" in name for name in above):
        return match[1]
    return None


def _slurm(path: str) -> _Found:
    """Return job or SLUID, and step, where the path is in Slurm's part of the tree."""
    for form in _SLURM:
        if match := form.search(path):
            part = match.groupdict()
            depth = path.count("/", 0, match.end())
            return depth, Placement(
                slurm_job_id=part.get("job"), slurm_step_id=part["step"], slurm_sluid=part.get("sluid")
            )
    return _NOTHING


def _unit(path: str) -> _Found:
    """Return the innermost unit that names a program."""
    segments = path.split("/")
    for index in range(len(segments) - 1, -1, -1):
        if _UNIT.fullmatch(segments[index]):
            # systemd puts `_` before a name that could be one of the kernel's own files
            return index, Placement(unit=_unescaped(segments[index].removeprefix("_")))
    return _NOTHING


def _unescaped(name: str) -> str:
    r"""Return the name without systemd's escapes, such as `\x2d` for a `-` (systemd-escape(1))."""
    raw = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), name.encode(errors="replace").decode("latin-1"))
    return printable(raw.encode("latin-1"))


def _scheduler(path: str) -> tuple[str, str] | None:
    """Return the scheduler of the path, and the part of the path for a message."""
    return next(((name, printable_text(path[:200])) for name, folder in _SCHEDULERS if folder.match(path)), None)


_VARIABLES = (b"SLURM_JOB_ID", b"SLURM_STEP_ID", b"SLURM_JOB_SLUID", b"SLURM_JOB_ACCOUNT", b"RAY_JOB_ID")
_WANTED = re.compile(rb"(?:\A|\0)(" + b"|".join(_VARIABLES) + rb")=([^\0]{1,256})")
_NIL_RAY_JOB = re.compile(r"f+")
_NUMBER = re.compile(r"[0-9]{1,10}")
_FIRST_NAMED_STEP = 4_294_967_000
"""Numbers from here on are Slurm's own numbers of named steps (slurm.h: SLURM_EXTERN_CONT and its neighbours)."""


@dataclass(frozen=True)
class JobIds:
    """Jobs that an environment names; None where it names no job."""

    slurm_job_id: str | None = None
    slurm_step_id: str | None = None
    slurm_sluid: str | None = None
    slurm_account: str | None = None
    ray_job_id: str | None = None


def parse_environ(environ: bytes) -> JobIds:
    """Return the jobs in these NUL-separated variables; the first variable of a name counts, as for getenv."""
    found: dict[bytes, str] = {}
    for match in _WANTED.finditer(environ):
        found.setdefault(match[1], printable(match[2]))
    job_id, step_id = found.get(b"SLURM_JOB_ID"), found.get(b"SLURM_STEP_ID")
    ray_job_id = found.get(b"RAY_JOB_ID")
    return JobIds(
        slurm_job_id=job_id if job_id and _NUMBER.fullmatch(job_id) else None,
        slurm_step_id=step_id if step_id and _NUMBER.fullmatch(step_id) and int(step_id) < _FIRST_NAMED_STEP else None,
        slurm_sluid=found.get(b"SLURM_JOB_SLUID"),
        slurm_account=found.get(b"SLURM_JOB_ACCOUNT"),
        # a worker that Ray started before any job has the id for no job
        ray_job_id=None if ray_job_id is None or _NIL_RAY_JOB.fullmatch(ray_job_id) else ray_job_id,
    )
