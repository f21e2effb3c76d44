"""The energy of GPU time by the hours of UTC, whose it was, and what carbon dioxide it stands for."""

from __future__ import annotations

import polars as pl

from analytics.intervals import SPAN_MS, cut
from analytics.ledger.rollups import Rollups
from analytics.money.energy import MJ_PER_KWH
from analytics.money.grid_intensity import GridIntensity
from analytics.money.priced_segments import NOBODY
from analytics.states import IDLE_ALLOCATED, IN_USE
from fallow.clock import HOUR_MS

USED, HELD, FREE, REST = PARTS = ("used", "held", "free", "rest")
"""What GPU time is to energy: computing; somebody's without computing; nobody's; and what nobody can tell: not observed, broken, or the
counter of a GPU that is split, which stands for all of its instances."""

_SUMS = ("gpu_ms", "energy_mj", "energy_known_ms")
_COLUMNS = (
    "host",
    "gpu",
    "time",
    "end",
    "state",
    "instance",
    "gpu_share",
    "team",
    "pool",
    "model",
    "is_deferrable",
    *_SUMS,
)


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


def _part() -> pl.Expr:
    state = pl.col("state")
    is_split = ~pl.col("instance") & (pl.col("gpu_share") < 1)
    return (
        pl.when(is_split)
        .then(pl.lit(REST))
        .when(state.is_in(IN_USE))
        .then(pl.lit(USED))
        .when(state.is_in(IDLE_ALLOCATED))
        .then(pl.lit(HELD))
        .when(state == "free")
        .then(pl.lit(FREE))
        .otherwise(pl.lit(REST))
    )


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
