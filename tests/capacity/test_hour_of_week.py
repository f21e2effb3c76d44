"""The unused share of each hour of the week, against sums that are counted a minute at a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

import polars as pl
import pytest

from analytics.capacity.off_peak import HOURS, hours_of_week
from analytics.states import UNUSED
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, WEEK_MS, from_ms, to_ms

MONDAY_MS = to_ms(datetime(2026, 10, 26, tzinfo=UTC))
"""The Monday after the night in which Paris puts its clocks back."""
PARIS, KOLKATA = ZoneInfo("Europe/Paris"), ZoneInfo("Asia/Kolkata")


def rows(*spans: tuple[int, int, str, float]) -> pl.DataFrame:
    return pl.DataFrame(
        spans, schema={"time": pl.Int64, "end": pl.Int64, "state": pl.String, "gpu_share": pl.Float64}, orient="row"
    )


def week_of(state_at: dict[range, str], weeks: int, otherwise: str = "active") -> pl.DataFrame:
    """One GPU whose state is told by the UTC hour of the week."""
    spans = []
    for hour in range(weeks * HOURS):
        start = MONDAY_MS - weeks * WEEK_MS + hour * HOUR_MS
        state = next((name for hours, name in state_at.items() if hour % HOURS in hours), otherwise)
        spans.append((start, start + HOUR_MS, state, 1.0))
    return rows(*spans)


def slowly(stretches: pl.DataFrame, since_ms: int, until_ms: int, zone: tzinfo) -> tuple[list[float], list[float]]:
    unused, observed = [0.0] * HOURS, [0.0] * HOURS
    for start, end, state, share in stretches.iter_rows():
        for minute in range(max(start, since_ms), min(end, until_ms), MINUTE_MS):
            local = from_ms(minute).astimezone(zone)
            hour = local.weekday() * 24 + local.hour
            spent = share * (min(minute + MINUTE_MS, end, until_ms) - minute)
            unused[hour] += spent * (state in UNUSED)
            observed[hour] += spent * (state != "unknown")
    return unused, observed


@pytest.mark.parametrize("zone", [UTC, PARIS, KOLKATA, ZoneInfo("Australia/Lord_Howe")], ids=str)
def test_every_hour_has_what_its_minutes_add_up_to(zone: tzinfo) -> None:
    states = ("free", "reserved", "held", "low", "active", "unknown", "unavailable")
    lengths = (47, 61, 200, 13, 1_000, 3, 125)
    spans, at = [], MONDAY_MS - 2 * WEEK_MS - 77 * MINUTE_MS
    for turn in range(150):
        end = at + lengths[turn * 5 % 7] * MINUTE_MS
        spans.append((at, end, states[turn % 7], 1.0 if turn % 3 else 2 / 7))
        at = end
    found = hours_of_week(rows(*spans), MONDAY_MS, zone)
    assert found is not None
    assert found.weeks == 2
    unused, observed = slowly(rows(*spans), found.since_ms, found.until_ms, zone)
    assert found.unused_ms == pytest.approx(unused, abs=1)
    assert found.observed_ms == pytest.approx(observed, abs=1)


def test_a_night_that_is_never_used() -> None:
    found = hours_of_week(week_of({range(6): "free", range(6, 8): "held"}, weeks=4), MONDAY_MS, UTC)
    assert found is not None
    assert found.weeks == 4
    assert found.shares == tuple([1.0] * 8 + [0.0] * (HOURS - 8))
    assert found.coverage == 1.0


def test_hours_are_where_the_reader_is() -> None:
    """Kolkata is five and a half hours ahead: its hours are made of halves of two of UTC's."""
    found = hours_of_week(week_of({range(6): "free"}, weeks=1), MONDAY_MS, KOLKATA)
    assert found is not None
    assert found.shares[4:13] == (0.0, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.0)


def test_the_hour_that_comes_twice_has_the_time_of_both() -> None:
    found = hours_of_week(week_of({}, weeks=1, otherwise="free"), MONDAY_MS, PARIS)
    assert found is not None
    sunday = 6 * 24
    assert found.observed_ms[sunday + 2] == 2 * HOUR_MS
    # the week began at two o'clock on Monday, summer time, and ended at one o'clock, winter time
    assert found.observed_ms[1] == 0
    assert found.shares[1] is None
    assert sum(found.observed_ms) == WEEK_MS


def test_unknown_time_is_no_share_of_anything() -> None:
    found = hours_of_week(week_of({range(3): "unknown", range(3, 4): "free"}, weeks=1), MONDAY_MS, UTC)
    assert found is not None
    assert found.shares[:5] == (None, None, None, 1.0, 0.0)
    assert found.coverage == pytest.approx((HOURS - 3) / HOURS)


def test_no_more_than_eight_weeks_and_less_than_one_as_it_is() -> None:
    long = hours_of_week(rows((MONDAY_MS - 20 * WEEK_MS, MONDAY_MS, "free", 1.0)), MONDAY_MS, UTC)
    short = hours_of_week(rows((MONDAY_MS - 3 * DAY_MS, MONDAY_MS, "free", 1.0)), MONDAY_MS, UTC)
    assert long is not None
    assert long.weeks == 8
    assert short is not None
    assert short.weeks == pytest.approx(3 / 7)
    assert sum(share is None for share in short.shares) == 4 * 24


def test_nothing_before_the_moment_is_nothing() -> None:
    later = from_ms(MONDAY_MS) + timedelta(days=1)
    assert hours_of_week(rows((MONDAY_MS, to_ms(later), "free", 1.0)), MONDAY_MS, UTC) is None
