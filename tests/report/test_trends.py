"""The week beside the weeks before: the same figures of each, and none where nobody looked."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING

import pytest

from analytics.ledger.summary import clip_ledger, summarise
from analytics.money.accounts import Accounts
from analytics.money.costs import Costs
from analytics.money.owners import Owners
from analytics.money.prices import PriceBook
from analytics.report.coverage import Watch
from analytics.report.trends import WEEKS_BEFORE, WeekFigures, trends, weeks_up_to
from analytics.report.weeks import week_of
from analytics.window import WindowLedger
from fallow.clock import DAY_MS
from tests.money.fleet import T0, inventory, stretch
from tests.report.test_watch import whole_of

if TYPE_CHECKING:
    from analytics.report.coverage import Seen
    from analytics.report.trends import Figures
    from tests.money.fleet import Row

WEEK_S = 7 * 86_400
MONDAY_S = -4 * 86_400  # T0 is a Friday


def looked_back(rows: list[Row], number: int = WEEKS_BEFORE) -> tuple[WeekFigures, ...]:
    """The week and those before it, the newest first, as of its end."""
    whole, week, devices = whole_of(rows), week_of(T0, UTC), inventory(rows)
    costs = Costs(PriceBook.load(None, "USD"), devices)
    inside = clip_ledger(whole, week.window)
    watch = Watch(WindowLedger(whole, inside, summarise(inside)), devices, week.until_ms)
    return weeks_up_to(
        week,
        number,
        lambda window: clip_ledger(whole, window),
        lambda part: Accounts(part, costs, devices, Owners.none()).total,
        lambda window, part: watch.seen(window, part, lambda each: each),
    )


def weeks(rows: list[Row]) -> tuple[Figures, list[tuple[Seen, Figures | None]]]:
    """The figures of the week, and what was seen of the four before."""
    now, *before = looked_back(rows)
    assert now.figures is not None
    return now.figures, [(each.seen, each.figures) for each in before]


def shown(idle_shares: list[float | None]) -> dict[str, tuple[float | None, float | None, float | None]]:
    """Figures of one GPU whose weeks, the newest first, were free for so much of the time; None is not seen at all."""
    rows = []
    for number, share in enumerate(idle_shares):
        start = MONDAY_S - number * WEEK_S
        if share is not None:
            rows += [stretch("a0", start, start + share * WEEK_S, "free")] if share else []
            rows += [stretch("a0", start + share * WEEK_S, start + WEEK_S, "active", holder="ann")]
    now, before = weeks(rows)
    found = trends(now, [each for _, each in before])
    return {each.name: (each.now, each.last_week, each.median_4_weeks) for each in found}


def test_last_week_and_the_median_of_four() -> None:
    found = shown([0.5, 0.25, 0.0, 1 / 8, 3 / 4])
    assert found["free"] == (84, 42, pytest.approx((0.25 + 0.125) / 2 * 168))
    assert found["unused_share"] == (0.5, 0.25, pytest.approx(0.1875))
    assert found["total"] == (168, 168, 168)


def test_a_week_that_nobody_saw_is_no_zero() -> None:
    found = shown([0.5, None, 0.0, 0.25, 0.5])
    assert found["free"] == (84, None, None)


def test_a_young_lake_has_no_median() -> None:
    assert shown([0.5, 0.25])["free"] == (84, 42, None)


def test_money_beside_the_hours() -> None:
    found = shown([0.5, 0.25, 0.0, 0.0, 0.0])
    paid, last, usual = found["paid_money"]
    assert paid == last == usual
    assert paid is not None
    wasted, useful = found["waste_money"][0], found["useful_money"][0]
    assert wasted == useful == pytest.approx(paid / 2, abs=0.01)
    assert 7 * DAY_MS == WEEK_S * 1000


def test_two_days_are_shown_as_two_days() -> None:
    """The lake begins on the Saturday of last week."""
    rows = [stretch("a0", MONDAY_S - 2 * 86_400, MONDAY_S, "free"), stretch("a0", MONDAY_S, MONDAY_S + WEEK_S, "free")]
    now, before = weeks(rows)
    assert [seen.share for seen, _ in before] == [2 / 7, None, None, None]
    assert [each is None for _, each in before] == [False, True, True, True]
    found = {each.name: each for each in trends(now, [each for _, each in before])}
    assert (found["total"].last_week, found["observed"].last_week) == (48, 2 / 7)


def test_a_week_that_was_seen_in_part_is_in_no_median() -> None:
    rows = [stretch("a0", MONDAY_S - 4 * WEEK_S, MONDAY_S + WEEK_S, "free")]
    assert trends(*_all(rows))[2].median_4_weeks == 168
    hole_s = MONDAY_S - 3 * WEEK_S
    rows = [
        stretch("a0", MONDAY_S - 4 * WEEK_S, hole_s, "free"),
        stretch("a0", hole_s, hole_s + 0.11 * WEEK_S, "unknown"),
        stretch("a0", hole_s + 0.11 * WEEK_S, MONDAY_S + WEEK_S, "free"),
    ]
    assert weeks(rows)[1][2][0].share == pytest.approx(0.89)
    assert {each.median_4_weeks for each in trends(*_all(rows))} == {None}


def _all(rows: list[Row]) -> tuple[Figures, list[Figures | None]]:
    now, before = weeks(rows)
    return now, [each for _, each in before]
