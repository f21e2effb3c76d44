"""What this agent has seen of other agents' claims to its host's name: which of them are live.

A claim is live while it changes. How long one has stayed the same is counted by this machine's own clock, and kept in the
spool: a publisher is short-lived, and an agent that was restarted need not begin to wait anew.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, NamedTuple

from agent.spool.spool import read_fact
from fallow.errors import SpoolError
from fallow.host_claims import LEFT, HostClaim, claim_of, list_claims, read_claim

if TYPE_CHECKING:
    from agent.spool.installation import AgentRun
    from agent.spool.spool import Spool
    from fallow.lake import Lake

SILENT_PERIODS = 3
"""After so many of its periods without a change, a claim is void."""

_AT_WORK_MS = 30_000
"""How long a publisher goes on after it has renewed its claim, at most in general: rows up to then may be in the lake."""

_FACT = "claims_seen"


class _Seen(NamedTuple):
    version: str
    since_s: float
    claim: HostClaim | None


class ClaimsSeen:
    """Those in one lake; `now_s` counts within one boot of the machine."""

    def __init__(self, spool: Spool, lake: Lake, host: str, run: AgentRun) -> None:
        self._spool, self._lake, self._host, self._boot = spool, lake, host, run.boot
        self._seen = self._remembered()
        self.listed: frozenset[str] = frozenset()
        """The installations that have a claim, live or not, as far as `live` saw last."""

    def live(self, own_install: str, now_s: float) -> list[HostClaim]:
        """The others' claims that are live, by who began first. Raises LakeError and SpoolError."""
        before = self._seen
        self._seen = {}
        claims = list_claims(self._lake.store, self._host)
        self.listed = frozenset(claims)
        for install, stored in claims.items():
            if install == own_install:
                continue
            known = before.get(install)
            if known is None or known.version != stored.version:
                known = _Seen(stored.version, now_s, read_claim(self._lake.store, self._host, install))
            self._seen[install] = known
        if self._seen != before:
            self._keep()
        return sorted(
            (
                each.claim
                for each in self._seen.values()
                if each.claim is not None
                and each.claim.state != LEFT
                and now_s - each.since_s < SILENT_PERIODS * each.claim.period_s
            ),
            key=lambda claim: claim.order,
        )

    def held_until_ms(self) -> int:
        """Until when another one may have published under this name, by its own clock; 0: never. Of what `live` saw last."""
        claims = [each.claim for each in self._seen.values() if each.claim is not None and each.claim.held_until_ms]
        return max((each.held_until_ms + (0 if each.state == LEFT else _AT_WORK_MS) for each in claims), default=0)

    def _keep(self) -> None:
        seen = {
            install: [version, since_s, None if claim is None else asdict(claim)]
            for install, (version, since_s, claim) in self._seen.items()
        }
        with contextlib.suppress(SpoolError):  # on a full disk: it waits longer then
            self._spool.note(_FACT, json.dumps({"boot": self._boot, "lake": self._lake.root, "seen": seen}))

    def _remembered(self) -> dict[str, _Seen]:
        fact = read_fact(self._spool, _FACT, dict, {})
        if (fact.get("boot"), fact.get("lake")) != (self._boot, self._lake.root):
            return {}
        try:
            return {
                str(install): _Seen(
                    str(version), float(since_s), None if claim is None else claim_of(self._host, str(install), claim)
                )
                for install, (version, since_s, claim) in fact["seen"].items()
            }
        except (AttributeError, KeyError, TypeError, ValueError):
            return {}
