"""CO2 of GPU time: its energy by hour, times the carbon intensity of the grid in that hour.

This is the only computation of CO2: the ledger, its accounts, `fallow plan carbon` and the pages sum these rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from analytics.intervals import SPAN_MS, cut
from analytics.ledger.rollups import Rollups
from analytics.money.energy import MJ_PER_KWH, Energy, GridIntensity
from analytics.money.priced_segments import OF_ALLOCATIONS
from analytics.states import IDLE_ALLOCATED, IN_USE
from fallow.clock import HOUR_MS


@dataclass(frozen=True)
class CarbonSum:
    """The energy of some GPU time, and its CO2.

    `rated_mj` is the energy in hours of known intensity, which with PUE gives `co2_g` grams. `energy.known_share` and
    `rated_share` are the known shares.
    """

    energy: Energy
    rated_mj: float
    co2_g: float

    @property
    def kwh(self) -> float | None:
        """Return the energy of the GPUs, by the rule of `Energy`; 0 for no time."""
        return self.energy.kwh if self.energy.total_ms else 0.0

    @property
    def rated_share(self) -> float | None:
        """Return the share of the energy whose hours have a known intensity; None without energy."""
        return min(self.rated_mj / self.energy.millijoules, 1.0) if self.energy.millijoules else None

    @property
    def co2_kg(self) -> float | None:
        """Return the CO2 in kg of the rated energy; None if none is rated or the energy is not known."""
        return None if self.kwh is None or self.rated_share == 0 else self.co2_g / 1000

    def __add__(self, other: CarbonSum) -> CarbonSum:
        mine, its = self.energy, other.energy
        energy = Energy(mine.millijoules + its.millijoules, mine.known_ms + its.known_ms, mine.total_ms + its.total_ms)
        return CarbonSum(energy, self.rated_mj + other.rated_mj, self.co2_g + other.co2_g)


NOTHING = CarbonSum(Energy(0.0, 0.0, 0.0), 0.0, 0.0)
"""The sum for no GPU time."""


def carbon_sums(rows: pl.DataFrame, keys: Sequence[str]) -> dict[tuple[str, ...], CarbonSum]:
    """Return the sums of rows of `hourly_energy` by these columns."""
    co2_g = (pl.col("co2_g") * _MICROGRAMS).round().cast(pl.Int64).sum() / _MICROGRAMS
    sums = rows.group_by(keys).agg(pl.col("energy_mj", "energy_known_ms", "gpu_ms", "rated_mj").sum(), co2_g)
    return {
        tuple(row[: len(keys)]): CarbonSum(Energy(*row[len(keys) : -2]), *row[-2:])
        for row in sums.sort(keys).iter_rows()
    }


_MICROGRAMS = 1e6
"""Parts of a gram: whole numbers of them have the same sum in any order, and so on any number of processors."""

USED, HELD, FREE, REST = PARTS = ("used", "held", "free", "rest")
"""Parts of GPU time: computing; allocated without computing; without a user; and unclear: not observed, broken, or the
counter of a split GPU, which covers all of its instances."""

_SUMS = ("gpu_ms", "energy_mj", "energy_known_ms")
_OF_PIECE = (
    "host",
    "gpu",
    "time",
    "end",
    "state",
    "instance",
    "gpu_share",
    "model",
    "pool",
    "local_day",
    "is_deferrable",
)
_OF_PAYER = ("organisation", "team", "user", "account", *OF_ALLOCATIONS)
_COLUMNS = (*_OF_PIECE, *_OF_PAYER, *_SUMS)


def hourly_energy(pieces: pl.DataFrame, rollups: Rollups, intensity: GridIntensity, pue: float) -> pl.DataFrame:
    """Return one row per segment of `analytics.money.priced_segments` and hour.

    Columns: those of _COLUMNS that the segments have, part (of PARTS), g_per_kwh (null if unknown), rated_mj (the part
    of `energy_mj` in hours of known intensity), co2_g (grams for rated_mj, with PUE) and hour (its first millisecond).
    If all hours have one intensity, no segment is cut.

    A segment keeps its energy. The energy of its whole hours is divided like the GPU's energy in these hours, if that
    is known, else evenly. Partial hours have their share by time.
    """
    there = pieces.select(name for name in _COLUMNS if name in pieces.columns)
    rows = there.with_columns(pl.col(_SUMS).cast(pl.Float64), part=_part())
    if intensity.flat is None:
        rows = cut(rows.with_row_index("piece"), HOUR_MS, "hour", sums=_SUMS)
        rows = _by_counter(rows.with_columns(pl.col("hour") * HOUR_MS), rollups.hourly("energy_mj", "energy_ms"))
    rated = pl.when(pl.col("g_per_kwh").is_not_null()).then("energy_mj").otherwise(0.0)
    return intensity.beside(rows).with_columns(
        rated_mj=rated, co2_g=rated / MJ_PER_KWH * pue * pl.col("g_per_kwh").fill_null(0.0)
    )


_PART_OF = {**dict.fromkeys(IN_USE, USED), **dict.fromkeys(IDLE_ALLOCATED, HELD), "free": FREE}


def _part() -> pl.Expr:
    is_split = ~pl.col("instance") & (pl.col("gpu_share") < 1)
    return pl.when(is_split).then(pl.lit(REST)).otherwise(pl.col("state").replace_strict(_PART_OF, default=REST))


def _by_counter(rows: pl.DataFrame, hourly: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with the energy of a segment's whole hours divided like the GPU's, if all of that is known."""
    whole = SPAN_MS == HOUR_MS
    known = hourly.filter(pl.col("energy_ms") > 0).select(
        "host", "gpu", hour="time", of_gpu=pl.col("energy_mj") / pl.col("energy_ms")
    )
    parts, rest = rows.filter(whole), rows.filter(~whole)
    joined = parts.join(known, on=("host", "gpu", "hour"), how="left", maintain_order="left")
    own, of_gpu = pl.col("energy_mj").sum().over("piece"), pl.col("of_gpu").sum().over("piece")
    measured = (pl.col("of_gpu").null_count().over("piece") == 0) & (of_gpu > 0)
    shared = joined.with_columns(
        energy_mj=pl.when(measured).then(own * pl.col("of_gpu") / of_gpu).otherwise("energy_mj")
    )
    return pl.concat([shared.drop("of_gpu"), rest])
