"""Work that leaves a powerful card nearly idle, and what only looks like it."""

from __future__ import annotations

from tests.findings.scenarios.builder import A100_80, GB, H100, L4, L40S, T4, Fleet
from tests.findings.scenarios.situations import serve, situation, train

OTHERS = "mig_fit co_location standing_surplus low_efficiency input_starved inefficient stalls never_used"


def ranking_in_a_pod(fleet: Fleet) -> None:
    """A ranking model on an H100: 16 GB and a tenth of the time; the fleet has L40S."""
    first, second = fleet.host("h1", H100, 2)
    serve(fleet, first, util=fleet.noise(11, 2, 1), mem_gb=16, command="tritonserver", pod="rank-0")
    train(fleet, second, "ann")
    train(fleet, fleet.host("h2", L40S, 2), "bob", job="1002")


def sweep_of_small_jobs(fleet: Fleet) -> None:
    """A new job every six hours, each too short to be worth a word; together they keep an A100 from others."""
    first, second = fleet.host("h1", A100_80, 2)
    for number in range(4 * round(fleet.rows * fleet.interval_ms / 86_400_000)):
        train(
            fleet,
            first,
            "ann",
            fleet.between(number / 4, number / 4 + 5.5 / 24),
            util=12.0,
            mem_gb=6,
            job=f"{5000 + number}",
        )
    train(fleet, second, "bob")
    train(fleet, fleet.host("h2", L4, 2), "cem", job="1003", mem_gb=15)


def notebook_that_computes_slowly(fleet: Fleet) -> None:
    """A bare process without SM counters: 8 GB and 9 % of the time on an A100, day and night."""
    first, second = fleet.host("h1", A100_80, 2)
    fleet.run(first, "ann", util=fleet.noise(9, 1.5, 1), mem_gb=8)
    train(fleet, second, "bob")
    train(fleet, fleet.host("h2", L40S, 1), "cem", job="1003")


def needs_the_memory(fleet: Fleet) -> None:
    """12 % of the time, and 70 GB: only a card of that size holds it, and a cheaper one is not there."""
    for number, gpu in enumerate(fleet.host("h1", A100_80, 2)):
        serve(fleet, gpu, util=12.0, mem_gb=70, command="tritonserver", pod=f"index-{number}")
    train(fleet, fleet.host("h2", L40S, 2), "bob")


def bursts_twice_a_day(fleet: Fleet) -> None:
    """Next to nothing for eleven hours, full load for one: the mean is low, and the card is needed."""
    gpus = fleet.host("h1", H100, 2)
    burst = fleet.wave(96, period_h=12, on_h=1.5, low=4)
    train(fleet, gpus, "ann", util=burst, mem_gb=9, sm=0.9 * burst)
    train(fleet, fleet.host("h2", L4, 2), "bob", job="1002", mem_gb=15)


def no_kernel_at_all(fleet: Fleet) -> None:
    """The process is there and runs nothing: what it would need is not known."""
    first, second = fleet.host("h1", H100, 2)
    fleet.run(first, "ann", util=0.0, mem_gb=6)
    train(fleet, second, "bob")
    train(fleet, fleet.host("h2", L40S, 2), "cem", job="1003")


def nothing_lesser_to_move_to(fleet: Fleet) -> None:
    """15 % of the time on T4s, the least of what can be had."""
    for number, gpu in enumerate(fleet.host("h1", T4, 2, pool="edge")):
        serve(fleet, gpu, util=15.0, mem_gb=9, command="tritonserver", pod=f"small-{number}")


def runs_out_of_memory(fleet: Fleet) -> None:
    """A job that fills its card until it fails, again and again: it wants a larger card rather than a lesser one."""
    gpus = fleet.host("h1", A100_80, 2)
    filling = 8 + (0.985 * A100_80.mem_total_bytes / GB - 8) * ((fleet.times_ms // fleet.interval_ms) % 36) / 35
    train(fleet, gpus, "ann", ~fleet.every(3, 5 / 60), util=14.0, mem_gb=filling)
    train(fleet, fleet.host("h2", L40S, 2), "bob", job="1002")


def idle_but_for_a_rank(fleet: Fleet) -> None:
    """One GPU of a job works at 15 %, the others at 90: a job has one kind of card."""
    gpus = fleet.host("h1", A100_80, 4)
    train(fleet, gpus, "ann", util=(15.0, 90.0, 92.0, 91.0), mem_gb=40)
    train(fleet, fleet.host("h2", L40S, 2), "bob", job="1002")


def memory_bound_decoding(fleet: Fleet) -> None:
    """Few SMs and most of the memory's bandwidth: a lesser card would be as many times slower as its memory is."""
    gpus = fleet.host("h1", H100, 2)
    train(fleet, gpus, "ann", util=19.0, sm=16.0, mem_gb=12)
    for gpu in gpus:
        gpu.override(fleet.always, dram_active_pct=72.0)
    train(fleet, fleet.host("h2", L40S, 2), "bob", job="1002")


SCENARIOS = (
    situation(ranking_in_a_pod, fires="compute_oversized", may=OTHERS),
    situation(sweep_of_small_jobs, fires="compute_oversized", may=OTHERS),
    situation(notebook_that_computes_slowly, fires="compute_oversized", may=OTHERS),
    situation(
        needs_the_memory,
        may="low_efficiency standing_surplus",
        look_alike_of="compute_oversized memory_oversized mig_fit",
    ),
    situation(
        bursts_twice_a_day, may="low_efficiency standing_surplus", look_alike_of="compute_oversized memory_oversized"
    ),
    situation(
        no_kernel_at_all,
        may="held low_efficiency zombie_holder loaded_no_traffic standing_surplus wind_down",
        look_alike_of="compute_oversized",
    ),
    situation(nothing_lesser_to_move_to, may="low_efficiency standing_surplus", look_alike_of="compute_oversized"),
    situation(
        runs_out_of_memory, may="low_efficiency standing_surplus", look_alike_of="compute_oversized memory_oversized"
    ),
    situation(idle_but_for_a_rank, may="imbalance stalls", look_alike_of="compute_oversized memory_oversized"),
    situation(memory_bound_decoding, may="low_efficiency standing_surplus", look_alike_of="compute_oversized"),
)
