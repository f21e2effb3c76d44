"""The built-in catalog: public list prices per GPU-hour, each with the day of the figure and where it was listed.

They say what the same GPU would cost on demand in a public cloud, with its share of the host around it, not what a site
pays. Every figure in `catalog.csv` was read in a public record of that day and none is guessed: a model that nobody lists,
or that was found without a day, is not in it. `AWS p5.48xlarge / 8` is the hourly price of that instance divided by its
eight GPUs; all are on demand, without any discount. `starting at` is the lowest of a marketplace, where nobody else lists one.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import cache
from importlib import resources

from analytics.money.cards import card


@dataclass(frozen=True)
class ListPrice:
    """One public list price per GPU-hour."""

    model: str
    hourly: Decimal
    currency: str
    date: date
    source: str


@cache
def catalog() -> Mapping[str, ListPrice]:
    """Every listed price by the name of its card."""
    text = resources.files(__package__).joinpath("catalog.csv").read_text(encoding="utf-8")
    return {
        row["model"]: ListPrice(
            row["model"], Decimal(row["hourly"]), row["currency"], date.fromisoformat(row["date"]), row["source"]
        )
        for row in csv.DictReader(text.splitlines())
    }


def listed(model_name: str | None) -> ListPrice | None:
    """The list price of a GPU model as NVML names it; None where there is none."""
    found = card(model_name)
    return catalog().get(found.name) if found is not None else None
