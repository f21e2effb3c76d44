"""What the work took from the grid: kilowatt-hours, carbon dioxide and the price of the energy.

The energy is the GPUs' own counter over their rows, or power times time where there is none. The site draws more than its
machines do: times PUE. Where it is known for less than 90 % of the time the sum would be a part that looks like the whole: it is unknown then.
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
from fallow.clock import HOUR_MS, read_rfc3339, to_ms
from fallow.config import Config
from fallow.errors import ConfigError

KNOWN_MIN = 0.9
"""Share of the time for which the energy has to be known; the findings use the same."""

MJ_PER_KWH = 3.6e9
"""Millijoules."""


@dataclass(frozen=True)
class Energy:
    """The energy of some GPU time, and for how much of that time it is known."""

    millijoules: float
    known_ms: float
    total_ms: float

    @property
    def known_share(self) -> float | None:
        """Share of the time for which it is known; None where there is no time."""
        return min(self.known_ms / self.total_ms, 1.0) if self.total_ms else None

    @property
    def kwh(self) -> float | None:
        """What the GPUs took; None where it is known for less than 90 % of the time."""
        share = self.known_share
        return None if share is None or share < KNOWN_MIN else self.millijoules / MJ_PER_KWH


@dataclass(frozen=True)
class Grid:
    """What a kilowatt-hour of a GPU stands for at the site: drawn energy, its price in the site's currency, and CO2.

    `price_per_kwh` is None where only the default's is known, which is in USD, and no rate leads to the site's currency.
    """

    pue: float
    price_per_kwh: float | None
    kg_per_kwh: float

    @classmethod
    def from_config(cls, settings: Config, usd_rate: float | None = 1.0) -> Grid:
        """The settings `money.pue`, `money.energy_price_per_kwh` and `money.grid_kg_per_kwh`.

        Args:
            settings: with their origins.
            usd_rate: what a US dollar is worth in the site's currency; None is not known.
        """
        price: float | None = settings.number("money.energy_price_per_kwh")
        if settings.origins["money.energy_price_per_kwh"] == "default":
            price = None if price is None or usd_rate is None else price * usd_rate
        return cls(settings.number("money.pue"), price, settings.number("money.grid_kg_per_kwh"))

    def drawn_kwh(self, energy: Energy) -> float | None:
        """What the site draws for it; None where the energy is unknown."""
        return None if energy.kwh is None else energy.kwh * self.pue

    def cost(self, energy: Energy) -> float | None:
        """The price of what the site draws; None where the energy or its price is unknown."""
        drawn = self.drawn_kwh(energy)
        return None if drawn is None or self.price_per_kwh is None else drawn * self.price_per_kwh

    def co2_kg(self, energy: Energy) -> float | None:
        """Carbon dioxide of what the site draws, in kg; None where the energy is unknown."""
        drawn = self.drawn_kwh(energy)
        return None if drawn is None else drawn * self.kg_per_kwh


TIMES = ("time", "datetime", "timestamp", "from", "point_time", "time_utc", "datetime_utc", "timestamp_utc")
"""Names of the column with the start of each line; one that ends in `utc` may leave out the zone."""

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
"""Names of the column with the intensity, in lower case with `_` for what is no letter and no digit, and what one of it is in g/kWh.

The first that a file has counts. They are those of a file made by hand, of the downloads of carbonintensity.org.uk (what was, not the
forecast), of Electricity Maps (direct, as `money.grid_kg_per_kwh` is; else over the life cycle) and of WattTime (the marginal rate, in
pounds per MWh).
"""


@dataclass(frozen=True)
class GridIntensity:
    """The intensity of each hour: `hours` has `hour` (its first millisecond) and `g_per_kwh`; or `flat`, one number for all.

    An hour that is not in `hours` is unknown. `source` says where it is from.
    """

    source: str
    flat: float | None
    hours: pl.DataFrame

    @classmethod
    def of_number(cls, g_per_kwh: float, source: str) -> GridIntensity:
        """The same in every hour."""
        return cls(source, g_per_kwh, _frame([]))

    @classmethod
    def load(cls, path: str) -> GridIntensity:
        """The file at a path; ConfigError that names the line for one that cannot be used.

        A line holds until the next one, for at most the most frequent distance between two lines, which has to be an hour at most. The
        intensity of an hour is the mean over its time; where any of it is missing, the hour is unknown.
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

    def beside(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows, which have `hour`, with `g_per_kwh`; null where it is unknown."""
        if self.flat is not None:
            return rows.with_columns(g_per_kwh=pl.lit(self.flat))
        return rows.join(self.hours, on="hour", how="left", maintain_order="left")


def open_intensity(settings: Config, asked: str | None = None) -> GridIntensity:
    """What was asked for, else the setting `plan.carbon`, else `money.grid_kg_per_kwh`; raises ConfigError."""
    text = (asked or settings.text("plan.carbon")).strip()
    if not text:
        return GridIntensity.of_number(settings.number("money.grid_kg_per_kwh") * 1000, "money.grid_kg_per_kwh")
    if not re.fullmatch(r"\d+([.]\d+)?", text):
        return GridIntensity.load(text)
    return GridIntensity.of_number(float(text), "--intensity" if asked else "plan.carbon")


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower().replace("₂", "2")).strip("_")


def _column(line: CsvLine, names: tuple[str, ...], what: str) -> str:
    """The name, as the file writes it, of the first of these columns that it has."""
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
    """The hours that are known as a whole, with the mean over their time."""
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
