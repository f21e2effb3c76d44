"""Files of a simulated site beside its lake: tables that people maintain by hand, and true labels of the fleet.

Labels come from the plan of the fleet and not from its rows. The plan knows the future: a GPU could be reclaimed if its
user does not return to it within the horizon.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from analytics.money import offers, owners, prices, requests_file
from analytics.simulation.catalog import TEAMS, Pool, split_gpus
from analytics.simulation.days import idle_time
from analytics.simulation.placement import HostPlan, SimulatedFleet
from analytics.simulation.plan import PROJECTS, plan_fleet
from analytics.simulation.stays import Stay
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, WEEK_MS, format_ms, from_ms
from fallow.csv_text import csv_of, csv_text

HELD_MS = 5 * MINUTE_MS
"""A pause of this length is labelled as held; the ledger's own default."""
COLUMNS = ("gpu", "since", "until", "state", "takeable", "rules")
_FOUND_BY = {"held_notebook": "held", "reserved_block": "reserved_unused", "never_used": "never_used"}
"""The rule for each planted situation."""


@dataclass(frozen=True)
class TrueSpan:
    """Use of a GPU in [start_ms, end_ms), and its user; `user` is None without one."""

    start_ms: int
    end_ms: int
    state: str
    user: str | None


def labels_csv(fleet: SimulatedFleet, horizon_ms: int = WEEK_MS) -> str:
    """Return the true labels of a simulated fleet as CSV, with the columns COLUMNS.

    The first rows give the state of every GPU over the whole period, and whether the GPU could be reclaimed. It could
    if its user does not compute on it within `horizon_ms`; without a user, if no user does. The cell is empty for GPUs
    in use, and if the horizon ends after the period. The last rows give the planted situations, with the rule that
    should find them.
    """
    rows: list[tuple[object, ...]] = []
    plan = plan_fleet(fleet)
    for host in plan.hosts:
        for gpu in host.host.gpus:
            spans = list(true_spans(fleet, host, gpu.index))
            for span in spans:
                for start_ms, end_ms, takeable in _takeable(span, spans, fleet.until_ms, horizon_ms):
                    rows.append((gpu.uuid, format_ms(start_ms), format_ms(end_ms), span.state, takeable, ""))
    for each in plan.planted:
        if each.kind in _FOUND_BY:
            window = (format_ms(each.start_ms), format_ms(each.end_ms))
            rows += ((gpu, *window, "", "", _FOUND_BY[each.kind]) for gpu in each.gpus)
    return csv_text(COLUMNS, rows)


def true_spans(fleet: SimulatedFleet, host: HostPlan, position: int) -> Iterator[TrueSpan]:
    """Yield the use of a GPU from its first row to the end of the period, in order and without gaps."""
    at_ms, end_ms = max(fleet.since_ms, host.added_ms), host.lost_ms.get(position, fleet.until_ms)
    stays = sorted((stay for stay in host.stays if position in stay.gpus), key=lambda stay: stay.start_ms)
    for stay in stays:
        begins, ends = max(stay.start_ms, at_ms), min(stay.end_ms, end_ms)
        if begins >= ends:
            continue
        yield from _without_work(host, position, at_ms, begins)
        for start, stop, state in _work(stay, position):
            if min(stop, ends) > max(start, begins):
                yield TrueSpan(max(start, begins), min(stop, ends), state, stay.user)
        at_ms = ends
    yield from _without_work(host, position, at_ms, end_ms)
    if end_ms < fleet.until_ms:
        yield TrueSpan(end_ms, fleet.until_ms, "unavailable", None)


def _without_work(host: HostPlan, position: int, start_ms: int, end_ms: int) -> Iterator[TrueSpan]:
    """Yield time without a stay: free, and reserved from the start of a reservation."""
    reserved = next((each for each in host.reservations if position in each.gpus), None)
    from_ms = end_ms if reserved is None else min(max(reserved.start_ms, start_ms), end_ms)
    if start_ms < from_ms:
        yield TrueSpan(start_ms, from_ms, "free", None)
    if reserved is not None and from_ms < end_ms:
        yield TrueSpan(from_ms, end_ms, "reserved", reserved.user)


