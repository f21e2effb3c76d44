"""Random small hosts: time is partitioned, layout and order never matter, and a plain second implementation agrees."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from analytics.ledger.build import load_ledger
from analytics.ledger.settings import LedgerSettings
from analytics.ledger.summary import clip_ledger, summarise
from fallow import schema
from fallow.clock import DAY_MS, HOUR_MS, Window
from tests.ledger import reference
from tests.ledger.agreement import EXACT, exactly
from tests.ledger.fleets import DAY_S, SHORT, Fleet, fleets, lake_of, scaled
from tests.ledger.rows import T0, Row, samples, silent, write

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from analytics.ledger.build import Ledger

INSIDE_A_DAY = (3600, 3660)
"""When rows begin that never reach a midnight."""


def built(fleet: Fleet, split: Callable[[Row], object] | None = None, thresholds: LedgerSettings = SHORT) -> Ledger:
    """The fleet's ledger; the lake is gone, and with it what `rollups` would read."""
    with lake_of(fleet) if split is None else lake_of(fleet, split) as lake:
        return load_ledger(lake, thresholds, warn=silent)


def pieces_of(ledger: Ledger) -> set[reference.Piece]:
    return {
        reference.Piece(
            row["gpu"], row["time"], row["end"], row["state"], row["holder"], row["holder_source"], row["account"], row["job"],
            (row["stretch_start"], row["stretch_end"]),
        )
        for row in ledger.stretches.iter_rows(named=True)
    }  # fmt: skip


def spells_of(ledger: Ledger) -> set[tuple[Any, ...]]:
    return set(ledger.spells.select("gpu", "time", "end", "spell_start", "spell_end").rows())


@settings(max_examples=20)
@given(fleets())
@example((samples("a", 0, 10), [], []))
def test_a_plain_second_implementation_agrees(fleet: Fleet) -> None:
    ledger = built(fleet)
    pieces, spells = reference.ledger(*fleet, SHORT)
    assert pieces_of(ledger) == pieces
    assert spells_of(ledger) == spells


