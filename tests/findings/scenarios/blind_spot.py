"""What nobody saw, and what only looks unseen."""

from __future__ import annotations

from tests.findings.scenarios.builder import A100_80, H100, Fleet
from tests.findings.scenarios.situations import situation, train


def host_that_fell_silent(fleet: Fleet) -> None:
    """Its agent died three days ago, and nobody has noticed."""
    train(fleet, fleet.host("h1", H100, 2), "ann")
    gpus = fleet.host("h2", H100, 2)
    train(fleet, gpus, "bob", job="1002")
    gpus[0].host.outage(fleet.between(-3))


def agent_that_is_down_every_night(fleet: Fleet) -> None:
    """A timer stops the agent from midnight to six: a quarter of the time is unknown."""
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus, "ann")
    gpus[0].host.outage(fleet.daily(0, 6))


def utilization_that_is_not_there(fleet: Fleet) -> None:
    """An old driver knows memory and processes, and no utilization."""
    gpus = fleet.host("h1", A100_80, 2)
    train(fleet, gpus, "ann")
    nothing = ("gpu_util_pct", "gpu_util_max_pct", "gpu_util_zero_ratio", "gpu_util_coverage_ratio", "sm_active_pct")
    for gpu in gpus:
        gpu.override(fleet.always, **dict.fromkeys(nothing))


def processes_without_owners(fleet: Fleet) -> None:
    """The agent runs in a container of its own and cannot tell whose the processes are."""
    fleet.run(fleet.host("h1", H100, 2), None, util=90.0, mem_gb=70, attribution="hidden", command=None)


def restart_of_a_host(fleet: Fleet) -> None:
    """An hour without rows for a new kernel."""
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus, "ann")
    gpus[0].host.outage(fleet.between(5, 5 + 1 / 24))
    gpus[0].restart(fleet.between(5 + 1 / 24))


def card_in_another_host(fleet: Fleet) -> None:
    """A host was emptied four days ago; its two cards report from another one."""
    gpus = fleet.host("h1", H100, 2)
    other = fleet.host("h2", H100, 2)
    train(fleet, [*gpus, *other], "ann")
    for gpu in gpus:
        gpu.move(other[0].host, fleet.between(-4))


def card_in_slices(fleet: Fleet) -> None:
    """A card that is split has no utilization of its own; its instances have."""
    (gpu,) = fleet.host("h1", H100, 1)
    instances = fleet.split(gpu, "4g.40gb", "3g.40gb")
    fleet.run(instances[0], "ann", util=80.0, mem_gb=30)
    fleet.run(instances[1], "bob", util=70.0, mem_gb=30)


def silent_for_a_few_hours(fleet: Fleet) -> None:
    """A desk's computer was switched off this afternoon."""
    train(fleet, fleet.host("h1", H100, 2), "ann")
    (gpu,) = fleet.host("ws1", H100, 1, pool="desk")
    train(fleet, gpu, "bob", job="1002")
    gpu.host.outage(fleet.between(-8 / 24))


REST = "held never_used low_efficiency"

SCENARIOS = (
    situation(host_that_fell_silent, fires="blind_spot", look_alike_of="wind_down never_used"),
    situation(agent_that_is_down_every_night, fires="blind_spot", look_alike_of="held wind_down"),
    situation(utilization_that_is_not_there, fires="blind_spot", may="low_efficiency", look_alike_of="held never_used"),
    situation(processes_without_owners, fires="blind_spot", look_alike_of="zombie_holder held"),
    situation(restart_of_a_host, look_alike_of="blind_spot"),
    situation(card_in_another_host, look_alike_of="blind_spot slow_uptake"),
    situation(card_in_slices, may="co_location memory_oversized", look_alike_of="blind_spot"),
    situation(silent_for_a_few_hours, look_alike_of="blind_spot"),
)
