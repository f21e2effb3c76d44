"""Parameters of the simulated fleet: behaviour of work, card models, pools, hosts, teams and their people.

The parameters make the fleet behave like measured fleets; docs/simulation.md explains each. `genai26` is
alibaba/clusterdata cluster-trace-v2026-GenAI (143 image generation pods, one day), `Acme` InternLM/AcmeTrace (Seren and
Kalos, A100 80 GB). The parameters are our own few rounded values; the repository contains no trace.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class IntervalLengths:
    """Lengths of intervals in seconds: log-normal, with a share `long_ratio` from a second, longer log-normal.

    At hour h of the UTC day a length is multiplied by exp(night * cos(2 pi (h - 3) / 24)): with `night` above 0,
    intervals are longest at 03:00. Lengths lie between `min_s` and `max_s`.
    """

    median_s: float
    sigma: float
    long_ratio: float = 0.0
    long_median_s: float = 1.0
    long_sigma: float = 0.0
    night: float = 0.0
    min_s: float = 1.0
    max_s: float = 36_000.0


@dataclass(frozen=True)
class Knots:
    """A quantile function by a few points: `values[i]` at probability `at[i]`, with straight lines between."""

    at: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Behaviour:
    """Use of a GPU by a kind of work."""

    busy: IntervalLengths
    idle: IntervalLengths
    level_pct: Knots
    """Utilization while busy."""
    intensity_ratio: Knots
    """Power while busy (0 = the parked card, 1 = its power limit)."""
    mem_ratio: Knots
    """Memory in use."""
    kept_ratio: float
    """Part of a row's level that belongs to the stay (1 = the same level throughout)."""
    bursty_ratio: float
    """Share of a busy row's unused time that counts as zero samples: requests leave gaps, training steps hardly any."""
    startup_s: float
    """Mean time before the first kernel."""


SERVING = Behaviour(
    busy=IntervalLengths(90.0, 1.02, night=-0.38),
    idle=IntervalLengths(138.0, 1.2, 0.022, 2_700.0, 0.87, night=0.45),
    # genai26: mean 21 % over busy samples, median 18.5, 5 % of them above 62
    level_pct=Knots((0.0, 0.1, 0.3, 0.5, 0.75, 0.9, 0.95, 1.0), (2.0, 9.0, 15.5, 20.0, 27.0, 40.0, 64.0, 100.0)),
    intensity_ratio=Knots((0.0, 0.5, 1.0), (0.08, 0.24, 0.75)),
    # genai26: four fifths of the samples hold 19-27 GB
    mem_ratio=Knots((0.0, 0.1, 0.8, 1.0), (0.38, 0.45, 0.56, 0.92)),
    kept_ratio=0.25,
    bursty_ratio=0.8,
    startup_s=60.0,
)
"""Inference services, after genai26."""

QUIET_EVERY = 8
"""One in this many serving pods gets hardly any requests (genai26: about 1 in 8 pods is at 0 for 90 % of its life)."""

QUIET_IDLE_FACTOR = 6.3
"""Factor of the idle intervals of those pods."""

TRAINING = Behaviour(
    # input waits and checkpoints: about 3 % of a running job at 0, in intervals of half a minute to a few minutes
    busy=IntervalLengths(2_700.0, 0.5),
    idle=IntervalLengths(75.0, 0.5, 0.05, 420.0, 0.6),
    # Acme: of the samples above 0, 2 % below 60, 7 % below 90, two thirds at 99 or more
    level_pct=Knots(
        (0.0, 0.015, 0.03, 0.05, 0.07, 0.1, 0.13, 0.2, 0.35, 0.7, 0.8, 1.0),
        (10.0, 58.0, 72.0, 83.0, 91.0, 95.0, 97.0, 98.0, 99.0, 99.4, 99.9, 100.0),
    ),
    # Acme: a third of the busy samples draw hardly more than a parked card (spinning on communication)
    intensity_ratio=Knots(
        (0.0, 0.23, 0.37, 0.49, 0.56, 0.64, 0.71, 0.78, 0.85, 0.93, 1.0),
        (0.0, 0.012, 0.055, 0.15, 0.4, 0.66, 0.82, 0.92, 0.99, 1.03, 1.12),
    ),
    # Acme: Seren's memory in use with a little of Kalos, whose jobs fill more of the card
    mem_ratio=Knots(
        (0.0, 0.1, 0.25, 0.45, 0.6, 0.75, 0.87, 0.95, 1.0), (0.15, 0.27, 0.34, 0.47, 0.62, 0.75, 0.85, 0.95, 0.985)
    ),
    kept_ratio=0.7,
    bursty_ratio=0.1,
    startup_s=150.0,
)
"""Training jobs, after Acme."""

