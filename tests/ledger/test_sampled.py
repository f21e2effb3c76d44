"""What point samples leave open: the truth of a recording lies inside the stated bounds, whoever looked and how often."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from analytics.inventory import load_inventory
from analytics.ledger.sampled import IdleFloor, idle_floors
from analytics.proportions import Z_95, wilson
from analytics.window import load_window_ledger, open_inputs
from benchmarks.physical_week import VIEWS, Load, Seen, View, look, record
from fallow.cli import main
from fallow.clock import HOUR_MS
from tests.lakes import made_lake
from tests.ledger.rows import GB, Row, device, fill, samples

if TYPE_CHECKING:
    from pathlib import Path

    from analytics.window import WindowLedger
    from fallow.lake import Lake

HOUR = 3600
H100 = "NVIDIA H100 80GB HBM3"
HELD: dict[str, Any] = {"process_count": 1, "power_w": 70.0}
FREE: dict[str, Any] = {"process_count": 0, "power_w": 70.0, "mem_used_bytes": 0}


@pytest.fixture(scope="module")
def recording() -> tuple[Load, ...]:
    return record(3 * HOUR_MS)


@pytest.fixture(scope="module")
def seen(recording: tuple[Load, ...], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    return {view.name: look(recording, view, tmp_path_factory.mktemp("lake")) for view in VIEWS}


@pytest.mark.long
@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_held_and_idle_time_of_a_recording_lie_inside_the_stated_bounds(seen: dict[str, Seen], view: View) -> None:
    assert seen[view.name].holds, seen[view.name]


def test_scrapes_alone_confirm_nothing_and_energy_confirms_what_idles(seen: dict[str, Seen]) -> None:
    alone, energy, agent = (seen[name] for name in ("60 s scrapes", "60 s scrapes, energy", "agent, 10 s rows"))
    assert alone.held > 1.5 * alone.true_held  # what the ledger's own state says, which the bounds put right
    assert alone.held_between[0] == 0
    assert energy.held_between[0] == pytest.approx(energy.true_held, abs=0.005)
    assert agent.held_between[1] - agent.held_between[0] < 0.005


@pytest.mark.parametrize(
    ("part", "number", "low", "high"),
    [(0.0, 10, 0.0, 0.2775), (0.5, 10, 0.2366, 0.7634), (1.0, 100, 0.963, 1.0), (0.3, 0, 0.0, 1.0)],
)
def test_the_interval_of_a_share_is_wilsons(part: float, number: int, low: float, high: float) -> None:
    assert wilson(part, number, Z_95) == pytest.approx((low, high), abs=1e-4)


def window(lake: Lake) -> WindowLedger:
    return load_window_ledger(open_inputs(argparse.Namespace(lake=lake.root, since=None, until=None, config=None)))


def held_h(found: WindowLedger) -> tuple[float, float, float]:
    """Held hours between bounds: the lower one, the state's own and the upper one."""
    totals = found.summary.totals
    bound = totals.bound("held")
    return tuple(round(each / HOUR_MS, 2) for each in (bound.low_ms, totals.state_ms["held"], bound.high_ms))  # type: ignore[return-value]


def counted(rows: list[Row], draw_w: float = 70.0, bursts: dict[int, float] | None = None) -> list[Row]:
    """The rows with the energy counter of a card that draws so much, and so many joules more before some rows."""
    total = 0.0
    for number, row in enumerate(rows):
        total += draw_w * row["interval_ms"] + 1000 * (bursts or {}).get(number, 0.0)
        row |= {"energy_mj": round(total), "counters_since": 0}
    return rows


def fleet(lake: Lake, held: list[Row], free_h: float = 12) -> WindowLedger:
    """GPU-a as given, and GPU-f that nobody is on, which says what an idle card draws."""
    free = samples("GPU-f", 0, free_h * HOUR, every_s=60, **FREE)
    return window(fill(lake, [*held, *free], devices=[device("GPU-a"), device("GPU-f")]))


