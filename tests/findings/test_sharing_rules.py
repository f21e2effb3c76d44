"""The rules about sharing a card: `mig_fit`, a part of it by MIG, and `co_location`, two works side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from analytics.workloads.finding_parts import ESTIMATED, SAVES_IN_A_PACKING
from analytics.workloads.mig_profiles import first_fit, fits
from analytics.workloads.sharing import CardSharer, groups, together
from tests.findings.one_rule import found, number_of, only_of
from tests.findings.one_rule import together as one_site
from tests.findings.scenarios.builder import A30, A100_80, GB, H100, L40S, Fleet
from tests.findings.scenarios.situations import serve, train


def part(**work: Any) -> Fleet:
    """Work for a seventh of an H100."""
    fleet = Fleet(3)
    train(fleet, fleet.host("h1", H100, 1), "ann", **({"util": 60.0, "sm": 11.5, "mem_gb": 8, "job": "7"} | work))
    return fleet


def side_by_side(hours: float) -> Fleet:
    """Two works of ann's on one host, the second for the last hours."""
    fleet = Fleet(3)
    first, second = fleet.host("h1", A100_80, 2)
    train(fleet, first, "ann", util=30.0, mem_gb=20, job="1")
    train(fleet, second, "ann", fleet.between(-hours / 24), util=25.0, mem_gb=24, job="2")
    return fleet


MEANS_ONLY = "SM activity is known only as means of whole rows: single moments may need more"


def test_work_for_a_seventh_in_numbers() -> None:
    each = only_of("mig_fit", part())
    numbers = each.evidence.numbers
    assert (numbers["gpu_util_p98_pct"], numbers["sm_active_p98_pct"]) == (60, 12)
    assert (numbers["mem_used_max_bytes"], numbers["mem_need_bytes"]) == (8 * GB, 9_200_000_000)
    assert (numbers["mig_profile"], numbers["mig_sm_share"], numbers["saving"]) == ("1g.10gb", 1 / 7, None)
    assert SAVES_IN_A_PACKING in each.notes
    assert (each.next_command, each.reclaimable_gpus) == ("ssh h1 sudo nvidia-smi mig -i GPU-h1-0 -cgi 1g.10gb -C", ())
    drain = "drain the GPU first and turn MIG on while nothing runs on it: ssh h1 sudo nvidia-smi -i GPU-h1-0 -mig 1"
    assert drain in each.notes
    assert any("#SBATCH --gres=gpu:1g.10gb:1" in note for note in each.notes)
    # 60 % of the time with a kernel is more than a seventh of the card, if its kernels take up all of it for moments
    assert MEANS_ONLY in each.confidence.failed
    assert each.confidence.grade == "low"
    (past,) = found("mig_fit", part(), until="2026-11-18")
    assert past.next_command == "ssh h1 nvidia-smi mig -i GPU-h1-0 -lgip"
    surer = only_of("mig_fit", part(util=14.0, sm=9.0))
    assert (surer.evidence.numbers["mig_profile"], MEANS_ONLY in surer.confidence.failed) == ("1g.10gb", False)


def test_without_sm_activity_a_part_is_to_be_tried() -> None:
    fleet = Fleet(3)
    serve(fleet, fleet.host("h1", A100_80, 1), util=20.5, mem_gb=14, command="tritonserver", pod="embed-0")
    each = only_of("mig_fit", fleet)
    assert (each.evidence.numbers["mig_profile"], each.evidence.numbers["sm_active_p98_pct"]) == ("2g.20gb", None)
    doubt = "SM activity was not measured, so the time with any kernel is used instead: test first, then measure"
    assert doubt in each.confidence.failed
    assert any("nvidia.com/mig-2g.20gb: 1" in note for note in each.notes)


PROFILES = [
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
]


def test_the_first_profile_that_holds_both() -> None:
    fleets = [part(util=95.0, sm=sm_pct, mem_gb=mem_gb) for sm_pct, mem_gb, _ in PROFILES]
    for fleet in fleets:
        fleet.gpus[0].override(fleet.always, dram_active_pct=5.0)
    there = {number_of(each): each for each in found("mig_fit", one_site(list(enumerate(fleets))))}
    chosen = [
        there[number].evidence.numbers["mig_profile"] if number in there else None for number in range(len(fleets))
    ]
    assert chosen == [profile for _, _, profile in PROFILES]


def test_bandwidth_is_split_like_memory() -> None:
    (*_, most) = fits(A30.model)
    assert (most.profile.name, most.sm_share) == ("2g.12gb", 0.5)
    shares = (0.12, 0.2, 0.6)
    chosen = [first_fit(H100.model, sm_share=0.1, need_bytes=GB, bandwidth_share=share) for share in shares]
    assert [each and each.profile.name for each in chosen] == ["1g.10gb", "1g.20gb", None]
    assert fits(L40S.model) == fits("unheard of") == ()


def test_parts_of_several_gpus_of_a_host_are_one_command() -> None:
    fleet = Fleet(3)
    for number, gpu in enumerate(fleet.host("h1", H100, 2)):
        train(fleet, gpu, "ann", util=60.0, sm=10.0, mem_gb=7, job=f"{number}")
    assert only_of("mig_fit", fleet).next_command == "ssh h1 sudo nvidia-smi mig -i GPU-h1-0,GPU-h1-1 -cgi 1g.10gb -C"


