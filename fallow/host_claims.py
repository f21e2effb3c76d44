"""Claims to a host's name: the installations that publish as this host, so that two agents with one name are detected.

Only the installation itself writes `agents/host=H/<install id>.json`, and renews it; a store's policy that lets a host
write `*/host=H/*` covers the file. Claims remain when an agent stops: `fallow lake check` reads in them which
installations may have written a host's files.

An agent holds the name once it has stored that it wants the name and then sees no other live claim that wants or holds
it. Of two agents that want the name, the one that started earlier continues; the other yields until the first is silent
or has left. A claim is live while it changes. A store thus needs no locks or conditional writes, and no exact clocks.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fallow.host_identity import INSTALL_KEY, is_install_id, listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fallow.lake import Lake, LakeFile
    from fallow.stores import Store, Stored

FOLDER = "agents"

WANTS, HOLDS, YIELDS, LEFT = "wants", "holds", "yields", "left"
"""States of a claim: wants the name, publishes under it, waits for another agent, has stopped."""

_STATES = (WANTS, HOLDS, YIELDS, LEFT)
_MOST_BYTES = 16 << 10
_MOST_TEXT = 120
_LONGEST_PERIOD_S = 21_600.0
"""Longest period of another agent's claim, so that a wrong period cannot keep the name for ever."""


@dataclass(frozen=True)
class HostClaim:
    """The content of an installation's claim."""

    host: str
    install: str
    machine: str
    node: str
    """The machine's host name, by which a person finds it."""
    by: str
    run: str
    """A random id of this run of the agent; distinguishes two processes of one installation (a copied spool)."""
    started_ms: int
    state: str
    held_until_ms: int
    """Time until which this installation held the name when it wrote the claim, by this machine's clock; 0: never."""
    count: int
    """Rises with each renewal."""
    period_s: float
    """Time between renewals; a claim without a change for three periods is silent."""

    @property
    def key(self) -> str:
        return f"{claims_folder(self.host)}/{self.install}.json"

    @property
    def order(self) -> tuple[int, str, str]:
        """Sort key of runs, the earlier run first; unique for each run."""
        return self.started_ms, self.install, self.run

    def content(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    def description(self) -> str:
        """Return a description of the installation, so that a person can find it."""
        machine = f"machine {self.machine[:12]}" if self.machine else "a machine without an id"
        return f"the installation {self.install[:12]} on {machine} with the host name {self.node or 'unknown'}"


def claims_folder(host: str) -> str:
    return f"{FOLDER}/host={quote(host, safe='')}"


def list_claims(store: Store, host: str) -> dict[str, Stored]:
    """Return the installations that have claimed a host's name; raises LakeError if they cannot be listed."""
    found = {}
    for stored in store.list(claims_folder(host)):
        install = stored.key.rpartition("/")[2].removesuffix(".json")
        if stored.key.endswith(".json") and is_install_id(install) and not stored.fault:
            found[install] = stored
    return found


def read_claim(store: Store, host: str, install: str) -> HostClaim | None:
    """Return the claim of an installation; None if it is missing or not a claim. Raises LakeError."""
    content = store.read_small(f"{claims_folder(host)}/{install}.json", _MOST_BYTES)
    return None if content is None else _parsed(host, install, content)


def read_claims(store: Store, host: str) -> Iterator[HostClaim]:
    """Return all claims to a host's name. Raises LakeError."""
    for install in list_claims(store, host):
        if (claim := read_claim(store, host, install)) is not None:
            yield claim


def _parsed(host: str, install: str, content: bytes) -> HostClaim | None:
    """Return the claim; host and installation come from its name, so that no installation claims for another."""
    try:
        found = json.loads(content)
    except ValueError:
        return None
    return claim_of(host, install, found)


def claim_of(host: str, install: str, found: Any) -> HostClaim | None:
    """Return the claim with these fields; None if the fields are wrong."""
    try:
        state, period_s = found["state"], float(found["period_s"])
        started_ms, held_until_ms, count = (int(found[name]) for name in ("started_ms", "held_until_ms", "count"))
    except (ValueError, KeyError, TypeError, OverflowError):
        return None
    if state not in _STATES or not 0 < period_s < float("inf"):
        return None
    machine, node, by, run = (_text(found.get(name)) for name in ("machine", "node", "by", "run"))
    period_s = min(period_s, _LONGEST_PERIOD_S)
    return HostClaim(host, install, machine, node, by, run, started_ms, state, held_until_ms, count, period_s)


def _text(value: Any) -> str:
    return value[:_MOST_TEXT] if isinstance(value, str) and value.isprintable() else ""


class Origins:
    """The installations that have claimed hosts' names, read once for each host."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._installs: dict[str, frozenset[str]] = {}

    def doubt(self, file: LakeFile, metadata: Mapping[str, str]) -> str:
        """Return a sentence about an unexpected origin of the file; empty for an expected origin. Raises LakeError."""
        strangers = [each for each in listed(metadata.get(INSTALL_KEY, "")) if each not in self._claimed(file.host)]
        if not strangers:
            return ""
        return (
            f"{file.url} was written by the installation {strangers[0][:40]}, which never claimed the host {file.host};"
            " find out who wrote it, and move it out of the lake if it is wrong"
        )

    def _claimed(self, host: str) -> frozenset[str]:
        if host not in self._installs:
            self._installs[host] = frozenset(list_claims(self._lake.store, host))
        return self._installs[host]
