"""The numbers that make the simulated fleet behave like measured ones; how each was found is in docs/simulation.md.

Sources: `genai26` is alibaba/clusterdata cluster-trace-v2026-GenAI (143 image generation pods, one day); `Acme` is
InternLM/AcmeTrace (Seren and Kalos, A100 80 GB). The numbers are our own few rounded parameters, no trace is in here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class IntervalLengths:
    """Lengths of spells in seconds: log-normal, with a share `long_ratio` from a second, longer log-normal.

    At hour h of the UTC day a length is multiplied by exp(night * cos(2 pi (h - 3) / 24)): `night` above 0 makes spells
    longest at 03:00. Nothing is shorter than `min_s` or longer than `max_s`.
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
    """A quantile function as a few points: `values[i]` at probability `at[i]`, straight lines between."""

    at: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Behaviour:
    """What a kind of work does with a GPU while it holds it.

    `busy` and `idle` are the lengths of its spells, `level_pct` the utilization while busy, `intensity_ratio` the power
    while busy (0 = the parked card, 1 = its power limit), `mem_ratio` the memory that it holds. `kept_ratio` is how much of
    a row's level is the stay's own (1 = the same all along). `bursty_ratio` is the share of the unused time inside a busy
    row that counts as zero samples: requests leave gaps between them, a training step hardly does. `startup_s` is the
    mean time before the first kernel.
    """

    busy: IntervalLengths
    idle: IntervalLengths
    level_pct: Knots
    intensity_ratio: Knots
    mem_ratio: Knots
    kept_ratio: float
    bursty_ratio: float
    startup_s: float


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
"""One serving pod in so many is hardly ever called (genai26: about 1 in 8 pods is at 0 for nine tenths of its life)."""

QUIET_IDLE_FACTOR = 6.3
"""How much longer the idle spells of those pods are."""

TRAINING = Behaviour(
    # input waits and checkpoints: about 3 % of a running job at 0, in spells of half a minute to a few minutes
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
"""Somebody working in Jupyter; our own guess, no trace behind it."""

JOB_LENGTH = IntervalLengths(4.5 * 3600, 1.1, max_s=4 * 86_400.0, min_s=300.0)
"""How long a training job runs; long jobs hold most of the GPU time, as on Acme."""

JOB_GAP = IntervalLengths(0.46 * 3600, 1.0, max_s=86_400.0, min_s=60.0)
"""How long a training slot waits for its next job; chosen so that about 27 % of training GPU time is free (Acme's share
of samples without memory in use)."""

NIGHT_START_RATIO = 0.8
"""Share of the jobs that start when they could although it is night or weekend (queued or scripted); the rest wait."""

PART_UNUSED_RATIO = 0.03
"""Share of multi-GPU jobs that use only half of the GPUs that they hold."""

TAIL_RATIO = 0.05
"""Share of training jobs that finish and stay (an interactive shell left open): they hold the GPUs at 0 to their end."""

PROCESS_INTERVAL_MS = 300_000
"""How often processes are listed while nothing changes: every 30 s would be ten times the rows and say the same."""


def draw(spells: IntervalLengths, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """`count` lengths in seconds, before the hour's factor and the limits."""
    long = rng.random(count) < spells.long_ratio
    median = np.where(long, spells.long_median_s, spells.median_s)
    sigma = np.where(long, spells.long_sigma, spells.sigma)
    return median * np.exp(sigma * rng.standard_normal(count))


def draw_ms(spells: IntervalLengths, rng: np.random.Generator) -> int:
    """One length in milliseconds within the limits, without the hour's factor."""
    return round(1000 * float(np.clip(draw(spells, rng, 1)[0], spells.min_s, spells.max_s)))
