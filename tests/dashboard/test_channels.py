"""Every channel shows the same tables: verbs, report and API, in windows other than weeks, by scope and time zone.

`Figures` reads what the channels print, independently of their code: each figure by its subject, and by its channel.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from analytics.money.accounts import GROUPS
from analytics.simulation import SimulatedFleet
from analytics.simulation.people import intensity_csv
from tests.dashboard.shown import NumbersSite, Question, numbers_site
from tests.dashboard.sites import UNTIL_MS

ODD = {"since": "2025-11-14T05:00Z", "until": "2025-11-18T17:00Z"}
DAYS = {"since": "2025-11-15", "until": "2025-11-18"}
QUESTIONS = {
    "all": (Question("hours", ODD), "UTC"),
    "pool": (Question("days of Paris", {**DAYS, "pool": "train"}), "Europe/Paris"),
    "team": (Question("hours of a team", {**ODD, "team": "vision"}), "Europe/Paris"),
    "user": (Question("days of a user", {**DAYS, "user": "greta"}), "UTC"),
}
QUICK = ("pool",)
"""Questions of `make test`; `make test-all` asks the others."""
ASKED = [
    pytest.param(*question, id=name, marks=() if name in QUICK else pytest.mark.long)
    for name, question in QUESTIONS.items()
]
VERBS = (
    ("ledger",),
    *(("ledger", "--by", group) for group in GROUPS),
    ("findings", "--all"),
    ("recommendations",),
    ("report",),
    ("plan", "carbon"),
    ("plan", "allocation"),
    ("plan", "queue"),
)
OF_POOLS = (("plan", "forecast"), ("plan", "defrag"))
ENDPOINTS = (
    "ledger",
    "recommendations",
    "recommendations_totals",
    "findings",
    *(f"accounts?by={each}" for each in GROUPS),
)
KINDS = {"recommendations": "recommendation", "findings": "finding"}
"""Lists whose records are about one thing each, which has an id."""


@dataclass
class Figures:
    """The figures of every subject, by channel."""

    said: dict[tuple[object, ...], dict[str, Any]] = field(default_factory=lambda: defaultdict(dict))

    def say(self, channel: str, value: Any, *what: object) -> None:
        self.said[what][channel] = value

    def differences(self) -> str:
        """The figures that two channels disagree about, a line each."""
        lines = []
        for what, told in self.said.items():
            first = next(iter(told))
            other = next((channel for channel, value in told.items() if not alike(value, told[first])), None)
            if other is not None:
                lines.append(f"{what}: {told[first]!r} in {first}, {told[other]!r} in {other}")
        return "\n".join(lines)


def alike(one: Any, other: Any) -> bool:
    """Equal, floats to what sums in another order may differ by."""
    if isinstance(one, float | int) and isinstance(other, float | int) and not isinstance(one, bool):
        return bool(one == pytest.approx(other, rel=1e-9, abs=1e-9))
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    return bool(one == other)


def records(content: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object of a document, with the way to it."""
    if isinstance(content, dict):
        yield path, content
        for key, each in content.items():
            yield from records(each, f"{path}.{key}")
    elif isinstance(content, list):
        for each in content:
            yield from records(each, f"{path}[]")


def rows_of(content: Mapping[str, Any], table: str) -> list[dict[str, Any]]:
    """The rows of a table of a verb; none where the verb has no such table."""
    return list(content.get("tables", {}).get(table, {}).get("rows", ()))


def channels(site: NumbersSite, asked: Question, zone: str) -> Iterator[tuple[str, Any]]:
    """What every channel prints, as documents."""
    personal = {"team", "user"} & asked.asked.keys()
    for verb in (*VERBS, *(() if personal else OF_POOLS)):
        yield " ".join(verb), json.loads(site.told.printed(*verb, "--format", "json", *asked.flags()))
    if "user" not in asked.asked:  # the API has no parameter for one
        for name in ENDPOINTS:
            path, _, by = name.partition("?")
            path = path.replace("_", "/")
            search = asked.search(zone=zone) + (f"&{by}&limit=1000" if by else "&limit=1000" if path in KINDS else "")
            answer = site.client().get(f"/api/v1/{path}{search}")
            assert answer.status_code == 200, (name, answer.text)
            yield f"API {name}", answer.get_json()["data"]


