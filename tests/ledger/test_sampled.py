"""What point samples leave open: the truth of a recording is within the bounds, for any observer and interval."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from analytics.inventory import Device, Inventory
from analytics.ledger.sampled import IdleFloor, idle_floors
from analytics.proportions import Z_95, wilson
from benchmarks.physical_week import VIEWS, Load, Seen, View, look, record
from fallow.clock import HOUR_MS
from tests.in_process import run_in_process
from tests.ledger.recording import Recording, opened
from tests.ledger.rows import GB, Row, device, fill, samples

if TYPE_CHECKING:
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


@pytest.mark.long
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


def held(hours: float, every_s: int = 60, **values: object) -> list[Row]:
    return samples("GPU-a", 0, hours * HOUR, every_s=every_s, **HELD | values)


def counted(rows: list[Row], draw_w: float = 70.0, burst: float = 0.0) -> list[Row]:
    """The rows with the energy counter of a card that draws so much, and so many joules more before the 60th."""
    total = 0.0
    for number, row in enumerate(rows):
        total += draw_w * row["interval_ms"] + 1000 * burst * (number == 60)
        row |= {"energy_mj": round(total), "counters_since": 0}
    return rows


def with_values(rows: list[Row], numbers: tuple[int, ...], **values: object) -> list[Row]:
    return [row | values if number in numbers else row for number, row in enumerate(rows)]


@dataclass(frozen=True)
class Case:
    """Rows of GPU-a; hours that GPU-f was free, which show an idle card's power; hours surely, in all, perhaps held."""

    rows: list[Row]
    low: float
    held: float
    high: float | None = None
    free_h: float = 12
    more: dict[str, float] = field(default_factory=dict)
    """Hours that were seen by point samples, or that power alone confirms."""


WORK = {"process_count": 1, "gpu_util_pct": 80.0, "mem_used_bytes": 20 * GB, "power_w": None}
CASES: dict[str, Case] = {
    "zeros that nothing confirms may be anything": Case(held(2, power_w=None), 0, 2, 2, 12, {"sampled": 14}),
    "energy confirms but for what follows the last sample": Case(counted(held(2)), 2 - 1 / 60, 2),
    "a burst between two samples leaves open what lies between those two": Case(
        counted(held(2), burst=400.0), 2 - 2 / 60, 2
    ),
    "a card that draws more than an idle one is not confirmed": Case(counted(held(2), 90), 0, 2),
    "without enough idle time nobody knows what one draws": Case(counted(held(2)), 0, 2, None, 7),
    # a reading sees a second: 900 of them, 15 h at one a minute, exclude work once in five minutes
    "too few readings of power confirm nothing": Case(held(14), 0, 14),
    "so many would have met work": Case(held(16), 16, 16, None, 12, {"likely": 16, "sampled": 28}),
    "one reading above the floor leaves all of the interval open, also beyond midnight": Case(
        with_values(held(44), (400,), power_w=90.0), 0, 44, None, 12, {"likely": 0}
    ),
    "readings need no other card, only that they are flat": Case(
        held(16, power_w=117.0), 16, 16, None, 12, {"likely": 16}
    ),
    "a counter that saw work is not outvoted by readings": Case(counted(held(16), 120), 0, 16),
    "what a counter confirms is not by power alone": Case(counted(held(16)), 16, 16, None, 12, {"likely": 0}),
    "an agent that reads the rate once a second takes samples": Case(
        held(2, 10, gpu_util_coverage_ratio=0.1667), 0, 2, None, 12, {"sampled": 14}
    ),
    "what was watched has no bounds but those of its rows": Case(
        held(1, 10, gpu_util_coverage_ratio=1.0)
        + samples("GPU-a", HOUR, 2 * HOUR, gpu_util_coverage_ratio=1.0, process_count=1, gpu_util_pct=50.0),
        1,
        1,
        1 + 20 / HOUR,
        0,
        {"sampled": 0},
    ),
    # idle for 270 s by the samples, for up to 360 s in truth
    "a pause that samples miss by a little may have been long enough": Case(
        with_values(held(1, 90, **WORK), (10, 11, 12), gpu_util_pct=0.0), 0, 0, 0.1, 0
    ),
}


def fleet(case: Case) -> tuple[WindowLedger, Recording]:
    free = samples("GPU-f", 0, case.free_h * HOUR, every_s=60, **FREE)
    site = fill(Recording(), [*case.rows, *free], devices=[device("GPU-a"), device("GPU-f")])
    return opened(site)[1], site


@pytest.mark.parametrize("name", CASES)
def test_held_time_has_bounds(name: str) -> None:
    case = CASES[name]
    found, _ = fleet(case)
    bound = found.summary.totals.bound("held")
    hours = [each / HOUR_MS for each in (bound.low_ms, found.summary.totals.state_ms["held"], bound.high_ms)]
    assert hours[:2] == pytest.approx([case.low, case.held], abs=0.02)
    assert case.high is None or hours[2] == pytest.approx(case.high, abs=0.02)
    likely = found.summary.samples.likely
    known = {"sampled": found.summary.totals.sampled_ms, "likely": likely.time_ms if likely else 0}
    assert {key: known[key] / HOUR_MS for key in case.more} == pytest.approx(case.more, abs=0.02)
    assert (found.floors is None) == (found.summary.totals.sampled_ms == 0)


