"""Is the spool on a disk that keeps rows?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from agent.doctor.finding import Facts, Finding, error, ok, skipped, warning
from agent.doctor.host import exists, read
from agent.doctor.users import find_user
from fallow.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.doctor.case import Case

_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "fuse.ceph", "fuse.glusterfs", "fuse.sshfs", "lustre",
            "beegfs", "gpfs", "wekafs", "9p", "fuse.s3fs", "fuse.gcsfuse", "pvfs2", "orangefs", "virtiofs")  # fmt: skip
_MEMORY = ("tmpfs", "ramfs")
LEAST_FREE_BYTES = 500_000_000
"""A week of eight GPUs without a lake."""
LEAST_INODES = 1000


def look(case: Case) -> Iterator[Finding]:
    """File system, rights and room, without touching a file server that may be dead."""
    if not case.options.spool:
        yield skipped("no spool is set (--spool, FALLOW_AGENT_SPOOL or agent.spool)")
        return
    spool = Path(case.options.spool).expanduser().absolute()
    kind, place = file_system(read(case.host.proc / "self/mounts") or "", spool)
    facts: Facts = {"path": str(spool), "file_system": kind, "mounted_at": place}
    if kind in _NETWORK:
        yield error(
            f"{spool} lies on a network file system ({kind}): SQLite's write-ahead log needs a local disk and would be damaged",
            "put the spool on a local disk; the lake may lie on the network",
            "findmnt --types ext4,xfs,btrfs",
            facts,
        )
        return
    folder = _nearest(spool)
    if (barred := _barred(case, spool, folder, facts)) is not None:
        yield barred
        return
    room = os.statvfs(folder)
    free_bytes, inodes = room.f_bavail * room.f_frsize, room.f_favail
    facts |= {"free_bytes": free_bytes, "free_inodes": inodes if room.f_files else None}
    yield _room(spool, kind, facts, short=free_bytes < LEAST_FREE_BYTES or (room.f_files > 0 and inodes < LEAST_INODES))


def _barred(case: Case, spool: Path, folder: Path, facts: Facts) -> Finding | None:
    user = find_user(case.options.user)
    if not folder.is_dir():
        return error(f"{folder} is not a folder", "give another --spool", f"ls -ld {folder}", facts)
    if user is None:
        return error(
            f"there is no user {case.options.user}", "check --user", f"getent passwd {case.options.user}", facts
        )
    if os.access(folder, os.W_OK | os.X_OK) if not case.options.user else user.may_fill(folder):
        return None
    if folder == spool:
        return error(
            f"{user.name} may not write to {spool}", "give it the folder", f"sudo chown {user.name} {spool}", facts
        )
    return error(
        f"{spool} is not there, and {user.name} may not make it in {folder}",
        "make it for the agent's user",
        f"sudo install -d -o {user.name} -m 0750 {spool}",
        facts,
    )


def _room(spool: Path, kind: str, facts: Facts, *, short: bool) -> Finding:
    room = f"{format_bytes(float(str(facts['free_bytes'])))} free"
    if short:
        return error(
            f"{spool} has {room} and {facts['free_inodes']} inodes left: sampling would thin out soon",
            "make room, or put the spool on a larger disk",
            f"df -h {facts['mounted_at']}; df -i {facts['mounted_at']}",
            facts,
        )
    if kind in _MEMORY:
        return warning(
            f"{spool} lies in memory ({kind}): rows that are not published are lost at every reboot",
            "put the spool on a disk, such as /var/lib/fallow",
            f"findmnt -T {spool}",
            facts,
        )
    return ok(f"{spool} ({kind}) can be written, {room}", facts)


def _nearest(path: Path) -> Path:
    """The path itself, or the nearest folder above it that is there."""
    return next((each for each in (path, *path.parents) if exists(each)), Path("/"))


def file_system(mounts: str, path: Path) -> tuple[str, str]:
    """(type, mount point) of the file system that a path lies on, by the longest mount point above it.

    Read from the table of mounts, so that a file server that does not answer is not asked.
    """
    best = ("", "")
    for line in mounts.splitlines():
        _, place, kind, *_ = [*line.split(), "", "", ""]
        place = place.replace("\\040", " ")
        above = place == "/" or str(path) == place or str(path).startswith(f"{place}/")
        if place and above and len(place) >= len(best[1]):
            best = (kind, place)
    return best
