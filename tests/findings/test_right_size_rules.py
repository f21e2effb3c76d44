"""The rules about work that needs a lesser card: `compute_oversized` and `memory_oversized`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from agent.nvml.ring import Timeline
from analytics.cards import card, cards
from analytics.tables.finding_heading import evidence
from analytics.workloads.cards import Demand, Offer, Shelf, job_kind, product_label, slurm_type
from tests.findings.one_rule import Case, edges, finds_so_many, found, numbers_of, only_of
from tests.findings.scenarios.builder import A100_40, A100_80, GB, H100, L40S, V100, Fleet
from tests.findings.scenarios.situations import train

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from tests.findings.scenarios.builder import Gpu, Mask, SimulatedCard


def beside(
    own: SimulatedCard, other: SimulatedCard | None, when: Mask | None = None, *, days: float = 3, **work: Any
) -> Fleet:
    """Ann's work on a card of a fleet that has another one as well, which is in use."""
    fleet = Fleet(days)
    (gpu,) = fleet.host("h1", own, 1)
    levels = {name: value(fleet) if callable(value) else value for name, value in work.items()}
    train(fleet, gpu, "ann", when, **({"util": 10.0, "mem_gb": 9, "job": "7"} | levels))
    if other is not None:
        train(fleet, fleet.host("h2", other, 1), "bob", job="1002")
    return fleet


def light(other: SimulatedCard = L40S, **work: Any) -> Fleet:
    return beside(H100, other, **work)


def small(when: Mask | None = None, other: SimulatedCard | None = A100_40, **work: Any) -> Fleet:
    """Work for 14 of 80 GB."""
    return beside(A100_80, other, when, **({"util": 90.0, "mem_gb": 14} | work))


def on_26_cards(minutes: int) -> Fleet:
    fleet = Fleet(0.5)
    when = fleet.between(0.25, 0.25 + minutes / 1440)
    for number, gpu in enumerate(fleet.host("h1", A100_80, 26)):
        train(fleet, gpu, "ann", when, util=90.0, mem_gb=14, job=f"{number}")
    train(fleet, fleet.host("h2", A100_40, 1), "bob", job="1002")
    return fleet


EDGES = [
    edges(
        "compute_oversized",
        ("utilization above 0 and at most 20 %", {0.0: 0, 1.0: 1, 20.0: 1, 21.0: 0}, lambda util: light(util=util)),
        (
            "bursts count from a twentieth of the time",
            {1: 1, 2: 0},
            lambda busy_h: light(util=lambda fleet: fleet.wave(95, period_h=24, on_h=busy_h, low=10)),
        ),
        (
            "what ran out of memory is left out",
            0,
            lambda: light(mem_gb=lambda fleet: np.where(fleet.between(1, 1.01), 0.98 * H100.mem_total_bytes / GB, 9.0)),
        ),
    ),
    edges(
        "memory_oversized",
        ("the card has twice the need", {37.34: 1, 37.35: 0}, lambda gb: small(None, L40S, util=50.0, mem_gb=gb)),
        (
            "the peak fills four fifths of the smaller card",
            {34.35: 1, 34.37: 0},
            lambda gb: small(days=8, mem_gb=lambda fleet: np.where(fleet.between(2, 2 + 1 / 24), gb, 14.0)),
        ),
        ("more than a day of GPU time", {0: 0, 5: 1}, lambda minutes: small(Fleet(3).between(-1 - minutes / 1440))),
        ("runs count from 61 minutes", {60: 0, 65: 1}, on_26_cards),
        ("of nearly idle work the other rule speaks", 0, lambda: small(util=20.0)),
    ),
]


@pytest.mark.parametrize(("rule", "cases", "apart"), EDGES)
def test_where_a_rule_begins_and_ends(rule: str, cases: list[Case], *, apart: bool) -> None:
    finds_so_many(rule, cases, apart=apart)


# --- another card -----------------------------------------------------------------------------------------------------


