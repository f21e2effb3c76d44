"""Which installation of the agent a spool belongs to, and which run of it: what tells two agents of one host name apart.

A spool that comes to another machine is a copy, or its disk was moved. Under the same host name its rows are kept, and those that
the lake has by then are not published again. Under another name too it is a copy, as from an image of a disk that was made
of a running host: its rows are that host's, and the whole spool is set aside.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from agent.spool.spool import read_fact
from fallow.host_identity import HostIdentity, is_install_id, new_install_id

if TYPE_CHECKING:
    from agent.spool.spool import Spool

_INSTALLATION = "install"
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
    known = read_fact(spool, _INSTALLATION, dict, {})
    install, was_host, was_machine = (str(known.get(name) or "") for name in ("install", "host", "machine"))
    if not is_install_id(install):
        new_installation(spool, host, machine)
        return ""
    if not (machine and was_machine and machine != was_machine):
        _note(spool, HostIdentity(host, install, machine or was_machine))
        return ""
    if host == was_host:
        spool.note(COPIED_UNTIL, str(spool.newest_seq()))
        done = "the spool came from another machine of this name: what the lake has of its rows is not published again"
    else:
        done = (
            f"the spool came from the host {was_host} and is now in {(place := spool.set_aside('copied'))}: its rows are that host's, "
            f"whose own agent publishes them; else `fallow agent publish --spool {place} --host {was_host}` does"
        )
    new_installation(spool, host, machine)
    return done


def identity_of(spool: Spool, host: str) -> HostIdentity:
    """The identity that the spool stands for, under a host's name; made where it has none. Raises SpoolError."""
    known = read_fact(spool, _INSTALLATION, dict, {})
    install, machine = (str(known.get(name) or "") for name in ("install", "machine"))
    return HostIdentity(host, install, machine) if is_install_id(install) else new_installation(spool, host, machine)


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
        return begin_run(spool, 0, "")


def _note(spool: Spool, identity: HostIdentity) -> None:
    known = asdict(identity)
    if read_fact(spool, _INSTALLATION, dict, {}) != known:
        spool.note(_INSTALLATION, json.dumps(known))