def test_what_was_read_for_some_of_the_time_is_a_failed_condition() -> None:
    told = {
        "sm_active_pct": "SM activity was measured for 50.0 % of the time, 90 % are needed",
        "mem_used_bytes": "memory in use was measured for",
    }
    cases = [(column, share) for column in told for share in (0.95, 0.5)]
    fleets = [part() for _ in cases]
    for fleet, (column, share) in zip(fleets, cases, strict=True):
        fleet.gpus[0].override(fleet.between(0, 3 * (1 - share)), **{column: None})
    there = {number_of(each): each.confidence.failed for each in found("mig_fit", one_site(list(enumerate(fleets))))}
    for number, (column, share) in enumerate(cases):
        assert any(failure.startswith(told[column]) for failure in there[number]) == (share == 0.5), (column, share)


@pytest.mark.parametrize("power", [140.0, None])
def test_an_instance_draws_its_slices_of_the_whole_gpu(power: float | None) -> None:
    """Three slices of seven, held for a day beside a busy instance: an estimate, null where the GPU's energy is."""
    fleet = Fleet(2)
    (gpu,) = fleet.host("h1", A100_80, 1)
    instance, other = fleet.split(gpu, "3g.40gb", "4g.40gb")
    fleet.run(instance, "ann", fleet.between(-1), mem_gb=8)
    fleet.run(other, "bob", util=70.0, mem_gb=30)
    gpu.override(fleet.always, power_w=power, energy_mj=None)
    each = only_of("held", fleet)
    assert (each.gpus, each.gpu_hours) == ((instance.uuid,), pytest.approx(24 * 3 / 7))
    assert each.energy_kwh == (None if power is None else pytest.approx(24 * 0.140 * 3 / 7, rel=0.01))
    assert (ESTIMATED in each.notes) == (power is not None)


# --- a shared card ----------------------------------------------------------------------------------------------------


def candidate(
    number: int, pct: float, mem_gb: float, *, user: str = "ann", hours: int = 48, bursts: bool = False
) -> CardSharer:
    """A work of constant utilization; with bursts, of 0 and twice as much in turns of seconds."""
    histogram = np.zeros(101, np.int64)
    for level in (0, int(2 * pct)) if bursts else (int(pct),):
        histogram[level] += 1_000
    return CardSharer(number, f"g{number}", user, int(mem_gb * GB), np.full(hours, pct, np.float64), histogram)


def test_a_pair_that_might_share_in_numbers() -> None:
    each = only_of("co_location", side_by_side(72))
    assert (each.user, each.gpus, each.host) == ("ann", ("GPU-h1-0", "GPU-h1-1"), "h1")
    numbers = each.evidence.numbers
    assert (numbers["workloads"], numbers["mem_together_bytes"], numbers["aligned_hours"]) == (2, 44 * GB, 72)
    assert numbers["gpu_util_together_p95_pct"] == pytest.approx(55)
    assert (numbers["gpu_util_together_bursts_p95_pct"], numbers["saving"]) == (55, None)
    assert SAVES_IN_A_PACKING in each.notes
    assert (each.reclaimable_gpus, each.confidence.grade) == ((), "low")
    assert (
        "interference cannot be measured: test the workloads together, and compare the time per step"
        in each.confidence.failed
    )
    assert "no workload is known to be best effort, and each may slow the other down" in each.confidence.failed
    assert any("NVML does not show" in note and "test them together" in note for note in each.notes)
    assert each.next_command == "ssh h1 nvidia-smi dmon -i GPU-h1-0,GPU-h1-1 -s puc -c 30"


@pytest.mark.parametrize(("hours", "count"), [(24, 0), (25, 1)])
def test_co_location_takes_more_than_a_gpu_day_side_by_side(hours: float, count: int) -> None:
    assert len(found("co_location", side_by_side(hours))) == count


def test_strangers_and_those_who_have_gone_are_said() -> None:
    fleet = Fleet(3)
    first, second = fleet.host("h1", A100_80, 2)
    train(fleet, first, "ann", util=30.0, mem_gb=20, job="1")
    train(fleet, second, "bob", fleet.between(0, -0.5), util=25.0, mem_gb=24, job="2")
    each = only_of("co_location", fleet)
    assert each.user == "ann+bob"
    assert "not all of these workloads are still running" in each.confidence.failed
    assert any(failure.startswith("the workloads belong to different users") for failure in each.confidence.failed)


@pytest.mark.parametrize(
    ("second", "fits"),
    [
        (candidate(2, 40, 40), True),
        (candidate(2, 41, 40), False),
        (candidate(2, 30, 42), True),
        (candidate(2, 30, 42.1), False),  # more than 72 GB together
        (candidate(2, 30, 40, bursts=True), False),  # 40 and 60 in half of the time
        (candidate(2, 10, 40, bursts=True), True),
    ],
)
def test_where_room_ends(second: CardSharer, *, fits: bool) -> None:
    assert (together((candidate(1, 40, 30), second), 80 * GB) is not None) == fits


def test_hours_count_only_side_by_side() -> None:
    early, late = candidate(1, 10, 10), candidate(2, 10, 10)
    early.hourly_pct[30:] = np.nan
    late.hourly_pct[:6] = np.nan
    group = together((early, late), 80 * GB)
    assert group is not None
    assert group.aligned_hours == 24
    late.hourly_pct[6] = np.nan
    assert together((early, late), 80 * GB) is None


def test_each_gpu_is_in_one_group_of_three_at_most_and_own_work_comes_first() -> None:
    made = groups([candidate(number, 10, 10) for number in range(8)], 80 * GB)
    assert [len(group.members) for group in made] == [3, 3, 2]
    assert len({each.gpu for group in made for each in group.members}) == 8
    (group, *_) = groups([candidate(1, 30, 40), candidate(2, 30, 25, user="bob"), candidate(3, 30, 20)], 80 * GB)
    assert [each.work for each in group.members] == [1, 3]