def test_light_work_in_numbers() -> None:
    each = only_of("compute_oversized", light(util=12.0, sm=7.5))
    numbers = each.evidence.numbers
    assert (numbers["gpu_util_p95_pct"], numbers["sm_active_p95_pct"]) == (12, 8)
    assert numbers["dram_active_p95_pct"] == pytest.approx(3.75)
    assert "utilization of 12.0 % or less for 95 % of the time (limit: 20 %), maximum 14.0 %" in str(evidence(each))
    assert (numbers["recommended_card"], numbers["recommended_in_fleet"]) == (L40S.model, 1)
    assert numbers["saving"] == pytest.approx(72 * (6.88 - 1.861))
    assert each.next_command == "#SBATCH --gres=gpu:l40s:1"
    slower = "the workload fits, but a step that fills the present card would take 2.7 times as long"
    assert slower in each.notes


@pytest.mark.parametrize(("mem_gb", "fits"), [(38.6, True), (38.7, False)])
def test_the_lesser_card_holds_the_memory(mem_gb: float, *, fits: bool) -> None:
    assert (numbers_of("compute_oversized", light(mem_gb=mem_gb))["recommended_card"] == L40S.model) == fits


def test_a_pod_asks_for_another_card_by_the_label_of_its_nodes_and_a_bare_process_is_shown_a_host() -> None:
    pod = light(job=None, command="tritonserver", pod="rank-0", namespace="serving", container_id="c")
    each = only_of("compute_oversized", pod)
    assert each.job == "pod:serving/rank-0"
    assert each.next_command == "kubectl get nodes -l nvidia.com/gpu.product=NVIDIA-L40S"
    assert any("nodeSelector nvidia.com/gpu.product: NVIDIA-L40S" in note for note in each.notes)
    bare = only_of("compute_oversized", light(job=None))
    assert (bare.job, bare.next_command.startswith("ssh h2 nvidia-smi --query-gpu=")) == (None, True)


def test_an_older_card_without_bfloat16_is_no_certain_answer() -> None:
    each = only_of("compute_oversized", light(V100))
    assert each.evidence.numbers["recommended_card"] == V100.model
    assert "V100 SXM2 32GB has no bfloat16, and the workload's number formats are unknown" in each.confidence.failed


def test_without_prices_the_saving_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FALLOW_MONEY_CURRENCY", "EUR")  # list prices are in USD, and nobody said what one is worth
    each = only_of("compute_oversized", light())
    assert (each.evidence.numbers["recommended_card"], each.evidence.numbers["saving"]) == (L40S.model, None)
    assert f"the saving is unknown: no price for {H100.model} and {L40S.model}" in each.notes


def test_work_over_nvlink_is_no_certain_answer() -> None:
    fleet = Fleet(3)
    gpus = fleet.host("h1", H100, 2)
    train(fleet, gpus, "ann", util=10.0, mem_gb=9, job="7")
    for gpu in gpus:
        gpu.override(fleet.always, nvlink_tx_bytes_per_s=5e9, nvlink_rx_bytes_per_s=5e9)
    train(fleet, fleet.host("h2", L40S, 2), "bob", job="1002")
    each = only_of("compute_oversized", fleet)
    assert each.next_command == "#SBATCH --gres=gpu:l40s:2"
    assert "the workload's GPUs use NVLink, and it is unknown whether L40S has NVLink" in each.confidence.failed


