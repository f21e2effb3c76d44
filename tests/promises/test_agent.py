"""What fallow promises of measuring: what the agent and an import allocation of a GPU, and what they leave unknown."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from agent.nvml.ring import PERIOD_US, RING_US, Timeline
from agent.nvml.utilization import UtilizationMeter, rounded_up
from agent.supervise.sources import Epochs
from analytics.scraped.rows.model import Pace
from analytics.scraped.rows.pace import Paces, new_readings, snapped
from tests.ledger.rows import T0

START_US = 1_800_000_000_000_000
STEP_MS = 10_000


def ring(steps_us: list[int], value: int = 80) -> tuple[Timeline, list[tuple[int, int]]]:
    """A timeline that has seen samples with these steps between them, five in each drain."""
    samples = [(START_US, value)]
    for step_us in steps_us:
        samples.append((samples[-1][0] + step_us, value))
    timeline = Timeline()
    timeline.begin(START_US)
    for first in range(0, len(samples), 5):
        drained = samples[first : first + 5]
        timeline.add_samples(drained, drained[-1][0], in_time=True)
    return timeline, samples


@pytest.mark.parametrize(
    ("steps", "longest_us", "is_believed"),
    [
        (40, 1_000_000, True),
        (40, 1_100_000, True),
        (40, 1_101_000, False),
        (40, 1_500_000, False),
        (20, 1_000_000, False),
    ],
)
def test_a_slower_period_of_the_drivers_ring_is_accepted_after_32_steady_samples_and_before_that_time_is_unknown(
    steps: int, longest_us: int, *, is_believed: bool
) -> None:
    """docs/how-a-number-is-made.md, section 1.

    "After 32 samples with a steady longer period, the agent accepts that period".
    """
    timeline, samples = ring([1_000_000 if number % 2 else longest_us for number in range(steps)])
    late = [(samples[-1][0] + number * 1_000_000, 80) for number in range(1, 11)]
    timeline.add_samples(late, late[-1][0], in_time=True)
    found = timeline.take(late[0][0], late[-1][0])
    assert (found.mean_pct, found.zero_ratio) == (80, 0), "no missing sample of a busy GPU counts as idle"
    assert (found.coverage_ratio > 0.9) is is_believed
    assert found.coverage_ratio == pytest.approx(1 if is_believed else PERIOD_US / 1_000_000, abs=0.06)


def test_time_of_a_ring_that_was_drained_too_late_is_unknown_and_lowers_the_coverage() -> None:
    """docs/how-a-number-is-made.md, section 1: "has lost samples. That time is unknown"."""
    timeline, samples = ring([PERIOD_US] * 71, value=50)
    later = [(samples[-1][0] + 3 * RING_US + number * PERIOD_US, 50) for number in range(72)]
    timeline.add_samples(later, later[-1][0], in_time=False)
    found = timeline.take(samples[-1][0], later[-1][0])
    assert (found.mean_pct, found.zero_ratio, found.unsampled_ratio) == (50, 0, 0)
    assert found.coverage_ratio == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize("value", [0.0, 1e-9, 0.004, 12.344])
def test_what_is_not_0_is_never_rounded_to_0(value: float) -> None:
    """docs/how-a-number-is-made.md, section 1: utilization columns of a row."""
    assert (rounded_up(value) == 0) is (value == 0)
    meter = UtilizationMeter()
    for timeline in (meter.gpu_time, meter.mem_time):
        timeline.begin(START_US)
        busy = 1 if value else 0
        stamps = [(START_US + number * PERIOD_US, busy if number == 400 else 0) for number in range(1, 30_000)]
        timeline.add_samples(stamps, stamps[-1][0], in_time=True)
    row = meter.take(START_US, START_US + 29_999 * PERIOD_US)
    assert (row["gpu_util_pct"] == 0) is (row["mem_util_pct"] == 0) is (row["gpu_util_zero_ratio"] == 1) is (value == 0)


@pytest.mark.parametrize(
    ("after_mj", "is_same"), [(999, False), (1_000, True), (50_011_000, True), (50_011_001, False)]
)
def test_energy_of_two_rows_is_subtracted_within_an_epoch_only_which_a_fall_or_a_rise_above_5_kw_ends(
    after_mj: int, *, is_same: bool
) -> None:
    """docs/how-a-number-is-made.md, section 1: "a counter that fell, or rose by more than 5 kW allow, reveals it"."""
    epochs = Epochs(None, "boot")
    rows: list[Any] = [
        {"gpu": "GPU-a", "time": number * STEP_MS, "interval_ms": STEP_MS, "health": "ok", "energy_mj": energy_mj}
        for number, energy_mj in enumerate((1_000, after_mj))
    ]
    events = [epochs.mark([row]) for row in rows]
    assert [each["counters_since"] for each in rows] == [0, 0 if is_same else STEP_MS]
    assert [bool(each) for each in events] == [False, not is_same]


@pytest.mark.parametrize(
    ("ms", "meant_ms"), [(30_020, 30_000), (1_050, 1_000), (1_051, 1_051), (950, 1_000), (949, 949)]
)
def test_a_scrape_loop_that_drifts_from_a_whole_second_by_5_percent_at_most_is_one_of_that_second(
    ms: int, meant_ms: int
) -> None:
    """docs/prometheus.md: the interval of scrapes is what the steps show, "give or take a scrape"."""
    assert snapped(ms) == meant_ms


@pytest.mark.parametrize(("early_ms", "counts"), [(0, True), (3_750, True), (3_751, False), (15_000, False)])
def test_two_scrapes_of_one_reading_are_one_reading_and_a_scrape_may_be_early_by_a_quarter_of_its_step(
    early_ms: int, *, counts: bool
) -> None:
    """docs/prometheus.md: "Two scrapes of one reading are one reading"; of values that stand still as well."""
    pace = Paces({0: Pace(15_000, 30_000)}, None)
    times = [T0 + 5_000, T0 + 20_000, T0 + 35_000 - early_ms]
    scrapes = pl.DataFrame({"source": 0, "time_ms": times, "changed": [True, False, False]})
    assert new_readings(scrapes, pace)["time_ms"].to_list() == [times[0], *times[2:]][: 1 + counts]
