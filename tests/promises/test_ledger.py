"""What fallow promises of the ledger: states, unknown time, thresholds, users, windows and days."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from analytics.ledger.summary import clip_ledger, summarise
from fallow.clock import Window
from tests.in_process import run_in_process
from tests.ledger.rows import T0, allocation, device, fill, held_by, load, ms, processes, samples, states

if TYPE_CHECKING:
    from fallow.lake import Lake

HOUR, DAY = 3600, 86_400
BUSY: dict[str, Any] = {"gpu_util_pct": 90.0, "process_count": 1}
IDLE: dict[str, Any] = {"gpu_util_pct": 0.0, "process_count": 1}
NOT_MEASURED: dict[str, Any] = {"gpu_util_pct": None, "process_count": 1}


def test_every_gpu_second_is_in_exactly_one_state_and_the_states_add_up_to_the_capacity(lake: Lake) -> None:
    """README.md; docs/how-a-number-is-made.md, section 3: "from its first to its last sample"."""
    rows = samples("a", -600, 0, **BUSY) + samples("a", 0, 600, **IDLE) + samples("a", 600, 900)
    rows += samples("a", 900, 1000, health="lost") + samples("a", 1500, 1800, **IDLE | {"gpu_util_pct": 3.0})
    rows += samples("b", -35, 1234.567, every_s=0.999) + samples("b", 1200, 1500, **BUSY)
    fill(lake, rows, allocations=[allocation("a", 700, 800)])
    found: dict[str, list[tuple[str, int, int]]] = defaultdict(list)
    segments = load(lake).segments
    for row in segments.sort("gpu", "time").iter_rows(named=True):
        found[row["gpu"]].append((row["state"], row["time"], row["end"]))
    assert {state for own in found.values() for state, _, _ in own} == {
        "unknown",
        "unavailable",
        "free",
        "reserved",
        "held",
        "low",
        "active",
    }
    for gpu, first_ms, last_ms in (("a", -600_000, 1_800_000), ("b", -35_000, 1_500_000)):
        own = found[gpu]
        assert (own[0][1], own[-1][2]) == (T0 + first_ms, T0 + last_ms)
        assert [end for _, _, end in own[:-1]] == [time for _, time, _ in own[1:]], "no gap and no overlap"
        assert sum(end - time for _, time, end in own) == last_ms - first_ms


def test_unknown_is_never_shown_as_zero(lake: Lake) -> None:
    """README.md; docs/report.md: "null or empty is unknown, and 0 is measured"; docs/how-a-number-is-made.md."""
    rows = (
        samples("a", 0, HOUR, **NOT_MEASURED) + samples("b", 0, 0.5 * HOUR, **BUSY) + samples("b", 3000, HOUR, **BUSY)
    )
    fill(lake, rows, devices=[device("a"), device("b")])
    content = json.loads(run_in_process("ledger", "--lake", lake.root, "--json").stdout)
    assert content["gpu_hours"]["unknown"] == pytest.approx(1 + 1180 / HOUR)
    assert content["gpu_hours"]["active"] == pytest.approx((HOUR - 1180) / HOUR)
    assert content["gpu_hours"]["free"] == content["gpu_hours"]["held"] == 0
    assert content["idle"]["share"] == 0.0, "of b; what a did is unknown"
    unknown = load(lake).segments.filter(state="unknown")
    assert unknown["gpu_util_mean_pct"].null_count() == unknown["power_mean_w"].null_count() == len(unknown) == 2


@pytest.mark.parametrize("value", [300.0, -1.0, float("nan"), None])
def test_an_error_never_becomes_a_number(lake: Lake, value: float | None) -> None:
    """docs/how-a-number-is-made.md: "an error never becomes a number".

    Impossible values "are unknown and counted in data quality".
    """
    fill(lake, samples("a", 0, 600, gpu_util_pct=value, process_count=1, power_w=-5.0))
    (row,) = load(lake).segments.iter_rows(named=True)
    assert (row["state"], row["gpu_util_mean_pct"], row["power_mean_w"], row["energy_mj"]) == ("unknown", *[None] * 3)


@pytest.mark.parametrize(("gap_s", "unknown_s"), [(20, 0), (30, 0), (30.001, 0.001), (100, 70)])
def test_a_sample_covers_the_time_to_the_next_one_and_at_most_three_of_its_intervals(
    lake: Lake, gap_s: float, unknown_s: float
) -> None:
    """docs/how-a-number-is-made.md, section 3; docs/glossary.md, states."""
    found = states(fill(lake, samples("a", 0, 10) + samples("a", gap_s, gap_s + 10)))
    unknown = [(start, end) for state, start, end in found if state == "unknown"]
    assert unknown == ([(30.0, gap_s)] if unknown_s else [])


@pytest.mark.parametrize(("idle_s", "state"), [(290, "active"), (300, "held"), (310, "held")])
@pytest.mark.parametrize("begins_s", [600, -150], ids=["inside a day", "over midnight"])
def test_an_idle_interval_of_at_least_idle_after_is_held_and_a_shorter_one_is_not(
    lake: Lake, idle_s: int, state: str, begins_s: int
) -> None:
    """docs/how-a-number-is-made.md, section 3: "of at least `ledger.idle_after` (5 min)", also over midnight."""
    end = begins_s + idle_s
    rows = samples("a", begins_s - 600, begins_s, **BUSY) + samples("a", begins_s, end, **IDLE)
    fill(lake, rows + samples("a", end, end + 600, **BUSY))
    found = {at: name for name, start, stop in states(lake) for at in range(int(start), int(stop), 10)}
    assert {found[at] for at in range(begins_s, end, 10)} == {state}
    assert {found[at] for at in found if not begins_s <= at < end} == {"active"}


@pytest.mark.parametrize(("util", "state"), [(0.25, "low"), (9.75, "low"), (10.0, "active")])
def test_mean_utilization_that_reaches_the_low_threshold_is_active_and_below_it_is_low(
    lake: Lake, util: float, state: str
) -> None:
    """docs/glossary.md, states: "mean utilization reached the low threshold (default: 10 %)"."""
    assert states(fill(lake, samples("a", 0, 600, gpu_util_pct=util, process_count=1))) == [(state, 0, 600)]


def test_a_short_kernel_ends_the_idle_interval(lake: Lake) -> None:
    """docs/how-a-number-is-made.md, section 3: "A row counts as zero only if its maximum is zero too"."""
    rows = samples("a", 0, 300, **IDLE) + samples("a", 300, 310, **IDLE | {"gpu_util_max_pct": 1.0})
    fill(lake, rows + samples("a", 310, 600, **IDLE))
    assert states(lake) == [("held", 0, 300), ("low", 300, 600)]
    assert load(lake).idle_intervals.select("time", "end").rows() == [(ms(0), ms(300)), (ms(310), ms(600))]


def test_a_segment_and_an_idle_interval_end_where_the_user_changes(lake: Lake) -> None:
    """docs/how-a-number-is-made.md: "A segment ends where one of them changes"; no user inherits idle time."""
    lists = processes("a", *range(0, 200, 10), every_s=10, user="ann")
    lists += processes("a", *range(200, 600, 10), every_s=10, user="bob", pid=9)
    fill(lake, samples("a", 0, 600, **IDLE), lists)
    assert [row[:4] for row in held_by(lake)] == [("low", 0, 200, "ann"), ("held", 200, 600, "bob")]
    assert load(lake).idle_intervals.select("idle_interval_start", "idle_interval_end").rows() == [(ms(0), ms(600))], (
        "no kernel ran in all of it"
    )


def test_a_process_names_the_user_before_an_allocation_does_and_an_allocation_ends_at_its_end(lake: Lake) -> None:
    """docs/how-a-number-is-made.md, Users: "If no list names a user, the allocation counts"."""
    rows = samples("a", 0, 300, **BUSY) + samples("a", 300, 900)
    fill(lake, rows, processes("a", *range(0, 300, 10), every_s=10, user="ann"), [allocation("a", 0, 600, "bob")])
    assert held_by(lake) == [
        ("active", 0, 300, "ann", "process"),
        ("reserved", 300, 600, "bob", "allocation"),
        ("free", 600, 900, None, None),
    ]


@pytest.mark.parametrize("cut_s", [350, 1000, 86_400, 90_000.001])
def test_a_window_cuts_time_and_never_states(lake: Lake, cut_s: float) -> None:
    """docs/how-a-number-is-made.md, section 4: a segment keeps its state, and windows that meet add up to the whole."""
    rows = samples("a", 0, 200, **BUSY) + samples("a", 200, 500, **IDLE) + samples("a", 500, 600, **BUSY)
    fill(lake, rows + samples("a", 600, DAY + 2 * HOUR, every_s=60, **IDLE))
    whole, edge_ms = load(lake), ms(cut_s)
    before, after = (clip_ledger(whole, window) for window in (Window(None, edge_ms), Window(edge_ms, None)))
    assert before.segments["end"].max() == edge_ms == after.segments["time"].min()
    sums = [summarise(each).totals.state_ms for each in (whole, before, after)]
    assert sums[0] == {state: sums[1][state] + sums[2][state] for state in sums[0]}
    assert summarise(before).totals.total_ms == round(cut_s * 1000)


def test_a_process_list_names_the_user_for_exactly_three_of_its_intervals(lake: Lake) -> None:
    """docs/how-a-number-is-made.md, Users: "each list is valid for three of its own intervals".

    That includes the first list after a row.
    """
    fill(lake, samples("a", 0, 210, **BUSY), processes("a", 100, every_s=30, user="ann"))
    assert held_by(lake) == [
        ("active", 0, 10, None, "process"),
        ("active", 10, 200, "ann", "process"),
        ("active", 200, 210, None, "process"),
    ]


@pytest.mark.parametrize(("gap_s", "energy_mj"), [(20, 900_000), (30, 900_000), (30.001, None)])
def test_the_energy_between_two_rows_is_known_up_to_a_gap_of_three_intervals(
    lake: Lake, gap_s: float, energy_mj: int | None
) -> None:
    """docs/how-a-number-is-made.md, Energy: a row "after a gap" has none; a sample covers three intervals at most."""
    rows = samples("a", 0, 10, **BUSY) + samples("a", gap_s, gap_s + 10, **BUSY)
    for row, read in zip(rows, (10**9, 10**9 + 900_000), strict=True):
        row |= {"energy_mj": read, "counters_since": T0}
    assert load(fill(lake, rows)).segments["energy_mj"].drop_nulls().to_list() == ([energy_mj] if energy_mj else [])
