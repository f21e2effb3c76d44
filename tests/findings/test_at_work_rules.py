"""The rules on running work: `imbalance`, `inefficient`, `input_starved`, `low_efficiency`, `stalls`, `throttled`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from analytics.tables.finding_heading import evidence
from tests.findings.one_rule import Case, edges, finds_so_many, found, numbers_of, one_host, only_of
from tests.findings.scenarios.builder import A100_80, GB, H100, Fleet

if TYPE_CHECKING:
    from tests.findings.scenarios.builder import SimulatedCard

JOB = {"slurm_job_id": "7"}


def uneven(low: Any, *, days: float = 1, **columns: Any) -> Fleet:
    """Two GPUs of one job, the second at another level; a function of the fleet says when it is slow."""
    level = (lambda fleet: (90.0, np.where(low(fleet), 20.0, 90.0))) if callable(low) else (90.0, low)
    return one_host(A100_80, 2, days=days, util=level, **(columns or JOB))


def busy(card: SimulatedCard = H100, *, dram: float | None = None, **work: Any) -> Fleet:
    """One busy GPU."""
    fleet = one_host(card, **(JOB | work))
    if dram is not None:
        fleet.gpus[0].override(fleet.always, dram_active_pct=dram)
    return fleet


def at_a_limit(util: Any, load: dict[str, float] | None = None, **work: Any) -> Fleet:
    """One GPU at work on a host whose CPUs are busy."""
    fleet = one_host(util=util, mem_gb=40, **(JOB | work))
    fleet.hosts[0].load(fleet.always, **({"cpu_util_pct": 97.0} if load is None else load))
    return fleet


def better_without(otherwise: float) -> Fleet:
    fleet = one_host(days=3, util=lambda fleet: np.where(fleet.daily(0, 18), 40.0, otherwise), mem_gb=40, **JOB)
    fleet.hosts[0].load(fleet.daily(0, 18), cpu_util_pct=97.0)
    return fleet


def offloading(host_gb: float, pcie: float | None) -> Fleet:
    fleet = at_a_limit(40.0, cpu_util_pct=1650.0, host_mem_bytes=round(host_gb * GB))
    fleet.gpus[0].override(fleet.always, pcie_tx_bytes_per_s=pcie, pcie_rx_bytes_per_s=0.0 if pcie else None)
    return fleet


def small_user(gpus: int) -> Fleet:
    """Ann has one GPU, bob the others."""
    fleet = Fleet(52 / 24, interval_s=3600, process_interval_s=3600)
    small, *rest = fleet.host("h1", H100, gpus + 1)
    fleet.run(small, "ann", util=10.0)
    fleet.run(rest, "bob", util=90.0)
    return fleet


def allocated_and_half_used() -> Fleet:
    fleet = Fleet(3)
    gpus = fleet.host("h1", H100, 2)
    fleet.allocation(gpus, "ann", 0, allocation_id="5")
    fleet.run(gpus[0], "ann", util=45.0, slurm_job_id="5")
    return fleet


def stalling(
    stall_min: float, period_min: float, shift_min: float = 0, *, util: float = 95.0, days: float = 1
) -> Fleet:
    """Two GPUs of one job that stop at equal intervals; the second so many minutes after the first."""

    def levels(fleet: Fleet) -> list[Any]:
        still = (fleet.every(period_min / 60, stall_min / 60, offset_h=shift / 60) for shift in (0, shift_min))
        return [np.where(each, 0.0, util) for each in still]

    return one_host(H100, 2, days=days, interval_s=60, util=levels, **JOB)


def irregular(spread: float) -> Fleet:
    """Intervals alternately shorter and longer by `spread` of their mean, which is their coefficient of variation."""

    def level(fleet: Fleet) -> Any:
        minutes = np.arange(fleet.rows) % 40
        late = 20 * (1 + spread)
        return np.where((minutes < 4) | ((minutes >= late) & (minutes < late + 4)), 0, 95)

    return one_host(H100, 2, interval_s=60, util=level, **JOB)


def throttled(*, util: float = 95.0, power_w: float | None = None, days: float = 1, **shares: float) -> Fleet:
    """A throttled GPU beside one that is not."""
    fleet = one_host(H100, 2, days=days, util=util, power_w=power_w, **JOB)
    fleet.gpus[0].throttle(fleet.always, **shares)
    return fleet


def without_counters() -> Fleet:
    fleet = throttled(sw_thermal=0.5)
    fleet.gpus[0].override(fleet.always, **{f"throttled_{cause}_ms": None for cause in fleet.gpus[0].throttled})
    return fleet


def no_power_limit() -> Fleet:
    fleet = busy(A100_80, power_w=150.0)
    fleet.gpus[0].device["power_limit_w"] = None
    return fleet


def every_20_min(fleet: Fleet) -> Any:
    return np.where(fleet.every(1 / 3, 4 / 60), 0, 95)


EDGES = [
    edges(
        "imbalance",
        ("the spread exceeds a half", {40.0: 1, 45.0: 0, 50.0: 0}, uneven),
        ("it lasts for three hours in a row", {2: 0, 3: 1}, lambda hours: uneven(lambda fleet: fleet.every(6, hours))),
        ("it is not rare", {5: 0, 6: 1}, lambda hours: uneven(lambda fleet: fleet.every(24, hours))),
        ("an unused GPU is another rule's", 0, lambda: uneven(0.0)),
        (
            "servers are left out",
            {"vllm": 0, "python3 -m vllm.serve": 0},
            lambda line: uneven(20.0, command=line.split()[0], arguments=line, pod="p", namespace="n"),
        ),
    ),
    edges(
        "inefficient",
        ("busy by utilization", {79.0: 0, 80.0: 1}, lambda util: busy(util=util, sm=10.0, power_w=600.0)),
        ("few SMs", {39.0: 1, 40.0: 0}, lambda sm: busy(sm=sm, power_w=600.0)),
        ("little power", {349.0: 1, 350.0: 0}, lambda power_w: busy(sm=60.0, power_w=power_w)),
        ("work that is bound by memory is efficient", {49.0: 1, 50.0: 0}, lambda dram: busy(sm=20.0, dram=dram)),
        ("more than a GPU-day", {24: 0, 25: 1}, lambda hours: busy(days=hours / 24, sm=20.0)),
        ("a server on a card that does not say is not judged", 0, lambda: busy(A100_80, power_w=150.0, command="vllm")),
        ("an unknown limit says nothing", 0, no_power_limit),
    ),
    edges(
        "input_starved",
        ("utilization is middling", {9.0: 0, 11.0: 1, 69.0: 1, 71.0: 0}, at_a_limit),
        ("more than a GPU-day", {24: 0, 25: 1}, lambda hours: at_a_limit(40.0, days=hours / 24)),
        ("a steady rate alone is no limit", 0, lambda: at_a_limit(40.0, {"net_receive_bytes_per_s": 1.2e9})),
        (
            "a process at a whole number of CPUs",
            {100.0: 0, 200.0: 1, 193.0: 1, 192.0: 0, 250.0: 0},
            lambda cpu_pct: at_a_limit(40.0, {}, cpu_util_pct=cpu_pct),
        ),
        (
            "offload by host memory and PCIe",
            {(32.1, None): 0, (31.0, None): 1, (200, 3e9): 0, (200, 1e8): 1},
            offloading,
        ),
    ),
    edges(
        "low_efficiency",
        ("a quarter is low", {24.0: 1, 25.0: 1, 26.0: 0}, lambda util: one_host(days=3, util=util)),
        ("more than fifty GPU-hours", {50: 0, 51: 1}, lambda hours: one_host(days=hours / 24, util=10.0)),
        ("two percent of all hours", {49: 1, 50: 0}, small_user),
        ("allocated time without a process is another rule's", 0, allocated_and_half_used),
        ("display servers are no users", 0, lambda: one_host(days=3, util=1.0, kind="graphics", command="Xorg")),
        apart=True,
    ),
    edges(
        "stalls",
        ("share and length", {(1, 11): 0, (1, 10): 1, (10, 60): 1, (11, 60): 0, (6, 12): 1, (7, 12): 0}, stalling),
        ("ten of them are needed", {9 / 72: 0, 10 / 72: 1}, lambda days: stalling(4, 20, days=days)),
        ("all GPUs stand still together", {0: 1, 2: 1, 3: 0}, lambda shift_min: stalling(4, 20, shift_min)),
        ("the job works in between", {49.0: 0, 51.0: 1}, lambda util: stalling(4, 20, util=util)),
        (
            "a server pauses for its callers",
            0,
            lambda: one_host(interval_s=60, util=every_20_min, command="tritonserver"),
        ),
    ),
    edges(
        "throttled",
        ("heat for a tenth of the active time", {0.09: 0, 0.11: 1}, lambda share: throttled(sw_thermal=share)),
        ("hardware slowdown for a tenth", {0.09: 0, 0.11: 1}, lambda share: throttled(hw_thermal=share)),
        ("sync boost for a tenth", {0.09: 0, 0.11: 1}, lambda share: throttled(sync_boost=share)),
        ("a GPU that does not work is not slowed down", 0, lambda: throttled(util=9.0, sw_thermal=0.5)),
        ("some hours of work are needed", {5: 0, 8: 1}, lambda hours: throttled(days=hours / 24, sw_thermal=0.5)),
        ("cards without the counters are not judged", 0, without_counters),
    ),
]


@pytest.mark.parametrize(("rule", "cases", "apart"), EDGES)
def test_where_a_rule_begins_and_ends(rule: str, cases: list[Case], *, apart: bool) -> None:
    finds_so_many(rule, cases, apart=apart)


def test_imbalance_says_who_lags_behind_and_by_how_much() -> None:
    each = only_of("imbalance", one_host(A100_80, 3, days=1, util=(90.0, 90.0, 30.0), power_w=100.0, **JOB))
    assert (each.gpus, each.subject, each.user, each.gpu_hours) == (("GPU-h1-2",), "slurm:7", "ann", 24.0)
    numbers = each.evidence.numbers
    assert (numbers["busiest_gpu_util_mean_pct"], numbers["idlest_gpu_util_mean_pct"]) == (90.0, 30.0)
    assert numbers["spread"] == pytest.approx(2 / 3)
    assert (numbers["uneven_h"], numbers["judged_h"], numbers["waiting_gpu_hours"]) == (24, 24, pytest.approx(16.0))
    assert each.next_command == "ssh h1 nvidia-smi dmon -i GPU-h1-0,GPU-h1-1,GPU-h1-2 -s puc -c 30"
    assert each.reclaimable_gpus == ()
    spins = "SM activity is not measured on every GPU of the job, so a busy-waiting kernel counts as work"
    assert spins in each.confidence.failed


def test_imbalance_by_sm_activity_where_it_is_known() -> None:
    fleet = Fleet(1)
    for gpu, sm in zip(fleet.host("h1", H100, 2), (80.0, 20.0), strict=True):
        fleet.run(gpu, "ann", util=98.0, sm=sm, slurm_job_id="7")
    numbers = numbers_of("imbalance", fleet)
    assert (numbers["busiest_gpu_sm_active_mean_pct"], numbers["idlest_gpu_sm_active_mean_pct"]) == (80.0, 20.0)


def test_imbalance_before_the_window_does_not_count() -> None:
    assert found("imbalance", uneven(lambda fleet: fleet.between(0, 1), days=2), since="2026-11-19") == []


NO_SM = "SM activity is not measured on this card: only the low power suggests little work"
NO_DRAM = "memory bandwidth is not measured on this card: memory-bound work looks the same"


def test_inefficient_work_in_numbers_and_where_to_look() -> None:
    each = only_of("inefficient", busy(sm=20.0, power_w=200.0))
    numbers = each.evidence.numbers
    assert (each.subject, each.gpu_hours, each.energy_kwh) == ("ann", 48.0, pytest.approx(9.6, rel=0.01))
    assert (numbers["gpu_util_mean_pct"], numbers["sm_active_mean_pct"]) == (95.0, 20.0)
    assert (numbers["power_mean_w"], numbers["power_limit_w"]) == (200.0, 700.0)
    assert (numbers["rank_among_users"], numbers["jobs"]) == ("1 of 1", "slurm:7")
    assert each.next_command == "ssh h1 nvidia-smi dmon -i GPU-h1-0 -s puc -c 30"
    assert not each.reclaimable
    assert NO_SM not in each.confidence.failed
    assert {NO_SM, NO_DRAM} <= set(only_of("inefficient", busy(A100_80, power_w=150.0)).confidence.failed)


def test_users_of_inefficient_work_are_ranked_over_hosts() -> None:
    fleet = Fleet(2)
    for host, user, sm in (("h1", "ann", 20.0), ("h2", "ann", 20.0), ("h3", "bob", 20.0), ("h4", "cem", 80.0)):
        fleet.run(fleet.host(host, H100, 1), user, util=95.0, sm=sm, slurm_job_id=host)
    ranks = [
        (each.user, each.gpu_hours, each.evidence.numbers["rank_among_users"]) for each in found("inefficient", fleet)
    ]
    assert sorted(ranks) == [("ann", 96.0, "1 of 3"), ("bob", 48.0, "2 of 3")]


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        ({"cpu_util_pct": 90.0}, [("the host's CPUs", "ssh h1 top -b -n 1")]),
        ({"cpu_pressure_pct": 40.0}, [("the host's CPUs", "ssh h1 top -b -n 1")]),
        ({"io_pressure_pct": 20.0, "disk_read_bytes_per_s": 1e8}, [("the disks", "ssh h1 iostat -x 5 3")]),
        ({"cpu_util_pct": 89.0, "cpu_pressure_pct": 39.0, "io_pressure_pct": 19.0}, []),
    ],
)
def test_what_starved_work_waits_for(load: dict[str, float], expected: list[tuple[str, str]]) -> None:
    there = found("input_starved", at_a_limit(40.0, load))
    assert [(each.evidence.numbers["waits_for"], each.next_command) for each in there] == expected


def test_starved_work_in_numbers_and_what_is_not_sure() -> None:
    each = only_of("input_starved", at_a_limit(40.0))
    numbers = each.evidence.numbers
    assert (each.gpu_hours, numbers["starved_gpu_hours"], numbers["share_of_middling_hours"]) == (48.0, 48.0, 1.0)
    assert (numbers["gpu_util_mean_pct"], numbers["gpu_util_mean_otherwise_pct"]) == (40.0, None)
    assert numbers["cpu_util_mean_pct"] == pytest.approx(97.0)
    always = "the host's CPUs: at the limit in every hour, so no other hour can be compared"
    assert always in each.confidence.failed
    assert not each.reclaimable


@pytest.mark.parametrize(("otherwise", "count"), [(49.0, 0), (51.0, 1)])
def test_a_starved_gpu_does_better_without_the_limit(otherwise: float, count: int) -> None:
    there = found("input_starved", better_without(otherwise))
    assert [each.evidence.numbers["gpu_util_mean_otherwise_pct"] for each in there] == [otherwise] * count


def test_other_work_on_the_host_is_a_doubt_of_starved_work() -> None:
    fleet = Fleet(2)
    first, second = fleet.host("h1", H100, 2)
    fleet.run(first, "ann", util=40.0, slurm_job_id="7")
    fleet.run(second, "bob", util=95.0, slurm_job_id="8")
    first.host.load(fleet.always, cpu_util_pct=97.0)
    failed = only_of("input_starved", fleet).confidence.failed
    assert "other workloads run on the same host and may cause the load" in failed


def test_low_efficiency_in_numbers_rank_and_share() -> None:
    fleet = Fleet(3)
    gpus = fleet.host("h1", A100_80, 4)
    fleet.run(gpus[:3], "bob", util=90.0, slurm_job_id="1", power_w=100.0)
    fleet.run(gpus[3], "ann", util=20.0, slurm_job_id="2", power_w=100.0)
    each = only_of("low_efficiency", fleet)
    numbers = each.evidence.numbers
    energy_kwh = pytest.approx(7.2 * 287 / 288)  # what the counter stood at before its first row is not known
    assert (each.user, each.subject, each.gpu_hours, each.energy_kwh) == ("ann", "ann", 72.0, energy_kwh)
    assert (numbers["gpu_util_mean_pct"], numbers["used_gpu_hours"]) == (pytest.approx(20), pytest.approx(14.4))
    assert (numbers["rank_among_users"], numbers["share_of_held_hours"]) == ("2 of 2", 0.25)
    assert (numbers["sm_active_mean_pct"], numbers["gpus_with_sm_activity"]) == (None, None)
    assert each.next_command == "ssh h1 nvidia-smi dmon -i GPU-h1-3 -s puc -c 30"
    assert not each.reclaimable


def test_only_the_fifteen_largest_users_are_of_low_efficiency() -> None:
    """All of them alike: they share the rank, and names decide who is among the fifteen."""
    fleet = Fleet(52 / 24, interval_s=3600, process_interval_s=3600)
    for number, gpu in enumerate(fleet.host("h1", H100, 16)):
        fleet.run(gpu, f"user{number:02}", util=10.0)
    there = found("low_efficiency", fleet)
    assert [each.user for each in there] == [f"user{number:02}" for number in range(15)]
    assert {each.evidence.numbers["rank_among_users"] for each in there} == {"1 of 16"}


def test_unknown_utilization_is_in_neither_sum_of_efficiency() -> None:
    """The agent reads memory and processes, but the driver gives no utilization for a day."""
    fleet = one_host(A100_80, days=4, util=20.0)
    fleet.gpus[0].override(fleet.between(0, 1), gpu_util_pct=None, gpu_util_max_pct=None)
    assert numbers_of("low_efficiency", fleet)["gpu_util_mean_pct"] == pytest.approx(20)


def test_gpus_that_are_busy_themselves_are_no_example_of_low_efficiency() -> None:
    """The user's mean is 22 %, of a GPU at 90 % and five at 8 %."""
    fleet = one_host(H100, 6, days=3, util=(90.0, *[8.0] * 5))
    each = only_of("low_efficiency", fleet)
    numbers = each.evidence.numbers
    assert set(each.gpus) == {gpu.uuid for gpu in fleet.gpus[1:]}
    assert (each.gpu_hours, numbers["used_gpu_hours"]) == (360.0, pytest.approx(28.8))
    means = (numbers["gpu_util_mean_pct"], numbers["user_gpu_util_mean_pct"])
    assert means == (pytest.approx(8), pytest.approx(21.7, abs=0.1))
    assert "21.7 % over all 6 GPUs of the user" in str(evidence(each))


