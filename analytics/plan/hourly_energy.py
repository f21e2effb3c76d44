"""The energy of GPU time hour by hour, and the carbon dioxide that it stands for, each with how much of it is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from analytics.intervals import SPAN_MS, cut
from analytics.ledger.rollups import Rollups
from analytics.money.energy import MJ_PER_KWH, Energy, GridIntensity
from analytics.money.priced_segments import NOBODY
from analytics.states import IDLE_ALLOCATED, IN_USE
from fallow.clock import HOUR_MS


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


USED, HELD, FREE, REST = PARTS = ("used", "held", "free", "rest")
"""What GPU time is to energy: computing; somebody's without computing; nobody's; and what nobody can tell: not observed, broken, or the
counter of a GPU that is split, which stands for all of its instances."""

_SUMS = ("gpu_ms", "energy_mj", "energy_known_ms")
_PLACE = ("host", "gpu", "time", "end", "state", "instance", "gpu_share", "team", "pool", "model", "is_deferrable")
_COLUMNS = (*_PLACE, *_SUMS)


def hourly_energy(pieces: pl.DataFrame, rollups: Rollups, intensity: GridIntensity, pue: float) -> pl.DataFrame:
    """One row per piece of `analytics.money.priced_segments` and hour, cut to it: those of _COLUMNS that the pieces have, and more.

    More are hour (its first millisecond), part (of PARTS), g_per_kwh (null where unknown), rated_mj (of `energy_mj`, what lies in
    hours of known intensity) and co2_g (grams for rated_mj, with PUE). What is REST is nobody's.

    A piece keeps its energy. Between its whole hours it is shared as the GPU's energy of these hours was, where that is known, else
    evenly; the hours that it does not fill have their time's share.
    """
    there = pieces.select(name for name in _COLUMNS if name in pieces.columns)
    own = pl.when(pl.col("part") == REST).then(pl.lit(NOBODY)).otherwise("team")
    parts = there.with_columns(pl.col(_SUMS).cast(pl.Float64), part=_part()).with_columns(team=own)
    rows = cut(parts.with_row_index("piece"), HOUR_MS, "hour", sums=_SUMS)
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
    """The rows, the energy of a piece's whole hours shared between them as the GPU's was, where all of it is known."""
    whole = SPAN_MS == HOUR_MS
    known = hourly.filter(pl.col("energy_ms") > 0).select(
        "host", "gpu", hour="time", of_gpu=pl.col("energy_mj") / pl.col("energy_ms")
    )
    parts, rest = rows.filter(whole), rows.filter(~whole)
    joined = parts.join(known, on=("host", "gpu", "hour"), how="left", maintain_order="left")
    own, of_gpu = pl.col("energy_mj").sum().over("piece"), pl.col("of_gpu").sum().over("piece")
    told = (pl.col("of_gpu").null_count().over("piece") == 0) & (of_gpu > 0)
    shared = joined.with_columns(energy_mj=pl.when(told).then(own * pl.col("of_gpu") / of_gpu).otherwise("energy_mj"))
    return pl.concat([shared.drop("of_gpu"), rest])
