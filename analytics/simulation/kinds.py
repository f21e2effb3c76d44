"""Kinds of fleets: which pools there are, and how people use them."""

from __future__ import annotations

from dataclasses import dataclass

from analytics.simulation.catalog import A100, H100, L40S, POOLS, V100, Pool
from analytics.simulation.habits import MEASURED, TAUGHT, Habits


@dataclass(frozen=True)
class FleetKind:
    """The pools, whose shares add up to 1, and the habits of the people in them."""

    pools: tuple[Pool, ...] = POOLS
    habits: Habits = MEASURED


KINDS: dict[str, FleetKind] = {
    "measured": FleetKind(),
    "tuned": FleetKind(habits=TAUGHT),
    "training": FleetKind((Pool("train", H100, 0.75, 8, "training"), Pool("legacy", V100, 0.25, 4, "notebook"))),
    "serving": FleetKind((Pool("serving", L40S, 0.75, 4, "serving"), Pool("train", H100, 0.25, 8, "training"))),
    "interactive": FleetKind((Pool("lab", V100, 0.75, 4, "notebook"), Pool("train-old", A100, 0.25, 8, "training"))),
    "returning": FleetKind((Pool("batch", A100, 0.75, 8, "returning"), Pool("train", H100, 0.25, 8, "training"))),
    "projects": FleetKind((Pool("research", H100, 0.75, 8, "project"), Pool("serving", L40S, 0.25, 4, "serving"))),
}
"""`measured` is that of the sources in docs/simulation.md; of the others the calibration wants as different ones as it can get."""
