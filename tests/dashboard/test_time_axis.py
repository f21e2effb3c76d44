"""Marks on round local times, on the days on which clocks change too."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from analytics.language.languages import language
from dashboard.render.strip import marks_of
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, from_ms, to_ms

BACK_MS = to_ms(datetime(2026, 10, 25, tzinfo=UTC))
"""The day on which Paris puts its clocks back, at 01:00 UTC."""
FORTH_MS = to_ms(datetime(2026, 3, 29, tzinfo=UTC))


@pytest.mark.parametrize("zone", ["UTC", "Europe/Paris", "Asia/Kolkata", "America/New_York", "Australia/Lord_Howe"])
@pytest.mark.parametrize("span_ms", [7 * MINUTE_MS, HOUR_MS, 5 * HOUR_MS, DAY_MS, 3 * DAY_MS, 7 * DAY_MS, 40 * DAY_MS])
@pytest.mark.parametrize("start_ms", [BACK_MS - 5 * HOUR_MS - 17 * MINUTE_MS, FORTH_MS - 9 * HOUR_MS])
def test_marks_are_few_rising_and_what_the_clocks_showed(zone: str, span_ms: int, start_ms: int) -> None:
    marks = marks_of(language("en", zone), start_ms, start_ms + span_ms)
    moments = [moment for moment, _ in marks]
    assert 1 <= len(marks) <= 12
    assert moments == sorted(set(moments))
    assert all(start_ms <= moment <= start_ms + span_ms for moment in moments)
    for moment, label in marks:
        local = from_ms(moment).astimezone(ZoneInfo(zone))
        day = f"{local.day} {local:%b}"
        if label == day:
            assert f"{local:%H:%M}" == "00:00"
        else:
            assert label in {f"{local:%H:%M}", f"{local:%H:%M}<br>{day}"}


def test_days_stay_midnights_when_clocks_change() -> None:
    marks = marks_of(language("en", "Europe/Paris"), BACK_MS - 2 * DAY_MS, BACK_MS + 3 * DAY_MS)
    by_day = {label: moment for moment, label in marks if ":" not in label}
    assert by_day["26 Oct"] - by_day["25 Oct"] == 25 * HOUR_MS


def test_the_day_is_named_even_without_a_midnight() -> None:
    noon = BACK_MS + 12 * HOUR_MS
    marks = marks_of(language("fr", "UTC"), noon, noon + 2 * HOUR_MS)
    assert marks[0][1] == "12:00<br>25 oct."
    assert all("oct" not in label for _, label in marks[1:])
