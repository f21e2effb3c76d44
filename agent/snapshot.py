"""The agent's state after its newest interval, for /metrics, the control socket and `fallow top`.

The lake holds history; a snapshot holds the present and its age.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agent.rows import AgentRow, DeviceRow, GpuRow, HostRow, ProcessRow, ServingRow

Row = Mapping[str, Any]
"""A read-only row of any table of the lake; times in milliseconds since the epoch."""

WATCHED = ("ok", "degraded")
"""The states of health in which a GPU's values are measured."""

_LONGEST_SILENCE_S = 120.0


def is_silent(age_s: float, interval_ms: int) -> bool:
    """Return whether an interval is long overdue: after three intervals, and not before the time of a slow driver.

    `age_s` counts from the end of the newest interval; before the first interval, from the agent's start.
    """
    return age_s > max(3 * interval_ms / 1000, _LONGEST_SILENCE_S)


@dataclass(frozen=True)
class PublishingStatus:
    """The state of publishing from the spool into the lake."""

    last_success_ms: int | None = None
    """When rows last reached the lake; None before the first time in this run."""
    failing_since_ms: int | None = None
    """When the current series of failures began; None while publishing succeeds."""
    last_error: str | None = None
    waiting_rows: int | None = None
    spool_bytes: int | None = None
    name_conflict: str | None = None
    """A sentence about another agent with this host name, and the remedy; None: no other agent is known."""


@dataclass(frozen=True)
class Xid:
    """The newest critical error that the driver reported for a GPU."""

    code: int
    time_ms: int


class GpuErrors(TypedDict, total=False):
    """A GPU's error counters, for /metrics and events; None is unknown. The lake does not contain them."""

    gpu: str
    ecc_corrected_count: int | None
    ecc_uncorrected_count: int | None
    ecc_corrected_lifetime_count: int | None
    ecc_uncorrected_lifetime_count: int | None
    remapped_rows_corrected_count: int | None
    remapped_rows_uncorrected_count: int | None
    row_remap_pending: bool | None
    row_remap_failed: bool | None
    pcie_replay_count: int | None
    recovery_action: str | None


@dataclass(frozen=True)
class Snapshot:
    """One host at the end of the newest closed interval."""

    host: str
    version: str
    pool: str
    interval_ms: int
    started_ms: int
    """Start of the agent's run."""
    time_ms: int
    """End of the newest closed interval."""
    mode: str
    """`running`, or `released` while the agent does not use the driver."""
    gpus: tuple[GpuRow, ...] = ()
    """Rows of the `gpu` table for that interval."""
    idle_since_ms: Mapping[str, int | None] = field(default_factory=dict)
    """Since when a GPU has been watched without utilization above 0, by UUID; None: it is active, or unknown."""
    stalled: Mapping[str, bool | None] = field(default_factory=dict)
    """Whether a GPU is a stalled suspect, by UUID; None: unknown."""
    devices: Mapping[str, DeviceRow] = field(default_factory=dict)
    """The newest row of the `device` table, by UUID."""
    processes: tuple[ProcessRow, ...] = ()
    """Rows of the `process` table: the newest list per GPU."""
    host_row: HostRow | None = None
    serving: tuple[ServingRow, ...] = ()
    agent_row: AgentRow | None = None
    errors: tuple[GpuErrors, ...] = ()
    """The newest error counters, per GPU."""
    xids: Mapping[str, Xid] = field(default_factory=dict)
    """The newest XID in this run, by UUID; GPUs without an XID are missing."""
    publishing: PublishingStatus = field(default_factory=PublishingStatus)

    def as_json(self) -> dict[str, Any]:
        """Return the snapshot as JSON values; `from_json` reads them back."""
        whole = {each.name: getattr(self, each.name) for each in fields(self)}
        return whole | {
            "publishing": asdict(self.publishing),
            "xids": {gpu: asdict(xid) for gpu, xid in self.xids.items()},
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Snapshot:
        """Return the snapshot that `as_json` wrote, without the unknown fields of a newer agent."""
        known = {each.name: values[each.name] for each in fields(cls) if each.name in values}
        for name in ("gpus", "processes", "serving", "errors"):
            known[name] = tuple(known.get(name, ()))
        known["publishing"] = PublishingStatus(**known.get("publishing", {}))
        known["xids"] = {gpu: Xid(**xid) for gpu, xid in known.get("xids", {}).items()}
        return cls(**known)


class SnapshotBoard:
    """Holds the newest snapshot: the sampling thread publishes it, other threads read it."""

    def __init__(self, interval_ms: int = 0) -> None:
        """`interval_ms` is the length of the first interval, for judging whether it is overdue."""
        self.interval_ms = interval_ms
        self._newest: tuple[Snapshot, float] | None = None  # one reference, replaced whole: readers need no lock
        self._created_s = time.clock_gettime(time.CLOCK_BOOTTIME)

    def publish(self, snapshot: Snapshot) -> None:
        age_s = max(0.0, time.time() - snapshot.time_ms / 1000)
        self._newest = snapshot, time.clock_gettime(time.CLOCK_BOOTTIME) - age_s

    def latest(self) -> Snapshot | None:
        """Return the newest snapshot; None before the first."""
        newest = self._newest
        return None if newest is None else newest[0]

    def latest_with_age(self) -> tuple[Snapshot, float] | None:
        """Return the newest snapshot and the seconds since its interval's end; None before the first.

        The age is by a clock that has no steps and runs while the machine sleeps.
        """
        newest = self._newest
        if newest is None:
            return None
        snapshot, ended_s = newest
        return snapshot, max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ended_s)

    def age_s(self) -> float:
        """Return the seconds since the agent started, by the same clock."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) - self._created_s


class SinceClock:
    """Tracks since when a condition has held for each GPU without a gap in observation.

    An interval of which too little is known (GPU lost, driver down, agent stopped) does not fulfil the condition, so
    the time restarts after it. The true time is never shorter.
    """

    def __init__(self, holds: Callable[[GpuRow], bool]) -> None:
        self._holds = holds
        self._known: dict[str, tuple[int | None, int]] = {}  # by UUID: holds since, end of the newest row

    def feed(self, rows: Iterable[GpuRow]) -> dict[str, int | None]:
        """Add an interval's `gpu` rows. Return since when the condition holds (epoch ms) by UUID; None: it does not."""
        before, self._known = self._known, {}
        for row in rows:
            start_ms = row["time"]
            since_ms, ended_ms = before.get(row["gpu"], (None, start_ms))
            if not self._holds(row):
                since_ms = None
            elif since_ms is None or start_ms > ended_ms or start_ms < since_ms:
                since_ms = start_ms
            self._known[row["gpu"]] = since_ms, start_ms + row["interval_ms"]
        return {gpu: since_ms for gpu, (since_ms, _) in self._known.items()}


def is_idle(row: GpuRow) -> bool:
    """Return whether utilization was observed in the interval and was 0 throughout."""
    return row.get("gpu_util_pct") == 0 and not row.get("gpu_util_max_pct")
