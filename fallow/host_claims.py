"""Claims to a host's name: which installations publish as this host, so that two agents of one name are told apart.

`agents/host=H/<install id>.json` is written by that installation alone, again and again: a policy of the store that lets a
host write `*/host=H/*` covers it. The claims stay when an agent has stopped: `fallow lake check` reads in them who may have
written a host's files.

An agent holds the name once it has stored that it wants it and then sees no other live claim that wants or holds it. Of
two that want it the one that began earlier goes on asking; the other one yields until the first is silent or has left. A
claim is live while it changes. So no store needs a lock or a condition, and no two clocks have to agree.
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
"""States of a claim: asks for the name, publishes under it, waits for another one, has stopped."""

_STATES = (WANTS, HOLDS, YIELDS, LEFT)
_MOST_BYTES = 16 << 10
_MOST_TEXT = 120
_LONGEST_PERIOD_S = 21_600.0
"""Of another's claim: whoever writes longer periods into it must not keep the name for ever."""


@dataclass(frozen=True)
class HostClaim:
    """What one installation says in its claim."""

    host: str
    install: str
    machine: str
    node: str
    """The machine's own name, by which a person finds it."""
    by: str
    run: str
    """A random id of this run of the agent: two processes with one installation (a copied spool) differ in it."""
    started_ms: int
    state: str
    held_until_ms: int
    """By this machine's clock, until when this installation held the name, as far as it knew when it wrote this; 0: never."""
    count: int
    """Climbs with every renewal."""
    period_s: float
    """How often it is renewed; three times that without a change, and it is silent."""

    @property
    def key(self) -> str:
        return f"{claims_folder(self.host)}/{self.install}.json"

    @property
    def order(self) -> tuple[int, str, str]:
        """The lower of two began earlier; never the same for two runs."""
        return self.started_ms, self.install, self.run

    def content(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    def said(self) -> str:
        """Who it is, for a person who has to find it."""
        machine = f"machine {self.machine[:12]}" if self.machine else "a machine without an id"
        return f"the installation {self.install[:12]} on {machine}, which calls itself {self.node or 'nothing'}"


def claims_folder(host: str) -> str:
    return f"{FOLDER}/host={quote(host, safe='')}"


def list_claims(store: Store, host: str) -> dict[str, Stored]:
    """The claims to a host's name by installation, unread; LakeError where they cannot be listed."""
    found = {}
    for stored in store.list(claims_folder(host)):
        install = stored.key.rpartition("/")[2].removesuffix(".json")
        if stored.key.endswith(".json") and is_install_id(install) and not stored.fault:
            found[install] = stored
    return found


def read_claim(store: Store, host: str, install: str) -> HostClaim | None:
    """The claim of an installation; None where there is none, or where what is there is none. Raises LakeError."""
    content = store.read_small(f"{claims_folder(host)}/{install}.json", _MOST_BYTES)
    return None if content is None else _parsed(host, install, content)


def read_claims(store: Store, host: str) -> Iterator[HostClaim]:
    """All claims to a host's name. Raises LakeError."""
    for install in list_claims(store, host):
        if (claim := read_claim(store, host, install)) is not None:
            yield claim


def _parsed(host: str, install: str, content: bytes) -> HostClaim | None:
    """Host and installation are those of the claim's name: nobody may claim for another."""
    try:
        found = json.loads(content)
    except ValueError:
        return None
    return claim_of(host, install, found)


def claim_of(host: str, install: str, found: Any) -> HostClaim | None:
    """The claim whose fields these are; None where they are none."""
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
    """Which installations ever claimed each host's name, read once for each host."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._installs: dict[str, frozenset[str]] = {}

    def doubt(self, file: LakeFile, metadata: Mapping[str, str]) -> str:
        """What is odd about who wrote the file, as a sentence; empty: nothing. Raises LakeError."""
        strangers = [each for each in listed(metadata.get(INSTALL_KEY, "")) if each not in self._claimed(file.host)]
        if not strangers:
            return ""
        return (
            f"{file.url} was written by the installation {strangers[0][:40]}, which never claimed the host {file.host}; "
            "find out who put it there, and move it out of the lake unless it is right"
        )

    def _claimed(self, host: str) -> frozenset[str]:
        if host not in self._installs:
            self._installs[host] = frozenset(list_claims(self._lake.store, host))
        return self._installs[host]
