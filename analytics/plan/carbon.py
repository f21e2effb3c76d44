"""Energy and carbon dioxide of GPU time: of its use and its parking, by team, and what parking and the choice of hours cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from functools import cached_property

import polars as pl

from analytics.ledger.rollups import Rollups
from analytics.money.energy import MJ_PER_KWH, Grid, GridIntensity
from analytics.money.priced_segments import NOBODY
from analytics.money.window_money import Money
from analytics.plan.deferral import (
    FREE,
    HELD,
    NOTHING,
    PARTS,
    CarbonSum,
    Deferral,
    GridHours,
    carbon_sums,
    find_deferral,
    hourly_energy,
    with_deferrable,
)
from fallow.clock import HOUR_MS, floor_ms

YEAR_HOURS = 8766
SHIFT_HOURS = 12
"""By how much work may be moved unless somebody asks for another time: from the evening's peak into the night, from the night to noon."""

POWER_MIN_MS = HOUR_MS
"""GPU time of known energy from which on a power is stated."""


@dataclass(frozen=True)
class TeamCarbon:
    """A team, or the words for what has none, with its sums by part (of PARTS)."""

    label: str
    parts: Mapping[str, CarbonSum]

    @property
    def total(self) -> CarbonSum:
        """All parts together."""
        return sum(self.parts.values(), NOTHING)


@dataclass(frozen=True)
class ParkingPower:
    """What cards of a model drew on average, in watts: free, and held (a process has the GPU, nothing runs).

    `extra` is what the held ones took beyond what they would have taken free.
    """

    model: str
    free_w: float
    held_w: float
    free_ms: float
    held_ms: float
    extra: CarbonSum

    @property
    def extra_w(self) -> float:
        """Watts that holding a card costs."""
        return self.held_w - self.free_w


@dataclass(frozen=True)
class Carbon:
    """Of one window, or what a scope leaves of it.

    `mean_g_per_kwh` is over the `known_hours` of the window's `hours`; None where none is known. `parking` and `deferral` are of
    everybody together: None for people. `deferral` is None, too, where the intensity is one number for all hours.
    """

    teams: tuple[TeamCarbon, ...]
    parking: tuple[ParkingPower, ...] | None
    deferral: Deferral | None
    grid: Grid
    currency: str
    intensity: GridIntensity
    hours: int
    known_hours: int
    mean_g_per_kwh: float | None
    counter_share: float | None

    @property
    def parts(self) -> Mapping[str, CarbonSum]:
        """The sums by part, of all teams."""
        return {part: sum((each.parts[part] for each in self.teams), NOTHING) for part in PARTS}

    @property
    def total(self) -> CarbonSum:
        """All of it."""
        return sum(self.parts.values(), NOTHING)

    def year_kwh(self, watts: float) -> float:
        """What the site draws in a year for so many watts."""
        return watts * YEAR_HOURS / 1000 * self.grid.pue

    def year_co2_kg(self, watts: float) -> float | None:
        """Carbon dioxide of the same at the window's mean intensity, in kg."""
        return None if self.mean_g_per_kwh is None else self.year_kwh(watts) * self.mean_g_per_kwh / 1000

    def year_cost(self, watts: float) -> float | None:
        """Its price, where that of a kilowatt-hour is known."""
        return None if self.grid.price_per_kwh is None else self.year_kwh(watts) * self.grid.price_per_kwh


@dataclass(frozen=True)
class AskedCarbon:
    """With which intensity, with hours of the day in which zone, and by how many hours work may be moved."""

    intensity: GridIntensity
    zone: tzinfo
    most_hours: int = SHIFT_HOURS


