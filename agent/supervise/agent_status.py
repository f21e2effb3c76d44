"""What the running agent says of itself on its control socket."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from agent.supervise.snapshot import PublishingStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.supervise.snapshot import Snapshot


@dataclass(frozen=True)
class Blocked:
    """A worker process that cannot let go of the driver, because a call of its does not return."""

    pid: int
    gpu: str | None
    """UUID, None where the driver did not get as far as naming it."""
    gpu_index: int | None
    call: str


@dataclass(frozen=True)
class AgentStatus:
    """The agent in one sentence or two."""

    mode: str
    """`running`, `releasing` (the workers have not all ended yet) or `released`."""
    pid: int
    host: str
    version: str
    started_ms: int
    interval_ms: int
    time_ms: int | None = None
    """End of the newest closed interval; None before the first."""
    gpus: Mapping[str, int] = field(default_factory=dict)
    """Number of GPUs and MIG instances in each state of health."""
    released_until_ms: int | None = None
    """When the agent takes the driver up again by itself; None: when it is told to."""
    blocked: tuple[Blocked, ...] = ()
    publishing: PublishingStatus = field(default_factory=PublishingStatus)

    def as_json(self) -> dict[str, Any]:
        """The status as JSON values; `from_json` reads it back."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> AgentStatus:
        """The status that `as_json` wrote; fields that a newer agent may have added are left out."""
        known = {each.name: values[each.name] for each in fields(cls) if each.name in values}
        known["blocked"] = tuple(Blocked(**each) for each in known.get("blocked", ()))
        known["publishing"] = PublishingStatus(**known.get("publishing", {}))
        return cls(**known)


def count_health(snapshot: Snapshot | None) -> dict[str, int]:
    """How many GPUs and MIG instances are in each state of health."""
    return {} if snapshot is None else dict(Counter(row["health"] for row in snapshot.gpus))
