"""The rule `mig_fit`: which profile, by what, and what to type."""

from __future__ import annotations

import pytest

from analytics.rules.mig_fit import MIG_FIT
from analytics.workloads.finding_parts import SAVES_IN_A_PACKING
from analytics.workloads.mig_profiles import first_fit, fits
from tests.findings.one_rule import found
from tests.findings.scenarios.builder import A30, A100_80, GB, H100, L40S, Fleet, Gpu, SimulatedCard
from tests.findings.scenarios.situations import serve, train

RULE = MIG_FIT


MEANS_ONLY = "SM activity is known as means of whole rows only: whether moments in between need more is not known"


def on(card: SimulatedCard, gpus: int = 1) -> tuple[Fleet, list[Gpu]]:
    fleet = Fleet(3)
    return fleet, fleet.host("h1", card, gpus)


def test_the_numbers_of_work_for_a_seventh() -> None:
    fleet, (gpu,) = on(H100)
    train(fleet, gpu, "ann", util=60.0, sm=11.5, mem_gb=8, job="7")
    (each,) = found(RULE, fleet)
    numbers = each.evidence.numbers
    assert (numbers["gpu_util_p98_pct"], numbers["sm_active_p98_pct"]) == (60, 12)
    assert (numbers["mem_used_max_bytes"], numbers["mem_need_bytes"]) == (8 * GB, 9_200_000_000)
    assert (numbers["mig_profile"], numbers["mig_sm_share"]) == ("1g.10gb", 1 / 7)
    assert numbers["saving"] is None
    assert SAVES_IN_A_PACKING in each.notes
    assert each.next_command == f"ssh h1 sudo nvidia-smi mig -i {gpu.uuid} -cgi 1g.10gb -C"
    assert (
        f"drain the GPU first and turn MIG on while nothing runs on it: ssh h1 sudo nvidia-smi -i {gpu.uuid} -mig 1"
        in each.notes
    )
    assert any("#SBATCH --gres=gpu:1g.10gb:1" in note for note in each.notes)
    assert each.reclaimable_gpus == ()
    # 60 % of the time with a kernel is more than a seventh of the card, if its kernels take up all of it for moments
    assert MEANS_ONLY in each.confidence.failed
    assert each.confidence.grade == "low"


def test_a_part_that_holds_even_the_time_with_any_kernel_needs_no_trial() -> None:
    fleet, (gpu,) = on(H100)
    train(fleet, gpu, "ann", util=14.0, sm=9.0, mem_gb=8)
    (each,) = found(RULE, fleet)
    assert each.evidence.numbers["mig_profile"] == "1g.10gb"
    assert MEANS_ONLY not in each.confidence.failed


def test_of_a_past_window_it_only_looks() -> None:
    fleet, (gpu,) = on(H100)
    train(fleet, gpu, "ann", util=60.0, sm=11.5, mem_gb=8)
    (each,) = found(RULE, fleet, until="2026-11-18")
    assert each.next_command == f"ssh h1 nvidia-smi mig -i {gpu.uuid} -lgip"


def test_without_sm_activity_it_is_to_be_tried() -> None:
    fleet, (gpu,) = on(A100_80)
    serve(fleet, gpu, util=20.5, mem_gb=14, command="tritonserver", pod="embed-0")
    (each,) = found(RULE, fleet)
    assert each.evidence.numbers["mig_profile"] == "2g.20gb"
    assert each.evidence.numbers["sm_active_p98_pct"] is None
    assert (
        "SM activity was not measured; the time with any kernel stands in for it: try it, then measure"
        in each.confidence.failed
    )
    assert any("nvidia.com/mig-2g.20gb: 1" in note for note in each.notes)


@pytest.mark.parametrize(
    ("sm_pct", "mem_gb", "profile"),
    [
        (13.5, 8.0, "1g.10gb"),
        (14.5, 8.0, "2g.20gb"),  # more than a seventh
        (13.5, 9.0, "1g.20gb"),  # more memory with its margin than an eighth
        (27.5, 16.0, "2g.20gb"),
        (28.5, 16.0, "3g.40gb"),
        (41.5, 30.0, "3g.40gb"),
        (42.5, 30.0, "4g.40gb"),
        (56.0, 33.0, "4g.40gb"),
        (57.5, 30.0, None),
        (10.0, 33.5, None),
    ],
)
def test_the_first_profile_that_holds_both(sm_pct: float, mem_gb: float, profile: str | None) -> None:
    fleet, (gpu,) = on(H100)
    train(fleet, gpu, "ann", util=95.0, sm=sm_pct, mem_gb=mem_gb)
    gpu.override(fleet.always, dram_active_pct=5.0)
    assert [each.evidence.numbers["mig_profile"] for each in found(RULE, fleet)] == ([profile] if profile else [])


def test_bandwidth_is_split_like_memory() -> None:
    (*_, most) = fits(A30.model)
    assert (most.profile.name, most.sm_share) == ("2g.12gb", 0.5)
    small = first_fit(H100.model, sm_share=0.1, need_bytes=GB, bandwidth_share=0.12)
    assert small is not None
    assert small.profile.name == "1g.10gb"
    wider = first_fit(H100.model, sm_share=0.1, need_bytes=GB, bandwidth_share=0.2)
    assert wider is not None
    assert wider.profile.name == "1g.20gb"
    assert first_fit(H100.model, sm_share=0.1, need_bytes=GB, bandwidth_share=0.6) is None
    assert fits(L40S.model) == fits("unheard of") == ()


def test_several_gpus_of_a_host_are_one_command() -> None:
    fleet, gpus = on(H100, 2)
    for number, gpu in enumerate(gpus):
        train(fleet, gpu, "ann", util=60.0, sm=10.0, mem_gb=7, job=f"{number}")
    (each,) = found(RULE, fleet)
    names = ",".join(gpu.uuid for gpu in gpus)
    assert each.next_command == f"ssh h1 sudo nvidia-smi mig -i {names} -cgi 1g.10gb -C"


@pytest.mark.parametrize(("share", "said"), [(0.95, False), (0.5, True)])
def test_sm_activity_of_some_of_the_time_is_a_failed_condition(share: float, *, said: bool) -> None:
    fleet, (gpu,) = on(H100)
    train(fleet, gpu, "ann", util=60.0, sm=11.5, mem_gb=8, job="7")
    gpu.override(fleet.between(0, 3 * (1 - share)), sm_active_pct=None)
    (each,) = found(RULE, fleet)
    assert ("SM activity was measured for 50.0 % of the time, 90 % are needed" in each.confidence.failed) == said


@pytest.mark.parametrize(("share", "said"), [(0.95, False), (0.5, True)])
def test_memory_that_was_read_for_some_of_the_time_is_a_failed_condition(share: float, *, said: bool) -> None:
    fleet, (gpu,) = on(H100)
    train(fleet, gpu, "ann", util=60.0, sm=11.5, mem_gb=8, job="7")
    gpu.override(fleet.between(0, 3 * (1 - share)), mem_used_bytes=None)
    (each,) = found(RULE, fleet)
    assert any(failure.startswith("memory in use was measured for") for failure in each.confidence.failed) == said
