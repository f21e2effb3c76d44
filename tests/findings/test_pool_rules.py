"""The rules about pools, teams and hosts: `releasable_pool`, `hoarding`, `slow_uptake` and `blind_spot`."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from analytics.capacity.demand import hourly_most
from analytics.intervals import merge
from analytics.tables.finding_heading import evidence
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, utc_day
from fallow.schema import DEVICE
from tests.findings.one_rule import Case, edges, finds_so_many, found, numbers_of, one_host, only_of
from tests.findings.scenarios.builder import A100_80, H100, T_END, Fleet, Gpu
from tests.findings.scenarios.situations import train
from tests.ledger.rows import device, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.findings.scenarios.builder import Mask

NO_UTILIZATION = dict.fromkeys(("gpu_util_pct", "gpu_util_max_pct", "gpu_util_zero_ratio", "gpu_util_coverage_ratio"))

# --- fleets -----------------------------------------------------------------------------------------------------------


def hosts_of_eight(number: int = 2, days: float = 15) -> tuple[Fleet, list[Gpu]]:
    fleet = Fleet(days, interval_s=1800)
    return fleet, [gpu for host in range(number) for gpu in fleet.host(f"h{host + 1}", H100, 8)]


def small_pool(gpus: int) -> Fleet:
    fleet = Fleet(8, interval_s=1800)
    train(fleet, fleet.host("h1", H100, gpus)[0], "ann")
    return fleet


def hours_that_nobody_saw() -> Fleet:
    fleet, gpus = hosts_of_eight(2, 10)
    train(fleet, gpus[:2], "ann")
    gpus[8].host.outage(fleet.between(2, 6))
    return fleet


def added(
    days_ago: float, work: Callable[[Fleet], Mask] | None = None, *, days: float = 24, fleet_work: bool = True
) -> Fleet:
    """A busy host, and one with two GPUs that came so many days before the end and work then."""
    fleet = Fleet(days, interval_s=1800)
    old = fleet.host("h1", H100, 2)
    if fleet_work:
        train(fleet, old, "ann")
    gpus = fleet.host("h2", H100, 2)
    if work is not None:
        train(fleet, gpus, "bob", work(fleet), job="1002")
    for gpu in gpus:
        gpu.absent(fleet.between(0, -days_ago))
    return fleet


def two_hosts(days: float = 5, first: float = 0, last: float | None = None) -> Fleet:
    """Two hosts with two GPUs each; the second was not seen between these days."""
    fleet = Fleet(days)
    for name in ("h1", "h2"):
        train(fleet, fleet.host(name, H100, 2), "ann")
    fleet.hosts[1].outage(fleet.between(first, last))
    return fleet


def unmeasured(**work: Any) -> Fleet:
    """Two GPUs, the first without utilization."""
    fleet = Fleet(2)
    gpus = fleet.host("h1", A100_80, 2)
    if work:
        train(fleet, gpus, "ann", **work)
    gpus[0].override(fleet.always, **NO_UTILIZATION)
    return fleet


def namespace_of_a_pod() -> Fleet:
    """Of a pod, and of all scraped history of Kubernetes, no user can be known."""
    fleet = Fleet(2)
    gpus = fleet.host("h1", H100, 1)
    gpus[0].override(fleet.always, process_count=None, gpu_util_pct=90.0, mem_used_bytes=60 * 10**9)
    fleet.allocation(gpus, None, 0, allocation_id="nlp/a", scheduler="kubernetes", account="nlp")
    return fleet


EDGES = [
    edges(
        "releasable_pool",
        ("a pool of less than a host has no reserve", {7: 0, 8: 1}, small_pool),
        ("hours that nobody saw are no history", 0, hours_that_nobody_saw),
        apart=True,
    ),
    edges(
        "slow_uptake",
        ("a ramp is not judged within two weeks", 0, lambda: added(13, lambda fleet: fleet.daily(0, 2))),
        ("a fleet that rests is no measure", 0, lambda: added(18, lambda fleet: fleet.daily(0, 2), fleet_work=False)),
        ("what was there from the start is not new", 0, lambda: added(23.5)),
        ("first use within a week", 0, lambda: added(12, lambda fleet: fleet.between(-12 + 6.9))),
        ("a ramp to half of the fleet", 0, lambda: added(18, lambda fleet: fleet.daily(0, 13))),
        apart=True,
    ),
    edges(
        "blind_spot",
        ("a silent host from 24 GPU-hours on", 0, lambda: two_hosts(5, -11 / 24)),
        ("unknown time by its share", 0, lambda: two_hosts(5, 1, 1 + 11 / 24)),
        # a third of the time, and 23.8 GPU-hours
        ("few hours are not worth a visit", 0, lambda: two_hosts(1.5, 0.5, 0.5 + 11.9 / 24)),
        ("an empty GPU needs no utilization", 0, unmeasured),
        ("a namespace says whom to ask", 0, namespace_of_a_pod),
        apart=True,
    ),
    edges(
        "hoarding",
        ("without a file of owners nothing is said", 0, lambda: one_host(H100, 4, days=15, interval_s=3600, util=0.0)),
        apart=True,
    ),
]


@pytest.mark.parametrize(("rule", "cases", "apart"), EDGES)
def test_where_a_rule_begins_and_ends(rule: str, cases: list[Case], *, apart: bool) -> None:
    finds_so_many(rule, cases, apart=apart)


# --- what a pool needs at once ----------------------------------------------------------------------------------------


def spans(*rows: tuple[str, float, float]) -> pl.DataFrame:
    """Spans of GPUs in hours."""
    return pl.DataFrame(
        [(gpu, round(first * HOUR_MS), round(last * HOUR_MS), 1.0, "all") for gpu, first, last in rows],
        schema={"gpu": pl.String, "time": pl.Int64, "end": pl.Int64, "gpu_share": pl.Float64, "team": pl.String},
        orient="row",
    )


def test_the_most_at_once_in_each_hour() -> None:
    """One ends as the next begins: never both. Hours that are not whole are left out."""
    rows = spans(("a", 0, 1.5), ("b", 0.5, 0.75), ("b", 1.5, 2), ("c", 3.25, 9))
    most = hourly_most(rows, ("team",), 0, 5 * HOUR_MS)
    assert most["most"].to_list() == [2, 1, 0, 1, 1]
    assert most["time"].to_list() == [hour * HOUR_MS for hour in range(5)]
    most = hourly_most(spans(("a", 0, 4)), ("team",), HOUR_MS // 2, round(3.5 * HOUR_MS))
    assert most["time"].to_list() == [HOUR_MS, 2 * HOUR_MS]


def test_most_at_once_agrees_with_counting_minute_by_minute() -> None:
    starts_and_lengths = np.random.default_rng(3).integers(1, 500, (60, 2)).tolist()
    minutes = np.arange(0, 1200)
    at_once = sum(((minutes >= first) & (minutes < first + length)).astype(int) for first, length in starts_and_lengths)
    rows = [(f"g{at}", first / 60, (first + length) / 60) for at, (first, length) in enumerate(starts_and_lengths)]
    most = hourly_most(spans(*rows), ("team",), 0, 20 * HOUR_MS)
    assert most["most"].to_list() == np.asarray(at_once).reshape(20, 60).max(axis=1).tolist()


def test_a_tail_joins_what_it_reaches() -> None:
    joined = merge(spans(("a", 0, 1), ("a", 1.25, 2), ("a", 3, 4), ("b", 2, 3)), tail_ms=30 * MINUTE_MS)
    expected = spans(("a", 0, 2.5), ("a", 3, 4.5), ("b", 2, 3.5))
    assert joined.select("gpu", "time", "end").rows() == expected.select("gpu", "time", "end").rows()


def test_a_finding_names_what_can_go_now_and_has_the_confidence_of_the_pool() -> None:
    """The whole host can go, and of the other the least used."""
    fleet, gpus = hosts_of_eight()
    train(fleet, gpus[:3], "ann")
    train(fleet, gpus[3:5], "ann", fleet.daily(10, 14), job="1002")
    each = only_of("releasable_pool", fleet)
    numbers = each.evidence.numbers
    assert (numbers["pool_gpus"], numbers["peak_demand_gpus"], numbers["history_days"]) == (16, 5, 15)
    assert numbers["kept_gpus"] == math.ceil(5 * 1.15 * (1 + 1 / 15)) == 7
    assert (each.subject, each.pool) == ("train: NVIDIA H100 80GB HBM3", ("train", "NVIDIA H100 80GB HBM3"))
    assert each.gpus == each.reclaimable_gpus == (gpus[5].uuid, *(gpu.uuid for gpu in gpus[8:]))
    assert numbers["release_now_by_host"] == "h2 8; h1 1"
    assert each.notes == ("1 whole host can be released: h2",)
    assert each.gpu_hours == pytest.approx(9 * 15 * 24)
    assert "back-test: no shortfall in 168 hours" in evidence(each)
    rare = replace(each, evidence=replace(each.evidence, numbers=numbers | {"highest_demand_gpus": 6.0}))
    assert "peak demand of 5 (at most 6), 7 with the reserve" in evidence(rare), "one peak demand everywhere"


def test_a_release_that_unknown_time_may_hide_is_not_sure() -> None:
    fleet, gpus = hosts_of_eight(4)
    train(fleet, gpus[:20], "ann")
    for gpu in gpus[-3:]:
        gpu.absent(fleet.every(24, 6))
    each = only_of("releasable_pool", fleet)
    assert each.evidence.numbers["releasable_gpus"] == 32 - math.ceil(20 * 1.15 * 16 / 15) == 7
    said = f"if unobserved time counts as demand, only {32 - math.ceil(23 * 1.15 * 16 / 15)} of 7 remain"
    assert [failure for failure in each.confidence.failed if "unobserved" in failure] == [said]


@pytest.mark.parametrize(("days", "outage"), [(13, None), (20, (-4, -3))])
def test_without_a_whole_week_before_the_last_there_is_no_back_test(
    days: float, outage: tuple[float, float] | None
) -> None:
    fleet, gpus = hosts_of_eight(1, days)
    train(fleet, gpus[:2], "ann")
    if outage is not None:
        gpus[0].host.outage(fleet.between(*outage))
    each = only_of("releasable_pool", fleet)
    assert (each.evidence.numbers["backtest_hours"], each.confidence.grade) == (None, "medium")
    assert "no back-test: it needs 14 days in which the pool was observed" in evidence(each)


# --- what a team is granted -------------------------------------------------------------------------------------------


@pytest.fixture
def owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Writes the owners file: lines of kind, name, team and quota."""

    def write(*lines: str) -> None:
        file = tmp_path / "owners.csv"
        file.write_text("\n".join(["kind,name,team,quota_gpus", *lines]) + "\n", encoding="utf-8")
        monkeypatch.setenv("FALLOW_MONEY_OWNERS", str(file))

    return write


