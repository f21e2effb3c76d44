"""Days as the reader's calendar has them: nothing is lost at their edges, whatever the clocks do."""

from __future__ import annotations

from collections import Counter
from zoneinfo import ZoneInfo

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.intervals import by_day
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, from_ms
from tests.money.fleet import COLUMNS, T0, stretch

ZONES = [
    "UTC",
    "Europe/Paris",
    "America/New_York",
    "Asia/Kolkata",
    "Pacific/Apia",
    "Australia/Lord_Howe",
    "America/Santiago",
    "Africa/Cairo",
    "America/Havana",
]


@pytest.mark.parametrize("zone", ZONES)
@given(st.lists(st.tuples(st.integers(-260, 260), st.integers(0, 1439), st.integers(1, 1440)), min_size=1, max_size=8))
def test_every_minute_is_on_its_own_day(zone: str, spans: list[tuple[int, int, int]]) -> None:
    rows = []
    for day, start, length in spans:
        first = day * 86_400 + start * 60
        rows.append(stretch("a", first, min(first + length * 60, (day + 1) * 86_400), "free"))
    found: Counter[str] = Counter()
    for day, time, end in (
        by_day(pl.DataFrame(rows, schema=COLUMNS), ZoneInfo(zone)).select("day", "time", "end").rows()
    ):
        found[day] += end - time
    wanted: Counter[str] = Counter()
    for row in rows:
        for at in range(row["time"], row["end"], MINUTE_MS):
            wanted[str(from_ms(at).astimezone(ZoneInfo(zone)).date())] += MINUTE_MS
    assert found == wanted


def test_a_week_in_paris_has_seven_days() -> None:
    monday = T0 + 3 * DAY_MS - HOUR_MS  # 2026-11-23 00:00 there
    rows = [
        stretch(
            "a", (time - T0) / 1000, (min(time // DAY_MS * DAY_MS + DAY_MS, monday + 7 * DAY_MS) - T0) / 1000, "free"
        )
        for time in [monday, *range(monday + HOUR_MS, monday + 7 * DAY_MS, DAY_MS)]
    ]
    days = by_day(pl.DataFrame(rows, schema=COLUMNS), ZoneInfo("Europe/Paris"))
    spans = days.group_by("day").agg((pl.col("end") - pl.col("time")).sum()).sort("day")
    assert spans.rows() == [(f"2026-11-{23 + number}", DAY_MS) for number in range(7)]
