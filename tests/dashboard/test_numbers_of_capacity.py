"""What the page on capacity says is what the report says of the same window, and adds up to the ledger."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from analytics.tables.demand import gpus_by_hour
from dashboard.access.people import ADMIN, Reader
from dashboard.query import Query
from dashboard.view import View
from tests.dashboard.planned import planned_site
from tests.dashboard.shown import Pages, Site, long_site, priced_site
from tests.dashboard.told import GIVEN, Question, Spent, Told, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

pytestmark = pytest.mark.long

DAYS = Question("three days", {"since": "2025-11-17", "until": "2025-11-19"})
QUESTIONS = (
    DAYS,
    Question("a pool", {**DAYS.asked, "pool": "train"}),
    Question("a model", {**DAYS.asked, "model": "NVIDIA L40S"}),
)
EACH = pytest.mark.parametrize("asked", QUESTIONS, ids=lambda each: each.name)
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return priced_site(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Site:
    own = planned_site(tmp_path_factory.getbasetemp())
    return Site(Told(Path(own.config), "USD"), Pages(own.source))


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return long_site(tmp_path_factory.getbasetemp())


def at_once(site: Site, asked: Question) -> pl.DataFrame:
    """The most GPUs at once in each hour, of the same ledger that the page has."""
    found = site.pages.source.look(Query.parse(asked.search()), Reader("root", ADMIN))
    assert isinstance(found, View)
    return gpus_by_hour(found.report)


def reached(levels: Sequence[float], level: float) -> int:
    return sum(each >= level for each in levels)


@EACH
def test_the_hours_add_up_to_the_ledger(site: Site, asked: Question) -> None:
    told = site.told.ledger(asked)
    spent, hours = Spent.of(told["gpu_hours"]), at_once(site, asked)
    since, until = (datetime.fromisoformat(told["window"][name]) for name in ("since", "until"))
    assert hours.height == (until - since).total_seconds() // 3600
    assert set(hours["there"]) == {float(told["gpus"])}
    assert hours["there"].sum() == pytest.approx(spent.total_ms / 3.6e6, rel=1e-6)
    # the most in an hour is no less than its mean, and what nobody saw may be more
    assert hours["allocated"].sum() >= spent.sum(*GIVEN) / 3.6e6 - 1e-6
    assert hours["working"].sum() >= spent.sum("active", "low") / 3.6e6 - 1e-6
    assert hours["allocated_or_unknown"].sum() >= spent.sum(*GIVEN, "unknown") / 3.6e6 - 1e-6


@EACH
def test_the_curve_and_its_table_count_those_hours(site: Site, asked: Question) -> None:
    hours = at_once(site, asked)
    panel = site.shown("/capacity", asked).panel("demand")
    levels = {name: hours[name].to_list() for name in ("allocated", "working")}
    most = [f"{max(levels[name]):.0f}" for name in levels]
    assert panel.finding == (
        f"At most {most[0]} of {max(hours['there']):.0f} GPUs were held, reserved or used at once, and at most {most[1]} were really working."
    )
    lines = [trace for trace in panel.figure("demand-chart")["data"] if trace["line"]["width"]]
    for trace, own in zip(lines, levels.values(), strict=True):
        steps = [(round(100 * reached(own, each) / len(own), 2), each) for each in sorted(set(own), reverse=True)]
        assert list(zip(trace["x"], trace["y"], strict=True)) == [(0.0, max(own)), *steps]
    wanted = sorted({each for own in levels.values() for each in own}, reverse=True)
    assert panel.rows() == [[f"{each:.0f}", *(str(reached(own, each)) for own in levels.values())] for each in wanted]


@EACH
def test_gangs_are_drawn_as_they_are_listed(site: Site, asked: Question) -> None:
    panel = site.shown("/capacity", asked).panel("gangs")
    free, start = panel.figure("gangs-chart")["data"]
    rows = panel.rows()
    assert free["x"] == start["x"] == [row[0] for row in rows]
    assert [percent(each) for each in free["y"]] == [row[2] for row in rows]
    assert [percent(each) for each in start["y"]] == [row[3].split(" to ")[0] for row in rows]
    assert all(one >= other for one, other in pairwise(start["y"]))
    assert all(could <= enough + 1e-9 for could, enough in zip(start["y"], free["y"], strict=True))


@pytest.mark.parametrize("narrowed", [False, True], ids=["all pools", "one pool"])
def test_off_peak_hours_are_the_reports(long: Site, *, narrowed: bool) -> None:
    asked = Question("a week", {"since": "2025-11-13"})
    if narrowed:
        asked = asked.but(pool=long.told.report(asked)["off_peak"][0]["pool"])
    told = long.told.report(asked)["off_peak"]
    assert told
    panel = long.shown("/capacity", asked).panel("off-peak")

    def hour(weekday: int, number: int) -> str:
        return f"{WEEKDAYS[(weekday + number // 24) % 7]} {number % 24:02}:00"

    wanted = [
        [each["pool"], hour(each["weekday"], each["from_hour"]), hour(each["weekday"], each["until_hour"]), str(each["gpus"]), str(each["weeks"])]
        for each in sorted(told, key=lambda each: -each["gpus"] * (each["until_hour"] - each["from_hour"]))
    ]  # fmt: skip
    assert panel.rows() == wanted
    drawn = panel.figure("off-peak-chart")["data"]
    pools = sorted({each["pool"] for each in told})
    cells = {
        (pools.index(each["pool"]) * 7 + (each["weekday"] + number // 24) % 7, number % 24): each["gpus"]
        for each in told for number in range(each["from_hour"], each["until_hour"])
    }  # fmt: skip
    values, words = ([row for each in drawn for row in each[name]] for name in ("z", "text"))
    shown = {(row, at): value for row, own in enumerate(values) for at, value in enumerate(own) if value is not None}
    assert shown == cells
    labels = {(row, at): text for row, own in enumerate(words) for at, text in enumerate(own) if text}
    assert labels
    assert all(text == str(cells[place]) for place, text in labels.items())
    assert {row for row, _ in labels} == {row for row, _ in cells}


def test_what_takes_four_weeks_is_not_known_of_nine_days(site: Site) -> None:
    assert site.told.report(DAYS)["off_peak"] == []
    assert site.shown("/capacity", DAYS).panel("off-peak").finding == (
        "Not known: it takes 4 weeks, and the lake has 1.3 before the end of the window."
    )
