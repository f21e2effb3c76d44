"""GPUs that are busy all the time: with much behind it, with little, or bound by memory."""

from __future__ import annotations

import numpy as np

from tests.findings.scenarios.builder import A100_80, H100, L40S, Fleet
from tests.findings.scenarios.situations import serve, situation, train

DAYS = 4
SMALL = "compute_oversized memory_oversized co_location mig_fit preallocated"


def tiny_kernels(fleet: Fleet) -> None:
    """A thousand small kernels a second: always one of them on the card, hardly any SM busy."""
    gpus = fleet.host("h1", H100, 2)
    train(fleet, gpus, "ann", util=96.0, sm=14.0)


def decoding_video_on_the_gpu(fleet: Fleet) -> None:
    """Input is prepared on the card itself: kernels spin between batches, power stays low."""
    gpus = fleet.host("h1", A100_80, 2)
    train(fleet, gpus, "ann", util=92.0, power_w=130.0)


def a_rank_waits_in_a_collective(fleet: Fleet) -> None:
    """Both cards of a bare program spin in a collective for two of four days."""
    gpus = fleet.host("h1", H100, 2)
    waits = fleet.between(1, 3)
    fleet.run(gpus, "ann", util=98.0, sm=np.where(waits, 4.0, 80.0), mem_gb=70, one_process=True)


def decoding_bound_by_memory(fleet: Fleet) -> None:
    """Tokens are generated one by one: few SMs, all of the memory bandwidth."""
    gpus = fleet.host("h1", H100, 2, pool="serving")
    serve(fleet, gpus, util=97.0, sm=30.0, mem_gb=75)
    for gpu in gpus:
        gpu.override(fleet.always, dram_active_pct=78.0)


def decoding_on_a_card_that_does_not_say(fleet: Fleet) -> None:
    """The same on a card without counters for bandwidth."""
    gpus = fleet.host("h1", L40S, 2, pool="serving")
    serve(fleet, gpus, util=97.0, power_w=150.0, mem_gb=45)


def solver_bound_by_memory(fleet: Fleet) -> None:
    """A stencil code: 35 % of the SMs at work, the bandwidth used up."""
    gpus = fleet.host("h1", H100, 2)
    train(fleet, gpus, "ann", util=99.0, sm=35.0)
    for gpu in gpus:
        gpu.override(fleet.always, dram_active_pct=85.0)


def an_afternoon_of_profiling(fleet: Fleet) -> None:
    """Five hours of single kernels on two cards that train otherwise."""
    gpus = fleet.host("h1", H100, 2)
    tries = fleet.between(-1, -19 / 24)
    train(fleet, gpus, "ann", ~tries)
    train(fleet, gpus, "bob", tries, util=95.0, sm=5.0, job="9")


def half_busy_with_few_sms(fleet: Fleet) -> None:
    """Not busy in the first place: utilization says itself that there is room."""
    gpus = fleet.host("h1", H100, 2)
    train(fleet, gpus, "ann", util=60.0, sm=20.0)


def full_load(fleet: Fleet) -> None:
    """Large matrix products: nothing to be had."""
    train(fleet, fleet.host("h1", H100, 2), "ann", util=99.0, sm=88.0)


SCENARIOS = (
    situation(tiny_kernels, days=DAYS, fires="inefficient", may=SMALL),
    situation(decoding_video_on_the_gpu, days=DAYS, fires="inefficient", may=SMALL),
    situation(a_rank_waits_in_a_collective, days=DAYS, fires="inefficient", may=SMALL),
    situation(decoding_bound_by_memory, days=DAYS, may=SMALL, look_alike_of="inefficient"),
    situation(decoding_on_a_card_that_does_not_say, days=DAYS, may=SMALL, look_alike_of="inefficient"),
    situation(solver_bound_by_memory, days=DAYS, may=SMALL, look_alike_of="inefficient"),
    situation(an_afternoon_of_profiling, days=DAYS, may="wind_down", look_alike_of="inefficient"),
    situation(half_busy_with_few_sms, days=DAYS, may=SMALL, look_alike_of="inefficient low_efficiency"),
    situation(full_load, days=DAYS, look_alike_of="inefficient"),
)
