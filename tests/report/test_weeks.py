"""Weeks as people mean them: ISO weeks of their own time zone, the hours of a change of clocks included."""

from __future__ import annotations

from datetime import UTC
from zoneinfo import ZoneInfo

import pytest

from analytics.report.weeks import parse_week, week_of
from fallow.errors import UsageError

PARIS = ZoneInfo("Europe/Paris")
NOW_MS = 1_795_132_800_000  # Friday, 2026-11-20 00:00 UTC


def test_weeks_of_two_years() -> None:
    assert week_of(parse_week("2026-W01", UTC, NOW_MS).since_ms, UTC).label == "2026-W01"
    assert parse_week("2026-W1", UTC, NOW_MS).before().label == "2025-W52"
    assert parse_week("2026-W53", UTC, NOW_MS).monday.isoformat() == "2026-12-28"


@pytest.mark.parametrize("text", ["2026-W54", "2026-W0", "2025-W53", "W46", "0001-W01", "9999-W52", "yesterday", ""])
def test_what_is_no_week(text: str) -> None:
    with pytest.raises(UsageError, match="is not a week"):
        parse_week(text, UTC, NOW_MS)
