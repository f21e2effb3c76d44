"""The rule `inefficient`: busy by utilization, with little behind it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.findings.one_rule import of_rule, only_of
from tests.findings.scenarios.builder import A100_80, H100, Fleet, SimulatedCard

RULE = "inefficient"
NO_SM = "SM activity is not measured on this card: only low power suggests that little work is done"
NO_DRAM = "memory bandwidth is not measured on this card: memory-bound work looks the same"


def fleet_of(card: SimulatedCard = H100, *, days: float = 2, dram: float | None = None, **work: Any) -> Fleet:
    """One busy GPU."""
    fleet = Fleet(days)
    (gpu,) = fleet.host("h1", card, 1)
    fleet.run(gpu, "ann", slurm_job_id="7", **({"util": 95.0} | work))
    if dram is not None:
        gpu.override(fleet.always, dram_active_pct=dram)
    return fleet


def test_numbers_and_the_look() -> None:
    found = only_of(RULE, fleet_of(sm=20.0, power_w=200.0))
    numbers = found.evidence.numbers
    assert (found.subject, found.gpu_hours, found.energy_kwh) == ("ann", 48.0, pytest.approx(9.6, rel=0.01))
    assert (numbers["gpu_util_mean_pct"], numbers["sm_active_mean_pct"]) == (95.0, 20.0)
    assert (numbers["power_mean_w"], numbers["power_limit_w"]) == (200.0, 700.0)
    assert (numbers["rank_among_holders"], numbers["jobs"]) == ("1 of 1", "slurm:7")
    assert found.next_command == "ssh h1 nvidia-smi dmon -i GPU-h1-0 -s puc -c 30"
    assert not found.reclaimable
    assert NO_SM not in found.confidence.failed


@pytest.mark.parametrize(
    ("util", "sm", "power_w", "count"),
    [(79.0, 10.0, 600.0, 0), (80.0, 10.0, 600.0, 1), (95.0, 39.0, 600.0, 1), (95.0, 40.0, 600.0, 0), (95.0, 60.0, 349.0, 1), (95.0, 60.0, 350.0, 0)],
)  # fmt: skip
def test_thresholds(util: float, sm: float, power_w: float, count: int) -> None:
    assert len(of_rule(RULE, fleet_of(util=util, sm=sm, power_w=power_w))) == count


@pytest.mark.parametrize(("dram", "count"), [(49.0, 1), (50.0, 0)])
def test_work_that_is_bound_by_memory_is_efficient(dram: float, count: int) -> None:
    assert len(of_rule(RULE, fleet_of(sm=20.0, dram=dram))) == count


@pytest.mark.parametrize(("hours", "count"), [(24, 0), (25, 1)])
def test_up_to_a_gpu_day_is_nobodys_business(hours: int, count: int) -> None:
    assert len(of_rule(RULE, fleet_of(days=hours / 24, sm=20.0))) == count


def test_without_counters_power_tells_and_the_doubts_are_said() -> None:
    found = only_of(RULE, fleet_of(A100_80, power_w=150.0))
    assert {NO_SM, NO_DRAM} <= set(found.confidence.failed)


def test_a_server_on_such_a_card_is_not_judged() -> None:
    assert of_rule(RULE, fleet_of(A100_80, power_w=150.0, command="vllm")) == []


def test_an_unknown_limit_says_nothing() -> None:
    fleet = fleet_of(A100_80, power_w=150.0)
    fleet.gpus[0].device["power_limit_w"] = None
    assert of_rule(RULE, fleet) == []


def test_holders_are_ranked_over_hosts() -> None:
    fleet = Fleet(2)
    for host, user, sm in (("h1", "ann", 20.0), ("h2", "ann", 20.0), ("h3", "bob", 20.0), ("h4", "cem", 80.0)):
        fleet.run(fleet.host(host, H100, 1), user, util=95.0, sm=sm, slurm_job_id=host)
    first, second = of_rule(RULE, fleet)
    assert (first.holder, first.gpu_hours, first.evidence.numbers["rank_among_holders"]) == ("ann", 96.0, "1 of 3")
    assert (second.holder, second.gpu_hours, second.evidence.numbers["rank_among_holders"]) == ("bob", 48.0, "2 of 3")
