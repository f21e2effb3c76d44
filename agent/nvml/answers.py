"""What the worker answers, as the supervisor reads it from JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from agent.rows import DeviceRow, EventRow, GpuRow, HealthRow, ProcessRow


class CallCosts(TypedDict):
    """What the driver calls since the answer before have cost."""

    calls: int
    busy_s: float
    slowest_s: float
    slowest_call: str | None


class OpenAnswer(TypedDict):
    """New inventory and error counters without times, who is watched, and who cannot be."""

    device: list[DeviceRow]
    health: list[HealthRow]
    gpus: list[str]
    instances: dict[str, list[str]]
    """UUIDs of MIG instances by that of their parent."""
    missing: list[int]
    """Positions of GPUs that cannot be opened."""
    count: int
    incidents: list[EventRow]


class IntervalAnswer(OpenAnswer):
    """An interval's rows, and what they have cost."""

    gpu: list[GpuRow]
    process: list[ProcessRow]
    costs: CallCosts
    cpu_s: float
    """Of this worker since its start."""
    rss_bytes: int
