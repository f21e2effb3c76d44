"""Is the spool on a local disk with room, and can the lake be written, listed and cleaned from here?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from agent.doctor.case import DoctorFinding, Facts, error, ok, skipped, warning
from agent.doctor.host import exists, find_user, read
from agent.doctor.look import LookOutcome, run_isolated
from fallow.host_identity import machine_hash
from fallow.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.doctor.case import Case

_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "fuse.ceph", "fuse.glusterfs", "fuse.sshfs",
            "lustre", "beegfs", "gpfs", "wekafs", "9p", "fuse.s3fs", "fuse.gcsfuse", "pvfs2", "orangefs",
            "virtiofs")  # fmt: skip
_MEMORY = ("tmpfs", "ramfs")
LEAST_FREE_BYTES = 500_000_000
"""The spool of eight GPUs for a week without a lake."""
LEAST_INODES = 1000


def look_at_spool(case: Case) -> Iterator[DoctorFinding]:
    """Yield whether the spool's file system, rights and space suffice, without touching a server that may be down."""
    if not case.options.spool:
        yield skipped("no spool is set (--spool, FALLOW_AGENT_SPOOL or agent.spool)")
        return
    spool = Path(case.options.spool).expanduser().absolute()
    kind, place = file_system(read(case.host.proc / "self/mounts") or "", spool)
    facts: Facts = {"path": str(spool), "file_system": kind, "mounted_at": place}
    if kind in _NETWORK:
        yield error(
            f"{spool} is on a network file system ({kind}), which would damage SQLite's write-ahead log",
            "put the spool on a local disk; only the lake may be on the network",
            "findmnt --types ext4,xfs,btrfs",
            facts,
        )
        return
    # the path itself, or the nearest folder above it that exists
    folder = next((each for each in (spool, *spool.parents) if exists(each)), Path("/"))
    if (barred := _spool_rights_error(case, spool, folder, facts)) is not None:
        yield barred
        return
    room = os.statvfs(folder)
    free_bytes, inodes = room.f_bavail * room.f_frsize, room.f_favail
    facts |= {"free_bytes": free_bytes, "free_inodes": inodes if room.f_files else None}
    yield _room_finding(
        spool, kind, facts, short=free_bytes < LEAST_FREE_BYTES or (room.f_files > 0 and inodes < LEAST_INODES)
    )


def _spool_rights_error(case: Case, spool: Path, folder: Path, facts: Facts) -> DoctorFinding | None:
    user = find_user(case.options.user)
    if not folder.is_dir():
        return error(f"{folder} is not a folder", "name another --spool", f"ls -ld {folder}", facts)
    if user is None:
        return error(
            f"there is no user {case.options.user}", "check --user", f"getent passwd {case.options.user}", facts
        )
    if os.access(folder, os.W_OK | os.X_OK) if not case.options.user else user.may_fill(folder):
        return None
    if folder == spool:
        return error(
            f"{user.name} may not write to {spool}",
            "make that user the owner of the folder",
            f"sudo chown {user.name} {spool}",
            facts,
        )
    return error(
        f"{spool} does not exist, and {user.name} may not create it in {folder}",
        "create the folder for the agent's user",
        f"sudo install -d -o {user.name} -m 0750 {spool}",
        facts,
    )


def _room_finding(spool: Path, kind: str, facts: Facts, *, short: bool) -> DoctorFinding:
    room = f"{format_bytes(float(str(facts['free_bytes'])))} free"
    if short:
        return error(
            f"{spool} has {room} and {facts['free_inodes']} inodes left: the agent would soon have to sample less"
            " often",
            "free space, or put the spool on a larger disk",
            f"df -h {facts['mounted_at']}; df -i {facts['mounted_at']}",
            facts,
        )
    if kind in _MEMORY:
        return warning(
            f"{spool} is in memory ({kind}): every reboot loses the rows that are not published",
            "put the spool on a disk, such as /var/lib/fallow",
            f"findmnt -T {spool}",
            facts,
        )
    return ok(f"{spool} ({kind}) is writable, {room}", facts)


def file_system(mounts: str, path: Path) -> tuple[str, str]:
    """Return the type and the mount point of a path's file system: the longest mount point above the path.

    The table of mounts is the source, because a file server may not answer.
    """
    best = ("", "")
    for line in mounts.splitlines():
        _, place, kind, *_ = [*line.split(), "", "", ""]
        place = place.replace("\\040", " ")
        above = place == "/" or str(path) == place or str(path).startswith(f"{place}/")
        if place and above and len(place) >= len(best[1]):
            best = (kind, place)
    return best


