"""Work that needs less than its card or might share it, and what only looks like it."""

from __future__ import annotations

import numpy as np

from tests.findings.scenarios.builder import A30, A100_40, A100_80, GB, H100, L4, L40S, T4, Fleet
from tests.findings.scenarios.situations import serve, situation, train

BESIDE_COMPUTE_OVERSIZED = (
    "mig_fit co_location releasable_pool low_efficiency input_starved inefficient stalls never_used"
)
BESIDE_MEMORY_OVERSIZED = "mig_fit co_location releasable_pool inefficient never_used"
BESIDE_MIG_FIT = "compute_oversized memory_oversized co_location releasable_pool low_efficiency inefficient never_used"
BESIDE_CO_LOCATION = (
    "compute_oversized memory_oversized mig_fit releasable_pool low_efficiency inefficient imbalance never_used"
)
BEST_EFFORT = "kind,name,team,organisation,quota_gpus,priority_class\nnamespace,batch,search,,,best-effort\n"
BESIDE_PREALLOCATED = "low_efficiency releasable_pool inefficient input_starved"


@situation(fires="compute_oversized", may=BESIDE_COMPUTE_OVERSIZED)
def ranking_in_a_pod(fleet: Fleet) -> None:
    """A ranking model on an H100: 16 GB and a tenth of the time; the fleet has L40S."""
    first, second = fleet.host("h1", H100, 2)
    serve(fleet, first, util=fleet.noise(11, 2, 1), mem_gb=16, command="tritonserver", pod="rank-0")
    train(fleet, second, "ann")
    train(fleet, fleet.host("h2", L40S, 2), "bob", job="1002")


@situation(fires="compute_oversized", may=BESIDE_COMPUTE_OVERSIZED)
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


@situation(may="low_efficiency releasable_pool", look_alike_of="compute_oversized")
def nothing_lesser_to_move_to(fleet: Fleet) -> None:
    """15 % of the time on T4s, the least of what can be had."""
    for number, gpu in enumerate(fleet.host("h1", T4, 2, pool="edge")):
        serve(fleet, gpu, util=15.0, mem_gb=9, command="tritonserver", pod=f"small-{number}")


@situation(may="imbalance stalls", look_alike_of="compute_oversized memory_oversized")
def idle_but_for_a_rank(fleet: Fleet) -> None:
    """One GPU of a job works at 15 %, the others at 90: a job has one kind of card."""
    gpus = fleet.host("h1", A100_80, 4)
    train(fleet, gpus, "ann", util=(15.0, 90.0, 92.0, 91.0), mem_gb=40)
    train(fleet, fleet.host("h2", L40S, 2), "bob", job="1002")


@situation(may="low_efficiency releasable_pool", look_alike_of="compute_oversized")
def memory_bound_decoding(fleet: Fleet) -> None:
    """Few SMs and most of the memory's bandwidth: a lesser card would be as many times slower as its memory is."""
    gpus = fleet.host("h1", H100, 2)
    train(fleet, gpus, "ann", util=19.0, sm=16.0, mem_gb=12)
    for gpu in gpus:
        gpu.override(fleet.always, dram_active_pct=72.0)
    train(fleet, fleet.host("h2", L40S, 2), "bob", job="1002")


@situation(fires="memory_oversized", may=BESIDE_MEMORY_OVERSIZED)
def small_model_on_the_larger_a100(fleet: Fleet) -> None:
    """Both kinds of A100 are as fast; the job needs 14 GB of 80."""
    first, second = fleet.host("h1", A100_80, 2)
    train(fleet, first, "ann", util=92.0, mem_gb=14)
    train(fleet, second, "bob", job="1002")
    train(fleet, fleet.host("h2", A100_40, 2), "cem", job="1003")


@situation(fires="memory_oversized", may=BESIDE_MEMORY_OVERSIZED)
def few_sms_at_work(fleet: Fleet) -> None:
    """A kernel runs for 70 % of the time on a quarter of the SMs; a card with a third of the speed has room for it."""
    first, second = fleet.host("h1", H100, 2)
    serve(fleet, first, util=fleet.noise(70, 3), sm=fleet.noise(24, 2), mem_gb=15, command="tritonserver", pod="rank-0")
    train(fleet, second, "ann")
    train(fleet, fleet.host("h2", L40S, 2), "bob", job="1002")


@situation(look_alike_of="memory_oversized mig_fit co_location")
def evaluates_once_a_day(fleet: Fleet) -> None:
    """14 GB for 23 hours, 66 GB for the hour of the evaluation: on a smaller card it would fail every night."""
    gpus = fleet.host("h1", A100_80, 2)
    memory = np.where(fleet.daily(2, 3), 66.0, 14.0)
    train(fleet, gpus, "ann", util=92.0, mem_gb=memory)
    train(fleet, fleet.host("h2", A100_40, 2), "bob", job="1002")


