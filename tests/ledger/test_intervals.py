"""Clip, cut, merge, islands and levels against counting moment by moment, which is slow and plain."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from analytics.intervals import by_day, clip, cut, islands, levels, merge
from fallow.clock import DAY_MS, HOUR_MS, from_ms, to_ms

SCHEMA = {"gpu": pl.String, "time": pl.Int64, "end": pl.Int64, "zero_ms": pl.Int64, "energy_mj": pl.Float64}
BOUND = st.one_of(st.none(), st.integers(0, 60))


@st.composite
def rows(draw: st.DrawFn) -> pl.DataFrame:
    spans = draw(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 50), st.integers(0, 30)), max_size=12))
    return pl.DataFrame(
        [(gpu, start, start + length, length // 2, 6.0 * length) for gpu, start, length in spans], SCHEMA, orient="row"
    )


def moments(frame: pl.DataFrame) -> list[tuple[str, int]]:
    return sorted(
        (gpu, at) for gpu, start, end in frame.select("gpu", "time", "end").iter_rows() for at in range(start, end)
    )


@given(rows(), BOUND, BOUND)
def test_clip_keeps_the_moments_of_the_time_and_their_part_of_the_sums(
    frame: pl.DataFrame, since: int | None, until: int | None
) -> None:
    found = clip(frame, since, until)
    inside = range(0 if since is None else since, 100 if until is None else until)
    assert moments(found) == [(gpu, at) for gpu, at in moments(frame) if at in inside]
    assert (found["time"] < found["end"]).all()
    assert found["energy_mj"].to_list() == pytest.approx((6.0 * (found["end"] - found["time"])).to_list())
    # a column of bounds does what the same number does
    bounds = {"since": pl.lit(since, pl.Int64), "until": pl.lit(until, pl.Int64)}
    assert_frame_equal(clip(frame.with_columns(**bounds), "since", "until").drop("since", "until"), found)


@given(rows(), st.integers(1, 40))
def test_cut_loses_no_moment_and_no_part_crosses_a_step(frame: pl.DataFrame, step_ms: int) -> None:
    frame = frame.filter(pl.col("time") < pl.col("end"))
    found = cut(frame, step_ms, "step")
    assert moments(found) == moments(frame)
    assert (found["time"] // step_ms == found["step"]).all()
    assert ((found["end"] - 1) // step_ms == found["step"]).all()
    assert abs(found["energy_mj"].sum() - frame["energy_mj"].sum()) < 1e-6
    parts = found.height - frame.height
    assert abs(found["zero_ms"].sum() - frame["zero_ms"].sum()) <= (parts + frame.height) / 2


@given(rows(), st.integers(0, 5))
def test_merge_covers_what_any_span_covers_and_leaves_gaps(frame: pl.DataFrame, tail_ms: int) -> None:
    frame = frame.filter(pl.col("time") < pl.col("end"))
    found = merge(frame, tail_ms=tail_ms)
    longer = frame.with_columns(pl.col("end") + tail_ms)
    assert moments(found) == sorted(set(moments(longer)))
    gaps = found.select((pl.col("time") - pl.col("end").shift(1)).over("gpu")).to_series().drop_nulls()
    assert (gaps > 0).all()
    together = merge(frame, (), tail_ms=tail_ms)
    covered = {at for _, at in moments(longer)}
    assert {at for _, at in moments(together.with_columns(gpu=pl.lit("")))} == covered


@given(rows(), st.one_of(st.none(), st.integers(0, 9)))
def test_islands_join_neighbours_that_agree_and_lie_no_longer_than_the_gap_apart(
    frame: pl.DataFrame, gap_ms: int | None
) -> None:
    # a null agrees with a null only: one of the two GPUs has no name
    ordered = frame.sort("gpu", "time", "end").with_columns(pl.col("gpu").replace("a", None))
    found = ordered.select(islands(("gpu",), gap_ms)).to_series().to_list()
    spans = list(ordered.select("gpu", "time", "end").iter_rows())
    for number, (gpu, start, _) in enumerate(spans[1:], 1):
        before_gpu, _, before_end = spans[number - 1]
        together = gpu == before_gpu and (gap_ms is None or start - before_end <= gap_ms)
        assert found[number] - found[number - 1] == (0 if together else 1)


@given(rows(), st.sampled_from([(), ("gpu",)]))
def test_levels_count_at_every_moment_the_spans_that_cover_it(frame: pl.DataFrame, by: tuple[str, ...]) -> None:
    weighed = levels(frame, by, weight=pl.col("zero_ms") + 1)
    counted = levels(frame, by)
    assert_frame_equal(counted.drop("level"), weighed.drop("level"))
    for gpu in frame["gpu"].unique() if by else [None]:
        own = frame if gpu is None else frame.filter(pl.col("gpu") == gpu)
        spans = list(own.select("time", "end", "zero_ms").iter_rows())
        changes = sorted({moment for span in spans for moment in span[:2]})
        here = [each if gpu is None else each.filter(pl.col("gpu") == gpu) for each in (counted, weighed)]
        assert here[0]["time"].to_list() == changes
        assert here[0]["end"].to_list() == [*changes[1:], None][: len(changes)]
        for moment, count, weight in zip(changes, *(each["level"] for each in here), strict=True):
            covering = [zero_ms + 1 for start, end, zero_ms in spans if start <= moment < end]
            assert (count, weight) == (len(covering), sum(covering))


@pytest.mark.parametrize(
    ("zone", "day"),
    [("America/Santiago", "2026-09-06"), ("Africa/Cairo", "2026-04-24"), ("America/Havana", "2026-03-08")],
)
def test_a_day_whose_midnight_the_clocks_leave_out_begins_when_they_change(zone: str, day: str) -> None:
    start = to_ms(datetime.fromisoformat(f"{day}T00:00:00+00:00")) - DAY_MS
    frame = pl.DataFrame([("a", start, start + 3 * DAY_MS, 0, 0.0)], SCHEMA, orient="row")
    lasts = by_day(frame, ZoneInfo(zone)).filter(pl.col("day") == day).select(pl.col("end") - pl.col("time"))
    assert lasts.rows() == [(23 * HOUR_MS,)]


@given(
    st.integers(0, 370), st.integers(0, 23), st.integers(1, DAY_MS), st.sampled_from(["Europe/Paris", "Asia/Kolkata"])
)
def test_by_day_gives_each_moment_the_day_on_the_zone_s_calendar(
    day: int, hour: int, length_ms: int, zone: str
) -> None:
    start = 1_760_000_000_000 // DAY_MS * DAY_MS + day * DAY_MS + hour * HOUR_MS
    frame = pl.DataFrame([("a", start, start + length_ms, 0, 0.0)], SCHEMA, orient="row")
    found = by_day(frame, ZoneInfo(zone)).sort("time")
    assert (found["end"] - found["time"]).sum() == length_ms
    for time, end, name in found.select("time", "end", "day").iter_rows():
        assert {from_ms(at).astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d") for at in (time, end - 1)} == {name}
