"""What the simulated fleet is made of: card models, pools, teams and their people. Plain data."""

from __future__ import annotations

from dataclasses import dataclass

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
    work: str  # training, serving or notebook


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
