"""Durations, windows and the interval grid."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.clock import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    WEEK_MS,
    AskedWindow,
    SystemClock,
    Window,
    floor_ms,
    format_duration,
    format_ms,
    from_ms,
    parse_duration_ms,
    parse_window,
    to_ms,
    utc_day,
)
from fallow.errors import UsageError

LAST_MS = to_ms(datetime(9999, 12, 31, 23, 59, 59, 999000, UTC))


def at(text: str) -> int:
    return to_ms(datetime.fromisoformat(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("250ms", 250), ("10s", 10_000), ("1.5s", 1_500), ("5min", 300_000), ("5m", 300_000), ("2h", 7_200_000),
        ("7d", WEEK_MS), ("1w", WEEK_MS), ("1h30m", 5_400_000), ("1h 30min", 5_400_000), (" 10 s ", 10_000),
    ],
)  # fmt: skip
def test_durations_are_read_as_people_write_them(text: str, expected: int) -> None:
    assert parse_duration_ms(text) == expected


@pytest.mark.parametrize(
    "text", ["", "10", "s", "-5s", "0s", "0.4ms", "10 parsecs", "10s x", "1e3s", "5M", "9" * 400 + "d"]
)
def test_what_is_no_duration_says_how_to_write_one(text: str) -> None:
    with pytest.raises(UsageError, match="is not a duration; write a number and a unit"):
        parse_duration_ms(text)


@given(st.integers(1, 100_000 * DAY_MS))
def test_a_formatted_duration_reads_back(duration_ms: int) -> None:
    assert parse_duration_ms(format_duration(duration_ms)) == duration_ms


def test_durations_are_formatted_in_the_largest_units() -> None:
    assert format_duration(0) == "0s"
    assert format_duration(5_400_000) == "1h 30min"
    assert format_duration(8 * DAY_MS + 250) == "8d 250ms"


def test_a_day_is_that_utc_day() -> None:
    expected = Window(at("2026-11-20T00:00Z"), at("2026-11-21T00:00Z"))
    assert parse_window("2026-11-20", "2026-11-20") == expected


def test_a_week_is_the_iso_week() -> None:
    assert parse_window("2026-W47", "2026-W47") == Window(at("2026-11-16T00:00Z"), at("2026-11-23T00:00Z"))
    assert parse_window("2026-W01", None).since_ms == at("2025-12-29T00:00Z")
    assert parse_window("2026-W53", None).since_ms == at("2026-12-28T00:00Z")


def test_a_span_counts_back_from_the_end_of_the_window() -> None:
    assert parse_window("7d", "2026-11-20") == Window(at("2026-11-14T00:00Z"), at("2026-11-21T00:00Z"))


def test_a_span_counts_back_from_now_where_the_end_is_open() -> None:
    before = SystemClock().now_ms()
    window = parse_window("2h", None)
    assert window.until_ms is None
    assert window.since_ms is not None
    assert window.since_ms % MINUTE_MS == 0
    assert -MINUTE_MS < window.since_ms - (before - 2 * HOUR_MS) < 5_000
    days_ms = parse_window("7d", None).since_ms
    assert days_ms is not None
    assert days_ms % HOUR_MS == 0
    assert -HOUR_MS < days_ms - (before - 7 * DAY_MS) < 5_000


def test_a_span_counts_back_from_the_end_of_the_data_in_days_of_the_zone() -> None:
    end, paris = at("2026-10-28T05:30:10Z"), ZoneInfo("Europe/Paris")
    assert parse_window("7d", None, end) == Window(at("2026-10-21T05:30:10Z"), None)
    assert parse_window("1w", None, end, paris) == Window(at("2026-10-21T04:30:10Z"), None), "one of the days has 25 h"
    assert parse_window("168h", None, end, paris) == Window(at("2026-10-21T05:30:10Z"), None)
    assert AskedWindow("7d", "1d", paris).before(end) == Window(at("2026-10-20T04:30:10Z"), at("2026-10-27T05:30:10Z"))
    asked = [("7d", None), ("2026-10-01", "3h"), ("7d", "2026-10-20"), ("2026-10-01", None), (None, None)]
    assert [AskedWindow(*each).counts_back for each in asked] == [True, True, False, False, False]


def test_rfc_3339_with_any_offset() -> None:
    assert parse_window("2026-11-20T06:00Z", None).since_ms == at("2026-11-20T06:00+00:00")
    assert parse_window("2026-11-20T06:00:00.250+01:00", None).since_ms == at("2026-11-20T05:00:00.250+00:00")


def test_open_ends() -> None:
    assert parse_window(None, None) == Window(None, None)


@pytest.mark.parametrize(
    "text", ["yesterday", "2026-13-01", "2026-02-30", "2026-W54", "2025-W53", "20-11-2026", "", "7"]
)
def test_what_is_no_time_says_how_to_write_one(text: str) -> None:
    with pytest.raises(UsageError, match=r"is not a time; write a day \(2026-11-20\)"):
        parse_window(text, None)


@pytest.mark.parametrize("text", ["2026-11-20T06:00", "2026-11-20 06:00:00"])
def test_a_time_without_a_zone_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="has no time zone; add Z"):
        parse_window(text, None)


@pytest.mark.parametrize("text", ["1000000d", "1969-12-31", "0001-01-01T00:00+23:59"])
def test_a_time_before_the_epoch_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not in the years 1970 to 2199"):
        parse_window(text, None)


@pytest.mark.parametrize("text", ["9999-12-31", "9000-01-01", "2200-01-01", "2199-12-31"])
def test_the_end_of_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not in the years 1970 to 2199"):
        parse_window("1971-01-01", text)
    assert parse_window("1971-01-01", "2199-12-30")


@pytest.mark.parametrize(("since", "until"), [("2026-11-21", "2026-11-20"), ("2026-11-20T06:00Z", "2026-11-20T06:00Z")])
def test_a_window_that_ends_before_it_begins_is_refused(since: str, until: str) -> None:
    with pytest.raises(UsageError, match="is not before the end"):
        parse_window(since, until)


def test_years_have_four_digits() -> None:
    first_ms = to_ms(datetime(1, 1, 1, tzinfo=UTC))
    assert (format_ms(first_ms), utc_day(first_ms)) == ("0001-01-01T00:00:00Z", "0001-01-01")
    assert format_ms(first_ms + 1) == "0001-01-01T00:00:00.001Z"


@given(st.integers(0, LAST_MS))
def test_milliseconds_survive_the_way_through_datetime_and_text(moment_ms: int) -> None:
    assert to_ms(from_ms(moment_ms)) == moment_ms
    assert to_ms(datetime.fromisoformat(format_ms(moment_ms))) == moment_ms
    assert format_ms(moment_ms).startswith(utc_day(moment_ms))


@given(st.integers(0, LAST_MS), st.sampled_from([1, 250, 1_000, 10_000, HOUR_MS, DAY_MS]))
def test_the_grid_holds_every_moment_in_one_interval(moment_ms: int, interval_ms: int) -> None:
    start = floor_ms(moment_ms, interval_ms)
    assert start <= moment_ms < start + interval_ms
    assert start % interval_ms == 0


def test_the_system_clock_runs() -> None:
    clock = SystemClock()
    assert abs(clock.now_ms() - to_ms(datetime.now(UTC))) < 5_000
    assert clock.monotonic_s() <= clock.monotonic_s()
