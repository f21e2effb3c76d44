"""The rules about the memory and the traffic of servers: `preallocated` and `light_traffic`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from analytics.rules.preallocated import CacheUse, bytes_per_parameter, parameters_of
from fallow.clock import HOUR_MS
from tests.findings.one_rule import Case, edges, finds_so_many, found, one_host, only_of
from tests.findings.scenarios.builder import A100_80, GB, H100, L40S, T4, Fleet
from tests.findings.scenarios.situations import serve, train

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.findings.scenarios.builder import SimulatedCard

TOTAL_GB = A100_80.mem_total_bytes / GB
BEGINS = 0.1
"""In days from the first row of the GPU, so that the start of the process was seen."""


def reserving(share: Any, begins: float = BEGINS) -> Fleet:
    """A process that holds a share of its card from its start."""
    memory = share if callable(share) else lambda _: share
    return one_host(
        A100_80,
        days=3,
        util=30.0,
        when=lambda fleet: fleet.between(begins),
        mem_gb=lambda fleet: memory(fleet) * TOTAL_GB,
    )


def breathing(spread_gb: float) -> Fleet:
    """Memory whose standard deviation is what it says."""
    return reserving(lambda fleet: 0.75 + np.where(np.arange(fleet.rows) % 2, spread_gb, -spread_gb) / TOTAL_GB)


def grows_to_three_quarters(first: float) -> Fleet:
    """An allocator that takes what it needs grows in the first minutes."""
    return reserving(lambda fleet: np.where(fleet.between(BEGINS, BEGINS + 1 / 24), first, 0.75))


def served(used: float, model: str = "meta-llama/Llama-3.1-8B-Instruct") -> Fleet:
    fleet = Fleet(8)
    (gpu,) = fleet.host("h1", H100, 1)
    serve(fleet, gpu, util=30.0, mem_gb=76.0)
    fleet.serving(gpu, model=model, kv_cache_used_ratio=used, requests_per_s=1.0, running_requests=1.0)
    fleet.host("h2", L40S, 1)
    return fleet


FRAMEWORKS = {0.72: 0, 0.735: 1, 0.765: 1, 0.78: 0, 0.87: 0, 0.885: 1, 0.935: 1, 0.945: 0, 0.955: 1, 1.0: 1}

EDGES = [
    edges(
        "preallocated",
        ("shares that frameworks take", FRAMEWORKS, reserving),
        ("flat is below one percent", {0.6: 1, 0.7: 0}, breathing),
        ("what a framework reserves is there at once", {0.96 * 0.75: 0, 0.98 * 0.75: 1}, grows_to_three_quarters),
        ("of a process that was there before nobody knows", 0, lambda: reserving(0.75, begins=0)),
        ("a full cache is no reserve", {0.89: 1, 0.91: 0}, served),
    )
]


@pytest.mark.parametrize(("rule", "cases", "apart"), EDGES)
def test_where_a_rule_begins_and_ends(rule: str, cases: list[Case], *, apart: bool) -> None:
    finds_so_many(rule, cases, apart=apart)


def test_jax_in_numbers_and_tensorflow_has_a_variable_of_its_own() -> None:
    each = only_of("preallocated", reserving(0.75))
    numbers = each.evidence.numbers
    assert numbers["reserved_share_of_card"] == pytest.approx(0.75)
    assert numbers["mem_variation"] == pytest.approx(0)
    assert (numbers["mem_need_bytes"], numbers["kv_cache_used_max_ratio"]) == (None, None)
    assert "the need is not known: no server reports how much of its cache it uses" in each.confidence.failed
    assert (each.next_command, each.reclaimable_gpus) == ("export XLA_PYTHON_CLIENT_PREALLOCATE=false", ())
    assert only_of("preallocated", reserving(0.97)).next_command == "export TF_FORCE_GPU_ALLOW_GROWTH=true"


def test_the_cache_says_what_is_needed() -> None:
    each = only_of("preallocated", served(0.1))
    numbers = each.evidence.numbers
    assert numbers["kv_cache_used_max_ratio"] == pytest.approx(0.1)
    assert numbers["weights_bytes"] == 16 * GB
    assert numbers["mem_need_bytes"] == pytest.approx(1.15 * (16 + 0.1 * 60) * GB)
    assert numbers["recommended_card"] == L40S.model
    assert "the weights are estimated from the model's name" in each.confidence.failed
    need = "need = (weights 14.9 GiB (2 bytes per parameter) + 10.0 % of the other 55.9 GiB) x 1.15 = 23.6 GiB"
    assert any(need in note for note in each.notes)
    assert "vLLM uses less with --gpu-memory-utilization 0.30" in each.notes


def test_servers_that_fit_on_a_smaller_card_in_fewer_bits_are_told_so_with_the_loss() -> None:
    """16 GB of weights and 21 of the cache fill more than 80 % of an L40S; 8 bits do not. 4 bits are not needed."""
    each = only_of("preallocated", served(0.35))
    numbers = each.evidence.numbers
    assert "recommended_card" not in numbers
    assert (numbers["quantised_bits"], numbers["quantised_card"]) == (8, L40S.model)
    assert numbers["quantised_need_bytes"] == pytest.approx(1.15 * (8 + 0.35 * 60) * GB, rel=0.01)
    assert any("FP8 without measurable loss, INT8 with 1 to 3 %; arXiv 2411.02355" in note for note in each.notes)
    awq = only_of("preallocated", served(0.35, "Llama-3.1-8B-Instruct-AWQ")).evidence.numbers
    assert "quantised_bits" not in awq, "it has four bits already"


def test_a_name_without_a_size_leaves_the_need_unknown() -> None:
    each = only_of("preallocated", served(0.1, "our-model"))
    assert each.evidence.numbers["mem_need_bytes"] is None
    assert (
        "the need is not known: the name our-model does not contain the size of the weights" in each.confidence.failed
    )
    assert CacheUse("Llama-70B", 0.1, 24, 76 * GB, 1, 2.0, 140 * GB).need_bytes is None, "weights that cannot be there"


# --- light traffic ----------------------------------------------------------------------------------------------------


TRAFFIC: dict[str, Any] = {
    "requests_per_s": 1.0,
    "running_requests": 2.0,
    "waiting_requests": 0.0,
    "generated_tokens_per_s": 50.0,
    "prompt_tokens_per_s": 0.0,
    "model": "meta-llama/Llama-3.1-8B",
}


def traffic(
    replicas: int, util: Any = 10.0, kv: Any = 0.1, *, other: SimulatedCard | None = L40S, **metrics: Any
) -> Fleet:
    """Replicas of one model on H100s that generate 50 tokens/s each, beside a card in use."""
    fleet = Fleet(8, interval_s=600)
    for number, gpu in enumerate(fleet.host("h1", H100, replicas, pool="serving")):
        serve(fleet, gpu, util=util(fleet) if callable(util) else util, mem_gb=76.0, pod=f"llm-{number}")
        fleet.serving(gpu, kv_cache_used_ratio=kv(fleet) if callable(kv) else kv, **(TRAFFIC | metrics))
    if other is not None:
        train(fleet, fleet.host("h2", other, 1), "bob", job="1002")
    return fleet


def test_a_servers_traffic_fits_on_a_smaller_card_by_its_p95() -> None:
    each = only_of("light_traffic", traffic(1, kv=lambda fleet: np.where(fleet.between(2, 2.2), 0.5, 0.1)))
    numbers = each.evidence.numbers
    assert numbers["kv_cache_used_p95_ratio"] == pytest.approx(0.1)
    assert (numbers["replicas"], numbers["tokens_p95_per_s"]) == (1, pytest.approx(50.0))
    assert numbers["mem_need_bytes"] == pytest.approx(1.15 * (16 + 0.1 * 60) * GB)
    assert (numbers["recommended_card"], "replicas_needed" in numbers) == (L40S.model, False)
    assert each.confidence.failed[1:] == (  # after the history
        "a latency target may need this card: a token takes up to 3.9 times as long on L40S",
        "bursts: the busiest hour needed more than L40S",
    )
    assert only_of("light_traffic", traffic(1)).confidence.failed == each.confidence.failed[:2]


@pytest.mark.parametrize(
    "fleet",
    [
        lambda: traffic(1, kv=lambda fleet: np.where(fleet.between(2, 3), 0.5, 0.1)),
        lambda: traffic(1, util=60.0),
        lambda: traffic(1, model="our-model"),
        lambda: traffic(1, waiting_requests=1.0),
        lambda: traffic(1, requests_per_s=0.0),
        lambda: traffic(1, kv=None),
    ],
    ids=[
        "a cache used for an eighth of the time",
        "busy",
        "of unknown size",
        "queues",
        "without requests",
        "no cache known",
    ],
)
def test_a_smaller_card_is_not_named_in_doubt(fleet: Callable[[], Fleet]) -> None:
    assert found("light_traffic", fleet()) == []


def test_a_server_answers_only_for_its_own_time_on_a_gpu() -> None:
    fleet = Fleet(8, interval_s=600)
    (gpu,) = fleet.host("h1", H100, 1, pool="serving")
    train(fleet, gpu, "zoe", fleet.between(0, 4), job="77")
    serve(fleet, gpu, fleet.between(4), util=10.0, mem_gb=76.0)
    fleet.serving(gpu, fleet.between(4), kv_cache_used_ratio=0.1, **TRAFFIC)
    train(fleet, fleet.host("h2", L40S, 1), "bob", job="1002")
    each = only_of("light_traffic", fleet)
    assert (each.gpu_ms, each.evidence.numbers["saving"]) == (96 * HOUR_MS, pytest.approx(96 * (6.88 - 1.861)))


def test_replicas_of_two_clusters_do_not_stand_in_for_each_other() -> None:
    fleet = Fleet(8, interval_s=600)
    for host in ("h1@east", "h1@west"):
        for gpu in fleet.host(host, H100, 3, pool="serving"):
            serve(fleet, gpu, util=10.0, mem_gb=76.0, pod=f"llm-{gpu.index}")
            fleet.serving(gpu, kv_cache_used_ratio=0.1, **TRAFFIC)
    told = found("light_traffic", fleet)
    assert [(each.host, each.evidence.numbers["replicas"], len(each.gpus)) for each in told] == [
        ("h1@east", 3, 1),
        ("h1@west", 3, 1),
    ]
    assert len({each.finding_id for each in told}) == 2


def test_a_card_without_bfloat16_is_named_with_that_doubt() -> None:
    each = only_of("light_traffic", traffic(1, util=4.0, other=T4, model="Qwen/Qwen2.5-1.5B"))
    assert each.evidence.numbers["recommended_card"] == T4.model
    assert "T4 has no bfloat16, and the workload's number formats are unknown" in each.confidence.failed


def test_a_replica_that_does_not_tell_its_queue_may_have_one() -> None:
    fleet = traffic(3)
    for row in fleet.extra["serving", "h1"]:
        row["waiting_requests"] = None if "8001" in str(row["endpoint"]) else 0.0
    assert "whether requests wait is not known" in only_of("light_traffic", fleet).confidence.failed


def test_replicas_for_redundancy_remain() -> None:
    three = only_of("light_traffic", traffic(3))
    assert (three.evidence.numbers["replicas_needed"], len(three.gpus)) == (2, 1)
    assert "2 replicas remain for redundancy" in three.notes
    assert "instead, all 3 replicas would fit on L40S" in three.notes
    more = "each remaining replica would have up to 75 tokens/s; the most of one replica so far is 50"
    assert more in three.notes
    burst = only_of("light_traffic", traffic(3, kv=lambda fleet: np.where(fleet.between(2, 2.2), 0.6, 0.1)))
    assert "bursts: the busiest hour needed 3 replicas" in burst.confidence.failed
    two = only_of("light_traffic", traffic(2))
    redundancy = "one replica has no redundancy: requests fail while it restarts"
    assert (redundancy in two.confidence.failed, redundancy in three.confidence.failed) == (True, False)


SIZES = {
    "meta-llama/Llama-3.1-8B-Instruct": 8e9,
    "allenai/OLMoE-1B-7B-0924": 7e9,
    "Qwen/Qwen2.5-0.5B": 0.5e9,
    "mistralai/Mixtral-8x7B-v0.1": 56e9,
    "Qwen3-30B-A3B": 30e9,
    "llama_70b_chat": 70e9,
    "gpt-4b2": None,
    "our-model": None,
    "bge-large-v1.5": None,
}


def test_sizes_and_widths_in_names() -> None:
    assert {name: parameters_of(name) for name in SIZES} == pytest.approx(SIZES)
    names = ("Llama-3-8B", "Llama-3-8B-FP8", "Llama-3-8B-AWQ", "Qwen2.5-7B-GPTQ-Int8", "Qwen2.5-7B-GPTQ-Int4")
    assert [bytes_per_parameter(name) for name in names] == [2.0, 1.0, 0.5, 1.0, 0.5]
