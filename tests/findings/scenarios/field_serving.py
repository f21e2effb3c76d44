"""Situations from the field: inference servers, batches and what they keep in memory."""

from __future__ import annotations

import numpy as np

from tests.findings.scenarios.builder import A100_80, GB, H100, L40S, T4, Fleet, Gpu, Level
from tests.findings.scenarios.situations import serve, situation, train

NINETY_PCT_GB = 0.90 * H100.mem_total_bytes / GB
SMALL_AND_SELDOM = "compute_oversized mig_fit memory_oversized co_location low_efficiency"


def _asked(fleet: Fleet, gpu: Gpu, requests_per_s: Level, kv: Level) -> None:
    fleet.serving(
        gpu,
        requests_per_s=requests_per_s,
        kv_cache_used_ratio=kv,
        generated_tokens_per_s=200.0 * np.asarray(requests_per_s, np.float64),
        running_requests=np.ceil(requests_per_s),
        waiting_requests=0.0,
    )


@situation(may=f"{SMALL_AND_SELDOM} preallocated", look_alike_of="held ending")
def low_rate_serving(fleet: Fleet) -> None:
    """A request every twenty seconds, day and night: hardly any utilization, and somebody waits for each answer."""
    first, second = fleet.host("h1", L40S, 2, pool="serving")
    serve(fleet, first, util=2.5, zero=0.95, mem_gb=39)
    _asked(fleet, first, 0.05, 0.2)
    serve(fleet, second, util=90.0, mem_gb=39, pod="llm-1")


@situation(fires="preallocated", may=SMALL_AND_SELDOM, look_alike_of="held")
def kv_cache_nearly_empty(fleet: Fleet) -> None:
    """An engine holds 90 % of the card as vLLM always does, and its KV cache is never used beyond 2 %."""
    first, second = fleet.host("h1", H100, 2, pool="serving")
    serve(fleet, first, util=8.0, zero=0.85, mem_gb=NINETY_PCT_GB)
    _asked(fleet, first, 0.3, 0.02)
    train(fleet, second, "ann")


@situation(look_alike_of="preallocated memory_oversized mig_fit co_location held")
def kv_cache_full(fleet: Fleet) -> None:
    """An engine holds 90 % of the card, and its KV cache is full: it needs what it holds."""
    gpus = fleet.host("h1", H100, 2, pool="serving")
    for number, gpu in enumerate(gpus):
        serve(fleet, gpu, util=94.0, mem_gb=NINETY_PCT_GB, pod=f"llm-{number}")
        _asked(fleet, gpu, 9.0, fleet.noise(0.94, 0.03, 0, 1))


@situation(
    fires="held",
    may="memory_oversized low_efficiency ending",
    look_alike_of="compute_oversized never_used preallocated",
)
def loaded_and_never_asked(fleet: Fleet) -> None:
    """A model has been in memory for six days, and its server has not finished one request."""
    first, second = fleet.host("h1", H100, 2, pool="serving")
    serve(fleet, first, fleet.between(-6), util=0.0, mem_gb=50)
    fleet.serving(
        first,
        fleet.between(-6),
        requests_per_s=0.0,
        kv_cache_used_ratio=0.0,
        running_requests=0.0,
        waiting_requests=0.0,
    )
    train(fleet, second, "ann")


@situation(may=f"{SMALL_AND_SELDOM} preallocated", look_alike_of="held partial_use")
def warm_standby(fleet: Fleet) -> None:
    """The second server takes over when the first fails; until then it answers a probe every half minute."""
    first, second = fleet.host("h1", L40S, 2, pool="serving")
    serve(fleet, first, util=85.0, mem_gb=39)
    _asked(fleet, first, 8.0, 0.6)
    serve(fleet, second, util=0.3, zero=0.985, mem_gb=39, pod="llm-standby")
    _asked(fleet, second, 0.033, 0.001)


@situation(look_alike_of="held input_starved low_efficiency inefficient stalls")
def speculative_decoding(fleet: Fleet) -> None:
    """Between the draft and its check the GPU rests many times a second."""
    gpus = fleet.host("h1", H100, 2, pool="serving")
    for number, gpu in enumerate(gpus):
        serve(fleet, gpu, util=fleet.noise(52, 4), zero=0.4, mem_gb=68, pod=f"llm-{number}")
        _asked(fleet, gpu, 3.0, 0.55)


@situation(look_alike_of="compute_oversized memory_oversized mig_fit low_efficiency held co_location")
def light_inference_on_old_cards(fleet: Fleet) -> None:
    """Small models on T4s, a third of the time: there is no smaller card to move to."""
    gpus = fleet.host("h1", T4, 4, pool="edge")
    for number, gpu in enumerate(gpus):
        serve(fleet, gpu, util=fleet.noise(30, 3), zero=0.6, mem_gb=11.5, pod=f"small-{number}", command="tritonserver")