def collected(found: Mapping[str, Any]) -> Figures:
    """The figures of all documents by what they mean."""
    figures = Figures()
    for channel, content in found.items():
        for path, each in records(content):
            hours = each.get("gpu_hours")
            if isinstance(hours, dict) and "total" in hours:
                _, part, label = path.partition(".by.")
                group, _, label = label.partition(".")
                for state, value in hours.items():
                    what = f"{state}_gpu_hours" if state != "total" else "gpu_hours"
                    figures.say(f"{channel}{path}", value, *(("account", group, label, what) if part else (what,)))
                figures.say(
                    f"{channel}{path}", each["gpus"], *(("account", group, label, "gpus") if part else ("gpus",))
                )
            if "co2_kg" in each and "drawn_kwh" in each:
                figures.say(f"{channel}{path}", each["co2_kg"], "CO2")
                figures.say(f"{channel}{path}", each["kwh"], "kWh")
            kind = KINDS.get(path.rpartition(".")[2].removesuffix("[]"), KINDS.get(channel.removeprefix("API ")))
            key = each.get("id", each.get("finding_id"))
            if kind is not None and key is not None and path.endswith("[]"):
                for name, value in each.items():
                    figures.say(f"{channel}{path}", value, kind, key, name)
            if {"not_actionable", "by_state", "unpriced_gpu_hours"} <= each.keys():
                figures.say(f"{channel}{path}", {**each}, "waste")
        rows = (
            content
            if channel.startswith("API accounts")
            else content.get("groups", {}).get("rows", ())
            if isinstance(content, dict)
            else ()
        )
        for row in rows:
            group = channel.rpartition(" ")[2].rpartition("=")[2]
            for name, value in row.items():
                figures.say(channel, value, "account", group, row["label"], name)
    return figures


def sums(found: Mapping[str, Any]) -> Figures:
    """What the rows of every table of accounts, and of energy, add up to."""
    figures = Figures()
    ledger = found["ledger"]
    figures.say("ledger", ledger["gpu_hours"]["total"], "GPU-hours")
    figures.say("ledger", ledger["money"]["paid"], "paid")
    for group in GROUPS:
        rows = found[f"ledger --by {group}"]["groups"]["rows"]
        figures.say(group, sum(row["gpu_hours"] for row in rows), "GPU-hours")
        figures.say(group, round(sum(row["paid"] or 0.0 for row in rows), 2), "paid")
    *parts, whole = rows_of(found["plan carbon"], "carbon")
    *teams, _ = rows_of(found["plan carbon"], "carbon_teams")
    team_parts = rows_of(found["plan carbon"], "carbon_team_parts")
    for key, told in (("kwh", ledger["energy"]["kwh"]), ("co2_kg", ledger["energy"]["co2_kg"])):
        figures.say("ledger", told, key)
        figures.say("plan carbon", whole[key], key)
        for name, rows in (("parts", parts), ("teams", teams), ("team parts", team_parts)):
            if whole[key] is not None:
                figures.say(name, sum(row[key] or 0.0 for row in rows), key)
    for name, rows in (("parts", parts), ("teams", teams)):
        figures.say(name, sum(row["gpu_hours"] for row in rows), "GPU-hours")
    return figures


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, NumbersSite]:
    """One lake with the grid's intensity by the hour, for sites in two time zones."""
    folder, plain = tmp_path_factory.mktemp("channels"), numbers_site(tmp_path_factory.getbasetemp())
    grid = folder / "grid.csv"
    grid.write_text(intensity_csv(SimulatedFleet(until_ms=UNTIL_MS, days=15)), encoding="utf-8")
    found = {}
    for zone in ("UTC", "Europe/Paris"):
        own = folder / zone.replace("/", "-")
        own.mkdir()
        lines = f"[plan]\ncarbon = {json.dumps(str(grid))}\n[report]\ntimezone = {json.dumps(zone)}\n"
        site = plain.beside(own, lines)
        assert isinstance(site, NumbersSite)
        found[zone] = site
    return found


@pytest.mark.parametrize(("asked", "zone"), ASKED)
def test_every_table_of_every_channel_agrees(sites: Mapping[str, NumbersSite], asked: Question, zone: str) -> None:
    found = dict(channels(sites[zone], asked, zone))
    figures = collected(found)
    several = [what for what, told in figures.said.items() if len(told) > 1]
    assert len(several) > 50, "hardly anything was compared"
    assert not (wrong := figures.differences()), wrong
    assert not (wrong := sums(found).differences()), wrong
    for channel, content in found.items():
        for path, each in records(content):
            assert set(each.get("gpus_now", ())) <= set(each["gpus"] if "gpus_now" in each else ()), (channel, path)
            for key, low in each.items():
                in_order = [low, *(each.get(key.replace("low", name)) for name in ("point", "high"))]
                known = [value for value in in_order if isinstance(value, int | float)]
                assert "low" not in key.split("_") or known == sorted(known), (channel, path, key, known)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Paris"])
def test_days_are_those_of_the_site_and_none_is_cut_by_a_window_of_days(
    sites: Mapping[str, NumbersSite], zone: str
) -> None:
    site, asked = sites[zone], Question("days", DAYS)
    first, last = (date.fromisoformat(each) for each in DAYS.values())
    days = site.told.groups(asked, "day")
    assert list(days) == [str(first + timedelta(number)) for number in range((last - first).days + 1)]
    told = site.told.ledger(asked)
    assert {round(row["gpu_hours"], 6) for row in days.values()} == {round(24.0 * told["gpus"], 6)}
    since = datetime.fromisoformat(told["window"]["since"]).astimezone(ZoneInfo(zone) if zone != "UTC" else UTC)
    assert (since.date(), since.hour) == (first, 0)
