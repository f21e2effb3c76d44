"""Durations, windows, the interval grid, and byte sizes."""

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
from fallow.units import format_bytes, parse_bytes

LAST_MS = to_ms(datetime(9999, 12, 31, 23, 59, 59, 999000, UTC))


def at(text: str) -> int:
    return to_ms(datetime.fromisoformat(text))


def test_durations_are_read_as_people_write_them_and_shown_in_the_largest_units() -> None:
    seconds = {"250ms": 0.25, "10s": 10, "1.5s": 1.5, "5min": 300, "5m": 300, "2h": 7_200, " 10 s ": 10}
    seconds |= {"7d": WEEK_MS / 1000, "1w": WEEK_MS / 1000, "1h30m": 5_400, "1h 30min": 5_400}
    assert {text: parse_duration_ms(text) / 1000 for text in seconds} == seconds
    shown = {0: "0s", 5_400_000: "1h 30min", 8 * DAY_MS + 250: "8d 250ms"}
    assert {duration_ms: format_duration(duration_ms) for duration_ms in shown} == shown


@pytest.mark.parametrize(
    "text", ["", "10", "s", "-5s", "0s", "0.4ms", "10 parsecs", "10s x", "1e3s", "5M", "9" * 400 + "d"]
)
def test_what_is_no_duration_says_how_to_write_one(text: str) -> None:
    with pytest.raises(UsageError, match="is not a duration; write a number and a unit"):
        parse_duration_ms(text)


@given(st.integers(1, 100_000 * DAY_MS))
def test_a_formatted_duration_reads_back(duration_ms: int) -> None:
    assert parse_duration_ms(format_duration(duration_ms)) == duration_ms


def test_a_window_is_of_utc_days_iso_weeks_spans_before_its_end_and_moments_with_an_offset() -> None:
    assert parse_window("2026-11-20", "2026-11-20") == Window(at("2026-11-20T00:00Z"), at("2026-11-21T00:00Z"))
    assert parse_window("2026-W47", "2026-W47") == Window(at("2026-11-16T00:00Z"), at("2026-11-23T00:00Z"))
    assert parse_window("7d", "2026-11-20") == Window(at("2026-11-14T00:00Z"), at("2026-11-21T00:00Z"))
    assert parse_window(None, None) == Window(None, None)
    since = {
        "2026-W01": "2025-12-29T00:00Z",
        "2026-W53": "2026-12-28T00:00Z",
        "2026-11-20T06:00Z": "2026-11-20T06:00+00:00",
        "2026-11-20T06:00:00.250+01:00": "2026-11-20T05:00:00.250+00:00",
    }
    for text, expected in since.items():
        assert parse_window(text, None).since_ms == at(expected)


@pytest.mark.parametrize(("text", "span_ms", "grid_ms"), [("2h", 2 * HOUR_MS, MINUTE_MS), ("7d", WEEK_MS, HOUR_MS)])
def test_a_span_counts_back_from_now_where_the_end_is_open(text: str, span_ms: int, grid_ms: int) -> None:
    before = SystemClock().now_ms()
    window = parse_window(text, None)
    assert window.until_ms is None
    assert window.since_ms is not None
    assert window.since_ms % grid_ms == 0
    assert -grid_ms < window.since_ms - (before - span_ms) < 5_000


def test_a_span_counts_back_from_the_end_of_the_data_in_days_of_the_zone() -> None:
    end, paris = at("2026-10-28T05:30:10Z"), ZoneInfo("Europe/Paris")
    assert parse_window("7d", None, end) == Window(at("2026-10-21T05:30:10Z"), None)
    assert parse_window("1w", None, end, paris) == Window(at("2026-10-21T04:30:10Z"), None), "one of the days has 25 h"
    assert parse_window("168h", None, end, paris) == Window(at("2026-10-21T05:30:10Z"), None)
    assert AskedWindow("7d", "1d", paris).before(end) == Window(at("2026-10-20T04:30:10Z"), at("2026-10-27T05:30:10Z"))
    asked = [("7d", None), ("2026-10-01", "3h"), ("7d", "2026-10-20"), ("2026-10-01", None), (None, None)]
    assert [AskedWindow(*each).counts_back for each in asked] == [True, True, False, False, False]