@situation(look_alike_of="memory_oversized mig_fit")
def one_rank_is_large(fleet: Fleet) -> None:
    """Three GPUs of a job take 14 GB each, the fourth 62: they move together or not at all."""
    gpus = fleet.host("h1", A100_80, 4)
    for gpu, memory in zip(gpus, (62, 14, 14, 14), strict=True):
        train(fleet, gpu, "ann", util=92.0, mem_gb=memory)
    train(fleet, fleet.host("h2", A100_40, 4), "bob", job="1002")


@situation(look_alike_of="memory_oversized compute_oversized mig_fit")
def fast_and_small(fleet: Fleet) -> None:
    """15 GB, and the SMs of an H100 are full: no card with less memory is as fast."""
    gpus = fleet.host("h1", H100, 2)
    train(fleet, gpus, "ann", util=97.0, sm=93.0, mem_gb=15)
    train(fleet, fleet.host("h2", L40S, 2), "bob", job="1002")


@situation(look_alike_of="memory_oversized mig_fit co_location")
def server_with_a_small_cache_by_choice(fleet: Fleet) -> None:
    """VLLM was given 40 % of the card, which it reserved: what it needs of that nobody knows."""
    gpus = fleet.host("h1", A100_80, 2)
    for number, gpu in enumerate(gpus):
        serve(fleet, gpu, util=70.0, mem_gb=0.4 * A100_80.mem_total_bytes / GB, pod=f"llm-{number}")
    train(fleet, fleet.host("h2", A100_40, 2), "bob")


@situation(fires="mig_fit", may=BESIDE_MIG_FIT)
def seventh_of_an_h100(fleet: Fleet) -> None:
    """7 GB and a tenth of the SMs."""
    first, second = fleet.host("h1", H100, 2)
    serve(
        fleet,
        first,
        util=fleet.noise(30, 2),
        sm=fleet.noise(9, 1, 0, 12),
        mem_gb=7,
        command="tritonserver",
        pod="embed-0",
    )
    train(fleet, second, "ann")


@situation(fires="mig_fit", may=BESIDE_MIG_FIT)
def quarter_of_an_a30(fleet: Fleet) -> None:
    """A30 are cut in four."""
    first, second = fleet.host("h1", A30, 2)
    serve(fleet, first, util=fleet.noise(20, 1, 10, 23), mem_gb=4, command="tritonserver", pod="embed-0")
    train(fleet, second, "ann")


@situation(may=BESIDE_MIG_FIT, look_alike_of="mig_fit")
def two_gpus_that_talk(fleet: Fleet) -> None:
    """A small job on two GPUs: instances cannot reach one another."""
    train(fleet, fleet.host("h1", H100, 2), "ann", util=30.0, sm=9.0, mem_gb=7)


@situation(may=BESIDE_MIG_FIT, look_alike_of="mig_fit co_location")
def processes_without_a_job_that_talk(fleet: Fleet) -> None:
    """A launcher started a process on each of two GPUs, within seconds and without a scheduler."""
    gpus = fleet.host("h1", A100_80, 2)
    fleet.run(gpus, "ann", util=22.0, mem_gb=12, parent_pid=4000)


@situation(may=BESIDE_MIG_FIT, look_alike_of="mig_fit co_location")
def traffic_over_nvlink(fleet: Fleet) -> None:
    """Each GPU looks like a job of its own, and NVLink carries gigabytes between them."""
    for number, gpu in enumerate(fleet.host("h1", H100, 2)):
        serve(fleet, gpu, util=30.0, sm=9.0, mem_gb=7, command="tritonserver", pod=f"half-{number}")
        gpu.override(fleet.always, nvlink_tx_bytes_per_s=2e9, nvlink_rx_bytes_per_s=2e9)


@situation(may="low_efficiency releasable_pool", look_alike_of="mig_fit memory_oversized compute_oversized")
def split_already(fleet: Fleet) -> None:
    """The instances are in use, one of them hardly."""
    (gpu,) = fleet.host("h1", H100, 1)
    for number, instance in enumerate(fleet.split(gpu, "4g.40gb", "3g.40gb")):
        serve(
            fleet,
            instance,
            util=(85.0, 12.0)[number],
            mem_gb=(30, 5)[number],
            command="tritonserver",
            pod=f"part-{number}",
        )


@situation(
    fires="preallocated", may="low_efficiency inefficient releasable_pool", look_alike_of="mig_fit memory_oversized"
)
def reserved_in_advance(fleet: Fleet) -> None:
    """JAX holds three quarters of the card: what it needs is not known."""
    first, second = fleet.host("h1", H100, 2)
    train(
        fleet, first, "ann", fleet.between(0.1), util=40.0, sm=12.0, mem_gb=0.75 * H100.mem_total_bytes / GB, job="77"
    )
    train(fleet, second, "bob")