def test_sm_activity_stands_beside_the_utilization_of_the_same_time() -> None:
    fleet = Fleet(3)
    with_sm, without = fleet.host("h1", H100, 2)
    fleet.run(with_sm, "ann", util=24.0, sm=20.0)
    fleet.run(without, "ann", util=4.0)
    without.override(fleet.always, sm_active_pct=None)
    text = str(evidence(only_of("low_efficiency", fleet)))
    assert "mean utilization 14.0 %" in text
    assert "SM activity, measured for 50.0 % of that time: mean 20.0 % at a mean utilization of 24.0 %" in text
    assert "mean SM activity" not in text.replace("SM activity, measured", "")


def test_stalls_in_numbers() -> None:
    each = only_of("stalls", stalling(3, 20))
    numbers = each.evidence.numbers
    assert (each.subject, each.gpus, each.user) == ("slurm:7", ("GPU-h1-0", "GPU-h1-1"), "ann")
    assert (numbers["stall_count"], numbers["stall_mean_s"], numbers["period_mean_min"]) == (72, 180.0, 20.0)
    assert (numbers["period_cv"], numbers["stalled_share"]) == (0.0, pytest.approx(0.15))
    assert (each.gpu_hours, numbers["job_gpu_hours"]) == (pytest.approx(7.2), pytest.approx(48.0))
    assert each.energy_kwh is None  # nobody measured so short a time apart
    assert each.next_command == "ssh h1 nvidia-smi dmon -i GPU-h1-0,GPU-h1-1 -s puc -c 30"
    assert not each.reclaimable