@dataclass(frozen=True)
class CarbonBasis:
    """What carbon dioxide rests on beside the money of the same GPU time.

    `jobs` are their names (`analytics.plan.deferral`); None where nobody asks what other hours would save.
    """

    rollups: Rollups
    jobs: pl.DataFrame | None
    asked: AskedCarbon
    since_ms: int
    until_ms: int

    @cached_property
    def hours(self) -> pl.DataFrame:
        """Every `hour` of the window, also those that it holds in part, with `g_per_kwh`."""
        first_ms, last_ms = floor_ms(self.since_ms, HOUR_MS), -(-self.until_ms // HOUR_MS) * HOUR_MS
        return self.asked.intensity.beside(pl.select(hour=pl.int_range(first_ms, last_ms, HOUR_MS, dtype=pl.Int64)))


def find_carbon(money: Money, basis: CarbonBasis, *, for_people: bool) -> Carbon:
    """What the time of these accounts took."""
    asked, pue, pieces = basis.asked, money.grid.pue, money.accounts.pieces
    if basis.jobs is not None:
        pieces = with_deferrable(pieces, basis.jobs, money.owners)
    rows = hourly_energy(pieces, basis.rollups, asked.intensity, pue)
    rates = basis.hours["g_per_kwh"].drop_nulls()
    parking = None if for_people else tuple(_parking(rows, pue))
    deferral = None
    if basis.jobs is not None:
        deferral = find_deferral(rows, GridHours(basis.hours, asked.zone, pue), _watts(rows, FREE), asked.most_hours)
    return Carbon(
        teams=_teams(rows),
        parking=parking,
        deferral=deferral,
        grid=money.grid,
        currency=money.currency,
        intensity=asked.intensity,
        hours=basis.hours.height,
        known_hours=rates.len(),
        mean_g_per_kwh=float(rates.mean()) if rates.len() else None,  # type: ignore[arg-type]  # of floats
        counter_share=money.counter_share,
    )


def _teams(rows: pl.DataFrame) -> tuple[TeamCarbon, ...]:
    """The most energy first, what is nobody's last."""
    sums = carbon_sums(rows, ("team", "part"))
    teams = [
        TeamCarbon(team, {part: sums.get((team, part), NOTHING) for part in PARTS})
        for team in {team for team, _ in sums}
    ]
    return tuple(sorted(teams, key=lambda each: (each.label == NOBODY, -each.total.energy.millijoules, each.label)))


def _whole_gpus(rows: pl.DataFrame, part: str) -> pl.DataFrame:
    return rows.filter(pl.col("part") == part, ~pl.col("instance"))


def _watts(rows: pl.DataFrame, part: str) -> dict[str, float]:
    """What whole GPUs of each model drew on average in such time, where enough of it is known."""
    sums = _whole_gpus(rows, part).group_by("model").agg(pl.col("energy_mj", "energy_known_ms").sum())
    known = sums.filter(pl.col("energy_known_ms") >= POWER_MIN_MS)
    return dict(known.select("model", pl.col("energy_mj") / pl.col("energy_known_ms")).iter_rows())


def _parking(rows: pl.DataFrame, pue: float) -> Iterator[ParkingPower]:
    """The models of which both powers were observed, the one first whose parking took most."""
    occupied = rows.filter(pl.col("state") == "held")
    free_w, held_w = _watts(rows, FREE), _watts(occupied, HELD)
    both = free_w.keys() & held_w.keys()
    held = _whole_gpus(occupied, HELD).filter(pl.col("model").is_in(list(both)))
    beyond = pl.col("energy_mj") - pl.col("model").replace_strict(free_w, default=0.0) * pl.col("energy_known_ms")
    rated = pl.when(pl.col("g_per_kwh").is_not_null()).then(beyond).otherwise(0.0)
    grams = rated / MJ_PER_KWH * pue * pl.col("g_per_kwh").fill_null(0.0)
    extra = carbon_sums(held.with_columns(energy_mj=beyond, rated_mj=rated, co2_g=grams), ("model",))
    free_ms = carbon_sums(_whole_gpus(rows, FREE), ("model",))
    for (model,), each in sorted(extra.items(), key=lambda item: -item[1].energy.millijoules):
        spent = free_ms[model,].energy.total_ms
        yield ParkingPower(model, free_w[model], held_w[model], spent, each.energy.total_ms, each)
