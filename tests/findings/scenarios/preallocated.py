"""Memory that was reserved in advance, and what only looks like it."""

from __future__ import annotations

import numpy as np

from tests.findings.scenarios.builder import A100_80, GB, H100, L40S, Fleet
from tests.findings.scenarios.situations import serve, situation, train

OTHERS = "low_efficiency standing_surplus inefficient input_starved"


def jax_for_a_small_model(fleet: Fleet) -> None:
    """Three quarters of the card from the first minute, and a third of the time."""
    first, second = fleet.host("h1", A100_80, 2)
    fleet.run(first, "ann", fleet.between(0.1), util=fleet.noise(33, 3), mem_gb=0.75 * A100_80.mem_total_bytes / GB)
    train(fleet, second, "bob")


def vllm_with_an_empty_cache(fleet: Fleet) -> None:
    """92 % of the card for a model of eight billion parameters whose cache was never used beyond a tenth."""
    first, second = fleet.host("h1", H100, 2)
    serve(fleet, first, util=fleet.noise(45, 4), mem_gb=0.92 * H100.mem_total_bytes / GB)
    fleet.serving(
        first,
        model="meta-llama/Llama-3.1-8B-Instruct",
        kv_cache_used_ratio=0.1,
        requests_per_s=2.0,
        running_requests=2.0,
    )
    train(fleet, second, "bob")


def tensorflow_takes_everything(fleet: Fleet) -> None:
    """All of the memory of an L40S in one Slurm job that was started again after two days."""
    gpus = fleet.host("h1", L40S, 2)
    for number, (first_day, last_day) in enumerate(((0.1, 2), (2.01, None))):
        train(
            fleet,
            gpus,
            "ann",
            fleet.between(first_day, last_day),
            util=60.0,
            mem_gb=0.97 * L40S.mem_total_bytes / GB,
            job=f"8{number}",
        )


def cache_that_was_full(fleet: Fleet) -> None:
    """The server holds 90 % and has used all of its cache: it needs what it holds."""
    first, second = fleet.host("h1", H100, 2)
    serve(fleet, first, util=55.0, mem_gb=0.9 * H100.mem_total_bytes / GB)
    cache = np.where(fleet.daily(9, 11), 0.97, 0.3)
    fleet.serving(
        first,
        model="meta-llama/Llama-3.1-8B-Instruct",
        kv_cache_used_ratio=cache,
        requests_per_s=5.0,
        running_requests=9.0,
    )
    train(fleet, second, "bob")


def memory_that_breathes(fleet: Fleet) -> None:
    """Batches of different length around 90 % of the card."""
    gpus = fleet.host("h1", A100_80, 2)
    train(fleet, gpus, "ann", mem_gb=fleet.noise(0.9, 0.025, 0.8, 0.97) * A100_80.mem_total_bytes / GB)


def flat_at_two_thirds(fleet: Fleet) -> None:
    """A caching allocator is flat as well, at whatever the largest batch needed."""
    train(fleet, fleet.host("h1", A100_80, 2), "ann", mem_gb=0.66 * A100_80.mem_total_bytes / GB)


def grows_by_the_hour(fleet: Fleet) -> None:
    """A leak: past three quarters of the card at some time of each day, and never for long."""
    gpus = fleet.host("h1", A100_80, 2)
    share = 0.3 + 0.65 * ((fleet.times_ms // fleet.interval_ms) % 288) / 288
    train(fleet, gpus, "ann", ~fleet.daily(0, 0.1), mem_gb=share * A100_80.mem_total_bytes / GB)


def short_runs_at_three_quarters(fleet: Fleet) -> None:
    """Runs of two hours: how flat they would have stayed nobody knows."""
    gpus = fleet.host("h1", A100_80, 2)
    for number in range(24):
        when = fleet.between(number / 3, number / 3 + 2 / 24)
        train(fleet, gpus, "ann", when, mem_gb=0.75 * A100_80.mem_total_bytes / GB, job=f"{900 + number}")


SCENARIOS = (
    situation(
        jax_for_a_small_model, fires="preallocated", may=OTHERS, look_alike_of="memory_oversized mig_fit co_location"
    ),
    situation(vllm_with_an_empty_cache, fires="preallocated", may=OTHERS, look_alike_of="memory_oversized mig_fit"),
    situation(tensorflow_takes_everything, fires="preallocated", may=OTHERS),
    situation(cache_that_was_full, may=OTHERS, look_alike_of="preallocated"),
    situation(memory_that_breathes, may=OTHERS, look_alike_of="preallocated"),
    situation(flat_at_two_thirds, may=OTHERS, look_alike_of="preallocated"),
    situation(grows_by_the_hour, may=OTHERS, look_alike_of="preallocated"),
    situation(short_runs_at_three_quarters, may="standing_surplus stalls never_used", look_alike_of="preallocated"),
)