NOTEBOOK = Behaviour(
    busy=IntervalLengths(70.0, 0.9),
    idle=IntervalLengths(150.0, 1.0, 0.15, 2_400.0, 0.8),
    level_pct=Knots((0.0, 0.3, 0.6, 0.85, 1.0), (3.0, 18.0, 45.0, 80.0, 100.0)),
    intensity_ratio=Knots((0.0, 0.5, 1.0), (0.1, 0.35, 0.9)),
    mem_ratio=Knots((0.0, 0.5, 1.0), (0.05, 0.25, 0.8)),
    kept_ratio=0.3,
    bursty_ratio=0.6,
    startup_s=20.0,
)
"""A person working in Jupyter; our own guess, without a trace."""

JOB_LENGTH = IntervalLengths(4.5 * 3600, 1.1, max_s=4 * 86_400.0, min_s=300.0)
"""Run time of a training job. Long jobs hold most of the GPU time, as on Acme."""

JOB_GAP = IntervalLengths(0.46 * 3600, 1.0, max_s=86_400.0, min_s=60.0)
"""Time until the next job in a training slot. About 27 % of training GPU time is free with this value (Acme's share of
samples without memory in use).
"""

NIGHT_START_RATIO = 0.8
"""Share of the jobs that start as soon as possible at night or on weekends (queued or scripted); the others wait."""

PART_UNUSED_RATIO = 0.03
"""Share of multi-GPU jobs that use only half of their GPUs."""

TAIL_RATIO = 0.05
"""Share of training jobs that finish and stay (an open interactive shell): they hold their GPUs at 0 to their end."""

PROCESS_INTERVAL_MS = 300_000
"""Interval of process lists without changes. Every 30 s would need ten times the rows for the same information."""


