"""Days of the reader's calendar, which lose nothing at their edges, and bins with the state of most of their time."""

from __future__ import annotations

from collections import Counter
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.intervals import by_day
from analytics.report.timeline import BINS_MOST, NOT_THERE, longest_in_bins, timeline
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, from_ms
from fallow.schema import STATES
from tests.money.fleet import COLUMNS, T0, segment

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
        rows.append(segment("a", first, min(first + length * 60, (day + 1) * 86_400), "free"))
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
        segment(
            "a", (time - T0) / 1000, (min(time // DAY_MS * DAY_MS + DAY_MS, monday + 7 * DAY_MS) - T0) / 1000, "free"
        )
        for time in [monday, *range(monday + HOUR_MS, monday + 7 * DAY_MS, DAY_MS)]
    ]
    days = by_day(pl.DataFrame(rows, schema=COLUMNS), ZoneInfo("Europe/Paris"))
    spans = days.group_by("day").agg((pl.col("end") - pl.col("time")).sum()).sort("day")
    assert spans.rows() == [(f"2026-11-{23 + number}", DAY_MS) for number in range(7)]


PIECES = st.lists(st.tuples(st.integers(1, 30_000), st.sampled_from([*STATES, None])), min_size=1, max_size=12)


def frame(pieces: dict[str, list[tuple[int, str | None]]]) -> pl.DataFrame:
    """Pieces of so many seconds behind one another; None is time that the ledger does not have."""
    rows = []
    for gpu, own in pieces.items():
        at = 0
        for length, state in own:
            if state is not None:
                rows.append(segment(gpu, at, at + length, state))
            at += length
    return pl.DataFrame(rows, schema=COLUMNS)


@given(PIECES, PIECES)
def test_most_of_the_bin_decides(first: list[tuple[int, str | None]], second: list[tuple[int, str | None]]) -> None:
    segments = frame({"a": first, "b": second})
    until_ms = T0 + 6 * HOUR_MS
    shown = timeline(
        segments.filter(pl.col("time") < until_ms).with_columns(pl.col("end").clip(upper_bound=until_ms)), T0, until_ms
    )
    assert shown.bin_ms == 10 * MINUTE_MS
    for gpu, codes in zip(shown.gpus, shown.codes, strict=True):
        for number, code in enumerate(codes):
            begin, spent = T0 + number * shown.bin_ms, Counter[str]()
            for row in segments.filter(gpu=gpu).iter_rows(named=True):
                spent[row["state"]] += max(0, min(row["end"], begin + shown.bin_ms) - max(row["time"], begin))
            most = max(spent.values(), default=0)
            if most == 0:
                assert code == NOT_THERE
            else:
                assert spent[STATES[code]] == most


@pytest.mark.parametrize(
    ("days", "bin_ms"),
    [(1, 10 * MINUTE_MS), (7, 30 * MINUTE_MS), (28, 2 * HOUR_MS), (365, 2 * DAY_MS), (4000, 12 * DAY_MS)],
)
def test_a_strip_has_at_most_336_bins(days: int, bin_ms: int) -> None:
    shown = timeline(frame({"a": [(days * 86_400, "free")]}), T0, T0 + days * DAY_MS)
    assert shown.bin_ms == bin_ms
    assert shown.codes.shape[1] <= BINS_MOST
    assert (shown.codes == STATES.index("free")).all()


def test_the_most_wasteful_come_first() -> None:
    shown = timeline(
        frame({"a": [(50, "free"), (50, "active")], "b": [(90, "held")], "c": [(95, "active")]}), T0, T0 + 100_000
    )
    assert shown.gpus == ("b", "a", "c")
    assert np.array_equal(shown.codes[:, 0], [STATES.index(state) for state in ("held", "free", "active")])


def test_of_two_states_as_long_as_each_other_the_less_used_one_is_shown_in_bins_of_any_length() -> None:
    spans = frame({"a": [(50, "active"), (50, "free"), (60, "active"), (40, "held")]}).with_columns(row=0)
    edges_ms = T0 + 1000 * np.array([0, 100, 200, 210])
    codes = spans["state"].replace_strict(list(STATES), list(range(len(STATES)))).to_numpy()
    assert longest_in_bins(spans, codes, 1, edges_ms, NOT_THERE).tolist() == [
        [STATES.index("free"), STATES.index("active"), NOT_THERE]
    ]
