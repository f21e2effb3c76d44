"""Hours of the week in which a pool is not needed, in the reader's own time zone."""

from __future__ import annotations

from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo

import polars as pl
import pytest

from analytics.capacity.off_peak import OffPeak, off_peak
from tests.money.fleet import COLUMNS, T0, stretch

DAY_S = 86_400
MONDAY_S = 3 * DAY_S  # T0 is a Friday
WEEKS = 5
PARIS = ZoneInfo("Europe/Paris")
GPUS = [f"a{number}" for number in range(10)]


def fleet(busy: range, *, days: int = 7 * WEEKS, weekend: bool = True, gpus: list[str] | None = None) -> pl.DataFrame:
    """GPUs that work in these hours of each UTC day, and not at all on weekends unless told."""
    rows = []
    for gpu in gpus or GPUS:
        for day in range(days):
            start = MONDAY_S + (day - days) * DAY_S
            works = weekend or day % 7 < 5
            first, last = (start + 3600 * busy.start, start + 3600 * busy.stop) if works else (start, start)
            rows += [
                stretch(gpu, start, first, "free"),
                stretch(gpu, first, last, "active"),
                stretch(gpu, last, start + DAY_S, "free"),
            ]
    frame = pl.DataFrame(rows, schema=COLUMNS)
    return frame.filter(pl.col("end") > pl.col("time"))


def found(stretches: pl.DataFrame, zone: tzinfo = UTC) -> tuple[OffPeak, ...]:
    pools = dict.fromkeys(stretches["gpu"].unique(), "night")
    return off_peak(stretches, pools, T0 + MONDAY_S * 1000, zone)


def test_nights() -> None:
    # works from 8 to 22: the half hour after work still counts as needed
    windows = found(fleet(range(8, 22)))
    assert windows == tuple(OffPeak("night", day, 23, 32, 10, WEEKS) for day in range(7))


def test_nights_are_where_the_reader_is() -> None:
    windows = found(fleet(range(8, 22)), PARIS)
    # until clocks went back on Sunday, 2026-10-25, work ended an hour later there; an hour counts where nine weeks of ten agree
    assert windows == tuple(OffPeak("night", day, int(day > 0), 9, 10, WEEKS) for day in range(7))


def test_a_weekend_is_one_window() -> None:
    windows = found(fleet(range(24), weekend=False))
    assert windows == (OffPeak("night", 5, 1, 48, 10, WEEKS),)


def test_what_is_always_there_waits_for_no_night() -> None:
    idle = fleet(range(0))
    assert found(idle) == ()


def test_three_weeks_say_nothing() -> None:
    assert found(fleet(range(8, 22), days=27)) == ()
    assert found(fleet(range(8, 22), days=28))[0].weeks == 4


def test_unknown_hours_are_not_off_peak() -> None:
    blind = fleet(range(8, 22)).with_columns(
        state=pl.when(pl.col("state") == "free").then(pl.lit("unknown")).otherwise("state")
    )
    assert found(blind) == ()


@pytest.mark.parametrize("idle", [1, 2])
def test_a_window_of_few_gpus_is_no_news(idle: int) -> None:
    """Of 20 GPUs a tenth is 2."""
    always = [f"a{number}" for number in range(20 - idle)]
    nights = [f"b{number}" for number in range(idle)]
    both = pl.concat([fleet(range(24), gpus=always), fleet(range(8, 22), gpus=nights)])
    assert [each.gpus for each in found(both)] == ([2] * 7 if idle == 2 else [])