def _work(stay: Stay, position: int) -> Iterator[tuple[int, int, str]]:
    """Yield a stay on one GPU: held if no kernel ran for HELD_MS, else used."""
    if position in stay.unused:
        yield stay.start_ms, stay.end_ms, "held"
        return
    known = idle_time(stay)
    at_ms, used_from = stay.start_ms, stay.start_ms
    for turn, idle in zip(known.at_ms[1:], known.idle_ms[1:] - known.idle_ms[:-1], strict=True):
        # the last interval of work may reach beyond the stay; a held interval ends where the next one begins
        end_ms = min(int(turn), stay.end_ms)
        if idle > 0 and end_ms - at_ms >= HELD_MS:
            if used_from < at_ms:
                yield used_from, at_ms, "used"
            yield at_ms, end_ms, "held"
            used_from = end_ms
        at_ms = end_ms
    if used_from < stay.end_ms:
        yield used_from, stay.end_ms, "used"


def _takeable(
    span: TrueSpan, spans: Iterable[TrueSpan], until_ms: int, horizon_ms: int
) -> Iterator[tuple[int, int, bool | None]]:
    """Yield the span, cut where the answer to "could the GPU be reclaimed" changes or becomes unknown."""
    if span.state in ("used", "unavailable"):
        yield span.start_ms, span.end_ms, False if span.state == "used" else None
        return
    uses = (
        each.start_ms
        for each in spans
        if each.state == "used" and each.start_ms >= span.end_ms and span.user in (None, each.user)
    )
    # after that a use could still be seen and its absence could not, which would count against every promise
    known_ms = until_ms - horizon_ms
    last_ms = next(uses, until_ms) - horizon_ms
    safe_ms = min(max(last_ms, span.start_ms), span.end_ms)
    judged_ms = min(max(known_ms, safe_ms), span.end_ms)
    edges = ((span.start_ms, safe_ms, True), (safe_ms, judged_ms, False), (judged_ms, span.end_ms, None))
    yield from (each for each in edges if each[0] < each[1])


_QUOTA_SHARES = {"language": 0.44, "vision": 0.3, "speech": 0.2, "robotics": 0.5, "ranking": 0.12}
"""Shares of the fleet's GPUs. Together they exceed the fleet, as quotas do."""
_ORGANISATIONS = dict.fromkeys(("language", "vision", "robotics"), "research")
_ORGANISATIONS |= dict.fromkeys(("speech", "ranking"), "products")
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
"""Pool with the card, kind, provider, terms, and age in days at the end of the period."""
_ASKED: tuple[tuple[str, int, str, int, int, int, str], ...] = (
    ("language", 8, "train", 1, 21, 1, "pretraining of the 3B model"),
    ("speech", 2, "train", 2, 14, 2, "second distillation"),
    ("vision", 1, "legacy", 0, 10, 3, "tests of the labelling tool"),
    ("robotics", 16, "train", 3, 30, 3, "policies for the new arm"),
)
"""Team, GPUs, pool with the card, first and last day after the end of the period, priority (1 first), purpose."""


def owners_csv(fleet: SimulatedFleet) -> str:
    """Return the owners file: an account per team with its quota, its people, and the projects that end."""
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
    return csv_of(owners.COLUMNS, rows)


def prices_csv(fleet: SimulatedFleet) -> str:
    """Return the price table of pools with GPUs: three bought and written off, the fourth rented."""
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
        "source": "rental contract (simulated)",
        "kind": "on_demand",
    }
    rented = [{"pool": pool.name, **rate} for pool in there if pool.name not in _PURCHASES]
    return csv_of(prices.COLUMNS, [*bought, *rented])


def offers_csv(fleet: SimulatedFleet) -> str:
    """Return the offers file: prices to buy, reserve and rent the cards of pools with GPUs; all of it is invented."""
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
    return csv_of(offers.COLUMNS, rows)


def requests_csv(fleet: SimulatedFleet) -> str:
    """Return the requests file: who asks for GPUs of which card, from when to when, without pools that have no GPUs."""
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
    return csv_of(requests_file.COLUMNS, rows)


def _pools(fleet: SimulatedFleet) -> list[Pool]:
    """Return the pools with GPUs."""
    return [pool for pool, gpus in zip(fleet.pools, split_gpus(fleet.gpus, fleet.pools), strict=True) if gpus]


_MEAN_G, _LEAST_G = 290.0, 60.0
_NOON_G, _EVENING_G, _WEATHER_G = 110.0, 90.0, 45.0
_GAP = (2, 3, 4)
"""Hours of the fleet's second-last day."""


def intensity_csv(fleet: SimulatedFleet) -> str:
    """Return grams of CO2 per kWh for every hour (UTC) of the fleet's days, as `plan.carbon` reads them; invented."""
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
