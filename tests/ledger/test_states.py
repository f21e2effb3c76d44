"""What state a GPU is in: every case of the design by hand, to the second."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.ledger.rows import GB, T0, claim, fill, held_by, load, ms, processes, samples, states

if TYPE_CHECKING:
    from fallow.lake import Lake

BUSY: dict[str, Any] = {"gpu_util_pct": 90.0, "process_count": 1}
LOADED: dict[str, Any] = {"gpu_util_pct": 0.0, "process_count": 1}


def test_no_process_and_no_claim_is_free(lake: Lake) -> None:
    assert states(fill(lake, samples("a", 0, 600))) == [("free", 0, 600)]


def test_the_last_sample_stands_for_one_interval(lake: Lake) -> None:
    assert states(fill(lake, samples("a", 0, 10))) == [("free", 0, 10)]
    assert states(fill(lake, samples("b", 0, 60, every_s=60)), "b") == [("free", 0, 60)]


@pytest.mark.parametrize("health", ["lost", "missing", "reset_required", "wedged", "driver_down"])
def test_a_gpu_out_of_order_is_unavailable_whatever_else_the_row_says(lake: Lake, health: str) -> None:
    rows = samples("a", 0, 60, health=health, **BUSY) + samples("a", 60, 90, health="degraded")
    fill(lake, rows, claims=[claim("a", 0, 300)])
    assert states(lake) == [("unavailable", 0, 60), ("reserved", 60, 90)]
    assert load(lake).spells["time"].to_list() == [ms(60)]


def test_a_lost_gpu_without_any_value_is_unavailable(lake: Lake) -> None:
    rows = samples("a", 0, 60, health="lost", gpu_util_pct=None, process_count=None)
    assert states(fill(lake, rows)) == [("unavailable", 0, 60)]


def test_a_claim_reserves_and_its_owner_is_the_holder(lake: Lake) -> None:
    fill(lake, samples("a", 0, 120), claims=[claim("a", 30, 60), claim(None, 60, 90)])
    assert held_by(lake) == [
        ("free", 0, 30, None, None),
        ("reserved", 30, 60, "bob", "claim"),
        ("free", 60, 120, None, None),
    ]


def test_claims_that_overlap_name_everybody(lake: Lake) -> None:
    fill(lake, samples("a", 0, 90), claims=[claim("a", 0, 60, "eve", "j2"), claim("a", 30, None, "bob")])
    assert [(start, end, who) for _, start, end, who, _ in held_by(lake)] == [
        (0, 30, "eve"), (30, 60, "bob+eve"), (60, 90, "bob"),
    ]  # fmt: skip


def test_a_claim_that_was_written_again_when_it_ended_has_ended(lake: Lake) -> None:
    fill(lake, samples("a", 0, 60), claims=[claim("a", 0, None), claim("a", 0, 30)])
    assert states(lake) == [("reserved", 0, 30), ("free", 30, 60)]


def test_a_claim_without_a_user_reserves_for_nobody_known(lake: Lake) -> None:
    fill(lake, samples("a", 0, 30), claims=[claim("a", 0, 60, None)])
    assert held_by(lake) == [("reserved", 0, 30, None, "claim")]


def test_low_looks_at_the_time_weighted_mean_of_the_stretch_between_two_held_ones(lake: Lake) -> None:
    # 20 s at 35 and 50 s at 0: 10.0; with 60 s at 0 it is 8.75
    idle, busy = samples("a", 0, 300, **LOADED), samples("a", 300, 320, gpu_util_pct=35.0, process_count=1)
    rows = idle + busy + samples("a", 320, 370, **LOADED) + samples("a", 370, 380, **BUSY)
    assert states(fill(lake, rows)) == [("held", 0, 300), ("active", 300, 380)]
    longer = samples("b", 0, 20, gpu_util_pct=35.0, process_count=1) + samples("b", 20, 80, **LOADED)
    assert states(fill(lake, longer), "b") == [("low", 0, 80)]


def test_a_short_idle_spell_of_a_holder_is_low(lake: Lake) -> None:
    assert states(fill(lake, samples("a", 0, 290, **LOADED))) == [("low", 0, 290)]


def test_without_a_process_list_memory_stands_for_a_holder(lake: Lake) -> None:
    rows = samples("a", 0, 300, process_count=None, mem_used_bytes=GB + 1)
    rows += samples("a", 300, 600, process_count=None, mem_used_bytes=GB)
    assert held_by(fill(lake, rows)) == [("held", 0, 300, None, "memory"), ("free", 300, 600, None, "unwatched")]
    assert states(lake, held_min_bytes=2 * GB) == [("free", 0, 600)]


@pytest.mark.parametrize(
    ("used_bytes", "source"), [(64 * 2**20 - 1, None), (64 * 2**20, "unwatched"), (None, "unwatched")]
)
def test_only_empty_memory_says_that_nobody_was_there(lake: Lake, used_bytes: int | None, source: str | None) -> None:
    """Work of less than ledger.held_min_bytes takes a context too: of what is free nobody knows, unless something lists processes."""
    rows = samples("a", 0, 600, process_count=None, mem_used_bytes=used_bytes)
    assert held_by(fill(lake, rows)) == [("free", 0, 600, None, source)]


def test_memory_does_not_stand_for_a_holder_where_the_process_list_is_empty(lake: Lake) -> None:
    assert states(fill(lake, samples("a", 0, 600, mem_used_bytes=40 * GB))) == [("free", 0, 600)]


def test_a_claim_names_the_holder_where_no_process_list_does(lake: Lake) -> None:
    rows = samples("a", 0, 300, process_count=None, mem_used_bytes=2 * GB) + samples("b", 0, 300, **LOADED)
    fill(lake, rows, claims=[claim("a", 0, 900), claim("b", 0, 900)])
    assert held_by(lake) == [("held", 0, 300, "bob", "claim")] * 2


def test_utilization_without_a_process_is_use_by_nobody_known(lake: Lake) -> None:
    rows = samples("a", 0, 60, gpu_util_pct=80.0) + samples("a", 60, 120, gpu_util_pct=80.0, process_count=None)
    assert held_by(fill(lake, rows)) == [("active", 0, 120, None, None)]


def test_a_row_that_measured_nothing_says_nothing(lake: Lake) -> None:
    """Its time belongs to the row before it, for three intervals, and is unknown after that."""
    blind = samples("a", 60, 120, gpu_util_pct=None, process_count=2, mem_used_bytes=9 * GB)
    rows = samples("a", 0, 60, **BUSY) + blind + samples("a", 120, 180, **BUSY)
    assert states(fill(lake, rows)) == [("active", 0, 80), ("unknown", 80, 120), ("active", 120, 180)]


def test_nobody_on_a_gpu_without_utilization_is_free(lake: Lake) -> None:
    lake = fill(lake, samples("a", 0, 60, gpu_util_pct=None))
    assert states(lake) == [("free", 0, 60)]
    assert load(lake).stretches["util_ms"].to_list() == [0]
    assert load(lake).spells.is_empty()


@pytest.mark.parametrize("count", [None, 1])
def test_a_gpu_that_never_gave_a_utilization_is_unknown(lake: Lake, count: int | None) -> None:
    fill(lake, samples("a", 0, 60, gpu_util_pct=None, process_count=count))
    assert states(lake) == [("unknown", 0, 60)]
    assert load(lake).spells.is_empty()


def test_unmeasured_rows_at_both_ends_are_unknown(lake: Lake) -> None:
    blind: dict[str, Any] = {"gpu_util_pct": None, "process_count": None}
    rows = samples("a", 0, 30, **blind) + samples("a", 30, 60) + samples("a", 60, 90, **blind)
    assert states(fill(lake, rows)) == [("unknown", 0, 30), ("free", 30, 60), ("unknown", 60, 90)]


def test_nan_is_no_measurement(lake: Lake) -> None:
    fill(lake, samples("a", 0, 60, gpu_util_pct=float("nan"), process_count=1, power_w=float("nan")))
    assert states(lake) == [("unknown", 0, 60)]


def test_a_row_without_an_interval_stands_for_no_time(lake: Lake) -> None:
    rows = samples("a", 0, 60) + [row | {"interval_ms": None} for row in samples("a", 60, 90)]
    assert states(fill(lake, rows)) == [("free", 0, 60)]


def test_the_process_list_every_30_s_serves_rows_every_10_s(lake: Lake) -> None:
    fill(lake, samples("a", 0, 300, **LOADED), processes("a", *range(0, 300, 30)))
    assert held_by(lake) == [("held", 0, 300, "ann", "process")]


def test_the_list_before_a_row_names_the_holder_up_to_three_of_its_intervals_else_the_one_after(lake: Lake) -> None:
    fill(lake, samples("a", 0, 300, **BUSY), processes("a", 0) + processes("a", 200, user="bob"))
    assert held_by(lake) == [
        ("active", 0, 100, "ann", "process"),  # the row at 90 s is the last within 3 x 30 s
        ("active", 100, 110, None, "process"),
        ("active", 110, 300, "bob", "process"),
    ]


def test_processes_without_any_list_have_an_unknown_holder(lake: Lake) -> None:
    assert held_by(fill(lake, samples("a", 0, 300, **LOADED))) == [("held", 0, 300, None, "process")]


def test_a_process_of_nobody_known_leaves_the_holder_unknown(lake: Lake) -> None:
    fill(lake, samples("a", 0, 300, **LOADED), processes("a", *range(0, 300, 30), user=None))
    assert held_by(lake) == [("held", 0, 300, None, "process")]


def test_two_users_are_one_holder_in_a_fixed_order(lake: Lake) -> None:
    lists = processes("a", *range(0, 300, 30), user="zoe", pid=1) + processes("a", *range(0, 300, 30), pid=2)
    fill(lake, samples("a", 0, 300, **LOADED), [*lists, *processes("a", 0, user="zoe", pid=3)])
    assert held_by(lake) == [("held", 0, 300, "ann+zoe", "process")]


def test_a_row_goes_by_the_lists_of_its_own_day(lake: Lake) -> None:
    """So that a day needs no other day; an agent writes its lists again within one process interval."""
    fill(lake, samples("a", -60, 60, **BUSY), processes("a", -30) + processes("a", 30, user="bob"))
    assert [each[1:4] for each in held_by(lake)] == [(-60, 0, "ann"), (0, 60, "bob")]


def test_clock_jitter_moves_the_edges_and_nothing_is_lost(lake: Lake) -> None:
    offsets = (3, -4, 250, 0, -120, 7)
    rows = [row | {"offset_ms": offsets[number % 6]} for number, row in enumerate(samples("a", 0, 600, **BUSY))]
    assert states(fill(lake, rows)) == [("active", 0.003, 600.007)]


def test_a_spell_over_midnight_is_one_spell(lake: Lake) -> None:
    fill(lake, samples("a", -400, 200, **LOADED), processes("a", *range(-400, 200, 20)))
    ledger = load(lake)
    assert held_by(lake) == [("held", -400, 0, "ann", "process"), ("held", 0, 200, "ann", "process")]
    assert ledger.stretches.select("stretch_start", "stretch_end").unique().rows() == [(ms(-400), ms(200))]
    assert ledger.spells.select("time", "end", "spell_start", "spell_end").rows() == [
        (ms(-400), ms(0), ms(-400), ms(200)),
        (ms(0), ms(200), ms(-400), ms(200)),
    ]


def test_days_without_rows_are_unknown_and_cut_at_every_midnight(lake: Lake) -> None:
    day = 86_400
    fill(lake, samples("a", day - 60, day) + samples("a", 4 * day, 4 * day + 60))
    assert states(lake) == [
        ("free", day - 60, day),
        ("free", day, day + 20),  # the last row reaches over midnight, as any row does
        ("unknown", day + 20, 2 * day),
        ("unknown", 2 * day, 3 * day),
        ("unknown", 3 * day, 4 * day),
        ("free", 4 * day, 4 * day + 60),
    ]


def test_the_evidence_of_a_day_is_that_days_own(lake: Lake) -> None:
    """A stretch over days: means, samples and energy are not smeared over it."""
    rows = samples("a", -600, 0, gpu_util_pct=20.0, process_count=1, power_w=100.0)
    rows += samples("a", 0, 1200, gpu_util_pct=80.0, process_count=1, power_w=300.0, mem_used_bytes=5)
    ledger = load(fill(lake, rows)).stretches.sort("time")
    assert ledger["state"].to_list() == ["active", "active"]
    assert ledger["gpu_util_mean_pct"].to_list() == [20.0, 80.0]
    assert ledger["power_mean_w"].to_list() == [100.0, 300.0]
    assert ledger["energy_mj"].to_list() == [100.0 * 600_000, 300.0 * 1_200_000]
    assert ledger["sample_count"].to_list() == [60, 120]
    assert ledger["mem_used_max_bytes"].to_list() == [None, 5]


def test_evidence_weighs_by_time_and_leaves_unknown_null(lake: Lake) -> None:
    rows = samples("a", 0, 20, gpu_util_pct=40.0, process_count=1, power_w=200.0, gpu_util_coverage_ratio=1.0)
    rows += samples("a", 20, 40, gpu_util_pct=80.0, process_count=1, gpu_util_max_pct=99.0)
    ((mean, highest, power, energy, watched, zero_ms, util_ms),) = load(fill(lake, rows)).stretches.select(
        "gpu_util_mean_pct", "gpu_util_max_pct", "power_mean_w", "energy_mj", "coverage_ratio", "zero_ms", "util_ms"
    ).rows()  # fmt: skip
    assert (mean, highest, power, energy, watched) == (60.0, 99.0, 200.0, 200.0 * 20_000, 1.0)
    assert (zero_ms, util_ms) == (0, 40_000)


def test_two_hosts_have_a_ledger_each(lake: Lake) -> None:
    fill(lake, samples("a", 0, 60))
    fill(lake, samples("b", 30, 90, **BUSY), host="h2")
    assert load(lake).stretches.select("host", "gpu", "state", "time").rows() == [
        ("h1", "a", "free", T0),
        ("h2", "b", "active", ms(30)),
    ]


def test_the_highest_utilization_is_that_of_the_peaks_and_of_the_means_where_there_are_none(lake: Lake) -> None:
    rows = samples("a", 0, 60, **BUSY) + samples("b", 0, 60, gpu_util_max_pct=97.0, **BUSY)
    assert load(fill(lake, rows)).stretches.sort("gpu")["gpu_util_max_pct"].to_list() == [90.0, 97.0]


@pytest.mark.parametrize("busy_first", [True, False])
@pytest.mark.parametrize("idle", [LOADED, {"gpu_util_pct": None, "process_count": None}, {"gpu_util_pct": 300.0}, {}])
def test_of_two_rows_for_one_moment_the_one_with_the_most_use_counts(
    lake: Lake, idle: dict[str, Any], *, busy_first: bool
) -> None:
    rows = [samples("a", 0, 600, **BUSY), samples("a", 0, 600, **idle)]
    for some in rows if busy_first else reversed(rows):
        fill(lake, some)
    assert states(lake) == [("active", 0, 600)]


def test_of_two_idle_rows_for_one_moment_the_one_with_processes_counts(lake: Lake) -> None:
    fill(lake, samples("a", 0, 600) + samples("a", 0, 600, **LOADED))
    assert states(lake) == [("held", 0, 600)]
