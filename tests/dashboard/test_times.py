"""Bins begin on round local times, hold all of the time, and lose or repeat nothing when clocks change."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from analytics.language.languages import language
from dashboard.render.strip import marks_of
from dashboard.times import WIDTHS_MS, edges, width_of
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, from_ms, to_ms

ZONES = (
    "UTC",
    "Europe/Paris",
    "America/New_York",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Africa/Cairo",
)
BACK_MS = to_ms(datetime(2026, 10, 25, tzinfo=UTC))
"""The day on which Paris puts its clocks back, at 01:00 UTC."""
FORTH_MS = to_ms(datetime(2026, 3, 29, tzinfo=UTC))


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("start_ms", [BACK_MS - 9 * HOUR_MS - 17 * MINUTE_MS, FORTH_MS - 9 * HOUR_MS, BACK_MS])
def test_every_bin_begins_on_a_round_time_and_all_time_is_in_one(zone: str, start_ms: int) -> None:
    for width_ms in WIDTHS_MS:
        if width_ms >= 5 * MINUTE_MS:
            round_bins_hold_all_time(zone, start_ms, width_ms)


def round_bins_hold_all_time(zone: str, start_ms: int, width_ms: int) -> None:
    until_ms = start_ms + max(DAY_MS, 3 * width_ms) + 7 * MINUTE_MS
    found = edges(ZoneInfo(zone), start_ms, until_ms, width_ms)
    assert found[0] <= start_ms < found[1], width_ms
    assert found[-2] < until_ms <= found[-1], width_ms
    assert (np.diff(found) > 0).all(), width_ms
    for edge in found.tolist():
        local = from_ms(edge).astimezone(ZoneInfo(zone))
        clock_ms = ((local.hour * 60 + local.minute) * 60 + local.second) * SECOND_MS
        changed = local.utcoffset() != from_ms(edge - 1).astimezone(ZoneInfo(zone)).utcoffset()
        assert clock_ms % min(width_ms, DAY_MS) == 0 or changed, (width_ms, local)
        if width_ms % (7 * DAY_MS) == 0:
            assert local.weekday() == 0, (width_ms, local)


def test_of_a_day_of_twenty_five_hours_each_hour_has_its_bin() -> None:
    paris = ZoneInfo("Europe/Paris")
    day = edges(paris, BACK_MS - 2 * HOUR_MS, BACK_MS + 23 * HOUR_MS, DAY_MS)
    assert np.diff(day).tolist() == [25 * HOUR_MS]
    assert np.diff(edges(paris, int(day[0]), int(day[1]), HOUR_MS)).tolist() == [HOUR_MS] * 25
    assert np.diff(edges(paris, int(day[0]), int(day[1]), 6 * HOUR_MS)).tolist() == [7 * HOUR_MS] + [6 * HOUR_MS] * 3


def test_of_a_day_of_twenty_three_hours_no_bin_is_empty() -> None:
    paris = ZoneInfo("Europe/Paris")
    day = edges(paris, FORTH_MS, FORTH_MS + 12 * HOUR_MS, DAY_MS)
    assert np.diff(day).tolist() == [23 * HOUR_MS]
    assert np.diff(edges(paris, int(day[0]), int(day[1]), HOUR_MS)).tolist() == [HOUR_MS] * 23
    assert (
        np.diff(edges(paris, int(day[0]), int(day[1]), 2 * HOUR_MS)).tolist()
        == [2 * HOUR_MS, HOUR_MS] + [2 * HOUR_MS] * 10
    )


@pytest.mark.parametrize("offset_ms", [0, MINUTE_MS, HOUR_MS - 1])
def test_a_time_between_two_edges_has_one_bin(offset_ms: int) -> None:
    start_ms = BACK_MS + offset_ms
    assert edges(ZoneInfo("UTC"), start_ms, start_ms + 1, HOUR_MS).tolist() == [BACK_MS, BACK_MS + HOUR_MS]
    assert edges(ZoneInfo("UTC"), BACK_MS, BACK_MS + HOUR_MS, HOUR_MS).tolist() == [BACK_MS, BACK_MS + HOUR_MS]


@pytest.mark.parametrize(
    ("span_ms", "most", "least_ms", "width_ms"),
    [
        (1, 1, SECOND_MS, SECOND_MS),
        (DAY_MS, 500, SECOND_MS, 5 * MINUTE_MS),
        (DAY_MS, 500, HOUR_MS, HOUR_MS),
        (7 * DAY_MS, 24, SECOND_MS, 12 * HOUR_MS),
        (4000 * DAY_MS, 1, SECOND_MS, 364 * DAY_MS),
    ],
)
def test_a_width_is_the_shortest_that_fits(span_ms: int, most: int, least_ms: int, width_ms: int) -> None:
    assert width_of(span_ms, most, least_ms) == width_ms


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
