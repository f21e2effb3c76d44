"""Which installation of the agent a spool belongs to: a random id, the machine and the host that it was begun on.

A spool that comes to another machine is a copy, or its disk was moved. Under the same host name its rows are kept, and those that
the lake has by then are not published again. Under another name too it is a copy, as from an image of a disk that was made
of a running host: its rows are that host's, and the whole spool is set aside.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.spool.spool import read_fact
from fallow.host_identity import HostIdentity, is_install_id, new_install_id

if TYPE_CHECKING:
    from agent.spool.spool import Spool

_FACT = "install"

COPIED_UNTIL = "copied_until"
"""The fact that holds the number of the last row that was in a spool when it came to another machine."""


@dataclass(frozen=True)
class Settled:
    """Who this agent is, and what had to be done for it ("": nothing)."""

    identity: HostIdentity
    done: str = ""


def settle_installation(spool: Spool, host: str, machine: str) -> Settled:
    """The identity that the spool stands for here, noted in it; a new one where it came from another machine.

    Raises SpoolError.
    """
    known = read_fact(spool, _FACT, dict, {})
    install, was_host, was_machine = (str(known.get(name) or "") for name in ("id", "host", "machine"))
    if not is_install_id(install):
        return Settled(new_installation(spool, host, machine))
    if not (machine and was_machine and machine != was_machine):
        identity = HostIdentity(host, install, machine or was_machine)
        _note(spool, identity)
        return Settled(identity)
    if host != was_host:
        place = spool.set_aside("copied")
        done = (
            f"the spool came from the host {was_host} and is now {place}: its rows are that host's, and that host's agent "
            "publishes them"
        )
    else:
        spool.note(COPIED_UNTIL, str(spool.newest_seq()))
        done = "the spool came from another machine of this name: what the lake has of its rows is not published again"
    return Settled(new_installation(spool, host, machine), done)


def new_installation(spool: Spool, host: str, machine: str) -> HostIdentity:
    """A new identity, noted in the spool. Raises SpoolError."""
    identity = HostIdentity(host, new_install_id(), machine)
    _note(spool, identity)
    return identity


def _note(spool: Spool, identity: HostIdentity) -> None:
    known = {"id": identity.install, "host": identity.host, "machine": identity.machine}
    if read_fact(spool, _FACT, dict, {}) != known:
        spool.note(_FACT, json.dumps(known))
