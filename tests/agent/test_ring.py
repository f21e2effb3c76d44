"""The arithmetic of the sample ring, against a ring whose every value is known."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.nvml.ring import RING_US, Timeline
from agent.nvml.utilization import UtilizationMeter

PERIOD_US = 138_889  # the driver's own: 72 samples in ten seconds
START_US = 1_800_000_000_000_000


def begun() -> Timeline:
    """A timeline that begins at START_US."""
    timeline = Timeline()
    timeline.begin(START_US)
    return timeline


@pytest.fixture
def timeline() -> Timeline:
    return begun()


def entries(values: list[int], start_us: int = START_US) -> list[tuple[int, int]]:
    """Samples of a busy GPU: one per period, stamped at the period's end."""
    return [(start_us + (number + 1) * PERIOD_US, value) for number, value in enumerate(values)]


def test_a_busy_ring_covers_every_moment(timeline: Timeline) -> None:
    samples = entries([50] * 36 + [100] * 36)
    timeline.add_samples(samples, samples[-1][0], in_time=True)
    found = timeline.take(START_US, samples[-1][0])
    assert found.mean_pct == pytest.approx(75)
    assert (found.max_pct, found.zero_ratio, found.unsampled_ratio) == (100, 0, 0)
    assert found.coverage_ratio == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(("samples", "p98_pct"), [(1, 10), (2, 100)])
def test_two_samples_of_a_ring_show_in_its_percentile_and_one_does_not(
    timeline: Timeline, samples: int, p98_pct: int
) -> None:
    ring = entries([10] * (72 - samples) + [100] * samples)
    timeline.add_samples(ring, ring[-1][0], in_time=True)
    found = timeline.take(START_US, ring[-1][0])
    assert (found.p98_pct, found.max_pct) == (p98_pct, 100)


@given(
    values=st.lists(st.integers(0, 100), min_size=80, max_size=200),
    drains=st.lists(st.integers(5, 35), min_size=40, max_size=40),
    cut=st.floats(0.1, 0.9),
)
def test_how_it_is_drained_and_cut_changes_nothing(values: list[int], drains: list[int], cut: float) -> None:
    timeline, samples = begun(), entries(values)
    end_us = samples[-1][0]
    left = samples
    for count in itertools.chain(drains, itertools.repeat(1000)):
        part, left = left[:count], left[count:]
        if not part:
            break
        timeline.add_samples(part, part[-1][0], in_time=True)
    middle_us = START_US + round((end_us - START_US) * cut)
    first, second = timeline.take(START_US, middle_us), timeline.take(middle_us, end_us)
    assert first.mean_pct is not None
    assert second.mean_pct is not None
    whole = (first.mean_pct * (middle_us - START_US) + second.mean_pct * (end_us - middle_us)) / (end_us - START_US)
    assert whole == pytest.approx(sum(values) / len(values), abs=1e-3)
    assert first.coverage_ratio == pytest.approx(1, abs=1e-4)
    assert second.coverage_ratio == pytest.approx(1, abs=1e-4)


def test_entries_that_an_idle_gpu_never_made_are_zero_and_marked(timeline: Timeline) -> None:
    samples = entries([80] * 10) + entries([80] * 10, START_US + 20 * PERIOD_US)
    timeline.add_samples(samples, samples[-1][0], in_time=True)
    found = timeline.take(START_US, START_US + 30 * PERIOD_US)
    assert found.mean_pct == pytest.approx(80 * 20 / 30, abs=0.01)
    assert found.zero_ratio == pytest.approx(1 / 3, abs=1e-3)
    assert found.unsampled_ratio == pytest.approx(1 / 3, abs=1e-3)
    assert found.coverage_ratio == pytest.approx(1, abs=1e-4)


def test_an_idle_answer_after_a_long_pause_says_nothing_of_the_time_before_the_ring(timeline: Timeline) -> None:
    timeline.add_idle(START_US + 3 * RING_US, watched_us=3 * RING_US)
    found = timeline.take(START_US, START_US + 3 * RING_US)
    assert found.mean_pct == 0
    assert found.coverage_ratio == pytest.approx(1 / 3, abs=0.01)


def test_an_impossible_percentage_is_a_moment_unknown_and_not_zero(timeline: Timeline) -> None:
    values = [100] * 36
    values[10] = 4_000_000_000
    samples = [(0, 50), *entries(values)]
    timeline.add_samples(samples, samples[-1][0], in_time=True)
    found = timeline.take(START_US, samples[-1][0])
    assert (found.mean_pct, found.max_pct) == (pytest.approx(100, abs=0.001), 100)
    assert found.coverage_ratio == pytest.approx(35 / 36, abs=1e-3)


