"""The rule `preallocated`: what counts as reserved, and what an inference server's cache says of the need."""

from __future__ import annotations

import numpy as np
import pytest

from analytics.rules.preallocated import PREALLOCATED, CacheUse, bytes_per_parameter, parameters_of
from tests.findings.one_rule import found
from tests.findings.scenarios.builder import A100_80, GB, H100, L40S, Fleet, Gpu
from tests.findings.scenarios.situations import serve

RULE = PREALLOCATED
TOTAL_GB = A100_80.mem_total_bytes / GB


BEGINS = 0.1
"""In days from the first row of the GPU, so that the start of the process was seen."""


def one(days: float = 3) -> tuple[Fleet, Gpu]:
    fleet = Fleet(days)
    (gpu,) = fleet.host("h1", A100_80, 1)
    return fleet, gpu


def test_the_numbers_of_jax() -> None:
    fleet, gpu = one()
    fleet.run(gpu, "ann", fleet.between(BEGINS), util=30.0, mem_gb=0.75 * TOTAL_GB)
    (each,) = found(RULE, fleet)
    numbers = each.evidence.numbers
    assert numbers["reserved_share_of_card"] == pytest.approx(0.75)
    assert numbers["mem_variation"] == pytest.approx(0)
    assert numbers["mem_need_bytes"] is None
    assert numbers["kv_cache_used_max_ratio"] is None
    assert each.next_command == "export XLA_PYTHON_CLIENT_PREALLOCATE=false"
    assert "the need is not known: no server says how much of its cache it uses" in each.confidence.failed
    assert each.reclaimable_gpus == ()


@pytest.mark.parametrize(
    ("share", "fires"),
    [
        (0.72, False), (0.735, True), (0.765, True), (0.78, False), (0.87, False), (0.885, True), (0.935, True), (0.945, False),
        (0.955, True), (1.0, True),
    ],
)  # fmt: skip
def test_shares_that_frameworks_take(share: float, *, fires: bool) -> None:
    fleet, gpu = one()
    fleet.run(gpu, "ann", fleet.between(BEGINS), util=30.0, mem_gb=share * TOTAL_GB)
    assert bool(found(RULE, fleet)) == fires


@pytest.mark.parametrize(("spread_gb", "fires"), [(0.6, True), (0.7, False)])
def test_flat_is_below_one_percent(spread_gb: float, *, fires: bool) -> None:
    fleet, gpu = one()
    beat = np.where(np.arange(fleet.rows) % 2, spread_gb, -spread_gb)  # its standard deviation is what it says
    fleet.run(gpu, "ann", fleet.between(BEGINS), util=30.0, mem_gb=0.75 * TOTAL_GB + beat)
    assert bool(found(RULE, fleet)) == fires


@pytest.mark.parametrize(("first_gb", "fires"), [(0.96 * 0.75, False), (0.98 * 0.75, True)])
def test_what_a_framework_reserves_is_there_at_once(first_gb: float, *, fires: bool) -> None:
    """An allocator that takes what it needs grows in the first minutes; one that starts again has to be there at once each time."""
    fleet, gpu = one()
    grows = np.where(fleet.between(BEGINS, BEGINS + 1 / 24), first_gb * TOTAL_GB, 0.75 * TOTAL_GB)
    fleet.run(gpu, "ann", fleet.between(BEGINS), util=30.0, mem_gb=grows)
    assert bool(found(RULE, fleet)) == fires


def test_of_a_process_that_was_there_before_nobody_knows() -> None:
    fleet, gpu = one()
    fleet.run(gpu, "ann", util=30.0, mem_gb=0.75 * TOTAL_GB)
    assert found(RULE, fleet) == []


def test_tensorflow_has_a_variable_of_its_own() -> None:
    fleet, gpu = one()
    fleet.run(gpu, "ann", fleet.between(BEGINS), util=30.0, mem_gb=0.97 * TOTAL_GB)
    (each,) = found(RULE, fleet)
    assert each.next_command == "export TF_FORCE_GPU_ALLOW_GROWTH=true"


def served(used: float, model: str) -> Fleet:
    fleet = Fleet(8)
    (gpu,) = fleet.host("h1", H100, 1)
    serve(fleet, gpu, util=30.0, mem_gb=76.0)
    fleet.serving(gpu, model=model, kv_cache_used_ratio=used, requests_per_s=1.0, running_requests=1.0)
    fleet.host("h2", L40S, 1)
    return fleet


def test_the_cache_says_what_is_needed() -> None:
    (each,) = found(RULE, served(0.1, "meta-llama/Llama-3.1-8B-Instruct"))
    numbers = each.evidence.numbers
    assert numbers["kv_cache_used_max_ratio"] == pytest.approx(0.1)
    assert numbers["weights_bytes"] == 16 * GB
    assert numbers["mem_need_bytes"] == pytest.approx(1.15 * (16 + 0.1 * 60) * GB)
    assert numbers["recommended_card"] == L40S.model
    assert "the weights are known from the model's name only" in each.confidence.failed
    assert any(
        "need = (weights 14.9 GiB (2 bytes a parameter) + 10.0 % of the other 55.9 GiB) x 1.15 = 23.6 GiB" in note
        for note in each.notes
    )
    assert "vLLM takes less with --gpu-memory-utilization 0.30" in each.notes


def test_a_name_without_a_size_leaves_the_need_unknown() -> None:
    (each,) = found(RULE, served(0.1, "our-model"))
    assert each.evidence.numbers["mem_need_bytes"] is None
    assert "the need is not known: the name our-model does not say how large the weights are" in each.confidence.failed


@pytest.mark.parametrize(("used", "fires"), [(0.89, True), (0.91, False)])
def test_a_full_cache_is_no_reserve(used: float, *, fires: bool) -> None:
    assert bool(found(RULE, served(used, "Llama-3.1-8B"))) == fires


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", 8), ("Qwen/Qwen2.5-0.5B", 0.5), ("mistralai/Mixtral-8x7B-v0.1", 56),
        ("Qwen3-30B-A3B", 30), ("llama_70b_chat", 70), ("gpt-4b2", None), ("our-model", None), ("bge-large-v1.5", None),
    ],
)  # fmt: skip
def test_sizes_in_names(name: str, billions: float | None) -> None:
    assert parameters_of(name) == (None if billions is None else pytest.approx(billions * 1e9))


def test_widths_in_names() -> None:
    assert [bytes_per_parameter(name) for name in ("Llama-3-8B", "Llama-3-8B-FP8", "Llama-3-8B-AWQ")] == [2.0, 1.0, 0.5]


def test_weights_that_cannot_be_there_say_nothing() -> None:
    use = CacheUse("Llama-70B", 0.1, 24, 76 * GB, 1, 2.0, 140 * GB)
    assert use.need_bytes is None
