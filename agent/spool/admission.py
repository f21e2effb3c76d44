"""Whether this agent may publish: into its own lake, and under a host name that no other agent uses.

A publisher checks before it stores its first file, and again before rows count as published: a mount may vanish
between. fallow/host_claims.py has the rules for two agents with one host name. The spool keeps how long other agents'
claims have not changed, by this machine's clock: short-lived publishers and restarted agents need not wait again.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, NamedTuple

from agent.spool.installation import COPIED_UNTIL, current_run, identity_of, new_installation
from agent.spool.publisher_arguments import NAME_CONFLICT
from agent.spool.spool import Spool, read_fact
from fallow import __version__
from fallow.clock import SystemClock, boot_time_s, format_ms
from fallow.errors import HostNameTakenError, LakeError, NoLakeError, SpoolError
from fallow.host_claims import HOLDS, LEFT, WANTS, YIELDS, HostClaim, claim_of, list_claims, read_claim
from fallow.lake_marker import no_marker, read_marker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from agent.rows import EventRow
    from agent.spool.installation import AgentRun
    from fallow.clock import Clock
    from fallow.host_identity import HostIdentity
    from fallow.lake import Lake

SILENT_PERIODS = 3
"""A claim is void after this number of its periods without a change."""

_AT_WORK_MS = 30_000
"""The usual maximum time that a publisher runs on after it renewed its claim. The lake may hold rows up to then."""

_SEEN_FACT = "claims_seen"


class _Seen(NamedTuple):
    version: str
    since_s: float
    claim: HostClaim | None


class ClaimsSeen:
    """The claims of other agents in one lake; `now_s` counts within one boot of the machine."""

    def __init__(self, spool: Spool, lake: Lake, host: str, run: AgentRun) -> None:
        self._spool, self._lake, self._host, self._boot = spool, lake, host, run.boot
        self._seen = self._remembered()
        self.listed: frozenset[str] = frozenset()
        """The installations that had a claim, live or void, at the last call of `live`."""

    def live(self, own_install: str, now_s: float) -> list[HostClaim]:
        """Return the live claims of other agents, the earliest first. Raises LakeError and SpoolError."""
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
            seen = {
                install: [version, since_s, None if claim is None else asdict(claim)]
                for install, (version, since_s, claim) in self._seen.items()
            }
            with contextlib.suppress(SpoolError):  # on a full disk: this agent then waits longer
                self._spool.note(_SEEN_FACT, json.dumps({"boot": self._boot, "lake": self._lake.root, "seen": seen}))
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
        """Return until when another agent may have published under this name, by its clock; 0: never.

        Uses the claims of the last call of `live`.
        """
        claims = [each.claim for each in self._seen.values() if each.claim is not None and each.claim.held_until_ms]
        return max((each.held_until_ms + (0 if each.state == LEFT else _AT_WORK_MS) for each in claims), default=0)

    def _remembered(self) -> dict[str, _Seen]:
        fact = read_fact(self._spool, _SEEN_FACT, dict, {})
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


_AT_ONCE = 500


def set_rows_aside(spool: Spool, before_ms: int) -> str:
    """Move the waiting rows from before a time to another spool. Return a sentence about them; empty without rows.

    Rows that were in the spool when it came to this machine belong to the other agent, and stay.

    The old spool keeps the rows until the new one has them, so an interrupted move can be repeated. Raises SpoolError.
    """
    copied_until = int(spool.noted(COPIED_UNTIL) or 0)
    if not spool.waiting_before(before_ms, copied_until, 1):
        return ""
    folder = spool.folder / f"other-name-{format_ms(before_ms).replace(':', '')}"
    count = 0
    with contextlib.closing(Spool(str(folder))) as aside:
        while rows := spool.waiting_before(before_ms, copied_until, _AT_ONCE):
            aside.take(rows)
            spool.drop_rows([row[0] for row in rows])
            count += len(rows)
    return (
        f"{count} rows are kept in {folder}; `fallow agent publish --spool {folder} --host NAME` publishes them under "
        "a different name"
    )


_SURE_PERIODS = 2
"""After this time without a renewal, the holder of a name claims it again: another agent may have it by now."""

_LOOKS_EVERY = 3
"""A name's holder looks for other claims at every third renewal: in object stores a list costs as much as a file."""