def trained(gpus: int = 8, own: int = 2, *, days: float = 15) -> Fleet:
    """Ann trains on the first of them."""
    fleet = Fleet(days, interval_s=3600)
    train(fleet, fleet.host("h1", H100, gpus)[:own], "ann")
    return fleet


@pytest.mark.parametrize(("quota", "fires"), [(4, False), (5, True)])
def test_less_than_half_of_the_quota(owners: Callable[..., None], quota: int, *, fires: bool) -> None:
    owners(f"user,ann,vision,{quota}")
    there = found("hoarding", trained(2, days=28))
    assert len(there) == fires
    for each in there:
        numbers = each.evidence.numbers
        assert (each.subject, each.team, each.host, each.reclaimable) == ("quota: vision", "vision", "", False)
        assert (numbers["quota_gpus"], numbers["allocated_at_once_q95_gpus"], numbers["quota_unused_gpus"]) == (5, 2, 3)
        assert numbers["allocated_gpu_hours"] == pytest.approx(2 * 28 * 24)
        assert each.gpu_hours == 0  # nothing of what it has is idle
        assert each.next_command == "sacctmgr show assoc where user=ann format=Account,User,GrpTRES,MaxTRES"
        assert each.sentence == "idle in a team whose quota far exceeds its allocations"
        assert each.confidence.failed == ()