@situation(days=22, interval_s=600, look_alike_of="ending never_used held releasable_pool hoarding")
def nightly_batch(fleet: Fleet) -> None:
    """A batch works from one to six every night; the GPUs are free by day."""
    gpus = fleet.host("h1", A100_80, 2, pool="batch")
    train(fleet, gpus, "batch", fleet.daily(1, 6), util=96.0, job=None)


@situation(days=22, interval_s=600, look_alike_of="ending never_used held releasable_pool")
def weekend_gaps(fleet: Fleet) -> None:
    """People work from Monday to Friday."""
    gpus = fleet.host("h1", A100_80, 2)
    train(fleet, gpus, "ann", fleet.weekdays)


@situation(days=22, interval_s=600, look_alike_of="ending held low_efficiency")
def quiet_nights(fleet: Fleet) -> None:
    """Traffic follows the day: full at noon, a request a minute at night."""
    gpus = fleet.host("h1", L40S, 2, pool="serving")
    awake = fleet.daily(6, 23)
    for number, gpu in enumerate(gpus):
        serve(fleet, gpu, util=np.where(awake, 75, 3), zero=np.where(awake, 0, 0.9), mem_gb=39, pod=f"llm-{number}")
        _asked(fleet, gpu, np.where(awake, 6.0, 0.02), np.where(awake, 0.6, 0.01))


@situation(look_alike_of="co_location partial_use held compute_oversized low_efficiency")
def shared_by_mps(fleet: Fleet) -> None:
    """Two small services share one card through MPS, as they should."""
    (gpu,) = fleet.host("h1", L40S, 1, pool="serving")
    for name, pct in (("rank", 42.0), ("embed", 38.0)):
        serve(fleet, gpu, util=pct, mem_gb=19, pod=name, kind="mps", command="tritonserver")


@situation(
    may="compute_oversized memory_oversized mig_fit co_location low_efficiency",
    look_alike_of="held inefficient",
)
def embeddings_on_a_large_card(fleet: Fleet) -> None:
    """A small embedding model on an H100: 6 GB and 9 % of the time."""
    first, second = fleet.host("h1", H100, 2, pool="serving")
    serve(fleet, first, util=9.0, sm=4.0, zero=0.8, mem_gb=6, command="tritonserver")
    train(fleet, second, "ann")


@situation(look_alike_of="never_used blind_spot mig_fit held memory_oversized releasable_pool")
def instances_in_use(fleet: Fleet) -> None:
    """Two H100 are split, and every instance works; the cards themselves have no utilization of their own."""
    for number, gpu in enumerate(fleet.host("h1", H100, 2, pool="serving")):
        for place, instance in enumerate(fleet.split(gpu, "3g.40gb", "2g.20gb", "2g.20gb")):
            memory = 0.8 * (40 if place == 0 else 20)
            serve(fleet, instance, util=88.0, mem_gb=memory, pod=f"slice-{number}-{place}")


_BESIDE = f"{SMALL_AND_SELDOM} preallocated"


def _replicas(fleet: Fleet, gpus: list[Gpu], util: Level, kv: Level, waiting: Level = 0.0) -> None:
    for number, gpu in enumerate(gpus):
        serve(fleet, gpu, util=util, zero=0.6, mem_gb=39, pod=f"llm-{number}")
        fleet.serving(
            gpu,
            model="meta-llama/Llama-3.1-8B",
            requests_per_s=0.4,
            kv_cache_used_ratio=kv,
            running_requests=2.0,
            waiting_requests=waiting,
            prompt_tokens_per_s=150.0,
            generated_tokens_per_s=60.0,
        )


@situation(fires="light_traffic", may=_BESIDE, look_alike_of="held")
def three_replicas_for_the_traffic_of_one(fleet: Fleet) -> None:
    """Three servers of one model each work for a fifth of the time, and their caches are nearly empty."""
    _replicas(fleet, fleet.host("h1", L40S, 3, pool="serving"), 20.0, 0.05)


@situation(fires="light_traffic", may=_BESIDE, look_alike_of="held")
def four_replicas_for_the_traffic_of_two(fleet: Fleet) -> None:
    """Four servers on two hosts work for a third of the time."""
    _replicas(
        fleet, [*fleet.host("h1", L40S, 2, pool="serving"), *fleet.host("h2", L40S, 2, pool="serving")], 35.0, 0.1
    )


@situation(may=_BESIDE, look_alike_of="light_traffic")
def replicas_for_the_busy_hours(fleet: Fleet) -> None:
    """Three servers are busy for two hours a day, and hardly asked for the rest."""
    util = np.where(fleet.times_ms // 3_600_000 % 24 < 2, 95.0, 8.0)
    _replicas(fleet, fleet.host("h1", L40S, 3, pool="serving"), util, 0.1)


@situation(may=_BESIDE, look_alike_of="light_traffic")
def replicas_with_a_queue(fleet: Fleet) -> None:
    """Two servers with small caches are busy for a third of the time, and requests wait for them all day."""
    _replicas(fleet, fleet.host("h1", L40S, 2, pool="serving"), 35.0, 0.1, waiting=1.0)