def test_names_that_schedulers_use() -> None:
    names = {each.name: slurm_type(each) for each in cards()}
    assert (names["A100 SXM 80GB"], names["L40S"], names["A30"], names["T4"]) == ("a100", "l40s", "a30", "t4")
    assert names["RTX A6000"] == "rtx_a6000"
    one, other = card("A100 SXM 80GB"), card("A100 SXM 40GB")
    assert other is not None
    assert slurm_type(other, [one]) == "a100_40gb"  # type: ignore[list-item]  # both are known
    assert product_label("NVIDIA A100-SXM4-80GB") == "nvidia.com/gpu.product=NVIDIA-A100-SXM4-80GB"
    assert product_label("AMD Instinct MI300X OAM", "ROCm") == "amd.com/gpu.product-name=AMD_Instinct_MI300X_OAM"
    assert product_label("Apple M4", "MPS") is None
    kinds = (["slurm:1", "slurm:2"], ["slurm:1", "pod:a/b"], [None], ["something:else"])
    assert [job_kind(jobs) for jobs in kinds] == ["slurm", None, None, None]


def test_a_small_job_in_numbers() -> None:
    # 30 GB in two of 192 hours: beyond the 98th percentile
    each = only_of(
        "memory_oversized", small(days=8, mem_gb=lambda fleet: np.where(fleet.between(2, 2 + 2 / 24), 30.0, 14.0))
    )
    assert (each.user, each.job, each.gpus, each.gpu_hours) == ("ann", "slurm:7", ("GPU-h1-0",), pytest.approx(192))
    numbers = each.evidence.numbers
    assert (numbers["mem_used_max_bytes"], numbers["mem_need_bytes"]) == (30 * GB, 16_100_000_000)
    assert numbers["card_memory_bytes"] == A100_80.mem_total_bytes
    assert (numbers["gpu_util_p95_pct"], numbers["sm_active_p95_pct"]) == (90, None)
    assert (numbers["recommended_card"], numbers["recommended_in_fleet"]) == (A100_40.model, 1)
    assert (numbers["hourly"], numbers["recommended_hourly"]) == (3.4309, 2.7447)
    assert numbers["saving"] == pytest.approx(192 * (3.4309 - 2.7447))
    assert (each.next_command, each.reclaimable_gpus) == ("#SBATCH --gres=gpu:a100_40gb:1", ())
    busy_time = "SM activity and memory bandwidth were not measured, so the time with any kernel is used instead"
    assert busy_time in each.confidence.failed


def test_without_a_smaller_card_in_the_fleet_the_catalog_is_asked() -> None:
    each = only_of("memory_oversized", small(None, None))
    numbers = dict(each.evidence.numbers)
    assert (numbers["recommended_card"], numbers["recommended_in_fleet"]) == ("A100 SXM 40GB", 0)
    assert "no card of this fleet fits; A100 SXM 40GB is from the catalog" in each.notes
    # the catalog's price is lower, but nobody saves by a card that is not there
    assert numbers["recommended_hourly"] < numbers["hourly"]  # type: ignore[operator]  # prices
    assert numbers["saving"] is None
    assert "the saving is unknown: no such card in this fleet" in each.notes
    assert each.next_command == "ssh h1 nvidia-smi dmon -i GPU-h1-0 -s puc -c 30"


@pytest.mark.parametrize(
    ("prices", "why"),
    [
        (f"{A100_80.model},4,", "the prices are of two kinds, such as the site's own and a list price"),
        (
            f"{A100_80.model},1,2026-01-01\n{A100_80.model},4,2026-11-19\n{A100_40.model},2,",
            "at the prices of that time the move would have saved nothing",
        ),
    ],
)
def test_prices_that_cannot_be_compared_promise_no_saving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prices: str, why: str
) -> None:
    (tmp_path / "prices.csv").write_text(f"model,hourly,date\n{prices}\n", encoding="utf-8")
    monkeypatch.setenv("FALLOW_MONEY_PRICES", str(tmp_path / "prices.csv"))
    each = only_of("memory_oversized", small())
    assert f"the saving is unknown: {why}" in each.notes
    assert each.evidence.numbers["saving"] is None