def test_peaks_of_more_than_a_twentieth_of_the_time_count(owners: Callable[..., None]) -> None:
    owners("user,ann,vision,8")
    fleet = trained(own=1)
    train(fleet, fleet.gpus[1:], "ann", fleet.every(168, 10), job="1002")  # 6 % of the week
    assert found("hoarding", fleet) == []


def test_a_team_that_has_nothing(owners: Callable[..., None]) -> None:
    owners("namespace,lab,physics,4", "user,ann,vision,2")
    each = only_of("hoarding", trained(2))
    assert (each.subject, each.gpus, each.gpu_hours, each.cost) == ("quota: physics", (), 0, None)
    assert each.next_command == "kubectl describe resourcequota -n lab"


def test_what_is_taken_and_not_used(owners: Callable[..., None]) -> None:
    owners("account,ann-lab,vision,8")
    fleet = trained(own=1)
    train(fleet, fleet.gpus[1:], "ann", util=0.0, job="1002")
    each = only_of("hoarding", fleet)
    numbers = each.evidence.numbers
    assert (each.subject, numbers["kind"]) == ("allocation: vision", "allocation")
    assert each.gpus == tuple(gpu.uuid for gpu in fleet.gpus[1:])
    assert (numbers["allocated_at_once_q95_gpus"], numbers["used_at_once_q95_gpus"]) == (8, 1)
    assert (each.user, each.gpu_hours) == ("ann", pytest.approx(7 * 15 * 24))
    assert each.next_command == "squeue --account=ann-lab --long"


