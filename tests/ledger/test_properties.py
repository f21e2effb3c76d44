"""Random small hosts: DuckDB finds the same ledger; layout and order never matter; windows and hours add up."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from analytics.ledger.build import load_ledger
from analytics.ledger.settings import LedgerSettings
from analytics.ledger.summary import clip_ledger, summarise
from analytics.simulation.placement import SimulatedFleet
from analytics.simulation.tables import write_fleet
from fallow import schema
from fallow.clock import DAY_MS, HOUR_MS, Window
from tests.ledger.duckdb_ledger import assert_agree, duckdb_ledger
from tests.ledger.fleets import DAY_S, SHORT, Fleet, fleets, lake_of
from tests.ledger.rows import T0, Row, device, fill, samples, silent, write

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from analytics.ledger.build import Ledger
    from fallow.lake import Lake

INSIDE_A_DAY = (3600, 3660)
"""When rows begin that never reach a midnight."""
MEANS = ("gpu_util_mean_pct", "sm_active_mean_pct", "power_mean_w", "energy_mj", "coverage_ratio", "user_shares")
"""Sums of floats, whose last digits depend on the order of adding, or made of such."""
OF_SAMPLED = ("idle_draw_max_w", "idle_power_max_w")
"""Worked out where any row read with it is a point sample; they count for point samples alone."""


def built(fleet: Fleet, split: Callable[[Row], object] | None = None) -> Ledger:
    """The fleet's ledger; the lake is gone, and with it what `rollups` would read."""
    with lake_of(fleet) if split is None else lake_of(fleet, split) as lake:
        return load_ledger(lake, SHORT, warn=silent)


def exactly(ledger: Ledger, hosts: str = "h") -> tuple[list[Any], list[Any]]:
    """All of the ledger that is exact, of the hosts whose names begin so, by GPU and time."""
    mine = pl.col("host").str.starts_with(hosts)
    segments, idle_intervals = (
        each.filter(mine).sort("gpu", "time") for each in (ledger.segments, ledger.idle_intervals)
    )
    return segments.drop(*MEANS, *OF_SAMPLED).rows(), idle_intervals.rows()


@settings(max_examples=20)
@given(fleets(), fleets())
@example((samples("a", 0, 10), [], []), (samples("b", 0, 10), [], []))
@example((samples("a", -30, 30, gpu_util_pct=99.75, power_w=70.5), [], []), (samples("b", 0, 10), [], []))
def test_duckdb_finds_the_same_and_hosts_do_not_look_at_each_other(one: Fleet, other: Fleet) -> None:
    with lake_of(one) as lake:
        alone = load_ledger(lake, SHORT, warn=silent)
        assert_agree(alone, duckdb_ledger(lake, SHORT))
        for table, rows in zip((schema.GPU, schema.PROCESS, schema.ALLOCATION), other, strict=True):
            write(lake, table, [row | {"gpu": f"z{row['gpu']}"} for row in rows], host="h2")
        both = load_ledger(lake, SHORT, warn=silent)
    assert exactly(both, "h1") == exactly(alone)


@pytest.mark.long
def test_duckdb_finds_the_same_of_a_simulated_fleet(lake: Lake) -> None:
    write_fleet(lake, SimulatedFleet(until_ms=T0, gpus=24, days=3, interval_ms=60_000))
    # a job that hangs over midnight: the simulated ones do not
    hung: Row = {"gpu_util_pct": 100.0, "power_w": 120.0, "sm_active_pct": 14.0, "dram_active_pct": 0.1}
    fill(
        lake,
        samples("hung", -90_000, -84_000, process_count=1, **hung),
        devices=[device("hung", power_limit_w=700.0)],
        host="other",
    )
    ledger = load_ledger(lake, LedgerSettings(), warn=silent)
    assert set(ledger.segments["state"]) == set(schema.STATES)
    assert_agree(ledger, duckdb_ledger(lake, LedgerSettings()))