@dataclass(frozen=True)
class Card:
    """A held card: its power by readings at 0 and by its counter for `hours`, and before that, if given, for 6 h."""

    reading_w: float
    counter_w: float
    hours: float = 12
    before_w: float | None = None

    def rows(self, gpu: str) -> list[Row]:
        rest = counted(held(self.hours, power_w=self.reading_w), self.counter_w)
        if self.before_w is None:
            return [row | {"gpu": gpu} for row in rest]
        work = samples("GPU-a", 0, HOUR, every_s=60, **WORK)
        phases = (counted(held(6, power_w=self.before_w), self.before_w), work, rest)
        starts = (0, 6 * HOUR_MS, 7 * HOUR_MS)
        return [
            row | {"gpu": gpu, "time": row["time"] + start}
            for start, rows in zip(starts, phases, strict=True)
            for row in rows
        ]


IDLE = Card(117, 117)
TEACHERS = {
    "three idle cards of a model teach what one with a context draws": ([IDLE] * 3, 36.0),
    "two may be odd ones": ([IDLE] * 2, 0.0),
    "a few hours say too little": ([Card(117, 117, 2)] * 3, 0.0),
    "cards that always work a little between the samples teach nothing": ([Card(117, 125)] * 3, 0.0),
    "and are not confirmed by those that idle": ([*[IDLE] * 3, Card(117, 125)], 36.0),
    "nor is one whose readings keep step with its work": ([*[IDLE] * 3, Card(350, 121)], 36.0),
    "a context does not cost so much": ([Card(130, 130)] * 3, 0.0),
    "a card that drew less at rest does something": ([*[Card(117, 117, 30)] * 3, Card(112, 112, 6, 70)], 96.0),
    "a card that drew about as much does nothing": ([*[Card(117, 117, 30)] * 3, Card(116, 116, 6, 112)], 102.0),
}


@pytest.mark.parametrize("name", TEACHERS)
def test_held_cards_teach_what_an_idle_one_draws(name: str) -> None:
    """Beside a free card, which draws 70 W; what is confirmed is all but the last sample of each card and day."""
    cards, confirmed_h = TEACHERS[name]
    names = [f"GPU-{number}" for number in range(len(cards))]
    rows = samples("GPU-f", 0, 12 * HOUR, every_s=60, **FREE)
    rows += [row for gpu, card in zip(names, cards, strict=True) for row in card.rows(gpu)]
    found = opened(fill(Recording(), rows, devices=[device(gpu) for gpu in ("GPU-f", *names)]))[1]
    assert found.summary.totals.bound("held").low_ms / HOUR_MS == pytest.approx(confirmed_h, abs=0.15)


def test_what_power_alone_supports_is_said_to_hold_unless_work_keeps_step(lake: Lake) -> None:
    found, site = fleet(CASES["so many would have met work"])
    assert (found.summary.samples.count, found.summary.samples.every_ms) == (28 * 60, 60_000)
    site.write(lake)
    said = " ".join(run_in_process("ledger", "--all", "--lake", lake.root).stdout.split())
    assert "16.0 GPU-hours are very likely idle, unless work runs in step with the readings." in said
    assert "960 of 960 samples at 0 and flat power of 70 W: very likely idle; the energy counter or" in said


def test_the_floor_is_that_of_watched_whole_cards_and_of_held_ones_first_and_says_what_it_rests_on() -> None:
    """Of eight hours each: what an instance, a half-watched and a sampled row draw is no floor of the card."""
    inventory, hours = Inventory({"GPU-a": Device("GPU-a", "h1", H100)}), 8 * HOUR_MS
    row: dict[str, Any] = {"gpu": "GPU-a", "state": "held", "zero_ms": hours, "util_ms": hours, "gpu_share": 1.0}
    row |= {"power_mean_w": 80.0, "sampled_ms": 0, "coverage_ratio": 1.0, "user_source": "process"}
    row |= {"quiet_ms": 0, "quiet_draw_max_w": None}
    free = row | {"state": "free", "power_mean_w": 60.0, "user_source": None}
    none = [free | {"user_source": "unwatched"}, row | {"gpu_share": 0.5}, row | {"coverage_ratio": 0.6}]
    none += [row | {"sampled_ms": hours}, row | {"zero_ms": hours - 1}]
    rows = [row, free, *(each | {"power_mean_w": 1.0} for each in none)]
    floors = idle_floors(pl.DataFrame(rows), inventory, 300_000)
    assert (floors.held, floors.free) == ({H100: IdleFloor(80.0, 8.0)}, {H100: IdleFloor(60.0, 8.0)})
    assert floors.of(H100) == IdleFloor(80.0, 8.0)
    assert idle_floors(pl.DataFrame(rows[1:2]), inventory, 300_000).of(H100) == IdleFloor(60.0, 8.0)


def test_free_time_of_gpus_that_nobody_looked_at_rests_on_zeros_too() -> None:
    found, _ = fleet(Case(held(2, process_count=None), 0, 0, None, 0))
    assert found.summary.totals.state_ms["free"] == 2 * HOUR_MS
    assert found.summary.totals.bound("free").low_ms == 0


def test_the_bounds_are_the_same_in_parts_of_the_window() -> None:
    """States add up to the millisecond, and so does what is left open of them."""
    found, _ = fleet(Case(counted(held(30)), 0, 0, None, 30))
    rows = found.inside.segments
    assert int((rows["end"] - rows["time"]).sum()) == found.summary.totals.total_ms == 60 * HOUR_MS
    assert found.summary.totals.unconfirmed_ms == {"held": 2 * 60_000}  # a sample before midnight, and the last one