NO_TIME = r"is not a time; write a date \(2026-11-20\)"
BEYOND = "is not in the years 1970 to 2199"
REFUSED = {
    **dict.fromkeys(("yesterday", "2026-13-01", "2026-02-30", "2026-W54", "2025-W53", "20-11-2026", "", "7"), NO_TIME),
    **dict.fromkeys(("2026-11-20T06:00", "2026-11-20 06:00:00"), "has no time zone; add Z"),
    **dict.fromkeys(("1000000d", "1969-12-31", "0001-01-01T00:00+23:59"), BEYOND),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_time_says_how_to_write_one(text: str) -> None:
    with pytest.raises(UsageError, match=REFUSED[text]):
        parse_window(text, None)


@pytest.mark.parametrize(
    ("since", "until", "said"),
    [
        *(("1971-01-01", end, BEYOND) for end in ("9999-12-31", "9000-01-01", "2200-01-01", "2199-12-31")),
        ("2026-11-21", "2026-11-20", "is not before the end"),
        ("2026-11-20T06:00Z", "2026-11-20T06:00Z", "is not before the end"),
    ],
)
def test_the_end_of_time_and_a_window_that_ends_before_it_begins_are_refused(since: str, until: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_window(since, until)
    assert parse_window("1971-01-01", "2199-12-30")


def test_years_have_four_digits() -> None:
    first_ms = to_ms(datetime(1, 1, 1, tzinfo=UTC))
    assert (format_ms(first_ms), utc_day(first_ms)) == ("0001-01-01T00:00:00Z", "0001-01-01")
    assert format_ms(first_ms + 1) == "0001-01-01T00:00:00.001Z"


@given(st.integers(0, LAST_MS), st.sampled_from([1, 250, 1_000, 10_000, HOUR_MS, DAY_MS]))
def test_milliseconds_survive_the_way_through_datetime_and_text_and_lie_in_one_interval(
    moment_ms: int, interval_ms: int
) -> None:
    assert to_ms(from_ms(moment_ms)) == moment_ms
    assert to_ms(datetime.fromisoformat(format_ms(moment_ms))) == moment_ms
    assert format_ms(moment_ms).startswith(utc_day(moment_ms))
    start = floor_ms(moment_ms, interval_ms)
    assert start <= moment_ms < start + interval_ms
    assert start % interval_ms == 0


def test_the_system_clock_runs() -> None:
    clock = SystemClock()
    assert abs(clock.now_ms() - to_ms(datetime.now(UTC))) < 5_000
    assert clock.monotonic_s() <= clock.monotonic_s()


def test_sizes_are_read_as_people_write_them_and_shown_with_one_decimal_below_a_hundred() -> None:
    read = {"0": 0, "123": 123, "123B": 123, "1KB": 1_000, "1k": 1_000, "1KiB": 1_024, "1.5 MiB": 1_572_864}
    read |= {"1GB": 1_000_000_000, "48GiB": 48 * 1024**3, "2tib": 2 * 1024**4, " 1 PB ": 10**15}
    assert {text: parse_bytes(text) for text in read} == read
    shown = {0: "0 B", 1_023: "1023 B", 1_024: "1.0 KiB", 102_298: "99.9 KiB", 102_400: "100 KiB"}
    shown |= {25_125_558_681: "23.4 GiB", 5 * 1024**5: "5120 TiB", -1_536: "-1.5 KiB"}
    assert {size: format_bytes(size) for size in shown} == shown


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "1 GBs", "1e9", "1,5GB", "one", "9" * 400, "100000PB"])
def test_what_is_no_size_says_how_to_write_one(text: str) -> None:
    with pytest.raises(UsageError, match=r"is (not a size; write a number and a unit|too large)"):
        parse_bytes(text)


@given(st.integers(0, 2**50))
def test_a_shown_size_is_within_its_last_digit(size: int) -> None:
    shown = parse_bytes(format_bytes(size))
    assert abs(shown - size) <= max(0.05 * size, 0.5)