@settings(max_examples=20)
@given(fleets(), st.randoms(use_true_random=False), st.integers(1, 5))
def test_order_duplicates_contradictions_and_files_never_change_the_result(
    fleet: Fleet, random_: random.Random, parts: int
) -> None:
    gpu_rows, lists, allocations = fleet
    other = [row | {"interval_ms": 12_000, "gpu_util_max_pct": 3.0, "health": "ok"} for row in gpu_rows[::2]]
    sides = ([*gpu_rows, *other], lists, allocations)
    again = [rows + random_.sample(rows, len(rows) // 2) for rows in sides]
    for rows in again:
        random_.shuffle(rows)
    one, two = built(sides), built((again[0], again[1], again[2]), lambda _: random_.randrange(parts))
    assert exactly(two) == exactly(one)
    for name in (*MEANS[:-1], *OF_SAMPLED):
        assert two.segments[name].to_list() == pytest.approx(one.segments[name].to_list(), nan_ok=False)
    shares = [each.segments["user_shares"].explode().to_list() for each in (one, two)]
    assert shares[0] == pytest.approx(shares[1])


@settings(max_examples=12)
@given(fleets(), st.lists(st.integers(T0 - DAY_MS, T0 + HOUR_MS), min_size=1, max_size=4, unique=True).map(sorted))
def test_windows_that_meet_add_up_to_the_whole(fleet: Fleet, cuts: list[int]) -> None:
    ledger = built(fleet)
    windows = [Window(since, until) for since, until in itertools.pairwise([None, *cuts, None])]
    parts = [clip_ledger(ledger, window) for window in windows]
    summaries = [summarise(part) for part in parts if len(part.segments)]
    whole = summarise(ledger)
    for state, milliseconds in whole.totals.state_ms.items():
        assert sum(each.totals.state_ms[state] for each in summaries) == milliseconds
    assert sum(each.idle.zero_ms for each in summaries) == whole.idle.zero_ms
    for name, milliseconds in whole.idle.idle_interval_ms.items():
        assert sum(each.idle.idle_interval_ms[name] for each in summaries) == milliseconds
    energy = sum(part.segments["energy_mj"].sum() for part in parts)
    assert energy == pytest.approx(ledger.segments["energy_mj"].sum())


@settings(max_examples=12)
@given(fleets((-DAY_S - 90, -DAY_S - 90, -90, -90, 3600)))
def test_building_day_by_day_equals_building_at_once(fleet: Fleet) -> None:
    gpu_rows, lists, allocations = fleet
    days = sorted({row["time"] // DAY_MS for row in gpu_rows})
    with lake_of(([], lists, allocations)) as lake:
        for day in days:
            write(lake, schema.GPU, [row for row in gpu_rows if row["time"] // DAY_MS == day])
            grown = load_ledger(lake, SHORT, warn=silent)
        assert exactly(grown) == exactly(built(fleet))
        kept = load_ledger(lake, SHORT, warn=silent)
        assert kept.segments.equals(grown.segments)
        assert kept.idle_intervals.equals(grown.idle_intervals)


@settings(max_examples=12)
@given(fleets(INSIDE_A_DAY))
def test_the_hours_of_a_day_are_its_ledger(fleet: Fleet) -> None:
    columns = ("observed_ms", "zero_ms", "gpu_util_ms", "gpu_util_mean_pct", "mem_used_max_bytes")
    with lake_of(fleet) as lake:
        ledger = load_ledger(lake, SHORT, warn=silent)
        hours = ledger.rollups.hourly(*columns)
    for name, total in (("observed_ms", "util_ms"), ("zero_ms", "zero_ms")):
        by_hour = hours.group_by("gpu").agg(pl.col(name).cast(pl.Int64).sum()).sort("gpu")
        by_state = ledger.segments.group_by("gpu").agg(pl.col(total).sum()).sort("gpu")
        assert by_hour.rows() == by_state.rows()
    for row in hours.iter_rows(named=True):
        histogram = row["gpu_util_ms"]
        assert (histogram is None) == (row["gpu_util_mean_pct"] is None)
        assert sum(histogram or []) == row["observed_ms"]
        if histogram is not None:
            assert len(histogram) == 101
            mean = sum(percent * part for percent, part in enumerate(histogram)) / sum(histogram)
            assert mean <= row["gpu_util_mean_pct"] + 1e-3 < mean + 1 + 1e-2  # percents are rounded down
    used = pl.DataFrame([(row["gpu"], row["mem_used_bytes"]) for row in fleet[0]], ("gpu", "used"), orient="row")
    highest = used.cast({"used": pl.Int64}).group_by("gpu").agg(pl.col("used").filter(pl.col("used") >= 0).max())
    found = hours.group_by("gpu").agg(pl.col("mem_used_max_bytes").max())
    assert found.sort("gpu").rows() == highest.sort("gpu").rows()
