"""What the work took from the grid: kilowatt-hours, carbon dioxide and the price of the energy.

The energy is the GPUs' own counter over their rows, or power times time where there is none. The site draws more than its
machines do: times PUE. Where it is known for less than 90 % of the time the sum would be a part that looks like the whole: it is unknown then.
"""

from __future__ import annotations

from dataclasses import dataclass

from fallow.config import Config

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
