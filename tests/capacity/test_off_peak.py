"""Hours of the week: unused share of each, against sums by the minute, and hours in which a pool is not needed."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

import polars as pl
import pytest

from analytics.capacity.off_peak import HOURS, HoursOfWeek, OffPeak, hours_of_week, off_peak
from analytics.states import UNUSED
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, WEEK_MS, from_ms, to_ms

MONDAY_MS = to_ms(datetime(2026, 10, 26, tzinfo=UTC))
"""The Monday after the night in which Paris puts its clocks back."""
PARIS, KOLKATA = ZoneInfo("Europe/Paris"), ZoneInfo("Asia/Kolkata")
SCHEMA = {"time": pl.Int64, "end": pl.Int64, "state": pl.String, "gpu_share": pl.Float64}


def rows(*spans: tuple[int, int, str, float]) -> pl.DataFrame:
    return pl.DataFrame(spans, schema=SCHEMA, orient="row")


def week_of(state_at: dict[range, str], weeks: int, otherwise: str = "active", zone: tzinfo = UTC) -> HoursOfWeek:
    """Of one GPU whose state is told by the UTC hour of the week."""
    spans = []
    for hour in range(weeks * HOURS):
        start = MONDAY_MS - weeks * WEEK_MS + hour * HOUR_MS
        state = next((name for hours, name in state_at.items() if hour % HOURS in hours), otherwise)
        spans.append((start, start + HOUR_MS, state, 1.0))
    found = hours_of_week(rows(*spans), MONDAY_MS, zone)
    assert found is not None
    return found


def slowly(segments: pl.DataFrame, since_ms: int, until_ms: int, zone: tzinfo) -> tuple[list[float], list[float]]:
    unused, observed = [0.0] * HOURS, [0.0] * HOURS
    for start, end, state, share in segments.iter_rows():
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
    found = week_of({range(6): "free", range(6, 8): "held"}, weeks=4)
    assert (found.weeks, found.coverage) == (4, 1.0)
    assert found.shares == tuple([1.0] * 8 + [0.0] * (HOURS - 8))


def test_hours_are_where_the_reader_is() -> None:
    """Kolkata is five and a half hours ahead: its hours are made of halves of two of UTC's."""
    found = week_of({range(6): "free"}, weeks=1, zone=KOLKATA)
    assert found.shares[4:13] == (0.0, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.0)


def test_the_hour_that_comes_twice_has_the_time_of_both() -> None:
    found = week_of({}, weeks=1, otherwise="free", zone=PARIS)
    assert found.observed_ms[6 * 24 + 2] == 2 * HOUR_MS
    # the week began at two o'clock on Monday, summer time, and ended at one o'clock, winter time
    assert (found.observed_ms[1], found.shares[1]) == (0, None)
    assert sum(found.observed_ms) == WEEK_MS


def test_unknown_time_is_no_share_of_anything() -> None:
    found = week_of({range(3): "unknown", range(3, 4): "free"}, weeks=1)
    assert found.shares[:5] == (None, None, None, 1.0, 0.0)
    assert found.coverage == pytest.approx((HOURS - 3) / HOURS)


def test_no_more_than_eight_weeks_and_less_than_one_as_it_is() -> None:
    def seen(days: float) -> HoursOfWeek | None:
        return hours_of_week(rows((MONDAY_MS - round(days * DAY_MS), MONDAY_MS + DAY_MS, "free", 1.0)), MONDAY_MS, UTC)

    long, short = seen(140), seen(3)
    assert long is not None
    assert long.weeks == 8
    assert short is not None
    assert short.weeks == pytest.approx(3 / 7)
    assert sum(share is None for share in short.shares) == 4 * 24
    assert seen(0) is None


END_MS = MONDAY_MS + 4 * WEEK_MS
WEEKS, GPUS = 5, tuple(f"a{number}" for number in range(10))


def fleet(
    busy: range, *, days: int = 7 * WEEKS, weekend: bool = True, gpus: tuple[str, ...] = GPUS, otherwise: str = "free"
) -> pl.DataFrame:
    """GPUs that work in these hours of each UTC day, and not at all on weekends unless told."""
    found = []
    for gpu in gpus:
        for day in range(days):
            start = END_MS + (day - days) * DAY_MS
            works = busy if weekend or day % 7 < 5 else range(0)
            first, last = start + HOUR_MS * works.start, start + HOUR_MS * works.stop
            spans = ((start, first, otherwise), (first, last, "active"), (last, start + DAY_MS, otherwise))
            found += [(*span, 1.0, gpu) for span in spans if span[0] < span[1]]
    return pl.DataFrame(found, schema=SCHEMA | {"gpu": pl.String}, orient="row")


def windows(segments: pl.DataFrame, zone: tzinfo = UTC) -> tuple[OffPeak, ...]:
    return off_peak(segments, dict.fromkeys(segments["gpu"].unique(), "night"), END_MS, zone)


WORK = range(8, 22)
NIGHTS = tuple(OffPeak("night", day, 23, 32, 10, WEEKS) for day in range(7))  # the half hour after work is needed
# until clocks went back on Sunday, 2026-10-25, work ended an hour later there; an hour counts if 9 weeks of 10 agree
IN_PARIS = tuple(OffPeak("night", day, int(day > 0), 9, 10, WEEKS) for day in range(7))


@pytest.mark.parametrize(
    ("segments", "zone", "expected"),
    [
        pytest.param(fleet(WORK), UTC, NIGHTS, id="nights"),
        pytest.param(fleet(WORK), PARIS, IN_PARIS, id="nights are where the reader is"),
        pytest.param(
            fleet(range(24), weekend=False), UTC, (OffPeak("night", 5, 1, 48, 10, WEEKS),), id="a weekend is one"
        ),
        pytest.param(fleet(range(0)), UTC, (), id="what is always there waits for no night"),
        pytest.param(fleet(WORK, days=27), UTC, (), id="three weeks say nothing"),
        pytest.param(fleet(WORK, otherwise="unknown"), UTC, (), id="unknown hours are not off-peak"),
    ],
)
def test_windows_that_are_free_week_after_week(
    segments: pl.DataFrame, zone: tzinfo, expected: tuple[OffPeak, ...]
) -> None:
    assert windows(segments, zone) == expected


def test_four_weeks_are_enough() -> None:
    assert windows(fleet(WORK, days=28))[0].weeks == 4


@pytest.mark.parametrize("idle", [1, 2])
def test_a_window_of_few_gpus_is_no_news(idle: int) -> None:
    """Of 20 GPUs a tenth is 2."""
    names = tuple(f"b{number}" for number in range(20))
    both = pl.concat([fleet(range(24), gpus=names[idle:]), fleet(WORK, gpus=names[:idle])])
    assert [each.gpus for each in windows(both)] == ([2] * 7 if idle == 2 else [])