_PATIENCE = 4
"""Timeout of a store, as a multiple of the timeout of a driver call."""


def look_at_lake(case: Case) -> Iterator[DoctorFinding]:
    """Yield whether this host can write, list and delete a file in the lake. A child process tries it and may hang."""
    lake = case.options.lake
    if not lake:
        yield skipped("no lake is set (--lake, FALLOW_LAKE_PATH or lake.path)")
        return
    timeout_s = case.options.timeout_s * _PATIENCE
    machine = machine_hash(case.options.machine_id)
    outcome = run_isolated(
        "agent.doctor.store_probe", [lake, case.options.host, machine], case.host.environment, timeout_s
    )
    root = outcome.last("root") or _lake_label(lake)
    facts: Facts = {"location": root, "exists": outcome.last("exists"), "lake_id": outcome.last("lake_id") or None}
    yield _lake_finding(outcome, facts, timeout_s, case.options.lake_id)
    if holders := outcome.last("holders"):
        yield warning(
            f"another machine publishes under the name {case.options.host}, or did until it was killed: {holders[0]}",
            "set a different agent.host on one of the two; the claim of a machine that is gone expires within 15"
            " minutes",
            "fallow agent status",
            {"holders": holders},
        )


def _lake_label(lake: str) -> str:
    """Return the label of a lake that did not open: only its scheme, because the address may contain a password."""
    scheme, separator, _ = lake.partition("://")
    return f"{scheme}://..." if separator else lake


def _no_lake_error(lake: str, facts: Facts) -> DoctorFinding:
    return error(
        f"there is no fallow lake at {lake}, so an agent publishes nothing there",
        "mount the lake, or create one, once for all hosts",
        f"fallow lake init --lake {lake}",
        facts,
    )


def _lake_finding(outcome: LookOutcome, facts: Facts, timeout_s: float, expected_id: str) -> DoctorFinding:
    lake = str(facts["location"])
    local = lake.startswith("/")
    see = f"findmnt -T {lake}" if local else f"fallow doctor --lake {lake}"
    if outcome.ending != "done":
        how = f"did not finish within {timeout_s:g} s" if outcome.ending == "hung" else f"ended with {outcome.detail}"
        return error(
            f"{lake}: the step `{outcome.step or 'open'}` {how}",
            "check the mount and its server" if local else "check the address, the network and the credentials",
            see,
            facts,
        )
    failed = outcome.last("failed")
    if failed:
        return error(failed["message"], failed["hint"], f"ls -ld {lake}" if local else see, facts)
    if outcome.last("nearest") is not None:
        if outcome.last("writable"):
            return _no_lake_error(lake, facts)
        return error(
            f"there is no folder {lake}, and this user may not create it in {outcome.last('nearest')}",
            "create the folder, or mount the missing file system",
            f"sudo install -d -o $USER {lake}",
            facts,
        )
    return _marker_error(lake, see, facts, expected_id) or _lake_rights_finding(outcome, lake, see, facts)


def _marker_error(lake: str, see: str, facts: Facts, expected_id: str) -> DoctorFinding | None:
    if not facts["lake_id"]:
        return _no_lake_error(lake, facts)
    if expected_id and facts["lake_id"] != expected_id:
        return error(
            f"the lake at {lake} has the id {facts['lake_id']}, but lake.id is {expected_id}",
            "mount the right lake, or correct lake.id",
            see,
            facts,
        )
    return None


def _lake_rights_finding(outcome: LookOutcome, lake: str, see: str, facts: Facts) -> DoctorFinding:
    if not outcome.last("listed"):
        return error(
            f"{lake}: a new file is missing from the listing",
            "check that reads and writes use the same credentials, bucket and replica",
            see,
            facts,
        )
    if not outcome.last("deleted"):
        return warning(
            f"this host can write and list {lake}, but not delete ({outcome.last('why')}); {outcome.last('left')}"
            " remains there",
            "grant the right to delete, or let `fallow lake compact` merge the files instead of the agent"
            " (docs/storage.md)",
            see,
            facts,
        )
    return ok(f"this host can write, list and delete files in {lake}", facts)