_CLAIM_FACT = "claim"


class NameClaim:
    """One agent's claim to its host name in one lake; the spool keeps the claim between publishers."""

    def __init__(
        self, spool: Spool, lake: Lake, host: str, period_s: float, *, clock: Clock, now_s: Callable[[], float]
    ) -> None:
        """Read the claim from the spool. `now_s`: a clock that cannot be set; `period_s`: time between renewals.

        Raises SpoolError.
        """
        self.aside = ""
        """The sentence about rows that were set aside: another agent had the name when these rows were recorded."""
        self.others: Sequence[HostClaim] = ()
        """The live claims of other agents to this name, at the last look."""
        self.has_looked = False
        self._spool, self._lake, self._clock, self._now_s = spool, lake, clock, now_s
        self._run = current_run(spool)
        self._seen = ClaimsSeen(spool, lake, host, self._run)
        self.identity = identity_of(spool, host)
        known = read_fact(spool, _CLAIM_FACT, dict, {})
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
        """Claim the name, or renew the claim.

        Raises SpoolError, HostNameTakenError where another agent holds it, LakeError where the lake does not answer.
        """
        self._meet_double()
        if self._claim.state == HOLDS and self._age_s() < _SURE_PERIODS * self._claim.period_s:
            self._renewals += 1
            if self._renewals % _LOOKS_EVERY == 1:
                # of two holders, which a consistent store makes impossible, the earlier one stays
                self._give_way_to(
                    each for each in self._look() if each.state == HOLDS and each.order < self._claim.order
                )
            self._store(HOLDS)
        else:
            self._contend()

    @property
    def yields(self) -> bool:
        """Return whether another agent held the name when this run last claimed it."""
        return self._claim.state == YIELDS

    def keep(self) -> None:
        """Renew the claim before it expires in a long run; raises as `renew`."""
        if self._age_s() > self._claim.period_s:
            self.renew()

    def leave(self) -> None:
        """Release the name at a run's end; on failure the claim expires. Raises neither LakeError nor SpoolError."""
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
            raise self._taken(wanting[0])  # the other agent must see this claim, and yield, before either publishes
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
            f"another agent publishes under the name {self.identity.host}: {rival.description()}",
            "set a different agent.host on one of the two, or stop the other agent",
        )

    def _look(self) -> Sequence[HostClaim]:
        self.others = self._seen.live(self._claim.install, self._now_s())
        self.has_looked = True
        return self.others

    def _recall(self) -> None:
        """Restore until when an earlier run of this installation held the name, for the other agents."""
        # read only a listed claim: a store reports a missing file as forbidden to a host with restricted rights
        if self._stored_s is not None or self._claim.install not in self._seen.listed:
            return
        if found := read_claim(self._lake.store, self.identity.host, self._claim.install):
            self._claim = replace(self._claim, held_until_ms=found.held_until_ms)

    def _meet_double(self) -> None:
        """Take a new id where another process writes this claim, from a copy of this spool, and began earlier."""
        if self._stored_s is None:
            return
        found = read_claim(self._lake.store, self.identity.host, self._claim.install)
        if found is None or found.run == self._claim.run or found.order > self._claim.order:
            return
        self.identity = new_installation(self._spool, self.identity.host, self.identity.machine)
        self._claim = replace(self._claim, install=self.identity.install, state=YIELDS)
        self._stored_s = None

    def _store(self, state: str) -> None:
        now_s = self._now_s()  # taken before the store call, which may be slow: the claim counts from here
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
        with contextlib.suppress(SpoolError):  # on a full disk only publishing frees space
            self._spool.note(_CLAIM_FACT, json.dumps(known))


