"""The rule `blind_spot`: which hosts are not observed well enough, how much of them, and what to check."""

from __future__ import annotations

import pytest

from analytics.rules.blind_spot import BLIND_SPOT
from fallow.schema import DEVICE
from tests.findings.one_rule import found, found_in
from tests.findings.scenarios.builder import A100_80, H100, T_END, Fleet
from tests.findings.scenarios.situations import train
from tests.ledger.rows import device, write

RULE = BLIND_SPOT
HOUR_MS = 3_600_000
NO_UTILIZATION = ("gpu_util_pct", "gpu_util_max_pct", "gpu_util_zero_ratio", "gpu_util_coverage_ratio")


def two_hosts(days: float = 5) -> Fleet:
    fleet = Fleet(days)
    for name in ("h1", "h2"):
        train(fleet, fleet.host(name, H100, 2), "ann")
    return fleet


@pytest.mark.parametrize(("hours", "fires"), [(11, False), (13, True)])
def test_a_silent_host(hours: float, *, fires: bool) -> None:
    """Two GPUs that were not seen for so long: 24 GPU-hours are wanted."""
    fleet = two_hosts()
    fleet.hosts[1].outage(fleet.between(-hours / 24))
    there = found(RULE, fleet)
    assert bool(there) == fires
    for each in there:
        assert (each.subject, each.host, each.since_ms) == ("silent", "h2", T_END - hours * HOUR_MS)
        assert each.gpu_hours == pytest.approx(26)
        assert (each.energy_kwh, each.cost, each.reclaimable) == (None, None, False)
        assert each.evidence.numbers["silent_h"] == 13
        assert each.next_command == "ssh h2 systemctl status fallow-agent"
        assert each.confidence.grade == "high"


def test_where_no_agent_runs_the_metrics_server_is_looked_at() -> None:
    fleet = two_hosts()
    gpus = fleet.host("h3", H100, 2)
    fleet.hosts[2].outage(fleet.between(-13 / 24))
    site = fleet.recording()
    write(site, DEVICE, [device(gpu.uuid, time=T_END - HOUR_MS, source="scraped") for gpu in gpus], host="h3")
    (each,) = found_in(RULE, site)
    assert (each.host, each.next_command) == ("h3", "fallow import prometheus --check")


@pytest.mark.parametrize(("hours", "fires"), [(11, False), (13, True)])
def test_unknown_time_by_its_share(hours: float, *, fires: bool) -> None:
    """Of five days with two GPUs, more than 12 hours are a tenth."""
    fleet = two_hosts()
    fleet.hosts[1].outage(fleet.between(1, 1 + hours / 24))
    there = found(RULE, fleet)
    assert bool(there) == fires
    for each in there:
        numbers = each.evidence.numbers
        assert (each.subject, each.host, numbers["pools"]) == ("unknown time", "h2", "train")
        assert numbers["blind_gpu_hours"] == pytest.approx(26, rel=0.02)
        assert numbers["share_of_the_host"] == pytest.approx(13 / 120, rel=0.02)
        assert numbers["gpu_hours_of_the_host"] == pytest.approx(240)


def test_few_hours_are_not_worth_a_visit() -> None:
    fleet = two_hosts(1.5)
    fleet.hosts[1].outage(fleet.between(0.5, 0.5 + 11.9 / 24))  # a third of the time, and 23.8 GPU-hours
    assert found(RULE, fleet) == []


def test_use_without_utilization() -> None:
    fleet = Fleet(2)
    gpus = fleet.host("h1", A100_80, 2)
    train(fleet, gpus, "ann")
    gpus[0].override(fleet.always, **dict.fromkeys(NO_UTILIZATION))
    (each,) = found(RULE, fleet)
    assert (each.subject, each.gpus, each.next_command) == ("no utilization", (gpus[0].uuid,), "ssh h1 fallow doctor")
    assert each.evidence.numbers["share_of_the_host"] == pytest.approx(0.5)


def test_an_empty_gpu_needs_no_utilization() -> None:
    fleet = Fleet(2)
    gpus = fleet.host("h1", A100_80, 2)
    gpus[0].override(fleet.always, **dict.fromkeys(NO_UTILIZATION))
    assert found(RULE, fleet) == []


def test_holders_without_a_name() -> None:
    fleet = Fleet(2)
    first, second = fleet.host("h1", H100, 2)
    fleet.run(first, None, util=90.0, mem_gb=60)
    train(fleet, second, "ann")
    (each,) = found(RULE, fleet)
    assert (each.subject, each.gpus, each.gpu_hours) == ("holder not known", (first.uuid,), pytest.approx(48))


def test_a_namespace_says_whom_to_ask() -> None:
    """Of a pod, and of all scraped history of Kubernetes, no user can be known."""
    fleet = Fleet(2)
    gpus = fleet.host("h1", H100, 1)
    for gpu in gpus:
        gpu.override(fleet.always, process_count=None, gpu_util_pct=90.0, mem_used_bytes=60 * 10**9)
    fleet.claim(gpus, None, 0, claim_id="nlp/a", scheduler="kubernetes", account="nlp")
    assert found(RULE, fleet) == []


def test_use_that_nothing_would_show() -> None:
    """Neither processes nor memory are read: somebody may be on the GPU."""
    fleet = Fleet(2)
    gpus = fleet.host("h1", H100, 2)
    for gpu in gpus:
        gpu.override(fleet.always, process_count=None, mem_used_bytes=None)
    (each,) = found(RULE, fleet)
    assert each.subject == "use not watched"


@pytest.mark.parametrize(("host", "shown"), [("gpu 1", "'gpu 1'"), ("-oProxyCommand=x", "-- -oProxyCommand=x")])
def test_odd_host_names_are_one_harmless_word(host: str, shown: str) -> None:
    fleet = Fleet(2)
    fleet.run(fleet.host(host, H100, 2), None, util=90.0)
    (each,) = found(RULE, fleet)
    assert each.next_command == f"ssh {shown} fallow doctor"


def test_several_kinds_are_several_findings() -> None:
    fleet = Fleet(6)
    gpus = fleet.host("h1", H100, 2)
    fleet.run(gpus, None, util=90.0)
    gpus[0].host.outage(fleet.between(1, 3))
    there = found(RULE, fleet)
    assert [each.subject for each in there] == ["holder not known", "unknown time"]
    assert len({each.finding_id for each in there}) == 2
