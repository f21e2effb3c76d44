"""How people use the fleet: as they were measured elsewhere, or as they do where most of them have learned to.

A measured fleet is mostly waste, which makes a good yardstick and a bad demo: where everybody stands out, nobody does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from analytics.simulation import calibration as known
from analytics.simulation.calibration import Behaviour, IntervalLengths, Knots


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
