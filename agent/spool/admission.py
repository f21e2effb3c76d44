"""Whether this agent may publish: into the lake that it was given, and under a name that is no other agent's.

Asked before the first file of a batch is stored, and again before its rows count as published: a mount may go away between.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from agent.spool.name_claim import NameClaim
from agent.spool.spool import read_fact
from fallow.errors import NoLakeError
from fallow.lake_marker import no_marker, read_marker

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.rows import EventRow
    from agent.spool.spool import Spool
    from fallow.host_identity import HostIdentity
    from fallow.lake import Lake

_LAKE_IDS = "lake_ids"
"""The fact that holds the id of each lake, by its address."""


def boot_time_s() -> float:
    """A clock that nobody can set and that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Admission:
    """Of one agent, for its whole run; whatever lake the settings name."""

    def __init__(
        self,
        identity: HostIdentity,
        started_ms: int,
        period_s: float,
        *,
        lake_id: str = "",
        boot: str = "",
        now_s: Callable[[], float] = boot_time_s,
    ) -> None:
        self.lake_id = lake_id
        """The id that the lake must have; empty: that of the first one that is met at its address."""
        self.period_s = period_s
        """How often `check` is called, about."""
        self._identity, self._started_ms, self._boot, self._now_s = identity, started_ms, boot, now_s
        self._claims: dict[str, NameClaim] = {}
        self._incidents: list[EventRow] = []
        self._warned = ""

    @property
    def identity(self) -> HostIdentity:
        """Who publishes; another one than at first where a copy of this spool turned up."""
        return self._identity

    @property
    def conflict(self) -> str | None:
        """What is wrong although rows reach the lake: another agent of this name waits."""
        return self._warned or None

    def take_incidents(self) -> list[EventRow]:
        """What happened since the last call: kind (lake_adopted, host_name_taken) and detail."""
        taken, self._incidents = self._incidents, []
        return taken

    def check(self, spool: Spool, lake: Lake) -> None:
        """Renews the claim to the name. NoLakeError and HostNameTakenError where nothing may be published, LakeError, SpoolError."""
        self._check_lake(spool, lake)
        claim = self._claims.get(lake.root)
        if claim is None:
            claim = self._claims[lake.root] = NameClaim(self._identity, self._started_ms, self._now_s, self._boot)
        try:
            claim.renew(spool, lake.store, self.period_s)
        finally:
            self._identity = claim.identity
        self._warn(claim)

    def check_again(self, spool: Spool, lake: Lake) -> None:
        """Raises as `check` where the lake has gone since; a bucket cannot."""
        if lake.store.may_vanish:
            self._check_lake(spool, lake)

    def leave(self, lake: Lake) -> None:
        """Gives the name back; never raises LakeError."""
        if (claim := self._claims.pop(lake.root, None)) is not None:
            claim.leave(lake.store)

    def _check_lake(self, spool: Spool, lake: Lake) -> None:
        marker = read_marker(lake.store)
        if marker is None:
            raise no_marker(lake.root)
        known = read_fact(spool, _LAKE_IDS, dict, {})
        wanted = self.lake_id or known.get(lake.root)
        if wanted and marker.id != wanted:
            whose = "lake.id is" if self.lake_id else "this agent publishes into the lake"
            raise NoLakeError(
                f"the lake at {lake.root} has the id {marker.id}, and {whose} {wanted}",
                f"mount the right one; or, if this one is meant, set lake.id to {marker.id}",
            )
        if known.get(lake.root) != marker.id:
            spool.note(_LAKE_IDS, json.dumps({**known, lake.root: marker.id}))
            self._tell("lake_adopted", f"publishes into the lake {marker.id} at {lake.root} from now on")

    def _warn(self, claim: NameClaim) -> None:
        if claim.rival is None:
            self._warned = ""
            return
        said = (
            f"another agent calls itself {self._identity.host} too and publishes nothing: {claim.rival.said()}; "
            "set its agent.host to a name of its own, or stop it"
        )
        if said != self._warned:
            self._warned = said
            self._tell("host_name_taken", said)

    def _tell(self, kind: str, detail: str) -> None:
        self._incidents.append({"kind": kind, "detail": detail})
