"""This agent's claim to its host's name in a lake (fallow/host_claims.py says by which rules two agents of one name settle it)."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from agent.spool.claims_seen import ClaimsSeen
from agent.spool.installation import current_run, identity_of, new_installation
from agent.spool.rows_aside import set_rows_aside
from agent.spool.spool import read_fact
from fallow import __version__
from fallow.errors import HostNameTakenError, LakeError, SpoolError
from fallow.host_claims import HOLDS, LEFT, WANTS, YIELDS, HostClaim, read_claim

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from agent.spool.rows_aside import SetAside
    from agent.spool.spool import Spool
    from fallow.clock import Clock
    from fallow.lake import Lake

_SURE_PERIODS = 2
"""A holder that renewed its claim so long ago asks for the name anew: another one may have it by now."""

_LOOKS_EVERY = 3
"""A holder looks for others at every third renewal: a list costs an object store as much as a file."""

_FACT = "claim"


class NameClaim:
    """One agent's claim in one lake; the spool keeps it from one publisher to the next."""

    def __init__(
        self, spool: Spool, lake: Lake, host: str, period_s: float, *, clock: Clock, now_s: Callable[[], float]
    ) -> None:
        """`now_s` is a clock that nobody can set; the claim is renewed about every `period_s`. Raises SpoolError."""
        self.aside: SetAside | None = None
        """Rows that were set aside when the name was taken over, for they are of the time of another agent."""
        self.others: Sequence[HostClaim] = ()
        """Other live agents of this name, as far as this one has looked."""
        self.has_looked = False
        self._spool, self._lake, self._clock, self._now_s = spool, lake, clock, now_s
        self._run = current_run(spool)
        self._seen = ClaimsSeen(spool, lake, host, self._run)
        self.identity = identity_of(spool, host)
        known = read_fact(spool, _FACT, dict, {})
        if (known.get("lake"), known.get("run")) != (lake.root, self._run.id):
            known = {}
        self._stored_s: float | None = known.get("stored_s")
        self._renewals = int(known.get("renewals", 0))
        self._claim = HostClaim(
            host,
            self.identity.install,
            self.identity.machine,
            os.uname().nodename[:64],
            f"fallow {__version__}",
            self._run.id,
            self._run.started_ms,
            known.get("state", WANTS),
            int(known.get("held_until_ms", 0)),
            int(known.get("count", 0)),
            period_s,
        )

    def renew(self) -> None:
        """Holds the name from now on.

        Raises HostNameTakenError where another one holds it, LakeError where the lake does not answer, and SpoolError.
        """
        self._meet_double()
        if self._claim.state == HOLDS and self._age_s() < _SURE_PERIODS * self._claim.period_s:
            self._renewals += 1
            if self._renewals % _LOOKS_EVERY == 1:
                # of two that hold it, which cannot be while every store keeps its word, the earlier one stays
                self._give_way_to(
                    each for each in self._look() if each.state == HOLDS and each.order < self._claim.order
                )
            self._store(HOLDS)
        else:
            self._contend()

    @property
    def yields(self) -> bool:
        """Whether another agent had the name when this run of the agent last asked for it."""
        return self._claim.state == YIELDS

    def keep(self) -> None:
        """Renews the claim where a long run would let it fall silent; raises as `renew`."""
        if self._age_s() > self._claim.period_s:
            self.renew()

    def leave(self) -> None:
        """Gives the name back at the end of a run; where that fails, the claim falls silent. Raises neither LakeError nor SpoolError."""
        if self._stored_s is not None and self._claim.state != LEFT:
            with contextlib.suppress(LakeError):
                self._store(LEFT)

    def _age_s(self) -> float:
        return float("inf") if self._stored_s is None else self._now_s() - self._stored_s

    def _contend(self) -> None:
        others = self._look()
        self._recall()
        self._give_way_to(self._before_this(others))
        self._store(WANTS)
        others = self._look()
        self._give_way_to(self._before_this(others))
        if wanting := [each for each in others if each.state == WANTS]:
            raise self._taken(wanting[0])  # it has to see this claim, and yield, before anybody publishes
        self._renewals = 0
        if (until_ms := min(self._seen.held_until_ms(), self._clock.now_ms())) > 0:
            self.aside = set_rows_aside(self._spool, until_ms)
        self._store(HOLDS)

    def _before_this(self, others: Sequence[HostClaim]) -> list[HostClaim]:
        return [
            each for each in others if each.state == HOLDS or (each.state == WANTS and each.order < self._claim.order)
        ]

    def _give_way_to(self, rivals: Iterable[HostClaim]) -> None:
        if (rival := next(iter(rivals), None)) is not None:
            self._store(YIELDS)
            raise self._taken(rival)

    def _taken(self, rival: HostClaim) -> HostNameTakenError:
        return HostNameTakenError(
            f"another agent publishes as {self.identity.host}: {rival.said()}",
            "set agent.host to a name of its own on one of the two, or stop the other agent",
        )

    def _look(self) -> Sequence[HostClaim]:
        self.others = self._seen.live(self._claim.install, self._now_s())
        self.has_looked = True
        return self.others

    def _recall(self) -> None:
        """An earlier run of this installation may have held the name: others shall know until when."""
        # only what was listed: a host that may list its own folder alone is told that what is missing is forbidden
        if self._stored_s is not None or self._claim.install not in self._seen.listed:
            return
        if found := read_claim(self._lake.store, self.identity.host, self._claim.install):
            self._claim = replace(self._claim, held_until_ms=found.held_until_ms)

    def _meet_double(self) -> None:
        """Another process writes this very claim: both run on copies of one spool. The one that began later gets a new id."""
        if self._stored_s is None:
            return
        found = read_claim(self._lake.store, self.identity.host, self._claim.install)
        if found is None or found.run == self._claim.run or found.order > self._claim.order:
            return
        self.identity = new_installation(self._spool, self.identity.host, self.identity.machine)
        self._claim = replace(self._claim, install=self.identity.install, state=YIELDS)
        self._stored_s = None

    def _store(self, state: str) -> None:
        now_s = self._now_s()  # before: what was stored late is as old as the wish to store it
        before = self._claim
        held = state == HOLDS or (state == LEFT and before.state == HOLDS)
        held_until_ms = self._clock.now_ms() if held else before.held_until_ms
        self._claim = replace(before, state=state, held_until_ms=held_until_ms, count=before.count + 1)
        self._lake.store.put(self._claim.key, self._claim.content())
        self._stored_s = now_s
        known = {
            "lake": self._lake.root,
            "run": self._run.id,
            "stored_s": now_s,
            "renewals": self._renewals,
            "state": state,
            "count": self._claim.count,
            "held_until_ms": held_until_ms,
        }
        with contextlib.suppress(SpoolError):  # on a full disk it is publishing that makes room
            self._spool.note(_FACT, json.dumps(known))
