"""The GPUs on which jobs are replayed: hosts alike in groups."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class HostGroup:
    """Hosts alike: their pool, the model of their GPUs, how many GPUs each has, and what a GPU has and costs; None is unknown.

    `slowdown` is how many times as long a job takes here that ran on another model.
    """

    pool: str
    model: str
    hosts: int
    gpus_per_host: int
    mem_bytes: int | None = None
    hourly_price: float | None = None
    idle_w: float | None = None
    busy_w: float | None = None
    slowdown: float = 1.0
    held_w: float | None = None
    partitions: frozenset[str] | None = None

    @property
    def gpus(self) -> int:
        return self.hosts * self.gpus_per_host


@dataclass(frozen=True)
class ReplayFleet:
    """All groups of hosts; a pool may have several, of several models or widths."""

    groups: tuple[HostGroup, ...]

    @property
    def gpus(self) -> int:
        return sum(group.gpus for group in self.groups)