@pytest.mark.parametrize(("on", "off"), [(1, 6), (1, 17), (2, 5), (1, 3)])
def test_short_kernels_between_long_pauses_are_not_stretched(timeline: Timeline, on: int, off: int) -> None:
    cycles = 120
    samples = [
        (START_US + (cycle * (on + off) + number + 1) * PERIOD_US, 70)
        for cycle in range(cycles)
        for number in range(on)
    ]
    timeline.add_samples(entries([70, 70], START_US - 3 * PERIOD_US), START_US, in_time=True)  # the pace is known
    for first in range(0, len(samples), 4):
        part = samples[first : first + 4]
        timeline.add_samples(part, part[-1][0], in_time=True)
    end_us = samples[-1][0]
    found = timeline.take(START_US, end_us)
    assert found.mean_pct == pytest.approx(70 * len(samples) * PERIOD_US / (end_us - START_US), abs=0.2)
    assert found.coverage_ratio == pytest.approx(1, abs=1e-3)


def test_a_stale_sample_of_another_clock_stays_in_its_own_time(timeline: Timeline) -> None:
    far_us = -START_US + 5_000_000_000
    fresh = [(stamp + far_us, value) for stamp, value in entries([50] * 36)]
    timeline.add_samples(fresh, fresh[-1][0] - far_us, in_time=True)
    # fifteen seconds later, after a pause of the whole process, the ring still holds samples from before the idle time
    old = [(stamp + far_us, 100) for stamp, _ in entries([100] * 20, START_US + 36 * PERIOD_US)]
    now_us = START_US + 36 * PERIOD_US + 18_000_000
    timeline.add_samples(old, now_us, in_time=False)
    found = timeline.take(now_us - 10_000_000, now_us)
    assert (found.mean_pct, found.coverage_ratio) == (None, 0)


@pytest.mark.parametrize("offset_us", [-START_US + 5_000_000_000, 3_600_000_000])
def test_a_driver_that_stamps_with_another_clock_is_brought_home(timeline: Timeline, offset_us: int) -> None:
    for first in range(0, 144, 24):
        part = [(stamp + offset_us, value) for stamp, value in entries([70] * 144)[first : first + 24]]
        timeline.add_samples(part, part[-1][0] - offset_us + 20_000, in_time=True)
    found = timeline.take(START_US + RING_US // 2, START_US + RING_US)
    assert found.mean_pct == pytest.approx(70)
    assert found.coverage_ratio == pytest.approx(1, abs=0.001)


def test_no_moment_counts_twice_when_a_rate_and_samples_overlap(timeline: Timeline) -> None:
    timeline.add_idle(START_US + 2_000_000, watched_us=2_000_000)
    timeline.add_samples(entries([100] * 20), START_US + 20 * PERIOD_US, in_time=True)
    found = timeline.take(START_US, START_US + 20 * PERIOD_US)
    assert found.coverage_ratio <= 1


def test_a_ring_that_stays_silent_beside_a_busy_rate_leaves_the_time_unknown(timeline: Timeline) -> None:
    timeline.add_samples(entries([60] * 10), START_US + 10 * PERIOD_US, in_time=True)
    for drain in range(1, 8):
        timeline.doubt(START_US + drain * 4_000_000)
    late = entries([60] * 10, START_US + 30_000_000)
    timeline.add_samples(late, late[-1][0], in_time=True)
    found = timeline.take(START_US, late[-1][0])
    assert found.coverage_ratio < 0.25
    assert found.unsampled_ratio < 0.1


class SteppedDriver:
    """A GPU that is busy at 50 % throughout, under a wall clock that can be put back or forward."""

    def __init__(self, *, wall_stamped: bool) -> None:
        self.wall_us, self.steady_us, self._wall_stamped = START_US, 5_000_000_000, wall_stamped
        self._ring: list[tuple[int, int]] = []

    def clocks(self) -> tuple[int, int]:
        return self.wall_us, self.steady_us

    def work(self, periods: int) -> None:
        for _ in range(periods):
            self.wall_us += PERIOD_US
            self.steady_us += PERIOD_US
            self._ring = [*self._ring, (self.wall_us if self._wall_stamped else self.steady_us, 50)][-72:]

    def ask_ring(self, _gpu: object, _kind: int, after_us: int) -> list[tuple[int, int]]:
        return [sample for sample in self._ring if sample[0] > after_us]

    def ask(self, _gpu: object, _call: object) -> SimpleNamespace:
        return SimpleNamespace(gpu=50, memory=50)


@pytest.mark.parametrize("wall_stamped", [True, False])
@pytest.mark.parametrize("step_us", [-600_000_000, -4_000_000, 4_000_000, 600_000_000])
def test_a_step_of_the_wall_clock_costs_one_interval_and_no_more(*, step_us: int, wall_stamped: bool) -> None:
    driver, meter = SteppedDriver(wall_stamped=wall_stamped), UtilizationMeter()
    found = []
    for interval in range(12):
        if interval == 5:
            driver.work(9)
            driver.wall_us += step_us
        start_us = driver.wall_us
        for _ in range(2):
            driver.work(36)
            meter.drain(cast("Any", driver), cast("Any", None), driver.clocks)
        found.append(meter.take(start_us, driver.wall_us))
    assert {row["gpu_util_pct"] for row in found[1:5] + found[7:]} == {50}
    assert all(row["gpu_util_pct"] in (None, 50) for row in found)
    assert min(cast("float", row["gpu_util_coverage_ratio"]) for row in found[1:5] + found[7:]) > 0.99
    assert {row["gpu_util_zero_ratio"] for row in found} <= {None, 0}
