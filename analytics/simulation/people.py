"""The tables that a site keeps by hand, for a simulated fleet: who is in which team, what a GPU costs, who asks for which, and its grid."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from datetime import timedelta

import numpy as np

from analytics.money import offers, owners, prices, requests_file
from analytics.simulation.catalog import TEAMS, Pool, split_gpus
from analytics.simulation.placement import SimulatedFleet
from analytics.simulation.plan import PROJECTS
from fallow.clock import DAY_MS, HOUR_MS, format_ms, from_ms

_QUOTA_SHARES = {"language": 0.44, "vision": 0.3, "speech": 0.2, "robotics": 0.5, "ranking": 0.12}
"""Of the fleet's GPUs; together more than there are, as quotas are."""
_ORGANISATIONS = {
    "language": "research",
    "vision": "research",
    "robotics": "research",
    "speech": "products",
    "ranking": "products",
}
_PURCHASES = {
    "train": (29_500, "order 2024-117"),
    "train-old": (13_800, "order 2022-031"),
    "serving": (8_200, "order 2023-064"),
}
_YEARS, _YEARLY_COST = 4, 1_150
_LEGACY_HOURLY = "0.35"
_OFFERS: tuple[tuple[str, str, str, dict[str, object], int], ...] = (
    ("train", "buy", "a vendor", {"purchase": 27_800, "years": 5, "yearly_cost": 1_900}, 12),
    ("train", "reserved", "cloud A", {"hourly": "2.15", "years": 1}, 12),
    ("train", "on_demand", "cloud B", {"hourly": "2.99"}, 12),
    ("train", "spot", "cloud B", {"hourly": "1.25", "interruptions_per_day": 3}, 12),
    ("train-old", "on_demand", "cloud B", {"hourly": "1.39"}, 131),
    ("train-old", "spot", "cloud B", {"hourly": "0.55", "interruptions_per_day": 2}, 131),
    ("serving", "reserved", "cloud A", {"hourly": "0.33", "years": 3}, 12),
    ("serving", "on_demand", "cloud B", {"hourly": "0.99"}, 12),
)
"""Pool with the card, kind, provider, terms, and how many days old it is at the end of the period."""
_ASKED: tuple[tuple[str, int, str, int, int, int, str], ...] = (
    ("language", 8, "train", 1, 21, 1, "pretraining of the 3B model"),
    ("speech", 2, "train", 2, 14, 2, "second distillation"),
    ("vision", 1, "legacy", 0, 10, 3, "tests of the labelling tool"),
    ("robotics", 16, "train", 3, 30, 3, "policies for the new arm"),
)
"""Team, GPUs, pool with the card, first and last day from the end of the period on, priority (1 first), what for."""


def owners_csv(fleet: SimulatedFleet) -> str:
    """The owners file: an account per team with its quota, the people in it, and the projects that end."""
    last_day = from_ms(fleet.until_ms) - timedelta(days=1)
    rows: list[dict[str, object]] = []
    for team, people in TEAMS.items():
        named = {"team": team, "organisation": _ORGANISATIONS[team]}
        quota = max(1, round(_QUOTA_SHARES[team] * fleet.gpus))
        rows.append({"kind": "account", "name": team, "quota_gpus": quota, **named})
        rows += ({"kind": "user", "name": user, **named} for user in (*people, f"svc-{team}"))
    rows += (
        {
            "kind": "account",
            "name": account,
            "team": team,
            "organisation": _ORGANISATIONS[team],
            "priority_class": "best-effort",
            "project": account,
            "project_end": (last_day + timedelta(days=days)).date().isoformat(),
        }
        for account, (team, days) in PROJECTS.items()
    )
    return _csv(owners.COLUMNS, rows)