@pytest.mark.parametrize(("spread", "count"), [(0.25, 1), (0.5, 0)])
def test_stalls_come_at_about_equal_intervals(spread: float, count: int) -> None:
    there = found("stalls", irregular(spread))
    assert [each.evidence.numbers["period_cv"] for each in there] == [pytest.approx(spread, abs=0.01)] * count


def test_a_night_without_the_job_does_not_break_the_rhythm_of_stalls() -> None:
    """The first stop of each day is the end of the night's."""
    job = one_host(H100, 2, interval_s=60, when=lambda fleet: ~fleet.daily(0, 8), util=every_20_min, **JOB)
    numbers = numbers_of("stalls", job)
    assert (numbers["period_mean_min"], numbers["stall_count"]) == (20.0, 94)


def test_coarse_rows_are_a_doubt_of_stalls() -> None:
    fleet = one_host(util=lambda fleet: np.where(fleet.every(0.5, 1 / 12), 0, 95), **JOB)
    assert "samples of 300 s are coarse for stalls of 300 s" in only_of("stalls", fleet).confidence.failed


def test_throttling_by_heat_in_numbers_and_where_to_look() -> None:
    each = only_of("throttled", throttled(sw_thermal=0.5))
    assert (each.subject, each.gpus, each.host, each.user) == ("heat", ("GPU-h1-0",), "h1", "ann")
    numbers = each.evidence.numbers
    assert numbers["throttled_share_of_active_time"] == pytest.approx(0.5, abs=0.01)
    assert numbers["throttled_gpu_hours"] == pytest.approx(12.0, abs=0.1)
    assert (numbers["cause"], numbers["temperature_max_c"]) == ("heat", 87)
    assert numbers["sm_clock_mean_mhz"] == pytest.approx(0.8 * 1980)
    assert each.next_command == "ssh h1 nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER -i GPU-h1-0"
    assert not each.reclaimable


