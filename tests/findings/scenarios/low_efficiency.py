"""Holders of many GPU-hours and of few, who use them well and badly."""

from __future__ import annotations

import numpy as np

from tests.findings.scenarios.builder import H100, V100, Fleet
from tests.findings.scenarios.situations import serve, situation, train

DAYS = 4
SMALL = "compute_oversized memory_oversized co_location mig_fit standing_surplus preallocated"
IDLE = f"{SMALL} held loaded_no_traffic zombie_holder wind_down partial_use"


def large_holder_at_a_seventh(fleet: Fleet) -> None:
    """Half of the fleet is ann's, at 14 %."""
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus[:2], "bob", job="2")
    train(fleet, gpus[2:], "ann", util=14.0, zero=0.8)


def notebooks_that_mostly_wait(fleet: Fleet) -> None:
    """Three notebooks of one person: an hour of work in eight."""
    gpus = fleet.host("h1", V100, 4)
    train(fleet, gpus[0], "bob", job="2")
    fleet.run(gpus[1:], "ann", util=fleet.wave(80, period_h=8, on_h=1), mem_gb=28)


def sparse_experiments(fleet: Fleet) -> None:
    """A job at a fifth of two cards, and another at a fifth of two more, both ann's."""
    for number in (1, 2):
        train(fleet, fleet.host(f"h{number}", H100, 2), "ann", util=20.0, zero=0.7, job=str(number))


def a_day_of_debugging(fleet: Fleet) -> None:
    """Twenty hours on two cards, most of them spent thinking: 40 GPU-hours are not worth a letter."""
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus[:2], "bob", job="2")
    train(fleet, gpus[2:], "ann", fleet.between(-1, -4 / 24), util=fleet.wave(60, period_h=2, on_h=0.25))


def small_holder_of_a_large_fleet(fleet: Fleet) -> None:
    """Sixty hours at 5 %: one in sixty of all hours."""
    gpus = fleet.host("h1", H100, 8) + fleet.host("h2", H100, 8) + fleet.host("h3", H100, 8) + fleet.host("h4", H100, 8)
    (small,) = fleet.host("h5", H100, 1)
    train(fleet, gpus, "bob", job="2")
    train(fleet, small, "ann", fleet.between(-2.2), util=5.0, zero=0.9)


def pauses_for_evaluation(fleet: Fleet) -> None:
    """Three hours of training, forty minutes on the CPUs."""
    train(fleet, fleet.host("h1", H100, 2), "ann", util=fleet.wave(95, period_h=4, on_h=3.34))


def a_third_is_above_the_line(fleet: Fleet) -> None:
    """Not good, and above a quarter."""
    train(fleet, fleet.host("h1", H100, 2), "ann", util=33.0, zero=0.5)


def nobody_measured_it(fleet: Fleet) -> None:
    """The driver gives no utilization: unknown is not zero."""
    gpus = fleet.host("h1", V100, 2)
    train(fleet, gpus, "ann", util=10.0)
    for gpu in gpus:
        gpu.override(
            fleet.always,
            gpu_util_pct=None,
            gpu_util_max_pct=None,
            gpu_util_zero_ratio=None,
            gpu_util_coverage_ratio=None,
        )


def nobody_in_particular(fleet: Fleet) -> None:
    """A service account's pods at 30 % beside a free card."""
    first, _ = fleet.host("h1", H100, 2, pool="serving")
    serve(fleet, first, util=np.where(fleet.daily(8, 20), 50, 10), mem_gb=70)


SCENARIOS = (
    situation(large_holder_at_a_seventh, days=DAYS, fires="low_efficiency", may=SMALL),
    situation(notebooks_that_mostly_wait, days=DAYS, fires="low_efficiency", may=IDLE),
    situation(sparse_experiments, days=DAYS, fires="low_efficiency", may=SMALL),
    situation(a_day_of_debugging, days=DAYS, may=IDLE, look_alike_of="low_efficiency"),
    situation(small_holder_of_a_large_fleet, days=DAYS, may=SMALL, look_alike_of="low_efficiency"),
    situation(pauses_for_evaluation, days=DAYS, look_alike_of="low_efficiency"),
    situation(a_third_is_above_the_line, days=DAYS, may=SMALL, look_alike_of="low_efficiency input_starved"),
    situation(nobody_measured_it, days=DAYS, may="blind_spot", look_alike_of="low_efficiency held"),
    situation(nobody_in_particular, days=DAYS, may=f"{IDLE} never_used", look_alike_of="low_efficiency"),
)