def prices_csv(fleet: SimulatedFleet) -> str:
    """The price table of the pools that have GPUs: three bought and written off, the fourth at an internal rate."""
    there = _pools(fleet)
    bought = [
        {
            "pool": pool.name,
            "model": pool.card.model,
            "purchase": paid,
            "amortisation_years": _YEARS,
            "yearly_cost": _YEARLY_COST,
            "currency": "USD",
            "source": f"{order} (simulated)",
        }
        for pool in there
        if pool.name in _PURCHASES
        for paid, order in (_PURCHASES[pool.name],)
    ]
    since = from_ms(fleet.until_ms) - timedelta(days=365)
    rate = {
        "hourly": _LEGACY_HOURLY,
        "currency": "USD",
        "date": since.date().isoformat(),
        "source": "internal rate (simulated)",
    }
    rented = [{"pool": pool.name, **rate} for pool in there if pool.name not in _PURCHASES]
    return _csv(prices.COLUMNS, [*bought, *rented])


def offers_csv(fleet: SimulatedFleet) -> str:
    """The offers file: what the cards of the pools that have GPUs could be bought, reserved and rented for; all of it is invented."""
    cards = {pool.name: pool.card.model for pool in _pools(fleet)}
    today = from_ms(fleet.until_ms).date()
    rows = [
        {
            "kind": kind,
            "provider": provider,
            "model": cards[pool],
            "currency": "USD",
            "date": today - timedelta(days=age),
            "source": f"{provider} (simulated)",
            **terms,
        }
        for pool, kind, provider, terms, age in _OFFERS
        if pool in cards
    ]
    return _csv(offers.COLUMNS, rows)


def requests_csv(fleet: SimulatedFleet) -> str:
    """The requests file: who asks for GPUs of which card, from when to when; without those whose pool has no GPUs."""
    cards = {pool.name: pool.card.model for pool in _pools(fleet)}
    today = from_ms(fleet.until_ms).date()
    rows = [
        {
            "team": team,
            "gpus": gpus,
            "card": cards[pool],
            "from": today + timedelta(days=first),
            "until": today + timedelta(days=last),
            "priority": priority,
            "name": name,
        }
        for team, gpus, pool, first, last, priority, name in _ASKED
        if pool in cards
    ]
    return _csv(requests_file.COLUMNS, rows)


def _pools(fleet: SimulatedFleet) -> list[Pool]:
    """The pools that have GPUs."""
    return [pool for pool, gpus in zip(fleet.pools, split_gpus(fleet.gpus, fleet.pools), strict=True) if gpus]


def _csv(columns: Iterable[str], rows: Iterable[Mapping[str, object]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(columns), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


_MEAN_G, _LEAST_G = 290.0, 60.0
_NOON_G, _EVENING_G, _WEATHER_G = 110.0, 90.0, 45.0
_GAP = (2, 3, 4)
"""Hours of the fleet's last but one day."""


def intensity_csv(fleet: SimulatedFleet) -> str:
    """Grams of CO2 per kWh for every hour (UTC) of the fleet's days, as `plan.carbon` takes them; all of it is invented."""
    hours = np.arange(fleet.days * 24)
    weather = np.repeat(np.random.default_rng(fleet.seed).normal(0.0, _WEATHER_G, fleet.days), 24)
    grams = _MEAN_G + weather - _NOON_G * _bump(hours, 12, 4.0) + _EVENING_G * _bump(hours, 19, 2.0)
    first_ms = fleet.until_ms - fleet.days * DAY_MS
    gap = {(fleet.days - 2) * 24 + hour for hour in _GAP}
    lines = [
        f"{format_ms(first_ms + int(hour) * HOUR_MS)},{max(_LEAST_G, g):.0f}"
        for hour, g in zip(hours, grams, strict=True)
        if hour not in gap
    ]
    return "\n".join(["# a simulated grid: none of these figures is a real one", "time,intensity", *lines, ""])


def _bump(hours: np.ndarray, at: int, width: float) -> np.ndarray:
    return np.asarray(np.exp(-(((hours % 24 - at) / width) ** 2)))
