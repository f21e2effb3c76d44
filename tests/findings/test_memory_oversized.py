"""The rule `memory_oversized`: what is needed, which card would do, and what it would save."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analytics.money.cards import card
from analytics.rules.memory_oversized import MEMORY_OVERSIZED
from analytics.workloads.cards import Demand, Offer, Shelf
from tests.findings.one_rule import found
from tests.findings.scenarios.builder import A100_40, A100_80, GB, H100, L40S, Fleet, Gpu
from tests.findings.scenarios.situations import train

RULE = MEMORY_OVERSIZED


def beside(other: object, days: float = 3) -> tuple[Fleet, Gpu]:
    """An A100 of 80 GB in a fleet that has another card as well, which is in use."""
    fleet = Fleet(days)
    (gpu,) = fleet.host("h1", A100_80, 1)
    if other is not None:
        train(fleet, fleet.host("h2", other, 1), "bob", job="1002")  # type: ignore[arg-type]  # a card
    return fleet, gpu


def test_the_numbers_of_a_small_job() -> None:
    fleet, gpu = beside(A100_40, days=8)
    memory = np.where(fleet.between(2, 2 + 2 / 24), 30.0, 14.0)  # two of 192 hours: beyond the 98th percentile
    train(fleet, gpu, "ann", util=90.0, mem_gb=memory, job="7")
    (each,) = found(RULE, fleet)
    assert (each.holder, each.job, each.gpus, each.gpu_hours) == ("ann", "slurm:7", (gpu.uuid,), pytest.approx(192))
    numbers = each.evidence.numbers
    assert numbers["mem_used_max_bytes"] == 30 * GB
    assert numbers["mem_need_bytes"] == 16_100_000_000
    assert numbers["card_memory_bytes"] == A100_80.mem_total_bytes
    assert numbers["gpu_util_p95_pct"] == 90
    assert numbers["sm_active_p95_pct"] is None
    assert (numbers["recommended_card"], numbers["recommended_in_fleet"]) == (A100_40.model, 1)
    assert (numbers["hourly"], numbers["recommended_hourly"]) == (3.4309, 2.7447)
    assert numbers["saving"] == pytest.approx(192 * (3.4309 - 2.7447))
    assert each.next_command == "#SBATCH --gres=gpu:a100_40gb:1"
    assert each.reclaimable_gpus == ()
    assert "SM activity and memory bandwidth were not measured: the time with any kernel stands in for them" in (
        each.confidence.failed
    )


@pytest.mark.parametrize(("need_gb", "fires"), [(37.34, True), (37.35, False)])
def test_the_card_has_twice_the_need(need_gb: float, *, fires: bool) -> None:
    fleet, gpu = beside(L40S)
    train(fleet, gpu, "ann", util=50.0, mem_gb=need_gb)
    assert bool(found(RULE, fleet)) == fires


@pytest.mark.parametrize(("peak_gb", "fires"), [(34.35, True), (34.37, False)])
def test_the_peak_fills_four_fifths_of_the_smaller_card(peak_gb: float, *, fires: bool) -> None:
    fleet, gpu = beside(A100_40, days=8)
    train(fleet, gpu, "ann", util=90.0, mem_gb=np.where(fleet.between(2, 2 + 1 / 24), peak_gb, 14.0))
    assert bool(found(RULE, fleet)) == fires


@pytest.mark.parametrize(("minutes", "fires"), [(0, False), (5, True)])
def test_more_than_a_day_of_gpu_time_counts(minutes: int, *, fires: bool) -> None:
    fleet, gpu = beside(A100_40)
    train(fleet, gpu, "ann", fleet.between(-1 - minutes / 1440), util=90.0, mem_gb=14)
    assert bool(found(RULE, fleet)) == fires


@pytest.mark.parametrize(("minutes", "fires"), [(60, False), (65, True)])
def test_runs_count_from_61_minutes(minutes: int, *, fires: bool) -> None:
    fleet = Fleet(0.5)
    when = fleet.between(0.25, 0.25 + minutes / 1440)
    for number, gpu in enumerate(fleet.host("h1", A100_80, 26)):
        train(fleet, gpu, "ann", when, util=90.0, mem_gb=14, job=f"{number}")
    train(fleet, fleet.host("h2", A100_40, 1), "bob", job="1002")
    assert bool(found(RULE, fleet)) == fires


def test_of_nearly_idle_work_the_other_rule_speaks() -> None:
    fleet, gpu = beside(A100_40)
    train(fleet, gpu, "ann", util=20.0, mem_gb=14)
    assert found(RULE, fleet) == []


def test_without_a_smaller_card_in_the_fleet_the_catalog_is_asked() -> None:
    fleet, gpu = beside(None)
    train(fleet, gpu, "ann", util=90.0, mem_gb=14)
    (each,) = found(RULE, fleet)
    assert (each.evidence.numbers["recommended_card"], each.evidence.numbers["recommended_in_fleet"]) == (
        "A100 SXM 40GB",
        0,
    )
    assert "this fleet has no card that would do; A100 SXM 40GB is from the catalog" in each.notes
    # the catalog's price is lower, but nobody saves by a card that is not there
    assert each.evidence.numbers["recommended_hourly"] < each.evidence.numbers["hourly"]
    assert each.evidence.numbers["saving"] is None
    assert "what it would save is not known: no such card in this fleet" in each.notes
    assert each.next_command == f"ssh h1 nvidia-smi dmon -i {gpu.uuid} -s puc -c 30"


@pytest.mark.parametrize(("gone_after_days", "in_fleet"), [(None, 1), (1.5, 0)])
def test_a_card_that_has_left_the_fleet_is_none_to_move_to(gone_after_days: float | None, in_fleet: int) -> None:
    fleet, gpu = beside(A100_40)
    train(fleet, gpu, "ann", util=90.0, mem_gb=14)
    fleet.hosts[1].seen = fleet.between(0, gone_after_days) if gone_after_days else fleet.always
    (each,) = found(RULE, fleet)
    assert each.evidence.numbers["recommended_in_fleet"] == in_fleet
    assert (each.evidence.numbers["saving"] is None) == (not in_fleet)


def test_works_of_one_holder_are_one_finding() -> None:
    fleet = Fleet(3)
    for host in ("h1", "h2"):
        for number, gpu in enumerate(fleet.host(host, A100_80, 2)):
            train(fleet, gpu, "ann", util=90.0, mem_gb=10 + number, job=f"{host[1]}{number}")
    (each,) = found(RULE, fleet)
    assert (each.host, len(each.gpus), each.evidence.numbers["works"]) == ("h1+h2", 4, 4)
    assert each.evidence.numbers["mem_used_max_bytes"] == 11 * GB


def test_days_of_peaks_are_stated() -> None:
    fleet, gpu = beside(A100_40)
    train(fleet, gpu, "ann", util=90.0, mem_gb=14)
    (each,) = found(RULE, fleet)
    assert "memory was observed on 3 days, 7 are needed: a rare step may need more" in each.confidence.failed


def offer(name: str, hourly: float | None = None, origin: str | None = None) -> Offer:
    known = card(name)
    assert known is not None
    return Offer(known, name, 1, hourly, origin if hourly is not None else None)


def shelf(*offers: Offer, catalog: tuple[Offer, ...] = ()) -> Shelf:
    return Shelf({each.model or "": each for each in offers}, catalog)


LIGHT = Demand(peak_bytes=8 * GB, busy_share=0.1, bandwidth_share=0.05)


def test_the_cheapest_that_would_do_is_chosen() -> None:
    those = shelf(
        offer("H100 SXM", 6.9, "site"), offer("L40S", 1.9, "site"), offer("A30", 1.1, "site"), offer("L4", 0.8, "site")
    )
    chosen = those.choose("H100 SXM", LIGHT)
    assert chosen is not None
    assert chosen.card.name == "L4"
    faster = Demand(peak_bytes=8 * GB, busy_share=0.13, bandwidth_share=0.05)  # an L4 has 12 % of an H100's rate
    chosen = those.choose("H100 SXM", faster)
    assert chosen is not None
    assert chosen.card.name == "A30"


def test_without_prices_the_least_powerful_is_chosen() -> None:
    chosen = shelf(offer("H100 SXM"), offer("L40S"), offer("A30")).choose("H100 SXM", LIGHT)
    assert chosen is not None
    assert chosen.card.name == "A30"


@pytest.mark.parametrize(("hourly", "chosen"), [(0.80, True), (0.81, False)])
def test_a_card_has_to_save_a_fifth(hourly: float, *, chosen: bool) -> None:
    those = shelf(offer("A100 SXM 80GB", 1.0, "site"), offer("A100 SXM 40GB", hourly, "site"))
    assert (those.choose("A100 SXM 80GB", LIGHT) is not None) == chosen


def test_an_own_price_is_not_compared_with_a_list_price() -> None:
    own, listed = offer("H100 SXM", 2.9, "site"), offer("L40S", 1.9, "catalog")
    assert shelf(own, listed).choose("H100 SXM", LIGHT) == listed


@pytest.mark.parametrize("origin", ["site", "catalog"])
def test_a_dearer_card_is_never_proposed(origin: str) -> None:
    """An L40S of one's own for 0.37 an hour, an A40 that the catalog has for 0.44."""
    own, other = offer("L40S", 0.37, "site"), offer("A40", 0.44, origin)
    assert shelf(own, other).choose("L40S", LIGHT) is None
    assert shelf(own, catalog=(replace(other, model=None, gpus=0),)).choose("L40S", LIGHT) is None


def test_memory_and_rates_have_to_be_enough() -> None:
    those = shelf(offer(H100.model), offer(L40S.model))
    assert those.choose(H100.model, Demand(39 * GB, 0.1, 0.05)) is None
    assert those.choose(H100.model, Demand(8 * GB, 0.4, 0.05)) is None
    assert those.choose(H100.model, Demand(8 * GB, 0.1, 0.3)) is None
    assert those.choose("unheard of", LIGHT) is None
