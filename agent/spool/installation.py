"""Which installation of the agent a spool belongs to, and which run of it: what tells two agents of one host name apart.

A spool that comes to another machine is a copy, or its disk was moved. Under the same host name its rows are kept, and those that
the lake has by then are not published again. Under another name too it is a copy, as from an image of a disk that was made
of a running host: its rows are that host's, and the whole spool is set aside.
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
"""Beside the spool's database, so that it outlives one that is damaged."""

_MOST_BYTES = 4096
_RUN = "run"

COPIED_UNTIL = "copied_until"
"""The fact that holds the number of the last row that was in a spool when it came to another machine."""


@dataclass(frozen=True)
class AgentRun:
    """One run of the agent: a random id, when it began, and the boot of the machine ("": unknown)."""

    id: str
    started_ms: int
    boot: str


def settle_installation(spool: Spool, host: str, machine: str) -> str:
    """Sees to it that the spool has an identity, and that it is this machine's; returns what had to be done, or "".

    Raises SpoolError.
    """
    known = _known(spool)
    if known is None:
        new_installation(spool, host, machine)
        return ""
    if not (machine and known.machine and machine != known.machine):
        _note(spool, replace(known, host=host, machine=machine or known.machine))
        return ""
    if host == known.host:
        spool.note(COPIED_UNTIL, str(spool.newest_seq()))
        done = "the spool came from another machine of this name: what the lake has of its rows is not published again"
    else:
        done = (
            f"the spool came from the host {known.host} and is now in {(place := spool.set_aside('copied'))}: its rows are that host's, "
            f"whose own agent publishes them; else `fallow agent publish --spool {place} --host {known.host}` does"
        )
    new_installation(spool, host, machine)
    return done


def identity_of(spool: Spool, host: str) -> HostIdentity:
    """The identity that the spool stands for, under a host's name; made where it has none. Raises SpoolError."""
    known = _known(spool)
    return new_installation(spool, host, "") if known is None else replace(known, host=host)


def new_installation(spool: Spool, host: str, machine: str) -> HostIdentity:
    """A new identity, noted in the spool. Raises SpoolError."""
    identity = HostIdentity(host, new_install_id(), machine)
    _note(spool, identity)
    return identity


def begin_run(spool: Spool, started_ms: int, boot: str) -> AgentRun:
    """Notes that a run of the agent begins. Raises SpoolError."""
    run = AgentRun(os.urandom(8).hex(), started_ms, boot)
    spool.note(_RUN, json.dumps(asdict(run)))
    return run


def current_run(spool: Spool) -> AgentRun:
    """The run that was begun last; one of its own where none was. Raises SpoolError."""
    known = read_fact(spool, _RUN, dict, {})
    try:
        return AgentRun(str(known["id"]), int(known["started_ms"]), str(known["boot"]))
    except (KeyError, TypeError, ValueError):
        return begin_run(spool, SystemClock().now_ms(), "")


def _known(spool: Spool) -> HostIdentity | None:
    """What the spool's folder says; None where it says nothing. Raises SpoolError."""
    with _entered(spool) as folder:
        content = folder.read(_FILE, _MOST_BYTES)
    try:
        found = json.loads(content or b"{}")
        known = HostIdentity(*(str(found[name]) for name in ("host", "install", "machine")))
    except (KeyError, TypeError, ValueError):
        return None
    return known if is_install_id(known.install) else None


def _note(spool: Spool, identity: HostIdentity) -> None:
    if _known(spool) != identity:
        with _entered(spool) as folder:
            folder.write(_FILE, json.dumps(asdict(identity)).encode() + b"\n")


@contextlib.contextmanager
def _entered(spool: Spool) -> Iterator[SpoolFolder]:
    try:
        with contextlib.closing(SpoolFolder(str(spool.folder))) as folder:
            yield folder
    except OSError as error:
        raise SpoolError(
            f"cannot use {spool.folder / _FILE}: {error.strerror}", "check the disk and the folder's permissions"
        ) from error
