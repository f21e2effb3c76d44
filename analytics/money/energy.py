"""Energy of the GPUs from the grid: kilowatt-hours, CO2 and price.

The energy is the GPUs' own counter over their rows, or power times time without one. The site draws more than its
machines: times PUE. If the energy is known for less than 90 % of the time, it is unknown, because a partial sum would
look like the whole.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path

import polars as pl

from analytics.intervals import SPAN_MS, by_hour
from analytics.money.csv_tables import CsvLine, read_lines
from fallow.clock import HOUR_MS, floor_ms, read_rfc3339, to_ms
from fallow.config import Config
from fallow.errors import ConfigError

KNOWN_MIN = 0.9
"""Least share of the time with known energy; findings use the same."""

MJ_PER_KWH = 3.6e9
"""Millijoules of a kilowatt-hour."""


@dataclass(frozen=True)
class Energy:
    """The energy of some GPU time, and the time for which it is known."""

    millijoules: float
    known_ms: float
    total_ms: float

    @property
    def known_share(self) -> float | None:
        """Return the share of the time with known energy; None if there is no time."""
        return min(self.known_ms / self.total_ms, 1.0) if self.total_ms else None

    @property
    def kwh(self) -> float | None:
        """Return the energy of the GPUs; None if it is known for less than 90 % of the time."""
        share = self.known_share
        return None if share is None or share < KNOWN_MIN else self.millijoules / MJ_PER_KWH


@dataclass(frozen=True)
class Grid:
    """What a kilowatt-hour of a GPU means at the site: drawn energy, its price in the site's currency, and CO2.

    `price_per_kwh` is None if only the default in USD is known and no rate leads to the site's currency. `intensity` is
    None if it is not known; `analytics.money.carbon` computes CO2 with it.
    """

    pue: float
    price_per_kwh: float | None
    intensity: GridIntensity | None

    @classmethod
    def from_config(cls, settings: Config, intensity: GridIntensity | None, usd_rate: float | None = 1.0) -> Grid:
        """Read the settings `money.pue` and `money.energy_price_per_kwh`, with the intensity of `open_intensity`.

        `usd_rate` is the worth of a US dollar in the site's currency; None is not known.
        """
        price: float | None = settings.number("money.energy_price_per_kwh")
        if settings.origins["money.energy_price_per_kwh"] == "default":
            price = None if price is None or usd_rate is None else price * usd_rate
        return cls(settings.number("money.pue"), price, intensity)

    def drawn_kwh(self, energy: Energy) -> float | None:
        """Return the energy that the site draws; None if the energy is unknown."""
        return None if energy.kwh is None else energy.kwh * self.pue

    def cost(self, energy: Energy) -> float | None:
        """Return the price of the drawn energy; None if the energy or its price is unknown."""
        drawn = self.drawn_kwh(energy)
        return None if drawn is None or self.price_per_kwh is None else drawn * self.price_per_kwh

    def kg_per_kwh(self, since_ms: int, until_ms: int) -> float | None:
        """Return the mean intensity of a window in kg, for energy without known hours; None if it is not known."""
        mean = None if self.intensity is None else self.intensity.window_hours(since_ms, until_ms)["g_per_kwh"].mean()
        return None if mean is None else float(mean) / 1000  # type: ignore[arg-type]  # of floats


TIMES = ("time", "datetime", "timestamp", "from", "point_time", "time_utc", "datetime_utc", "timestamp_utc")
"""Names of the column with the start of each line; a name that ends in `utc` may leave out the zone."""

_G_PER_KWH = 1.0
_LB_PER_MWH = 453.59237 / 1000
INTENSITIES: Mapping[str, float] = {
    "intensity": _G_PER_KWH,
    "carbon_intensity": _G_PER_KWH,
    "gco2_per_kwh": _G_PER_KWH,
    "actual_carbon_intensity_gco2_kwh": _G_PER_KWH,
    "carbon_intensity_gco2eq_kwh_direct": _G_PER_KWH,
    "carbon_intensity_gco2eq_kwh_life_cycle": _G_PER_KWH,
    "moer": _LB_PER_MWH,
}
"""Names of the column with the intensity, and its unit in g/kWh.

