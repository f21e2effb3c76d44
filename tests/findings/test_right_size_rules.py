"""The rules about work that needs less: `compute_oversized`, `memory_oversized`, `mig_fit`, `co_location` and `preallocated`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from agent.nvml.ring import Timeline
from analytics.cards import card, cards
from analytics.rules.preallocated import CacheUse, bytes_per_parameter, parameters_of
from analytics.tables.finding_heading import evidence
from analytics.workloads.cards import Demand, Offer, Shelf, job_kind, product_label, slurm_type
from analytics.workloads.finding_parts import ESTIMATED, SAVES_IN_A_PACKING
from analytics.workloads.mig_profiles import first_fit, fits
from analytics.workloads.sharing import CardSharer, groups, together
from fallow.clock import HOUR_MS
from tests.findings.one_rule import edges, finds_so_many, found, numbers_of, one_host, only_of
from tests.findings.scenarios.builder import A30, A100_40, A100_80, GB, H100, L40S, T4, V100, Fleet
from tests.findings.scenarios.situations import serve, train

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from tests.findings.scenarios.builder import Gpu, Mask, SimulatedCard

TOTAL_GB = A100_80.mem_total_bytes / GB
BEGINS = 0.1
"""In days from the first row of the GPU, so that the start of the process was seen."""


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


def part(when: Mask | None = None, **work: Any) -> Fleet:
    """Work for a seventh of an H100."""
    return beside(H100, None, when, **({"util": 60.0, "sm": 11.5, "mem_gb": 8} | work))


def side_by_side(hours: float) -> Fleet:
    """Two works of ann's on one host, the second for the last hours."""
    fleet = Fleet(3)
    first, second = fleet.host("h1", A100_80, 2)
    train(fleet, first, "ann", util=30.0, mem_gb=20, job="1")
    train(fleet, second, "ann", fleet.between(-hours / 24), util=25.0, mem_gb=24, job="2")
    return fleet


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
    *edges(
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
    *edges(
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
    *edges("co_location", ("more than a GPU-day side by side", {24: 0, 25: 1}, side_by_side)),
    *edges(
        "preallocated",
        ("shares that frameworks take", FRAMEWORKS, reserving),
        ("flat is below one percent", {0.6: 1, 0.7: 0}, breathing),
        ("what a framework reserves is there at once", {0.96 * 0.75: 0, 0.98 * 0.75: 1}, grows_to_three_quarters),
        ("of a process that was there before nobody knows", 0, lambda: reserving(0.75, begins=0)),
        ("a full cache is no reserve", {0.89: 1, 0.91: 0}, served),
    ),
]


@pytest.mark.parametrize(("rule", "build", "count"), EDGES)
def test_where_a_rule_begins_and_ends(rule: str, build: Callable[[], Fleet], count: int) -> None:
    finds_so_many(rule, build, count)


# --- another card ------------------------------------------------------------------------------------------------------


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


# --- a part of the card ------------------------------------------------------------------------------------------------

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


@pytest.mark.parametrize(
    ("sm_pct", "mem_gb", "profiles"),
    [
        (13.5, 8.0, ["1g.10gb"]),
        (14.5, 8.0, ["2g.20gb"]),  # more than a seventh
        (13.5, 9.0, ["1g.20gb"]),  # more memory with its margin than an eighth
        (27.5, 16.0, ["2g.20gb"]),
        (28.5, 16.0, ["3g.40gb"]),
        (41.5, 30.0, ["3g.40gb"]),
        (42.5, 30.0, ["4g.40gb"]),
        (56.0, 33.0, ["4g.40gb"]),
        (57.5, 30.0, []),
        (10.0, 33.5, []),
    ],
)
def test_the_first_profile_that_holds_both(sm_pct: float, mem_gb: float, profiles: list[str]) -> None:
    fleet = part(util=95.0, sm=sm_pct, mem_gb=mem_gb)
    fleet.gpus[0].override(fleet.always, dram_active_pct=5.0)
    assert [each.evidence.numbers["mig_profile"] for each in found("mig_fit", fleet)] == profiles


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


@pytest.mark.parametrize(("share", "count"), [(0.95, 0), (0.5, 1)])
@pytest.mark.parametrize(
    ("column", "said"),
    [
        ("sm_active_pct", "SM activity was measured for 50.0 % of the time, 90 % are needed"),
        ("mem_used_bytes", "memory in use was measured for"),
    ],
)
def test_what_was_read_for_some_of_the_time_is_a_failed_condition(
    column: str, said: str, share: float, count: int
) -> None:
    fleet = part()
    fleet.gpus[0].override(fleet.between(0, 3 * (1 - share)), **{column: None})
    failed = only_of("mig_fit", fleet).confidence.failed
    assert sum(failure.startswith(said) for failure in failed) == count


@pytest.mark.parametrize("power", [140.0, None])
def test_an_instance_draws_its_slices_of_the_whole_gpu(power: float | None) -> None:
    """Three slices of seven, held for a day beside an instance that works: an estimate, and unknown where the GPU's energy is."""
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


# --- a shared card -----------------------------------------------------------------------------------------------------


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


# --- reserved in advance -----------------------------------------------------------------------------------------------


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


# --- light traffic -----------------------------------------------------------------------------------------------------


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
        ("h1@east", 3, 1), ("h1@west", 3, 1),
    ]  # fmt: skip
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


# --- one recording of a GPU, seen in rows of one second up to a minute, leads to one verdict or to none ------------------

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


@pytest.mark.parametrize("interval_s", [pytest.param(1, marks=pytest.mark.long), 10, 30, 60])
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