_LAKE_IDS = "lake_ids"
"""The fact that holds the id of every lake, by its address."""


class Admission:
    """The permission of one publisher to publish from a spool into a lake, under a host name."""

    def __init__(
        self,
        spool: Spool,
        lake: Lake,
        host: str,
        period_s: float,
        *,
        lake_id: str = "",
        clock: Clock | None = None,
        now_s: Callable[[], float] = boot_time_s,
    ) -> None:
        """Prepare the check. `period_s`: time between publishers; `lake_id`: required id, empty for the lake's first.

        Raises SpoolError.
        """
        self._spool, self._lake, self._lake_id, self._clock = spool, lake, lake_id, clock or SystemClock()
        self.messages: list[str] = []
        """The details of the events that were spooled."""
        self._claim = NameClaim(spool, lake, host, period_s, clock=self._clock, now_s=now_s)

    @property
    def identity(self) -> HostIdentity:
        """Return the identity that publishes. It changes where a copy of this spool appears."""
        return self._claim.identity

    def check(self) -> None:
        """Check the lake and renew the claim to the name.

        Raises NoLakeError or HostNameTakenError where nothing may be published, else LakeError and SpoolError.
        """
        self._check_lake()
        try:
            self._claim.renew()
        except HostNameTakenError as error:
            self._tell_conflict(str(error))
            raise
        if self._claim.aside:
            self._tell(
                "rows_set_aside",
                f"this agent now has the name {self.identity.host}; {self._claim.aside}: another agent had the name at"
                " their time",
            )
            self._claim.aside = ""
        # report once that another agent waits for the name that this agent holds
        if self._claim.has_looked:
            others = [
                f"another agent also has the name {self.identity.host}, and publishes nothing: {each.description()}; "
                "set a different agent.host there, or stop it"
                for each in self._claim.others
            ]
            self._tell_conflict(others[0] if others else "")

    def check_again(self) -> None:
        """Raise as `check` where the lake has vanished since (a bucket cannot), or a long run has lost the name."""
        if self._lake.store.may_vanish:
            self._check_lake()
        self._claim.keep()

    @property
    def is_denied(self) -> bool:
        """Return whether another agent held the name when this run last claimed it."""
        return self._claim.yields

    def leave(self) -> None:
        """Release the name if the lake still exists; never raises LakeError."""
        with contextlib.suppress(LakeError), self._lake.store.pinned():
            self._check_lake()
            self._claim.leave()

    def _check_lake(self) -> None:
        lake = self._lake
        marker = read_marker(lake.store)
        if marker is None:
            raise no_marker(lake.root)
        known = read_fact(self._spool, _LAKE_IDS, dict, {})
        wanted = self._lake_id or known.get(lake.root)
        if wanted and marker.id != wanted:
            whose = "lake.id is" if self._lake_id else "this agent publishes into the lake"
            raise NoLakeError(
                f"the lake at {lake.root} has the id {marker.id}, but {whose} {wanted}",
                f"mount the right lake; or, if this is the right lake, set lake.id to {marker.id}",
            )
        if known.get(lake.root) != marker.id:
            self._spool.note(_LAKE_IDS, json.dumps({**known, lake.root: marker.id}))
            self._tell("lake_adopted", f"this agent now publishes into the lake {marker.id} at {lake.root}")

    def _tell_conflict(self, sentence: str) -> None:
        if sentence != (self._spool.noted(NAME_CONFLICT) or ""):
            self._spool.note(NAME_CONFLICT, sentence)
            if sentence:
                self._tell("host_name_taken", sentence)

    def _tell(self, kind: str, detail: str) -> None:
        event: EventRow = {"time": self._clock.now_ms(), "gpu": None, "kind": kind, "detail": detail}
        self._spool.append({"event": [event]})
        self.messages.append(detail)
