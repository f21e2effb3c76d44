"""This agent's claim to its host's name in a lake (fallow/host_claims.py says by which rules two agents of one name settle it)."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from agent.spool.installation import new_installation
from agent.spool.spool import read_fact
from fallow import __version__
from fallow.errors import HostNameTakenError, LakeError
from fallow.host_claims import HOLDS, LEFT, WANTS, YIELDS, HostClaim, list_claims, read_claim

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.spool.spool import Spool
    from fallow.host_identity import HostIdentity
    from fallow.stores import Store

SILENT_PERIODS = 3
"""After so many of its periods without a change, a claim is void."""

_SURE_PERIODS = 2
"""A holder that renewed its claim so long ago asks for the name anew: another one may have it by now."""

_LOOKS_EVERY = 3
"""A holder looks for others at every third renewal: a list costs an object store as much as a file."""

_SEEN = "claims_seen"


class _Seen(NamedTuple):
    version: str
    since_s: float


class NameClaim:
    """One agent's claim in one lake. Its clock is one that nobody can set."""

    def __init__(self, identity: HostIdentity, started_ms: int, now_s: Callable[[], float], boot: str) -> None:
        """`boot` names this boot of the machine, by which `now_s` counts."""
        self.identity = identity
        self.rival: HostClaim | None = None
        """Another live agent of this name, as far as this one has looked."""
        self._now_s, self._boot = now_s, boot
        self._claim = HostClaim(
            identity.host, identity.install, identity.machine, f"fallow {__version__}", os.urandom(8).hex(), started_ms,
            WANTS, 0, 1.0,
        )  # fmt: skip
        self._stored_s: float | None = None
        self._renewals = 0
        self._seen: dict[str, _Seen] | None = None
        self._read: dict[str, tuple[str, HostClaim | None]] = {}

    @property
    def holds(self) -> bool:
        return self._claim.state == HOLDS and self._stored_s is not None

    def renew(self, spool: Spool, store: Store, period_s: float) -> None:
        """Holds the name from now on; called about every `period_s`.

        Raises HostNameTakenError where another one holds it, LakeError where the lake does not answer, and SpoolError.
        """
        self._meet_double(spool, store)
        self._claim = replace(self._claim, period_s=period_s)
        if self.holds and self._now_s() - (self._stored_s or 0.0) < _SURE_PERIODS * self._claim.period_s:
            self._renewals += 1
            if self._renewals % _LOOKS_EVERY == 1 and (rival := self._rival(spool, store)) is not None:
                self._yield_to(store, rival)
            self._store(store, HOLDS)
        else:
            self._contend(spool, store)

    def leave(self, store: Store) -> None:
        """Gives the name back at the end of a run; where that fails, the claim falls silent. Never raises LakeError."""
        if self._stored_s is not None and self._claim.state != LEFT:
            with contextlib.suppress(LakeError):
                self._store(store, LEFT)

    def _contend(self, spool: Spool, store: Store) -> None:
        self._claim = replace(self._claim, state=WANTS)
        if (rival := self._rival(spool, store)) is not None:
            self._yield_to(store, rival)
        self._store(store, WANTS)
        if (rival := self._rival(spool, store)) is not None:
            self._yield_to(store, rival)
        if self.rival is not None and self.rival.state in (WANTS, HOLDS):
            raise self._taken(self.rival)  # it has to see this claim and yield first
        self._store(store, HOLDS)
        self._renewals = 0

    def _yield_to(self, store: Store, rival: HostClaim) -> None:
        self._store(store, YIELDS)
        raise self._taken(rival)

    def _taken(self, rival: HostClaim) -> HostNameTakenError:
        return HostNameTakenError(
            f"another agent publishes as {self.identity.host}: {rival.said()}",
            "set agent.host to a name of its own on one of the two, or stop the other agent",
        )

    def _rival(self, spool: Spool, store: Store) -> HostClaim | None:
        """Who this one has to yield to; also notes in `rival` who else is there."""
        live = self._live(spool, store)
        self.rival = min(
            live, key=lambda each: ((WANTS, HOLDS, YIELDS).index(each.state) == 2, each.order), default=None
        )
        before = [
            each
            for each in live
            if (each.state == HOLDS and not (self.holds and each.order > self._claim.order))
            or (each.state == WANTS and not self.holds and each.order < self._claim.order)
        ]
        return min(before, key=lambda each: each.order, default=None)

    def _live(self, spool: Spool, store: Store) -> list[HostClaim]:
        """Claims of others that have not left, and have changed within their time as this process has seen it."""
        now_s, seen, before = self._now_s(), {}, self._remembered(spool)
        live = []
        for install, stored in list_claims(store, self.identity.host).items():
            if install == self._claim.install:
                continue
            version, since_s = before.get(install, _Seen("", now_s))
            seen[install] = _Seen(stored.version, since_s if version == stored.version else now_s)
            claim = self._content(store, install, stored.version)
            if claim is None or claim.state == LEFT:
                continue
            if now_s - seen[install].since_s < SILENT_PERIODS * claim.period_s:
                live.append(claim)
        if seen != before:
            self._seen = seen
            spool.note(_SEEN, json.dumps({"boot": self._boot, "seen": seen}))
        return live

    def _content(self, store: Store, install: str, version: str) -> HostClaim | None:
        known = self._read.get(install)
        if known is None or known[0] != version:
            known = self._read[install] = version, read_claim(store, self.identity.host, install)
        return known[1]

    def _remembered(self, spool: Spool) -> dict[str, _Seen]:
        """What this boot has seen so far: a restarted agent need not wait for a silent claim from the beginning."""
        if self._seen is None:
            fact = read_fact(spool, _SEEN, dict, {})
            found = fact.get("seen") if fact.get("boot") == self._boot and self._boot else None
            try:
                self._seen = {
                    str(name): _Seen(str(version), float(since_s)) for name, (version, since_s) in (found or {}).items()
                }
            except (AttributeError, TypeError, ValueError):
                self._seen = {}
        return self._seen

    def _meet_double(self, spool: Spool, store: Store) -> None:
        """Another process writes this very claim: both run on copies of one spool. The one that began later gets a new id."""
        if self._stored_s is None:
            return
        found = read_claim(store, self.identity.host, self._claim.install)
        if found is None or found.run == self._claim.run or found.order > self._claim.order:
            return
        self.identity = new_installation(spool, self.identity.host, self.identity.machine)
        self._claim = replace(self._claim, install=self.identity.install, state=YIELDS)
        self._stored_s = None

    def _store(self, store: Store, state: str) -> None:
        now_s = self._now_s()  # before: what was stored late is as old as the wish to store it
        self._claim = replace(self._claim, state=state, count=self._claim.count + 1)
        store.put(self._claim.key, self._claim.content())
        self._stored_s = now_s
