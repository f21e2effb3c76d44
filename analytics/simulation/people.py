"""The tables that a site keeps by hand, for a simulated fleet: who belongs to which team, and what a GPU costs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from datetime import timedelta

from analytics.money import owners, prices
from analytics.simulation.catalog import TEAMS
from analytics.simulation.layout import split_gpus
from analytics.simulation.placement import SimulatedFleet
from analytics.simulation.scenes import PROJECTS
from fallow.clock import from_ms

_QUOTA_SHARES = {"language": 0.44, "vision": 0.3, "speech": 0.2, "robotics": 0.5, "ranking": 0.12}
"""Of the fleet's GPUs; together more than there are, as quotas are."""
_ORGANISATIONS = {"language": "research", "vision": "research", "robotics": "research", "speech": "products", "ranking": "products"}  # fmt: skip
_PURCHASES = {
    "train": (29_500, "order 2024-117"),
    "train-old": (13_800, "order 2022-031"),
    "serving": (8_200, "order 2023-064"),
}
_YEARS, _YEARLY_COST = 4, 1_150
_LEGACY_HOURLY = "0.35"


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
        {"kind": "account", "name": account, "team": team, "organisation": _ORGANISATIONS[team], "priority_class": "best-effort",
         "project": account, "project_end": (last_day + timedelta(days=days)).date().isoformat()}
        for account, (team, days) in PROJECTS.items()
    )  # fmt: skip
    return _csv(owners.COLUMNS, rows)


def prices_csv(fleet: SimulatedFleet) -> str:
    """The price table of the pools that have GPUs: three bought and written off, the fourth at an internal rate."""
    there = [pool for pool, gpus in zip(fleet.pools, split_gpus(fleet.gpus, fleet.pools), strict=True) if gpus]
    bought = [
        {"pool": pool.name, "model": pool.card.model, "purchase": paid, "amortisation_years": _YEARS,
         "yearly_cost": _YEARLY_COST, "currency": "USD", "source": f"{order} (simulated)"}
        for pool in there if pool.name in _PURCHASES for paid, order in (_PURCHASES[pool.name],)
    ]  # fmt: skip
    since = from_ms(fleet.until_ms) - timedelta(days=365)
    rate = {
        "hourly": _LEGACY_HOURLY,
        "currency": "USD",
        "date": since.date().isoformat(),
        "source": "internal rate (simulated)",
    }
    rented = [{"pool": pool.name, **rate} for pool in there if pool.name not in _PURCHASES]
    return _csv(prices.COLUMNS, [*bought, *rented])


def _csv(columns: Iterable[str], rows: Iterable[Mapping[str, object]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(columns), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