def test_a_card_that_has_left_the_fleet_is_none_to_move_to() -> None:
    fleet = small()
    assert "memory was observed on 3 days, 7 are needed: a rare step may need more" in (
        only_of("memory_oversized", fleet).confidence.failed
    )
    fleet.hosts[1].seen = fleet.between(0, 1.5)
    numbers = numbers_of("memory_oversized", fleet)
    assert (numbers["recommended_in_fleet"], numbers["saving"]) == (0, None)


def test_works_of_one_user_are_one_finding() -> None:
    fleet = Fleet(3)
    for host in ("h1", "h2"):
        for number, gpu in enumerate(fleet.host(host, A100_80, 2)):
            train(fleet, gpu, "ann", util=90.0, mem_gb=10 + number, job=f"{host[1]}{number}")
    each = only_of("memory_oversized", fleet)
    assert (each.host, len(each.gpus), each.evidence.numbers["workloads"]) == ("h1+h2", 4, 4)
    assert each.evidence.numbers["mem_used_max_bytes"] == 11 * GB


def offer(name: str, hourly: float | None = None, origin: str | None = None) -> Offer:
    known = card(name)
    assert known is not None
    basis = "on_demand" if origin == "catalog" else origin
    return Offer(known, name, 1, hourly, *((origin, basis) if hourly is not None else ()))


def shelf(*offers: Offer, catalog: tuple[Offer, ...] = ()) -> Shelf:
    return Shelf({each.model or "": each for each in offers}, catalog)


LIGHT = Demand(peak_bytes=8 * GB, busy_share=0.1, bandwidth_share=0.05)
SITE = shelf(
    offer("H100 SXM", 6.9, "site"), offer("L40S", 1.9, "site"), offer("A30", 1.1, "site"), offer("L4", 0.8, "site")
)
UNPRICED = shelf(offer("H100 SXM"), offer("L40S"), offer("A30"))
LISTED = shelf(offer("H100 SXM", 2.9, "site"), offer("L40S", 1.9, "catalog"))
MEASURED = shelf(offer(H100.model), offer(L40S.model))


@pytest.mark.parametrize(
    ("those", "demand", "chosen"),
    [
        pytest.param(SITE, LIGHT, "L4", id="the cheapest that would do"),
        pytest.param(SITE, replace(LIGHT, busy_share=0.13), "A30", id="an L4 has 12 % of the rate of an H100"),
        pytest.param(UNPRICED, LIGHT, "A30", id="without prices the least powerful"),
        pytest.param(LISTED, LIGHT, "L40S", id="an own price is not compared with a list price"),
        pytest.param(MEASURED, replace(LIGHT, peak_bytes=39 * GB), None, id="memory has to be enough"),
        pytest.param(MEASURED, replace(LIGHT, busy_share=0.4), None, id="the rate has to be enough"),
        pytest.param(MEASURED, replace(LIGHT, bandwidth_share=0.3), None, id="bandwidth has to be enough"),
    ],
)
def test_which_card_is_chosen_instead_of_an_h100(those: Shelf, demand: Demand, chosen: str | None) -> None:
    found = those.choose("H100 SXM" if those is not MEASURED else H100.model, demand)
    assert (found and found.card.name) == chosen
    assert those.choose("unheard of", demand) is None


@pytest.mark.parametrize(("hourly", "chosen"), [(0.80, True), (0.81, False)])
def test_a_card_has_to_save_a_fifth(hourly: float, *, chosen: bool) -> None:
    those = shelf(offer("A100 SXM 80GB", 1.0, "site"), offer("A100 SXM 40GB", hourly, "site"))
    assert (those.choose("A100 SXM 80GB", LIGHT) is not None) == chosen


@pytest.mark.parametrize("origin", ["site", "catalog"])
def test_a_dearer_card_is_never_proposed(origin: str) -> None:
    """An L40S of one's own for 0.37 an hour, an A40 that the catalog has for 0.44."""
    own, other = offer("L40S", 0.37, "site"), offer("A40", 0.44, origin)
    assert shelf(own, other).choose("L40S", LIGHT) is None
    assert shelf(own, catalog=(replace(other, model=None, gpus=0),)).choose("L40S", LIGHT) is None