@pytest.mark.parametrize(
    ("power_w", "share", "subjects"),
    [
        (590.0, 0.11, ["brake"]),
        (590.0, 0.09, []),
        (600.0, 0.5, []),  # at the limit: a cap, as usual
        (600.0, 0.6, []),  # clocks 24 % lower
        (600.0, 0.7, ["cap"]),  # clocks 28 % lower
    ],
)
def test_a_cap_at_full_load_is_normal_and_a_brake_is_not(power_w: float, share: float, subjects: list[str]) -> None:
    there = found("throttled", throttled(power_w=power_w, power_cap=share))
    assert [each.subject for each in there] == subjects
    assert all(each.confidence.failed for each in there)


@pytest.mark.parametrize(
    ("share", "said"),
    [(0.95, []), (0.5, ["the cause of the throttling was measured for 49.8 % of the time, 90 % are needed"])],
)
def test_throttling_counters_that_were_read_for_some_of_the_time_say_so(share: float, said: list[str]) -> None:
    fleet = throttled(sw_thermal=0.5, days=2)
    for gpu in fleet.gpus:
        gpu.override(fleet.between(0, 2 * (1 - share)), **{f"throttled_{cause}_ms": None for cause in gpu.throttled})
    failed = only_of("throttled", fleet).confidence.failed
    assert [failure for failure in failed if "the cause of the throttling" in failure] == said
