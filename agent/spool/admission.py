"""Whether this agent may publish: into the lake that it was given, and under a name that is no other agent's.

Asked before a publisher stores its first file, and again before rows count as published: a mount may go away between.
"""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING

from agent.spool.name_claim import NameClaim
from agent.spool.outcome import NAME_CONFLICT
from agent.spool.spool import read_fact
from fallow.clock import SystemClock
from fallow.errors import HostNameTakenError, LakeError, NoLakeError
from fallow.lake_marker import no_marker, read_marker

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.rows import EventRow
    from agent.spool.spool import Spool
    from fallow.clock import Clock
    from fallow.host_identity import HostIdentity
    from fallow.lake import Lake

_LAKE_IDS = "lake_ids"
"""The fact that holds the id of each lake, by its address."""


def boot_time_s() -> float:
    """A clock that nobody can set and that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Admission:
    """Of one publisher: from a spool into a lake, under a host's name."""

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
        """Publishers run about every `period_s`; `lake_id` is the id that the lake must have, empty: that which it had first.

        Raises SpoolError.
        """
        self._spool, self._lake, self._lake_id, self._clock = spool, lake, lake_id, clock or SystemClock()
        self.said: list[str] = []
        """What happened: the details of the events that were spooled."""
        self._claim = NameClaim(spool, lake, host, period_s, clock=self._clock, now_s=now_s)

    @property
    def identity(self) -> HostIdentity:
        """Who publishes; another one than at first where a copy of this spool turned up."""
        return self._claim.identity

    def check(self) -> None:
        """Renews the claim to the name. NoLakeError and HostNameTakenError where nothing may be published, LakeError, SpoolError."""
        self._check_lake()
        try:
            self._claim.renew()
        except HostNameTakenError as error:
            self._tell_conflict(str(error))
            raise
        if self._claim.aside is not None:
            self._tell(
                "rows_set_aside",
                f"this agent has the name {self.identity.host} now; {self._claim.aside.said()}: another one had it then",
            )
            self._claim.aside = None
        self._warn()

    def check_again(self) -> None:
        """Raises as `check` where the lake has gone since, which a bucket cannot, or the name is lost in a long run."""
        if self._lake.store.may_vanish:
            self._check_lake()
        self._claim.keep()

    @property
    def is_denied(self) -> bool:
        """Whether another agent had the name when this run of the agent last asked for it."""
        return self._claim.yields

    def leave(self) -> None:
        """Gives the name back where the lake is still there; never raises LakeError."""
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
                f"the lake at {lake.root} has the id {marker.id}, and {whose} {wanted}",
                f"mount the right one; or, if this one is meant, set lake.id to {marker.id}",
            )
        if known.get(lake.root) != marker.id:
            self._spool.note(_LAKE_IDS, json.dumps({**known, lake.root: marker.id}))
            self._tell("lake_adopted", f"publishes into the lake {marker.id} at {lake.root} from now on")

    def _warn(self) -> None:
        """Says so, once, where another agent waits for the name that this one holds."""
        if self._claim.has_looked:
            others = [
                f"another agent calls itself {self.identity.host} too and publishes nothing: {each.said()}; "
                "set its agent.host to a name of its own, or stop it"
                for each in self._claim.others
            ]
            self._tell_conflict(others[0] if others else "")

    def _tell_conflict(self, said: str) -> None:
        if said != (self._spool.noted(NAME_CONFLICT) or ""):
            self._spool.note(NAME_CONFLICT, said)
            if said:
                self._tell("host_name_taken", said)

    def _tell(self, kind: str, detail: str) -> None:
        event: EventRow = {"time": self._clock.now_ms(), "gpu": None, "kind": kind, "detail": detail}
        self._spool.append({"event": [event]})
        self.said.append(detail)
