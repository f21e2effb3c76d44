"""Where the simulated GPUs stand: hosts of like cards in pools, with stable names and UUIDs."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from analytics.simulation.catalog import Pool


@dataclass(frozen=True)
class SimulatedGpu:
    """One simulated GPU: its UUID and its place on the host."""

    uuid: str
    index: int


@dataclass(frozen=True)
class SimulatedHost:
    """One simulated host: `number` counts over the whole fleet and seeds what happens on it."""

    name: str
    number: int
    pool: Pool
    gpus: tuple[SimulatedGpu, ...]


def build_hosts(gpus: int, seed: int, pools: Sequence[Pool]) -> tuple[SimulatedHost, ...]:
    """The hosts of a fleet of that many GPUs, pool by pool; the last host of a pool may be only partly filled."""
    hosts: list[SimulatedHost] = []
    for pool, count in zip(pools, split_gpus(gpus, pools), strict=True):
        for nth, first in enumerate(range(0, count, pool.gpus_per_host)):
            name = f"sim-{pool.card.tag}-{nth + 1:02d}"
            size = min(pool.gpus_per_host, count - first)
            cards = tuple(SimulatedGpu(_uuid(seed, name, index), index) for index in range(size))
            hosts.append(SimulatedHost(name, len(hosts), pool, cards))
    return tuple(hosts)


def split_gpus(gpus: int, pools: Sequence[Pool]) -> list[int]:
    """GPUs per pool, by largest remainder: they add up to `gpus`, earlier pools win ties."""
    exact = [gpus * pool.share for pool in pools]
    counts = [int(part) for part in exact]
    by_remainder = sorted(range(len(pools)), key=lambda nth: (counts[nth] - exact[nth], nth))
    for nth in by_remainder[: gpus - sum(counts)]:
        counts[nth] += 1
    return counts


def _uuid(seed: int, host: str, index: int) -> str:
    digest = hashlib.sha256(f"fallow simulation {seed} {host} {index}".encode()).digest()
    return f"GPU-{uuid.UUID(bytes=digest[:16])}"
