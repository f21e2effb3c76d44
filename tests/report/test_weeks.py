"""Weeks as people mean them: ISO weeks of their own time zone, the hours of a change of clocks included."""

from __future__ import annotations

from datetime import UTC
from zoneinfo import ZoneInfo

import pytest

from analytics.report.weeks import parse_week, week_of
from fallow.clock import HOUR_MS, format_ms
from fallow.errors import UsageError

PARIS = ZoneInfo("Europe/Paris")
NOW_MS = 1_795_132_800_000  # Friday, 2026-11-20 00:00 UTC


def test_a_week_is_monday_to_monday() -> None:
    week = parse_week("2026-W46", UTC, NOW_MS)
    assert (format_ms(week.since_ms), format_ms(week.until_ms)) == ("2026-11-09T00:00:00Z", "2026-11-16T00:00:00Z")
    assert week.label == "2026-W46"


def test_it_begins_at_midnight_where_the_reader_is() -> None:
    week = parse_week("2026-W46", PARIS, NOW_MS)
    assert (format_ms(week.since_ms), format_ms(week.until_ms)) == ("2026-11-08T23:00:00Z", "2026-11-15T23:00:00Z")


@pytest.mark.parametrize(("label", "hours"), [("2026-W13", 167), ("2026-W43", 169), ("2026-W44", 168)])
def test_clocks_change(label: str, hours: int) -> None:
    week = parse_week(label, PARIS, NOW_MS)
    assert week.until_ms - week.since_ms == hours * HOUR_MS
    assert week.before().until_ms == week.since_ms


def test_the_last_week_is_over() -> None:
    assert parse_week("last", UTC, NOW_MS).label == "2026-W46"
    monday_ms = week_of(NOW_MS, UTC).since_ms
    assert parse_week("last", UTC, monday_ms).label == "2026-W46"
    assert parse_week("last", UTC, monday_ms - 1).label == "2026-W45"
    # in Paris, Monday has begun
    assert parse_week("last", PARIS, monday_ms - 1).label == "2026-W46"


def test_weeks_of_two_years() -> None:
    assert week_of(parse_week("2026-W01", UTC, NOW_MS).since_ms, UTC).label == "2026-W01"
    assert parse_week("2026-W1", UTC, NOW_MS).before().label == "2025-W52"
    assert parse_week("2026-W53", UTC, NOW_MS).monday.isoformat() == "2026-12-28"


@pytest.mark.parametrize("text", ["2026-W54", "2026-W0", "2025-W53", "W46", "0001-W01", "9999-W52", "yesterday", ""])
def test_what_is_no_week(text: str) -> None:
    with pytest.raises(UsageError, match="is not a week"):
        parse_week(text, UTC, NOW_MS)
