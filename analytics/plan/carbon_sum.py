"""The energy of some GPU time and the carbon dioxide that it stands for, each with how much of it is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from analytics.money.energy import MJ_PER_KWH, Energy


@dataclass(frozen=True)
class CarbonSum:
    """The energy of some GPU time; of it `rated_mj` in hours of known intensity, which with PUE stand for `co2_g` grams.

    Everything is of what is known: `energy.known_share` and `rated_share` say how much that is.
    """

    energy: Energy
    rated_mj: float
    co2_g: float

    @property
    def kwh(self) -> float | None:
        """What the GPUs took, as far as it is known; None where nothing of it is."""
        return None if self.energy.total_ms and not self.energy.known_ms else self.energy.millijoules / MJ_PER_KWH

    @property
    def rated_share(self) -> float | None:
        """Share of the energy whose hours have a known intensity; None without any energy."""
        return min(self.rated_mj / self.energy.millijoules, 1.0) if self.energy.millijoules else None

    @property
    def co2_kg(self) -> float | None:
        """Carbon dioxide in kg, as far as it is known; None where nothing of it is."""
        return None if self.kwh is None or self.rated_share == 0 else self.co2_g / 1000

    def __add__(self, other: CarbonSum) -> CarbonSum:
        """Both together."""
        mine, its = self.energy, other.energy
        energy = Energy(mine.millijoules + its.millijoules, mine.known_ms + its.known_ms, mine.total_ms + its.total_ms)
        return CarbonSum(energy, self.rated_mj + other.rated_mj, self.co2_g + other.co2_g)


NOTHING = CarbonSum(Energy(0.0, 0.0, 0.0), 0.0, 0.0)
"""Of no time at all."""


def carbon_sums(rows: pl.DataFrame, keys: Sequence[str]) -> dict[tuple[str, ...], CarbonSum]:
    """The sums of rows of `analytics.plan.hourly_energy` by these columns."""
    sums = rows.group_by(keys).agg(pl.col("energy_mj", "energy_known_ms", "gpu_ms", "rated_mj", "co2_g").sum())
    return {
        tuple(row[: len(keys)]): CarbonSum(Energy(*row[len(keys) : -2]), *row[-2:])
        for row in sums.sort(keys).iter_rows()
    }