# --- one recording of a GPU, seen in rows of one second up to a minute, leads to one verdict or to none ---------------

SAMPLE_MS = 100
MINUTE = 600
"""Samples."""


def every(period: int, length: int, high: int, low: int = 0) -> NDArray[np.int64]:
    """So many samples at `high` at the start of every period, `low` otherwise, for five minutes."""
    return np.where(np.arange(5 * MINUTE) % period < length, high, low)


RECORDINGS = {
    "bursty": every(50, 7, 100),  # training that waits for its optimizer on the CPU: 0.7 s of every 5 s, a mean of 14 %
    "small": 8 + np.arange(5 * MINUTE) % 7,  # a service that never takes more than 14 %
    "flickering": every(20, 2, 100, low=4),  # 0.2 s of every 2 s, a tenth of the time
    "rare": every(MINUTE, 2, 100, low=5),  # a small service with 0.2 s of full load in a minute
}
RULES = ("compute_oversized", "memory_oversized", "mig_fit")


def record(fleet: Fleet, gpu: Gpu, samples: NDArray[np.int64], *, told: bool) -> None:
    """The rows that the agent makes of a recording that repeats; its kernels take up 84 % of the card's SMs.

    With `told` false they are bare means, as a time series that was imported has them.
    """
    count = fleet.interval_ms // SAMPLE_MS
    timeline = Timeline()
    timeline.begin(0)
    ends = [(int(number + 1) * SAMPLE_MS * 1000, int(value)) for number, value in enumerate(samples)]
    taken = []
    for first in range(0, len(samples), count):
        timeline.add_samples(ends[first : first + count], ends[first + count - 1][0], in_time=True)
        taken.append(timeline.take(first * SAMPLE_MS * 1000, (first + count) * SAMPLE_MS * 1000))
    columns = {
        "gpu_util_pct": [each.mean_pct for each in taken],
        "gpu_util_max_pct": [each.max_pct if told else None for each in taken],
        "gpu_util_p98_pct": [each.p98_pct if told else None for each in taken],
        "sm_active_pct": [0.84 * (each.mean_pct or 0.0) for each in taken],
        "dram_active_pct": [0.3 * (each.mean_pct or 0.0) for each in taken],
    }
    for name, values in columns.items():
        gpu.override(fleet.always, **{name: np.resize(np.array(values, np.float64), fleet.rows)})


@pytest.mark.parametrize("interval_s", [*(pytest.param(each, marks=pytest.mark.long) for each in (1, 30)), 10, 60])
def test_the_verdict_does_not_depend_on_the_length_of_the_rows_and_bare_means_tell_nothing(interval_s: int) -> None:
    """Four recordings on H100s beside an L40S: by recording the rules that find it."""
    least = {"compute_oversized", "mig_fit"}
    expected = {"bursty": set(), "small": least, "flickering": set(), "rare": least}
    for told in (True, False):
        fleet = Fleet(1.25, interval_s=interval_s)
        for gpu, (name, samples) in zip(fleet.host("h1", H100, len(RECORDINGS)), RECORDINGS.items(), strict=True):
            train(fleet, gpu, name, util=10.0, mem_gb=8, job=name)
            record(fleet, gpu, samples, told=told)
        train(fleet, fleet.host("h2", L40S, 1), "bob", job="1002", mem_gb=8)
        site = fleet.recording()
        there = {rule: found(rule, site) for rule in RULES}
        verdicts = {
            name: {rule for rule in RULES if any(each.user == name for each in there[rule])} for name in RECORDINGS
        }
        assert verdicts == (expected if told else {name: set() for name in RECORDINGS})
        if told:
            (rare,) = (each for each in there["compute_oversized"] if each.user == "rare")
            assert rare.evidence.numbers["gpu_util_max_pct"] == 100, "a burst is said of what is small all the same"