@pytest.mark.parametrize(("days", "count"), [(13.9, 0), (14, 1)])
def test_two_weeks_of_demand_are_wanted(owners: Callable[..., None], days: float, count: int) -> None:
    owners("user,ann,vision,8")
    there = found("hoarding", trained(1, 1, days=days))
    assert ["14.0 days of demand, 28 are needed" in each.confidence.failed for each in there] == [True] * count


def test_teams_that_share_a_gpu_have_half_of_it_each(owners: Callable[..., None]) -> None:
    owners("user,ann,vision,2", "user,bob,language,2")
    fleet = one_host(days=15, interval_s=3600, util=40.0, mem_gb=20)
    fleet.run(fleet.gpus, "bob", util=40.0, mem_gb=20)
    there = found("hoarding", fleet)
    assert [each.evidence.numbers["allocated_at_once_q95_gpus"] for each in there] == [0.5, 0.5]


# --- new GPUs ---------------------------------------------------------------------------------------------------------


def test_nobody_has_used_new_gpus() -> None:
    each = only_of("slow_uptake", added(10))
    numbers = each.evidence.numbers
    assert (each.host, each.gpus) == ("h2", ("GPU-h2-0", "GPU-h2-1"))
    assert each.subject == f"added {utc_day(T_END - 10 * DAY_MS)}"
    assert (each.since_ms, each.gpu_hours) == (T_END - 10 * DAY_MS, pytest.approx(480))
    assert (numbers["gpus_without_any_use"], numbers["first_use_after_h"], numbers["days_since_added"]) == (2, None, 10)
    assert (numbers["active_share_since"], numbers["active_share_of_the_fleet"]) == (0, 1)
    assert each.reclaimable_gpus == each.gpus
    assert each.next_command.startswith("ssh h2 nvidia-smi --query-gpu")


def test_first_use_after_a_week_and_the_ramp_to_half_of_the_fleet() -> None:
    numbers = numbers_of("slow_uptake", added(12, lambda fleet: fleet.between(-12 + 7.1)))
    assert numbers["first_use_after_h"] == pytest.approx(7.1 * 24, abs=0.5)
    numbers = numbers_of("slow_uptake", added(18, lambda fleet: fleet.daily(0, 11)))
    assert (numbers["ramp_after_days"], numbers["active_share_since"]) == (None, pytest.approx(11 / 24, rel=0.05))


def test_uptake_that_was_over_before_the_window_is_history() -> None:
    fleet = added(20, lambda fleet: fleet.between(-10))
    assert len(found("slow_uptake", fleet)) == 1
    assert found("slow_uptake", fleet, since="2026-11-14") == []


def test_gpus_that_came_on_two_days_are_two_findings() -> None:
    fleet = added(12)
    fleet.gpus[2].absent(fleet.between(0, -9))
    assert [each.evidence.numbers["gpus_added"] for each in found("slow_uptake", fleet)] == [1, 1]


