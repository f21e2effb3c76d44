"""The installation and the run of the agent that a spool belongs to. They distinguish two agents with one host name.

A spool on another machine is a copy, or its disk was moved. Under the same host name its rows are kept, and rows that
the lake already has are not published again. Under another host name it is a copy, for example from a disk image of a
running host. Its rows belong to that host, and the whole spool is set aside.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from agent.spool.spool import read_fact
from agent.spool.spool_folder import SpoolFolder
from fallow.clock import SystemClock
from fallow.errors import SpoolError
from fallow.host_identity import HostIdentity, is_install_id, new_install_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.spool.spool import Spool

_FILE = "installation.json"
"""A file beside the spool's database, so that it survives damage of the database."""

_MOST_BYTES = 4096
_RUN = "run"

COPIED_UNTIL = "copied_until"
"""The fact that holds the last row's number at the time when the spool came to another machine."""


@dataclass(frozen=True)
class AgentRun:
    """One run of the agent: a random id, its start, and the boot of the machine ("": unknown)."""

    id: str
    started_ms: int
    boot: str


def settle_installation(spool: Spool, host: str, machine: str) -> str:
    """Give the spool an identity of this machine. Return a sentence about a spool from another machine, else "".

    Raises SpoolError.
    """
    known = _stored_identity(spool)
    if known is None:
        new_installation(spool, host, machine)
        return ""
    if not (machine and known.machine and machine != known.machine):
        _store_identity(spool, replace(known, host=host, machine=machine or known.machine))
        return ""
    if host == known.host:
        spool.note(COPIED_UNTIL, str(spool.newest_seq()))
        done = (
            "the spool came from another machine with this host name: rows that the lake already has are not published"
            " again"
        )
    else:
        done = (
            f"the spool came from the host {known.host} and is now in {(place := spool.set_aside('copied'))}: that"
            f" host's own agent publishes its rows; if it does not, `fallow agent publish --spool {place} --host"
            f" {known.host}` does"
        )
    new_installation(spool, host, machine)
    return done


def identity_of(spool: Spool, host: str) -> HostIdentity:
    """Return the spool's identity, under a host name; a new one where it has none. Raises SpoolError."""
    known = _stored_identity(spool)
    return new_installation(spool, host, "") if known is None else replace(known, host=host)


def new_installation(spool: Spool, host: str, machine: str) -> HostIdentity:
    """Return a new identity, after noting it in the spool. Raises SpoolError."""
    identity = HostIdentity(host, new_install_id(), machine)
    _store_identity(spool, identity)
    return identity


def begin_run(spool: Spool, started_ms: int, boot: str) -> AgentRun:
    """Note in the spool that a run of the agent begins, and return the run. Raises SpoolError."""
    run = AgentRun(os.urandom(8).hex(), started_ms, boot)
    spool.note(_RUN, json.dumps(asdict(run)))
    return run


def current_run(spool: Spool) -> AgentRun:
    """Return the run that began last; a new one where no run has begun. Raises SpoolError."""
    known = read_fact(spool, _RUN, dict, {})
    try:
        return AgentRun(str(known["id"]), int(known["started_ms"]), str(known["boot"]))
    except (KeyError, TypeError, ValueError):
        return begin_run(spool, SystemClock().now_ms(), "")


def _stored_identity(spool: Spool) -> HostIdentity | None:
    """Return the identity in the spool's folder; None without one. Raises SpoolError."""
    with _opened_folder(spool) as folder:
        content = folder.read(_FILE, _MOST_BYTES)
    try:
        found = json.loads(content or b"{}")
        known = HostIdentity(*(str(found[name]) for name in ("host", "install", "machine")))
    except (KeyError, TypeError, ValueError):
        return None
    return known if is_install_id(known.install) else None


def _store_identity(spool: Spool, identity: HostIdentity) -> None:
    if _stored_identity(spool) != identity:
        with _opened_folder(spool) as folder:
            folder.write(_FILE, json.dumps(asdict(identity)).encode() + b"\n")


@contextlib.contextmanager
def _opened_folder(spool: Spool) -> Iterator[SpoolFolder]:
    try:
        with contextlib.closing(SpoolFolder(str(spool.folder))) as folder:
            yield folder
    except OSError as error:
        raise SpoolError(
            f"cannot use {spool.folder / _FILE}: {error.strerror}", "check the disk and the folder's permissions"
        ) from error