Names are in lower case, with `_` for other characters than letters and digits. The first that a file has counts. They
are those of a file made by hand, of the downloads of carbonintensity.org.uk (actual values, not the forecast), of
Electricity Maps (direct, like `money.grid_kg_per_kwh`; else over the life cycle) and of WattTime (the marginal rate, in
pounds per MWh).
"""


@dataclass(frozen=True)
class GridIntensity:
    """The intensity of each hour.

    `hours` has `hour` (its first millisecond) and `g_per_kwh`; or `flat` is one number for all hours. An hour that is
    not in `hours` is unknown. `source` names the origin.
    """

    source: str
    flat: float | None
    hours: pl.DataFrame

    @classmethod
    def of_number(cls, g_per_kwh: float, source: str) -> GridIntensity:
        """Return an intensity that is the same in every hour."""
        return cls(source, g_per_kwh, _frame([]))

    @classmethod
    def load(cls, path: str) -> GridIntensity:
        """Read the file at a path. Raises ConfigError that names an invalid line.

        A line holds until the next one, but at most for the most frequent distance between two lines, which must be an
        hour at most. The intensity of an hour is the mean over its time; an hour with missing time is unknown.
        """
        lines: dict[int, float | None] = {}
        time, name = "", ""
        for line in read_lines(path, ("time", "intensity"), ()):
            if not lines:
                time, name = _column(line, TIMES, "time"), _column(line, tuple(INTENSITIES), "intensity")
            moment = _moment_ms(line, time)
            if moment in lines:
                raise line.error("the same moment stands in a line above", "give each time with its zone, each once")
            known = line.number_of(name)
            lines[moment] = None if known is None else float(known) * INTENSITIES[_plain(name)]
        if len(lines) < 2:
            raise ConfigError(f"{path} has fewer than two lines below its header", "give one line for each hour")
        return cls(f"{Path(path).name} ({name})", None, _hourly(path, lines))

    def window_hours(self, since_ms: int, until_ms: int) -> pl.DataFrame:
        """Return every `hour` of a window, including partial hours, with `g_per_kwh`."""
        first_ms, last_ms = floor_ms(since_ms, HOUR_MS), -floor_ms(-until_ms, HOUR_MS)
        return self.beside(pl.select(hour=pl.int_range(first_ms, last_ms, HOUR_MS, dtype=pl.Int64)))

    def beside(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows, which have `hour`, with `g_per_kwh`; null if unknown."""
        if self.flat is not None:
            return rows.with_columns(g_per_kwh=pl.lit(self.flat))
        return rows.join(self.hours, on="hour", how="left", maintain_order="left")


def open_intensity(settings: Config, asked: str | None = None) -> GridIntensity:
    """Return the requested intensity, else that of `plan.carbon`, else of `money.grid_kg_per_kwh`.

    Raises ConfigError.
    """
    text = (asked or settings.text("plan.carbon")).strip()
    if not text:
        return GridIntensity.of_number(settings.number("money.grid_kg_per_kwh") * 1000, "money.grid_kg_per_kwh")
    if not re.fullmatch(r"\d+([.]\d+)?", text):
        return GridIntensity.load(text)
    return GridIntensity.of_number(float(text), "--intensity" if asked else "plan.carbon")


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower().replace("₂", "2")).strip("_")


def _column(line: CsvLine, names: tuple[str, ...], what: str) -> str:
    """Return the name, as the file writes it, of the first of these columns that it has."""
    there = {_plain(name): name for name in line.cells}
    for name in names:
        if name in there:
            return there[name]
    raise ConfigError(f"{line.path} has no column for the {what}", f"name one of its columns {names[0]}")


def _moment_ms(line: CsvLine, name: str) -> int:
    text = line.text(name)
    if text is None:
        raise line.error("the time is empty", "write it as 2026-11-20T10:00Z")
    try:
        moment = read_rfc3339(text)
    except ValueError:
        raise line.error(f"'{text}' is not a time", "write it as 2026-11-20T10:00Z") from None
    if moment.tzinfo is None:
        if not _plain(name).endswith("utc"):
            raise line.error(
                f"'{text}' has no time zone", "write 2026-11-20T10:00Z, or name the column time_utc if all are UTC"
            )
        moment = moment.replace(tzinfo=UTC)
    return to_ms(moment)


def _hourly(path: str, lines: Mapping[int, float | None]) -> pl.DataFrame:
    """Return the hours that are fully known, with the mean over their time."""
    rows = _frame(sorted(lines.items())).rename({"hour": "time"})
    until = pl.col("time").shift(-1)
    usual = rows.select((until - pl.col("time")).drop_nulls().mode().min()).item()
    if usual > HOUR_MS:
        raise ConfigError(f"the lines of {path} are more than an hour apart", "give one line for each hour")
    last = pl.col("time") + usual
    spans = rows.with_columns(end=pl.min_horizontal(until, last)).drop_nulls("g_per_kwh")
    cut = (
        by_hour(spans)
        .group_by("hour")
        .agg(g_per_kwh=(pl.col("g_per_kwh") * SPAN_MS).sum() / SPAN_MS.sum(), known_ms=SPAN_MS.sum())
    )
    return cut.filter(pl.col("known_ms") == HOUR_MS).drop("known_ms").sort("hour")


def _frame(rows: list[tuple[int, float | None]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema={"hour": pl.Int64, "g_per_kwh": pl.Float64}, orient="row")
