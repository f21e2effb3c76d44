"""Right-sizing by peaks: one recording of a GPU, seen in rows of one second up to a minute, leads to one verdict or to none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from agent.nvml.ring import Timeline
from analytics.rules.compute_oversized import COMPUTE_OVERSIZED
from analytics.rules.memory_oversized import MEMORY_OVERSIZED
from analytics.rules.mig_fit import MIG_FIT
from tests.findings.one_rule import found, found_in
from tests.findings.scenarios.builder import H100, L40S, Fleet
from tests.findings.scenarios.situations import train

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.findings.scenarios.builder import Gpu

SAMPLE_MS = 100
MINUTE = 600
"""Samples."""


def every(period: int, length: int, high: int, low: int = 0, count: int = 5 * MINUTE) -> NDArray[np.int64]:
    """So many samples at `high` at the start of every period, `low` otherwise."""
    return np.where(np.arange(count) % period < length, high, low)


BURSTY = every(50, 7, 100)
"""Training that waits for its optimizer on the CPU: 0.7 s of every 5 s, a mean of 14 %."""
SMALL = 8 + np.arange(5 * MINUTE) % 7
"""A service that never takes more than 14 %."""
FLICKERING = every(20, 2, 100, low=4)
"""0.2 s of every 2 s, a tenth of the time."""
RARE = every(MINUTE, 2, 100, low=5)
"""A small service with 0.2 s of full load in a minute."""


def record(fleet: Fleet, gpu: Gpu, samples: NDArray[np.int64], sm_share: float, *, told: bool = True) -> None:
    """The rows that the agent makes of a recording that repeats; kernels take up a share of the card's SMs.

    With `told` false they are bare means, as a time series that was imported has them.
    """
    count = fleet.interval_ms // SAMPLE_MS
    timeline = Timeline()
    timeline.begin(0)
    ends = [(int(number + 1) * SAMPLE_MS * 1000, int(value)) for number, value in enumerate(samples)]
    taken = []
    for first in range(0, len(samples), count):
        timeline.add_samples(ends[first : first + count], ends[first + count - 1][0], in_time=True)
        taken.append(timeline.take(first * SAMPLE_MS * 1000, (first + count) * SAMPLE_MS * 1000))
    repeats = -(-fleet.rows // len(taken))
    columns = {
        "gpu_util_pct": [each.mean_pct for each in taken],
        "gpu_util_max_pct": [each.max_pct if told else None for each in taken],
        "gpu_util_p98_pct": [each.p98_pct if told else None for each in taken],
        "sm_active_pct": [sm_share * (each.mean_pct or 0.0) for each in taken],
        "dram_active_pct": [0.3 * (each.mean_pct or 0.0) for each in taken],
    }
    for name, values in columns.items():
        gpu.override(fleet.always, **{name: np.tile(np.array(values, np.float64), repeats)[: fleet.rows]})


RECORDINGS = {"bursty": BURSTY, "small": SMALL, "flickering": FLICKERING, "rare": RARE}
RULES = (COMPUTE_OVERSIZED, MEMORY_OVERSIZED, MIG_FIT)


def verdicts(interval_s: float, *, told: bool = True) -> dict[str, set[str]]:
    """By recording the rules that find it, on H100s beside an L40S, in rows of this length."""
    fleet = Fleet(1.25, interval_s=interval_s)
    for gpu, (name, samples) in zip(fleet.host("h1", H100, len(RECORDINGS)), RECORDINGS.items(), strict=True):
        train(fleet, gpu, name, util=10.0, mem_gb=8, job=name)
        record(fleet, gpu, samples, sm_share=0.84, told=told)
    train(fleet, fleet.host("h2", L40S, 1), "bob", job="1002", mem_gb=8)
    site = fleet.recording()
    found = [each for rule in RULES for each in found_in(rule, site)]
    return {name: {each.rule for each in found if each.holder == name} for name in RECORDINGS}


@pytest.mark.parametrize("interval_s", [1, 10, 30, 60])
def test_the_verdict_does_not_depend_on_the_length_of_the_rows(interval_s: int) -> None:
    small = {"compute_oversized", "mig_fit"}
    assert verdicts(interval_s) == {"bursty": set(), "small": small, "flickering": set(), "rare": small}


@pytest.mark.parametrize("interval_s", [1, 10, 30, 60])
def test_bare_means_of_long_rows_tell_nothing(interval_s: int) -> None:
    assert verdicts(interval_s, told=False) == {name: set() for name in RECORDINGS}


def test_a_burst_is_said_of_what_is_small_all_the_same() -> None:
    fleet = Fleet(1.25, interval_s=60)
    (gpu,) = fleet.host("h1", H100, 1)
    train(fleet, gpu, "ann", util=10.0, mem_gb=8)
    train(fleet, fleet.host("h2", L40S, 1), "bob", job="1002", mem_gb=8)
    record(fleet, gpu, RARE, sm_share=0.84)
    (each,) = found(COMPUTE_OVERSIZED, fleet)
    numbers = each.evidence.numbers
    assert (numbers["gpu_util_p95_pct"], numbers["gpu_util_max_pct"]) == (5, 100)
