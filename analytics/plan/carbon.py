"""Energy and carbon dioxide of GPU time, by use and by team, and the cost of idle GPUs and of the choice of hours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from functools import cached_property

import polars as pl

from analytics.money.carbon import FREE, HELD, NOTHING, PARTS, REST, CarbonSum, carbon_sums, hourly_energy
from analytics.money.energy import MJ_PER_KWH, Grid, GridIntensity
from analytics.money.priced_segments import NOBODY
from analytics.money.prices import HOURS_PER_YEAR
from analytics.money.window_money import Money
from analytics.plan.deferral import Deferral, GridHours, find_deferral, with_deferrable
from fallow.clock import HOUR_MS

SHIFT_HOURS = 12
"""Default number of hours by which work may move: from the evening's peak into the night, from the night to noon."""

POWER_MIN_MS = HOUR_MS
"""Least GPU time with known energy for a power figure."""


@dataclass(frozen=True)
class TeamCarbon:
    """A team, or the words for time without a team, with its sums by part (of PARTS)."""

    label: str
    parts: Mapping[str, CarbonSum]

    @property
    def total(self) -> CarbonSum:
        return sum(self.parts.values(), NOTHING)


@dataclass(frozen=True)
class ParkingPower:
    """Mean power of a model's cards in watts, when free and when held (a process has the GPU, no kernel runs)."""

    model: str
    free_w: float
    held_w: float
    free_ms: float
    held_ms: float
    extra: CarbonSum
    """Energy that the held cards drew beyond the power of free cards."""

    @property
    def extra_w(self) -> float:
        """Return the watts that holding a card adds."""
        return self.held_w - self.free_w


@dataclass(frozen=True)
class Carbon:
    """Energy and carbon dioxide of a window, or of a scope's part of it."""

    teams: tuple[TeamCarbon, ...]
    parking: tuple[ParkingPower, ...] | None
    """Power of held cards, over all users; None for people."""
    deferral: Deferral | None
    """Savings by moving work, over all users; None for people, or if one intensity applies to all hours."""
    grid: Grid
    currency: str
    intensity: GridIntensity
    hours: int
    known_hours: int
    mean_g_per_kwh: float | None
    """Mean intensity over `known_hours`; None without a known hour."""
    counter_share: float | None

    @property
    def parts(self) -> Mapping[str, CarbonSum]:
        return {part: sum((each.parts[part] for each in self.teams), NOTHING) for part in PARTS}

    @property
    def total(self) -> CarbonSum:
        return sum(self.parts.values(), NOTHING)

    def year_kwh(self, watts: float) -> float:
        """Return the energy that the site uses in a year for a GPU power in watts, in kWh."""
        return watts * HOURS_PER_YEAR / 1000 * self.grid.pue

    def year_co2_kg(self, watts: float) -> float | None:
        """Return the carbon dioxide of that year at the window's mean intensity, in kg."""
        return None if self.mean_g_per_kwh is None else self.year_kwh(watts) * self.mean_g_per_kwh / 1000

    def year_cost(self, watts: float) -> float | None:
        """Return the cost of that year; None if the price of a kilowatt-hour is unknown."""
        return None if self.grid.price_per_kwh is None else self.year_kwh(watts) * self.grid.price_per_kwh


@dataclass(frozen=True)
class AskedCarbon:
    """The reader's choices: the intensity, the time zone for hours of the day, and the hours by which work may move."""

    intensity: GridIntensity
    zone: tzinfo
    most_hours: int = SHIFT_HOURS


@dataclass(frozen=True)
class CarbonBasis:
    """Inputs of a carbon report, in addition to the Money of the same GPU time."""

    jobs: pl.DataFrame | None
    """Names of jobs (from `analytics.plan.deferral`); None if savings by moving work are not requested."""
    asked: AskedCarbon
    since_ms: int
    until_ms: int

    @cached_property
    def hours(self) -> pl.DataFrame:
        """Return every `hour` that overlaps the window, with `g_per_kwh`."""
        return self.asked.intensity.window_hours(self.since_ms, self.until_ms)


def find_carbon(money: Money, basis: CarbonBasis, *, for_people: bool) -> Carbon:
    """Return the energy and carbon dioxide of the accounts' GPU time."""
    asked, pue, pieces = basis.asked, money.grid.pue, money.accounts.pieces
    if basis.jobs is not None:
        pieces = with_deferrable(pieces, basis.jobs, money.owners)
    rows = hourly_energy(pieces, money.accounts.rollups, asked.intensity, pue)
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
    """Return the teams, the most energy first. Time without a team comes last; REST counts as such time."""
    team = pl.when(pl.col("part") == REST).then(pl.lit(NOBODY)).otherwise("team")
    sums = carbon_sums(rows.with_columns(team=team), ("team", "part"))
    teams = [
        TeamCarbon(team, {part: sums.get((team, part), NOTHING) for part in PARTS})
        for team in {team for team, _ in sums}
    ]
    return tuple(sorted(teams, key=lambda each: (each.label == NOBODY, -each.total.energy.millijoules, each.label)))


def _whole_gpus(rows: pl.DataFrame, part: str) -> pl.DataFrame:
    return rows.filter(pl.col("part") == part, ~pl.col("instance"))


def _watts(rows: pl.DataFrame, part: str) -> dict[str, float]:
    """Return the mean power of whole GPUs by model in a part of the time, for models with enough known energy."""
    sums = _whole_gpus(rows, part).group_by("model").agg(pl.col("energy_mj", "energy_known_ms").sum())
    known = sums.filter(pl.col("energy_known_ms") >= POWER_MIN_MS)
    return dict(known.select("model", pl.col("energy_mj") / pl.col("energy_known_ms")).iter_rows())


def _parking(rows: pl.DataFrame, pue: float) -> Iterator[ParkingPower]:
    """Return the models with both powers observed, the most held energy first."""
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
