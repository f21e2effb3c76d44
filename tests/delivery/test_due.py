"""Which weeks are due: the newest that is closed, and what did not arrive before it."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest

from analytics.delivery.editions import CLOSES_AFTER_MS, asked_week, delivery_of, failed_weeks, missed_weeks
from analytics.delivery.journal import CLAIMED, SENDING, new_try
from analytics.delivery.model import FAILED, SENT, UNKNOWN, DeliveryOutcome
from fallow.clock import parse_window
from fallow.errors import UsageError
from tests.delivery.hands import Hands, example_message, journal

if TYPE_CHECKING:
    from analytics.report.weeks import Week
    from fallow.lake import Lake

PARIS = ZoneInfo("Europe/Paris")


def at(text: str) -> int:
    moment_ms = parse_window(text, None).since_ms
    assert moment_ms is not None
    return moment_ms


@pytest.mark.parametrize(
    ("now", "label"),
    [
        ("2026-11-16T05:59:59+01:00", "2026-W45"), ("2026-11-16T06:00:00+01:00", "2026-W46"),
        ("2026-11-22T23:59:59+01:00", "2026-W46"), ("2026-11-23T06:00:00+01:00", "2026-W47"),
        ("2027-01-04T06:00:00+01:00", "2026-W53"), ("2026-03-30T06:00:00+02:00", "2026-W13"),
    ],
)  # fmt: skip
def test_a_week_closes_on_monday_at_six(now: str, label: str) -> None:
    assert asked_week("last", PARIS, at(now)).label == label


def week(label: str) -> Week:
    return asked_week(label, PARIS, at("2030-01-01"))


def test_a_week_that_is_not_closed_is_not_sent() -> None:
    monday = week("2026-W46").until_ms
    assert asked_week("2026-W46", PARIS, monday + CLOSES_AFTER_MS).label == "2026-W46"
    with pytest.raises(UsageError, match="2026-W46 is not over: it closes on Monday, 2026-11-16, at 06:00"):
        asked_week("2026-W46", PARIS, monday + CLOSES_AFTER_MS - 1)


def ended(lake: Lake, label: str, step: str, target: str = "t") -> None:
    own, name = journal(lake, Hands(at("2026-11-20"))), new_try(0)
    for each in (CLAIMED, SENDING):
        own.add(delivery_of(week(label), "all/en", target), name, each, example_message())
    own.add(delivery_of(week(label), "all/en", target), name, step, example_message(), DeliveryOutcome(step))


def labels(lake: Lake, which: object, newest: str = "2026-W46", target: str = "t") -> list[str]:
    own = journal(lake, Hands(at("2026-11-20")))
    assert callable(which)
    return [each.label for each in which(own, week(newest), "all/en", target)]


def test_who_is_new_is_not_sent_a_month_at_once(lake: Lake) -> None:
    assert labels(lake, missed_weeks) == []
    ended(lake, "2026-W40", SENT, "another")
    assert labels(lake, missed_weeks) == []


def test_what_did_not_arrive_is_made_up_for(lake: Lake) -> None:
    ended(lake, "2026-W43", SENT)
    assert labels(lake, missed_weeks) == ["2026-W44", "2026-W45"]
    ended(lake, "2026-W44", FAILED)
    ended(lake, "2026-W45", SENT)
    assert labels(lake, missed_weeks) == ["2026-W44"]
    assert labels(lake, failed_weeks) == ["2026-W44"]


def test_at_most_four_weeks_back(lake: Lake) -> None:
    ended(lake, "2026-W30", SENT)
    assert labels(lake, missed_weeks) == ["2026-W43", "2026-W44", "2026-W45"]


def test_what_is_unknown_is_named_among_them_and_not_among_the_failed(lake: Lake) -> None:
    ended(lake, "2026-W45", UNKNOWN)
    assert labels(lake, missed_weeks) == ["2026-W45"]  # `deliver` names it and leaves it alone
    assert labels(lake, failed_weeks) == []