def test_zeros_that_nothing_confirms_may_be_anything(lake: Lake) -> None:
    found = fleet(lake, samples("GPU-a", 0, 2 * HOUR, every_s=60, process_count=1))
    assert held_h(found) == (0, 2, pytest.approx(2, abs=0.02))
    assert found.summary.totals.sampled_ms == 14 * HOUR_MS
    assert found.summary.samples.every_ms == 60_000


def test_energy_between_the_samples_confirms_them_but_for_what_follows_the_last(lake: Lake) -> None:
    found = fleet(lake, counted(samples("GPU-a", 0, 2 * HOUR, every_s=60, **HELD)))
    assert held_h(found)[:2] == (pytest.approx(2 - 1 / 60, abs=0.01), 2)


def test_one_burst_between_two_samples_is_enough_to_confirm_nothing(lake: Lake) -> None:
    found = fleet(lake, counted(samples("GPU-a", 0, 2 * HOUR, every_s=60, **HELD), bursts={60: 400.0}))
    assert held_h(found)[:2] == (0, 2)


def test_a_card_that_draws_more_than_an_idle_one_is_not_confirmed(lake: Lake) -> None:
    found = fleet(lake, counted(samples("GPU-a", 0, 2 * HOUR, every_s=60, **HELD), draw_w=90))
    assert held_h(found)[0] == 0


def test_without_enough_idle_time_nobody_knows_what_an_idle_card_draws(lake: Lake) -> None:
    found = fleet(lake, counted(samples("GPU-a", 0, 2 * HOUR, every_s=60, **HELD)), free_h=7)
    assert found.floors is not None
    assert found.floors.of(H100) is None
    assert held_h(found)[0] == 0


@pytest.mark.parametrize(("hours", "low"), [(14, 0), (16, 16)])
def test_power_alone_confirms_where_so_many_readings_would_have_met_work(lake: Lake, hours: int, low: float) -> None:
    """A reading sees a second: 900 of them, 15 h at one a minute, exclude work once in five minutes."""
    found = fleet(lake, samples("GPU-a", 0, hours * HOUR, every_s=60, **HELD))
    assert held_h(found)[0] == pytest.approx(low, abs=0.02)


def test_one_reading_above_the_floor_leaves_all_of_the_interval_open(lake: Lake) -> None:
    """Also what lies beyond midnight, in a row of its own."""
    rows = samples("GPU-a", 0, 44 * HOUR, every_s=60, **HELD)
    rows[400]["power_w"] = 90.0
    found = fleet(lake, rows)
    assert held_h(found)[:2] == (0, 44)
    assert found.summary.samples.by_power_ms == 0


def test_a_counter_that_saw_work_is_not_outvoted_by_readings(lake: Lake) -> None:
    found = fleet(lake, counted(samples("GPU-a", 0, 16 * HOUR, every_s=60, **HELD), draw_w=120))
    assert held_h(found)[0] == 0