@situation(fires="co_location", may=BESIDE_CO_LOCATION)
def two_small_runs_of_one_person(fleet: Fleet) -> None:
    """Started by hand, an hour apart, each with a third of the time and a quarter of the memory."""
    first, second = fleet.host("h1", A100_80, 2)
    fleet.run(first, "ann", util=fleet.noise(32, 3), mem_gb=20)
    fleet.run(second, "ann", fleet.between(1 / 24), util=fleet.noise(30, 3), mem_gb=22)


@situation(fires="co_location", may=BESIDE_CO_LOCATION, owners=BEST_EFFORT)
def service_beside_a_batch(fleet: Fleet) -> None:
    """A service with a quarter of the time and a batch that nobody waits for."""
    first, second = fleet.host("h1", L40S, 2)
    serve(fleet, first, util=fleet.noise(26, 3), mem_gb=12, command="tritonserver", pod="rank-0")
    fleet.run(
        second, "batch", util=fleet.noise(35, 4), mem_gb=14, pod="embed-all", namespace="batch", container_id="c-embed"
    )


@situation(may=BESIDE_CO_LOCATION, look_alike_of="co_location")
def on_two_hosts(fleet: Fleet) -> None:
    """Each would share, and there is nobody to share with on its host."""
    for number in range(2):
        (gpu,) = fleet.host(f"h{number}", A100_80, 1)
        train(fleet, gpu, "ann", util=25.0, mem_gb=20, job=f"6{number}")


@situation(may=BESIDE_CO_LOCATION, look_alike_of="co_location")
def two_ranks_of_one_job(fleet: Fleet) -> None:
    """Two GPUs of one job, lightly used: they compute at the same moments."""
    train(fleet, fleet.host("h1", A100_80, 2), "ann", util=25.0, mem_gb=20, job="61")


@situation(may=BESIDE_CO_LOCATION, look_alike_of="co_location")
def bursts_at_the_same_hours(fleet: Fleet) -> None:
    """Low means, and both work at full load in the same hours."""
    burst = fleet.wave(70, period_h=6, on_h=1, low=8)
    for number, gpu in enumerate(fleet.host("h1", A100_80, 2)):
        train(fleet, gpu, "ann", util=burst, mem_gb=20, job=f"6{number}")


@situation(may="low_efficiency releasable_pool", look_alike_of="co_location mig_fit memory_oversized")
def reserved_in_advance_side_by_side(fleet: Fleet) -> None:
    """Two servers that reserved 40 % of their cards: the sum of what they reserved is not the sum of what they need."""
    for number, gpu in enumerate(fleet.host("h1", A100_80, 2)):
        serve(fleet, gpu, util=20.0, mem_gb=0.4 * A100_80.mem_total_bytes / GB, pod=f"llm-{number}")


@situation(fires="preallocated", may=BESIDE_PREALLOCATED, look_alike_of="memory_oversized mig_fit co_location")
def jax_for_a_small_model(fleet: Fleet) -> None:
    """Three quarters of the card from the first minute, and a third of the time."""
    first, second = fleet.host("h1", A100_80, 2)
    fleet.run(first, "ann", fleet.between(0.1), util=fleet.noise(33, 3), mem_gb=0.75 * A100_80.mem_total_bytes / GB)
    train(fleet, second, "bob")


@situation(fires="preallocated", may=BESIDE_PREALLOCATED, look_alike_of="memory_oversized mig_fit")
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


@situation(may=BESIDE_PREALLOCATED, look_alike_of="preallocated")
def grows_by_the_hour(fleet: Fleet) -> None:
    """A leak: past three quarters of the card at some time of each day, and never for long."""
    gpus = fleet.host("h1", A100_80, 2)
    share = 0.3 + 0.65 * ((fleet.times_ms // fleet.interval_ms) % 288) / 288
    train(fleet, gpus, "ann", ~fleet.daily(0, 0.1), mem_gb=share * A100_80.mem_total_bytes / GB)


@situation(may="releasable_pool stalls never_used", look_alike_of="preallocated")
def short_runs_at_three_quarters(fleet: Fleet) -> None:
    """Runs of two hours: how flat they would have stayed nobody knows."""
    gpus = fleet.host("h1", A100_80, 2)
    for number in range(24):
        when = fleet.between(number / 3, number / 3 + 2 / 24)
        train(fleet, gpus, "ann", when, mem_gb=0.75 * A100_80.mem_total_bytes / GB, job=f"{900 + number}")
