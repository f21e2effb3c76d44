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

_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "fuse.ceph", "fuse.glusterfs", "fuse.sshfs", "lustre",
            "beegfs", "gpfs", "wekafs", "9p", "fuse.s3fs", "fuse.gcsfuse", "pvfs2", "orangefs", "virtiofs")  # fmt: skip
_MEMORY = ("tmpfs", "ramfs")
LEAST_FREE_BYTES = 500_000_000
"""A week of eight GPUs without a lake."""
LEAST_INODES = 1000


def look_at_spool(case: Case) -> Iterator[DoctorFinding]:
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
    # the path itself, or the nearest folder above it that is there
    folder = next((each for each in (spool, *spool.parents) if exists(each)), Path("/"))
    if (barred := _barred(case, spool, folder, facts)) is not None:
        yield barred
        return
    room = os.statvfs(folder)
    free_bytes, inodes = room.f_bavail * room.f_frsize, room.f_favail
    facts |= {"free_bytes": free_bytes, "free_inodes": inodes if room.f_files else None}
    yield _room(spool, kind, facts, short=free_bytes < LEAST_FREE_BYTES or (room.f_files > 0 and inodes < LEAST_INODES))


def _barred(case: Case, spool: Path, folder: Path, facts: Facts) -> DoctorFinding | None:
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


def _room(spool: Path, kind: str, facts: Facts, *, short: bool) -> DoctorFinding:
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


_PATIENCE = 4
"""A store may take longer than a driver call: times the timeout of one."""


def look_at_lake(case: Case) -> Iterator[DoctorFinding]:
    """Looks for the marker; writes, lists and deletes one tiny file, in a process that can be left behind."""
    lake = case.options.lake
    if not lake:
        yield skipped("no lake is set (--lake, FALLOW_LAKE_PATH or lake.path)")
        return
    timeout_s = case.options.timeout_s * _PATIENCE
    machine = machine_hash(case.options.machine_id)
    outcome = run_isolated(
        "agent.doctor.store_probe", [lake, case.options.host, machine], case.host.environment, timeout_s
    )
    root = outcome.last("root") or _shown(lake)
    facts: Facts = {"location": root, "exists": outcome.last("exists"), "lake_id": outcome.last("lake_id") or None}
    yield _judge(outcome, facts, timeout_s, case.options.lake_id)
    if outcome.last("holders"):
        yield _name_taken(case.options.host, outcome.last("holders"))


def _shown(lake: str) -> str:
    """How to call a lake that did not open: an address that was refused may hold a password, so only its scheme."""
    scheme, separator, _ = lake.partition("://")
    return f"{scheme}://..." if separator else lake


def _name_taken(host: str, holders: list[str]) -> DoctorFinding:
    return warning(
        f"another machine publishes as {host}, or did until it was killed: {holders[0]}",
        "set agent.host to a name of its own on one of the two; where that machine is gone, its claim falls silent within a quarter of an hour",
        "fallow agent status",
        {"holders": holders},
    )


def _no_lake(lake: str, facts: Facts) -> DoctorFinding:
    return error(
        f"there is no fallow lake at {lake}, so an agent publishes nothing there",
        "mount it; or make one, once for all hosts",
        f"fallow lake init --lake {lake}",
        facts,
    )


def _judge(outcome: LookOutcome, facts: Facts, timeout_s: float, expected_id: str) -> DoctorFinding:
    lake = str(facts["location"])
    local = lake.startswith("/")
    see = f"findmnt -T {lake}" if local else f"fallow doctor --lake {lake}"
    if outcome.ending != "done":
        how = f"does not return within {timeout_s:g} s" if outcome.ending == "hung" else f"ended with {outcome.detail}"
        return error(
            f"{lake}: to {outcome.step or 'open it'} {how}",
            "check the mount and its server" if local else "check the address, the network and the credentials",
            see,
            facts,
        )
    failed = outcome.last("failed")
    if failed:
        return error(failed["message"], failed["hint"], f"ls -ld {lake}" if local else see, facts)
    if outcome.last("nearest") is not None:
        if outcome.last("writable"):
            return _no_lake(lake, facts)
        return error(
            f"there is no folder {lake}, and this user may not make it in {outcome.last('nearest')}",
            "make it, or mount what should be there",
            f"sudo install -d -o $USER {lake}",
            facts,
        )
    return _judge_marker(lake, see, facts, expected_id) or _judge_rights(outcome, lake, see, facts)


def _judge_marker(lake: str, see: str, facts: Facts, expected_id: str) -> DoctorFinding | None:
    if not facts["lake_id"]:
        return _no_lake(lake, facts)
    if expected_id and facts["lake_id"] != expected_id:
        return error(
            f"the lake at {lake} has the id {facts['lake_id']}, and lake.id is {expected_id}",
            "mount the right one, or correct lake.id",
            see,
            facts,
        )
    return None


def _judge_rights(outcome: LookOutcome, lake: str, see: str, facts: Facts) -> DoctorFinding:
    if not outcome.last("listed"):
        return error(
            f"{lake}: a file that was written there does not show in the listing",
            "check that reads and writes go to the same place (credentials, bucket, replica)",
            see,
            facts,
        )
    if not outcome.last("deleted"):
        return warning(
            f"{lake} can be written and listed, not cleaned ({outcome.last('why')}); left there: {outcome.last('left')}",
            "an agent that merges its own files deletes the small ones; else `fallow lake compact` does (docs/storage.md)",
            see,
            facts,
        )
    return ok(f"{lake} can be written, listed and cleaned", facts)
