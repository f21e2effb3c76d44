"""The rule `compute_oversized`: how idle, which lesser card, and how to ask for it."""

from __future__ import annotations

import numpy as np
import pytest

from analytics.money.cards import card, cards
from analytics.rules.compute_oversized import COMPUTE_OVERSIZED
from analytics.tables.evidence_text import evidence
from analytics.workloads.cards import job_kind, product_label, slurm_type
from tests.findings.one_rule import found
from tests.findings.scenarios.builder import GB, H100, L40S, V100, Fleet, Gpu
from tests.findings.scenarios.situations import serve, train

RULE = COMPUTE_OVERSIZED


def light(other: object = L40S, days: float = 3) -> tuple[Fleet, Gpu]:
    """An H100, and another card that is in use."""
    fleet = Fleet(days)
    (gpu,) = fleet.host("h1", H100, 1)
    train(fleet, fleet.host("h2", other, 1), "bob", job="1002")  # type: ignore[arg-type]  # a card
    return fleet, gpu


def test_the_numbers_of_light_work() -> None:
    fleet, gpu = light()
    train(fleet, gpu, "ann", util=12.0, sm=7.5, mem_gb=9, job="7")
    (each,) = found(RULE, fleet)
    numbers = each.evidence.numbers
    assert (numbers["gpu_util_p95_pct"], numbers["sm_active_p95_pct"]) == (12, 8)
    assert numbers["dram_active_p95_pct"] == pytest.approx(3.75)
    assert "utilization 12.0 % or less for 95 % of the time (the rule: 20 %), 14.0 % at the most" in str(evidence(each))
    assert (numbers["recommended_card"], numbers["recommended_in_fleet"]) == (L40S.model, 1)
    assert numbers["saving"] == pytest.approx(72 * (6.88 - 1.861))
    assert each.next_command == "#SBATCH --gres=gpu:l40s:1"
    assert (
        "it has room for the workload, but a step that fills the present card would take 2.7 times as long"
        in each.notes
    )


@pytest.mark.parametrize(("util_pct", "fires"), [(0.0, False), (1.0, True), (20.0, True), (21.0, False)])
def test_utilization_is_above_0_and_at_most_20_percent(util_pct: float, *, fires: bool) -> None:
    fleet, gpu = light()
    train(fleet, gpu, "ann", util=util_pct, mem_gb=9)
    assert bool(found(RULE, fleet)) == fires


@pytest.mark.parametrize(("busy_h", "fires"), [(1, True), (2, False)])
def test_bursts_count_from_a_twentieth_of_the_time(busy_h: float, *, fires: bool) -> None:
    fleet, gpu = light()
    train(fleet, gpu, "ann", util=fleet.wave(95, period_h=24, on_h=busy_h, low=10), mem_gb=9)
    assert bool(found(RULE, fleet)) == fires


@pytest.mark.parametrize(("mem_gb", "fires"), [(38.6, True), (38.7, False)])
def test_the_lesser_card_holds_the_memory(mem_gb: float, *, fires: bool) -> None:
    fleet, gpu = light()
    train(fleet, gpu, "ann", util=10.0, mem_gb=mem_gb)
    each = found(RULE, fleet)
    assert ([one.evidence.numbers["recommended_card"] for one in each] == [L40S.model]) == fires


def test_out_of_memory_is_left_out() -> None:
    fleet, gpu = light()
    peak = np.where(fleet.between(1, 1.01), 0.98 * H100.mem_total_bytes / GB, 9.0)
    train(fleet, gpu, "ann", util=10.0, mem_gb=peak)
    assert found(RULE, fleet) == []


def test_a_pod_asks_by_the_label_of_its_nodes() -> None:
    fleet, gpu = light()
    serve(fleet, gpu, util=10.0, mem_gb=9, command="tritonserver", pod="rank-0")
    (each,) = found(RULE, fleet)
    assert each.job == "pod:serving/rank-0"
    assert each.next_command == "kubectl get nodes -l nvidia.com/gpu.product=NVIDIA-L40S"
    assert any("nodeSelector nvidia.com/gpu.product: NVIDIA-L40S" in note for note in each.notes)


def test_a_bare_process_is_shown_a_host() -> None:
    fleet, gpu = light()
    fleet.run(gpu, "ann", util=10.0, mem_gb=9)
    (each,) = found(RULE, fleet)
    assert each.job is None
    assert each.next_command.startswith("ssh h2 nvidia-smi --query-gpu=")


def test_an_older_card_without_bfloat16_is_no_certain_answer() -> None:
    fleet, gpu = light(V100)
    train(fleet, gpu, "ann", util=10.0, mem_gb=9)
    (each,) = found(RULE, fleet)
    assert each.evidence.numbers["recommended_card"] == V100.model
    assert "V100 SXM2 32GB has no bfloat16, and which number formats it uses is not known" in each.confidence.failed


def test_without_prices_the_saving_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FALLOW_MONEY_CURRENCY", "EUR")  # list prices are in USD, and nobody said what one is worth
    fleet, gpu = light()
    train(fleet, gpu, "ann", util=10.0, mem_gb=9)
    (each,) = found(RULE, fleet)
    assert (each.evidence.numbers["recommended_card"], each.evidence.numbers["saving"]) == (L40S.model, None)
    assert f"what it would save is not known: no price for {H100.model} and {L40S.model}" in each.notes


def test_work_over_nvlink_is_no_certain_answer() -> None:
    fleet = Fleet(3)
    gpus = fleet.host("h1", H100, 2)
    train(fleet, gpus, "ann", util=10.0, mem_gb=9, job="7")
    for gpu in gpus:
        gpu.override(fleet.always, nvlink_tx_bytes_per_s=5e9, nvlink_rx_bytes_per_s=5e9)
    train(fleet, fleet.host("h2", L40S, 2), "bob", job="1002")
    (each,) = found(RULE, fleet)
    assert each.next_command == "#SBATCH --gres=gpu:l40s:2"
    assert "its GPUs use NVLink, and whether L40S would have it is not known" in each.confidence.failed


def test_names_that_schedulers_use() -> None:
    names = {each.name: slurm_type(each) for each in cards()}
    assert (names["A100 SXM 80GB"], names["L40S"], names["A30"], names["T4"]) == ("a100", "l40s", "a30", "t4")
    assert names["RTX A6000"] == "rtx_a6000"
    one, other = card("A100 SXM 80GB"), card("A100 SXM 40GB")
    assert one is not None
    assert other is not None
    assert slurm_type(other, [one]) == "a100_40gb"
    assert product_label("NVIDIA A100-SXM4-80GB") == "NVIDIA-A100-SXM4-80GB"


def test_jobs_of_several_kinds_have_none() -> None:
    assert job_kind(["slurm:1", "slurm:2"]) == "slurm"
    assert job_kind(["slurm:1", "pod:a/b"]) is None
    assert job_kind([None]) is None
    assert job_kind(["something:else"]) is None