def draw(intervals: IntervalLengths, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Return `count` lengths in seconds, before the hour's factor and the limits."""
    long = rng.random(count) < intervals.long_ratio
    median = np.where(long, intervals.long_median_s, intervals.median_s)
    sigma = np.where(long, intervals.long_sigma, intervals.sigma)
    return median * np.exp(sigma * rng.standard_normal(count))


def draw_ms(intervals: IntervalLengths, rng: np.random.Generator) -> int:
    """Return a length in milliseconds within the limits, without the hour's factor."""
    return round(1000 * float(np.clip(draw(intervals, rng, 1)[0], intervals.min_s, intervals.max_s)))


GIB = 1024**3


@dataclass(frozen=True)
class SimulatedCard:
    model: str
    tag: str
    mem_total_bytes: int
    mem_reserved_bytes: int
    power_limit_w: float
    idle_w: float
    """Power of the board without any process."""
    parking_w: float
    """Additional power of an open context (26-50 W on A100 and H100, arXiv 2605.23918; our guess on the other two)."""
    rise_c: float
    """Temperature of the die above the inlet air at the power limit."""
    idle_clock_mhz: int
    boost_clock_mhz: int
    mem_clock_mhz: int
    gpm: bool = False
    """True if the driver offers SM activity (Hopper and newer)."""
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
    """A group of like hosts: name, card, share of the fleet's GPUs, GPUs per host and kind of work."""

    name: str
    card: SimulatedCard
    share: float
    gpus_per_host: int
    work: str
    """A kind of work in `analytics.simulation.stays`: training, serving or notebook."""


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
"""Accounts and their logins; invented people."""

SERVICES: tuple[tuple[str, str], ...] = (
    ("image-gen-staging", "vision"),
    ("image-gen", "vision"),
    ("chat", "language"),
    ("speech-to-text", "speech"),
    ("ranker", "ranking"),
)
"""Services of the serving pool, and the team that owns each. The first has hardly any requests."""


@dataclass(frozen=True)
class Habits:
    """Habits of the fleet: training in general and by account, serving in general and by service."""

    training: Behaviour = TRAINING
    training_of: Mapping[str, Behaviour] = field(default_factory=dict)
    serving: Behaviour = SERVING
    serving_of: Mapping[str, Behaviour] = field(default_factory=dict)
    tail_ratio: float = TAIL_RATIO
    """Share of training jobs that stay after their work."""
    part_ratio: float = PART_UNUSED_RATIO
    """Share of training jobs that use half of their GPUs."""
    records_arguments: bool = False
    """True if the agent may record a notebook's arguments."""


MEASURED = Habits()

TUNED = replace(
    TRAINING,
    level_pct=Knots((0.0, 0.05, 1.0), (82.0, 93.0, 99.8)),
    intensity_ratio=Knots((0.0, 1.0), (0.58, 0.92)),
    # beside the shares of the card that frameworks reserve on their own
    mem_ratio=Knots((0.0, 0.6, 0.601, 1.0), (0.56, 0.71, 0.79, 0.86)),
)
"""Training that its users have tuned: the GPU works and its memory is used."""

BUSY_SERVING = replace(
    SERVING,
    busy=IntervalLengths(240.0, 0.9, night=-0.3),
    idle=IntervalLengths(45.0, 0.9, night=0.6),
    level_pct=Knots((0.0, 0.5, 1.0), (28.0, 52.0, 95.0)),
    intensity_ratio=Knots((0.0, 0.5, 1.0), (0.3, 0.5, 0.9)),
    mem_ratio=Knots((0.0, 1.0), (0.58, 0.71)),
)
"""Services with requests all day."""

TAUGHT = Habits(
    training=TUNED,
    training_of={"ranking": TRAINING},
    serving=BUSY_SERVING,
    serving_of=dict.fromkeys(("image-gen", "image-gen-staging"), SERVING),
    tail_ratio=0.01,
    part_ratio=0.0,
    records_arguments=True,
)
"""Most users have tuned their work; one team's training and one service are as on the measured fleets."""


@dataclass(frozen=True)
class SimulatedGpu:
    uuid: str
    index: int


@dataclass(frozen=True)
class SimulatedHost:
    """A simulated host. `number` counts over the whole fleet and seeds the host's random numbers."""

    name: str
    number: int
    pool: Pool
    gpus: tuple[SimulatedGpu, ...]


def build_hosts(gpus: int, seed: int, pools: Sequence[Pool]) -> tuple[SimulatedHost, ...]:
    """Return the hosts of a fleet with this many GPUs, by pool. The last host of a pool may be partly filled."""
    hosts: list[SimulatedHost] = []
    for pool, count in zip(pools, split_gpus(gpus, pools), strict=True):
        for nth, first in enumerate(range(0, count, pool.gpus_per_host)):
            name = f"sim-{pool.card.tag}-{nth + 1:02d}"
            size = min(pool.gpus_per_host, count - first)
            cards = tuple(SimulatedGpu(_uuid(seed, name, index), index) for index in range(size))
            hosts.append(SimulatedHost(name, len(hosts), pool, cards))
    return tuple(hosts)


def split_gpus(gpus: int, pools: Sequence[Pool]) -> list[int]:
    """Return GPUs per pool, by largest remainder: they add up to `gpus`, and earlier pools win ties."""
    exact = [gpus * pool.share for pool in pools]
    counts = [int(part) for part in exact]
    by_remainder = sorted(range(len(pools)), key=lambda nth: (counts[nth] - exact[nth], nth))
    for nth in by_remainder[: gpus - sum(counts)]:
        counts[nth] += 1
    return counts


def _uuid(seed: int, host: str, index: int) -> str:
    digest = hashlib.sha256(f"fallow simulation {seed} {host} {index}".encode()).digest()
    return f"GPU-{uuid.UUID(bytes=digest[:16])}"