@settings(max_examples=12)
@given(fleets(), st.randoms(use_true_random=False), st.integers(1, 5))
def test_order_duplicates_and_files_never_change_the_result(fleet: Fleet, random_: random.Random, parts: int) -> None:
    again: Fleet = tuple(rows + random_.sample(rows, len(rows) // 2) for rows in fleet)  # type: ignore[assignment]
    for rows in again:
        random_.shuffle(rows)
    one, other = built(fleet), built(again, lambda _: random_.randrange(parts))
    assert exactly(other) == exactly(one)
    assert spells_of(other) == spells_of(one)
    for name in ("gpu_util_mean_pct", "sm_active_mean_pct", "power_mean_w", "energy_mj", "coverage_ratio"):
        assert other.stretches[name].to_list() == pytest.approx(one.stretches[name].to_list(), nan_ok=False)
    for mine, theirs in zip(one.stretches["holder_shares"], other.stretches["holder_shares"], strict=True):
        assert (mine is None) == (theirs is None)
        assert mine is None or list(mine) == pytest.approx(list(theirs))


@settings(max_examples=12)
@given(fleets(), st.randoms(use_true_random=False))
def test_of_rows_that_contradict_each_other_the_same_one_wins_in_any_order(
    fleet: Fleet, random_: random.Random
) -> None:
    gpu_rows, lists, claims = fleet
    other = [row | {"interval_ms": 12_000, "gpu_util_max_pct": 3.0, "health": "ok"} for row in gpu_rows[::2]]
    contradicting = [*gpu_rows, *other]
    shuffled = random_.sample(contradicting, len(contradicting))
    assert pieces_of(built((contradicting, lists, claims))) == pieces_of(built((shuffled, lists, claims)))


@settings(max_examples=12)
@given(fleets())
def test_states_partition_the_time_of_every_gpu_to_the_millisecond(fleet: Fleet) -> None:
    spans: dict[str, list[int]] = {}
    for row in fleet[0]:
        start = max(row["time"] + row["offset_ms"], row["time"] // DAY_MS * DAY_MS)
        spans.setdefault(row["gpu"], []).extend((start, start + row["interval_ms"]))
    with lake_of(fleet) as lake, duckdb.connect() as connection:
        ledger = load_ledger(lake, SHORT, warn=silent)
        connection.execute("set timezone = 'UTC'")
        stored = connection.sql(
            f"""
            with stretch as (
                select gpu, epoch_ms("time") as start_ms, epoch_ms("end") as end_ms,
                       lead(epoch_ms("time")) over (partition by gpu order by "time") as next_ms
                from read_parquet('{lake.root}/ledger/**/*.parquet')
            )
            select gpu, min(start_ms), max(end_ms), sum(end_ms - start_ms)::bigint,
                   count(*) filter (end_ms <> next_ms), count(*) filter (end_ms <= start_ms)
            from stretch group by gpu
            """  # noqa: S608  # a folder of the test's own
        ).fetchall()
    expected = {(gpu, min(span), max(span), max(span) - min(span), 0, 0) for gpu, span in spans.items()}
    assert set(stored) == expected
    totals = summarise(ledger).totals
    assert totals.total_ms == sum(capacity for _, _, _, capacity, _, _ in expected)
    assert all(isinstance(part, int) and part >= 0 for part in totals.state_ms.values())


@settings(max_examples=12)
@given(fleets(), st.lists(st.integers(T0 - DAY_MS, T0 + HOUR_MS), min_size=1, max_size=4, unique=True).map(sorted))
def test_windows_that_meet_add_up_to_the_whole(fleet: Fleet, cuts: list[int]) -> None:
    ledger = built(fleet)
    windows = [Window(since, until) for since, until in itertools.pairwise([None, *cuts, None])]
    parts = [clip_ledger(ledger, window) for window in windows]
    summaries = [summarise(part) for part in parts if len(part.stretches)]
    whole = summarise(ledger)
    for state, milliseconds in whole.totals.state_ms.items():
        assert sum(each.totals.state_ms[state] for each in summaries) == milliseconds
    assert sum(each.idle.zero_ms for each in summaries) == whole.idle.zero_ms
    for name, milliseconds in whole.idle.spell_ms.items():
        assert sum(each.idle.spell_ms[name] for each in summaries) == milliseconds
    energy = sum(part.stretches["energy_mj"].sum() for part in parts)
    assert energy == pytest.approx(ledger.stretches["energy_mj"].sum())


@settings(max_examples=12)
@given(fleets(INSIDE_A_DAY), st.integers(2, 4))
def test_times_and_thresholds_scaled_give_times_scaled(fleet: Fleet, factor: int) -> None:
    """Twice as long an interval, twice as long a wait: twice the time in every state."""
    larger: Fleet = tuple([scaled(row, factor) for row in rows] for rows in fleet)  # type: ignore[assignment]
    many = built(larger, thresholds=LedgerSettings(idle_after_ms=factor * SHORT.idle_after_ms))
    once = summarise(built(fleet)).totals.state_ms
    assert summarise(many).totals.state_ms == {state: factor * part for state, part in once.items()}


@settings(max_examples=12)
@given(fleets((-DAY_S - 90, -DAY_S - 90, -90, -90, 3600)))
def test_building_day_by_day_equals_building_at_once(fleet: Fleet) -> None:
    at_once = built(fleet)
    gpu_rows, lists, claims = fleet
    days = sorted({row["time"] // DAY_MS for row in gpu_rows})
    with lake_of(([], lists, claims)) as lake:
        for day in days:
            write(lake, schema.GPU, [row for row in gpu_rows if row["time"] // DAY_MS == day])
            grown = load_ledger(lake, SHORT, warn=silent)
        assert exactly(grown) == exactly(at_once)
        assert spells_of(grown) == spells_of(at_once)
        kept = load_ledger(lake, SHORT, warn=silent)
        assert kept.stretches.equals(grown.stretches)
        assert kept.spells.equals(grown.spells)


@settings(max_examples=12)
@given(fleets((-DAY_S - 90, -DAY_S - 90, -90, -90, 3600)))
def test_a_new_day_changes_nothing_before_it_but_the_stretch_that_reaches_into_it(fleet: Fleet) -> None:
    gpu_rows, lists, claims = fleet
    last = max(row["time"] // DAY_MS for row in gpu_rows)
    earlier = [row for row in gpu_rows if row["time"] // DAY_MS < last]
    if not earlier:
        return
    whole = built(fleet)
    for gpu in {row["gpu"] for row in earlier}:
        mine = pl.col("gpu") == gpu
        before = built((earlier, lists, claims)).stretches.filter(mine)
        last_known = before.filter(pl.col("state") != "unknown")["stretch_start"].max()
        settled = pl.col("stretch_end") <= (last_known or 0)
        assert whole.stretches.filter(mine, settled).select(EXACT).rows() == before.filter(settled).select(EXACT).rows()


@settings(max_examples=12)
@given(fleets(INSIDE_A_DAY))
def test_the_hours_of_a_day_are_its_ledger(fleet: Fleet) -> None:
    with lake_of(fleet) as lake:
        ledger = load_ledger(lake, SHORT, warn=silent)
        hours = ledger.rollups.hourly(
            "observed_ms", "zero_ms", "gpu_util_ms", "gpu_util_mean_pct", "mem_used_max_bytes"
        )
    for name, total in (("observed_ms", "util_ms"), ("zero_ms", "zero_ms")):
        by_hour = hours.group_by("gpu").agg(pl.col(name).cast(pl.Int64).sum()).sort("gpu")
        by_state = ledger.stretches.group_by("gpu").agg(pl.col(total).sum()).sort("gpu")
        assert by_hour.rows() == by_state.rows()
    for row in hours.iter_rows(named=True):
        histogram = row["gpu_util_ms"]
        assert (histogram is None) == (row["gpu_util_mean_pct"] is None)
        assert sum(histogram or []) == row["observed_ms"]
        if histogram is not None:
            assert len(histogram) == 101
            mean = sum(percent * part for percent, part in enumerate(histogram)) / sum(histogram)
            assert mean <= row["gpu_util_mean_pct"] + 1e-3 < mean + 1 + 1e-2  # percents are rounded down
    highest = hours.group_by("gpu").agg(pl.col("mem_used_max_bytes").max()).sort("gpu").rows()
    with lake_of(fleet) as lake, duckdb.connect() as connection:
        known = connection.sql(
            f"""
            select gpu, max(mem_used_bytes) filter (mem_used_bytes >= 0)
            from read_parquet('{lake.root}/gpu/**/*.parquet') group by gpu order by gpu
            """  # noqa: S608  # a folder of the test's own
        ).fetchall()
    assert highest == known
