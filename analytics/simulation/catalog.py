"""What the simulated fleet is made of: card models, pools, hosts, teams and their people, and how these use it."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from analytics.simulation import calibration as known
from analytics.simulation.calibration import Behaviour, IntervalLengths, Knots

GIB = 1024**3


@dataclass(frozen=True)
class SimulatedCard:
    """One GPU model.

    `idle_w` is the board without any process, `parking_w` what an open context adds (26-50 W on A100 and H100, arXiv
    2605.23918; our guess on the other two), `rise_c` how far the die climbs over the inlet air at the power limit.
    `gpm` says whether the driver offers SM activity (Hopper and newer).
    """

    model: str
    tag: str
    mem_total_bytes: int
    mem_reserved_bytes: int
    power_limit_w: float
    idle_w: float
    parking_w: float
    rise_c: float
    idle_clock_mhz: int
    boost_clock_mhz: int
    mem_clock_mhz: int
    gpm: bool = False
    nvlink: bool = False


H100 = SimulatedCard(
    "NVIDIA H100 80GB HBM3",
    "h100",
    85_520_809_984,
    651_165_696,
    700.0,
    71.0,
    44.0,
    42.0,
    345,
    1980,
    2619,
    gpm=True,
    nvlink=True,
)
A100 = SimulatedCard(
    "NVIDIA A100-SXM4-80GB", "a100", 85_899_345_920, 635_437_056, 400.0, 63.0, 28.0, 36.0, 210, 1410, 1593, nvlink=True
)
L40S = SimulatedCard("NVIDIA L40S", "l40s", 48_305_799_168, 586_153_984, 350.0, 35.0, 46.0, 44.0, 210, 2520, 9001)
V100 = SimulatedCard(
    "Tesla V100-SXM2-32GB", "v100", 34_359_738_368, 443_547_648, 300.0, 42.0, 26.0, 38.0, 135, 1530, 877, nvlink=True
)


@dataclass(frozen=True)
class Pool:
    """A group of like hosts: its name, card, share of the fleet's GPUs, GPUs per host and what runs there."""

    name: str
    card: SimulatedCard
    share: float
    gpus_per_host: int
    work: str
    """One of those that `analytics.simulation.stays` draws: training, serving or notebook."""


POOLS: tuple[Pool, ...] = (
    Pool("train", H100, 0.375, 8, "training"),
    Pool("train-old", A100, 0.25, 8, "training"),
    Pool("serving", L40S, 0.25, 4, "serving"),
    Pool("legacy", V100, 0.125, 4, "notebook"),
)

TEAMS: dict[str, tuple[str, ...]] = {
    "language": ("amara", "bjorn", "chloe", "dmitri", "esi"),
    "vision": ("farid", "greta", "hiro", "ines"),
    "speech": ("jonas", "kavya", "liam"),
    "robotics": ("mei", "nuno", "olga", "pavel"),
    "ranking": ("quinn", "rosa", "sven"),
}
"""Accounts and the logins in them; invented people."""

SERVICES: tuple[tuple[str, str], ...] = (
    ("image-gen-staging", "vision"),
    ("image-gen", "vision"),
    ("chat", "language"),
    ("speech-to-text", "speech"),
    ("ranker", "ranking"),
)
"""What the serving pool serves, and the team that owns it; the first is the one that hardly anybody calls."""


@dataclass(frozen=True)
class Habits:
    """What work is like: training in general and that of some accounts, serving in general and some services.

    `tail_ratio` and `part_ratio` are the shares of training jobs that stay after their work and that use half of their GPUs.
    `told` says whether the agent may record what was started in a notebook's arguments.
    """

    training: Behaviour = known.TRAINING
    training_of: Mapping[str, Behaviour] = field(default_factory=dict)
    serving: Behaviour = known.SERVING
    serving_of: Mapping[str, Behaviour] = field(default_factory=dict)
    tail_ratio: float = known.TAIL_RATIO
    part_ratio: float = known.PART_UNUSED_RATIO
    told: bool = False


MEASURED = Habits()
"""Everybody as on the measured fleets."""

TUNED = replace(
    known.TRAINING,
    level_pct=Knots((0.0, 0.05, 1.0), (82.0, 93.0, 99.8)),
    intensity_ratio=Knots((0.0, 1.0), (0.58, 0.92)),
    # beside the shares of the card that frameworks reserve on their own
    mem_ratio=Knots((0.0, 0.6, 0.601, 1.0), (0.56, 0.71, 0.79, 0.86)),
)
"""Training that somebody has looked at: the GPU works and its memory is used."""

BUSY_SERVING = replace(
    known.SERVING,
    busy=IntervalLengths(240.0, 0.9, night=-0.3),
    idle=IntervalLengths(45.0, 0.9, night=0.6),
    level_pct=Knots((0.0, 0.5, 1.0), (28.0, 52.0, 95.0)),
    intensity_ratio=Knots((0.0, 0.5, 1.0), (0.3, 0.5, 0.9)),
    mem_ratio=Knots((0.0, 1.0), (0.58, 0.71)),
)
"""Services that people use all day."""

TAUGHT = Habits(
    training=TUNED,
    training_of={"ranking": known.TRAINING},
    serving=BUSY_SERVING,
    serving_of=dict.fromkeys(("image-gen", "image-gen-staging"), known.SERVING),
    tail_ratio=0.01,
    part_ratio=0.0,
    told=True,
)
"""Most have tuned their work; one team trains and one service waits as on the measured fleets."""


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