# --- unobserved time --------------------------------------------------------------------------------------------------


def test_a_silent_host() -> None:
    each = only_of("blind_spot", two_hosts(5, -13 / 24))
    assert (each.subject, each.host, each.since_ms) == ("silent", "h2", T_END - 13 * HOUR_MS)
    assert each.gpu_hours == pytest.approx(26)
    assert (each.energy_kwh, each.cost, each.reclaimable) == (None, None, False)
    assert each.evidence.numbers["silent_h"] == 13
    assert (each.next_command, each.confidence.grade) == ("ssh h2 systemctl status fallow-agent", "high")


def test_where_no_agent_runs_the_metrics_server_is_looked_at() -> None:
    fleet = two_hosts(5, -13 / 24)
    site = fleet.recording()
    own = [device(gpu.uuid, time=T_END - HOUR_MS, source="scraped") for gpu in fleet.gpus[2:]]
    write(site, DEVICE, own, host="h2")
    each = only_of("blind_spot", site)
    assert (each.host, each.next_command) == ("h2", "fallow import prometheus --check")


def test_unknown_time_by_its_share() -> None:
    """Of five days with two GPUs, more than 12 hours are a tenth."""
    each = only_of("blind_spot", two_hosts(5, 1, 1 + 13 / 24))
    numbers = each.evidence.numbers
    assert (each.subject, each.host, numbers["pools"]) == ("unknown time", "h2", "train")
    assert numbers["blind_gpu_hours"] == pytest.approx(26, rel=0.02)
    assert numbers["share_of_the_host"] == pytest.approx(13 / 120, rel=0.02)
    assert numbers["gpu_hours_of_the_host"] == pytest.approx(240)


def test_use_without_utilization_and_use_that_nothing_would_show() -> None:
    """Where neither processes nor memory are read, somebody may be on the GPU."""
    each = only_of("blind_spot", unmeasured(util=95.0))
    assert (each.subject, each.gpus, each.next_command) == ("no utilization", ("GPU-h1-0",), "ssh h1 fallow doctor")
    assert each.evidence.numbers["share_of_the_host"] == pytest.approx(0.5)
    fleet = Fleet(2)
    for gpu in fleet.host("h1", H100, 2):
        gpu.override(fleet.always, process_count=None, mem_used_bytes=None)
    assert only_of("blind_spot", fleet).subject == "use not watched"


def test_utilization_without_a_context_is_no_fault_of_the_agent() -> None:
    fleet = Fleet(2)
    wrong, right = fleet.host("h1", H100, 2)
    train(fleet, right, "ann")
    wrong.override(
        fleet.always, gpu_util_pct=100.0, mem_used_bytes=4 * 2**20, power_w=55.0, process_count=0, sm_active_pct=None
    )
    each = only_of("blind_spot", fleet)
    assert (each.subject, each.gpus, each.gpu_hours) == ("util_without_context", (wrong.uuid,), pytest.approx(48))
    assert each.next_command == "ssh h1 nvidia-smi -q"


@pytest.mark.parametrize(
    ("host", "shown"), [("h1", "h1"), ("gpu 1", "'gpu 1'"), ("-oProxyCommand=x", "-- -oProxyCommand=x")]
)
def test_processes_without_a_user_on_hosts_with_odd_names(host: str, shown: str) -> None:
    fleet = Fleet(2)
    first, second = fleet.host(host, H100, 2)
    fleet.run(first, None, util=90.0, mem_gb=60)
    train(fleet, second, "ann")
    each = only_of("blind_spot", fleet)
    assert (each.subject, each.gpus, each.gpu_hours) == ("user not known", (first.uuid,), pytest.approx(48))
    assert each.next_command == f"ssh {shown} fallow doctor"


def test_several_kinds_are_several_findings() -> None:
    fleet = Fleet(6)
    gpus = fleet.host("h1", H100, 2)
    fleet.run(gpus, None, util=90.0)
    gpus[0].host.outage(fleet.between(1, 3))
    there = found("blind_spot", fleet)
    assert [each.subject for each in there] == ["unknown time", "user not known"]
    assert len({each.finding_id for each in there}) == 2