def test_what_power_alone_confirms_is_said_to_hold_unless_work_keeps_step(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = fleet(lake, samples("GPU-a", 0, 16 * HOUR, every_s=60, **HELD))
    assert found.summary.samples.by_power_ms / HOUR_MS == pytest.approx(16, abs=0.02)
    assert found.summary.samples.count == 28 * 60
    assert main(["ledger", "--lake", lake.root]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Confirmed by power readings alone, unless work keeps step with them: 16.0 GPU-hours." in said
    counter = fleet(made_lake(tmp_path / "counter"), counted(samples("GPU-a", 0, 16 * HOUR, every_s=60, **HELD)))
    assert counter.summary.samples.by_power_ms == 0


def test_the_floor_is_that_of_watched_whole_cards_and_of_held_ones_first(lake: Lake) -> None:
    """Of eight hours each: what an instance, a half-watched and a sampled row draw is no floor of the card."""
    inventory = load_inventory(fill(lake, samples("GPU-a", 0, 60), devices=[device("GPU-a")]))
    hours = 8 * HOUR_MS
    row = {
        "gpu": "GPU-a", "state": "held", "zero_ms": hours, "util_ms": hours, "gpu_share": 1.0, "power_mean_w": 80.0, "sampled_ms": 0,
        "coverage_ratio": 1.0, "holder_source": "process",
    }  # fmt: skip
    less = [{"gpu_share": 0.5}, {"coverage_ratio": 0.6}, {"sampled_ms": hours}, {"zero_ms": hours - 1}]
    free = row | {"state": "free", "power_mean_w": 60.0, "holder_source": None}
    rows = [
        row,
        free,
        free | {"power_mean_w": 1.0, "holder_source": "unwatched"},
        *(row | each | {"power_mean_w": 1.0} for each in less),
    ]
    floors = idle_floors(pl.DataFrame(rows), inventory, 300_000)
    assert (floors.held, floors.free) == ({H100: IdleFloor(80.0, 8.0)}, {H100: IdleFloor(60.0, 8.0)})
    assert floors.of(H100) == IdleFloor(80.0, 8.0)
    assert idle_floors(pl.DataFrame(rows[1:2]), inventory, 300_000).of(H100) == IdleFloor(60.0, 8.0)


def test_the_floor_says_what_it_rests_on(lake: Lake) -> None:
    found = fleet(lake, samples("GPU-a", 0, 2 * HOUR, every_s=60, **HELD))
    floor = found.floors and found.floors.of(H100)
    assert floor is not None
    assert (floor.watts, floor.gpu_hours) == (70, pytest.approx(12))


def test_an_agent_that_reads_the_rate_once_a_second_takes_samples(lake: Lake) -> None:
    found = fleet(lake, samples("GPU-a", 0, 2 * HOUR, gpu_util_coverage_ratio=0.1667, **HELD))
    assert held_h(found)[:2] == (0, 2)
    assert found.summary.totals.sampled_ms == 14 * HOUR_MS


def test_what_was_watched_has_no_bounds_but_those_of_its_rows(lake: Lake) -> None:
    held = samples("GPU-a", 0, HOUR, gpu_util_coverage_ratio=1.0, **HELD)
    busy = samples("GPU-a", HOUR, 2 * HOUR, gpu_util_coverage_ratio=1.0, process_count=1, gpu_util_pct=50.0)
    found = window(fill(lake, [*held, *busy]))
    assert held_h(found) == (1, 1, pytest.approx(1 + 20 / HOUR, abs=0.01))
    assert found.summary.totals.sampled_ms == 0
    assert found.floors is None


def test_free_time_of_gpus_that_nobody_looked_at_rests_on_zeros_too(lake: Lake) -> None:
    found = window(fill(lake, samples("GPU-a", 0, 2 * HOUR, every_s=60, process_count=None)))
    assert found.summary.totals.state_ms["free"] == 2 * HOUR_MS
    assert found.summary.totals.bound("free").low_ms == 0


def test_a_pause_that_samples_miss_by_a_little_may_have_been_long_enough(lake: Lake) -> None:
    work = {"process_count": 1, "gpu_util_pct": 80.0, "mem_used_bytes": 20 * GB}
    rows = samples("GPU-a", 0, HOUR, every_s=90, **work)
    for number in (10, 11, 12):  # idle for 270 s by the samples, for up to 360 s in truth
        rows[number]["gpu_util_pct"] = 0.0
    assert held_h(window(fill(lake, rows))) == (0, 0, 0.1)


def test_the_bounds_are_the_same_in_parts_of_the_window(lake: Lake) -> None:
    """States add up to the millisecond, and so does what is left open of them."""
    found = fleet(lake, [*counted(samples("GPU-a", 0, 30 * HOUR, every_s=60, **HELD))], free_h=30)
    rows = found.inside.stretches
    assert int((rows["end"] - rows["time"]).sum()) == found.summary.totals.total_ms == 60 * HOUR_MS
    assert found.summary.totals.unconfirmed_ms == {"held": 2 * 60_000}  # a sample before midnight, and the last one
