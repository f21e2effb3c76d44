"""Pools, teams, new cards and hosts: what is too large, never used or never seen, and what only looks like it."""

from __future__ import annotations

from tests.findings.scenarios.builder import H100, Fleet, Gpu
from tests.findings.scenarios.situations import situation, train

BESIDE_RELEASABLE_POOL = "never_used ending low_efficiency held"
TEAMS = "kind,name,team,quota_gpus\nuser,ann,vision,{}\nuser,bob,language,{}\n"
REST_BESIDE_HOARDING = "releasable_pool never_used low_efficiency"
REST_BESIDE_BLIND_SPOT = "held never_used low_efficiency"


def _two_hosts(fleet: Fleet, pool: str = "train") -> list[Gpu]:
    return [*fleet.host("h1", H100, 8, pool=pool), *fleet.host("h2", H100, 8, pool=pool)]


@situation(days=15, interval_s=1800, fires="releasable_pool", may=BESIDE_RELEASABLE_POOL)
def second_host_for_the_peak_that_never_came(fleet: Fleet) -> None:
    """Six jobs at most, on the first host; the second was bought for a peak."""
    gpus = _two_hosts(fleet)
    train(fleet, gpus[:4], "ann")
    for number, gpu in enumerate(gpus[4:6]):
        train(fleet, gpu, "bob", fleet.daily(8, 20), job=f"200{number}")
    train(fleet, gpus[8], "eve", fleet.between(1, 2), job="3001")


@situation(days=15, interval_s=1800, fires="releasable_pool", look_alike_of="never_used")
def work_that_spreads_itself(fleet: Fleet) -> None:
    """Every card works at some time of the week, and never more than four of them together."""
    for number, gpu in enumerate(_two_hosts(fleet)):
        train(fleet, gpu, "ann", fleet.every(48, 12, offset_h=3 * number), job=f"{800 + number}")


@situation(days=15, interval_s=1800, look_alike_of="releasable_pool never_used")
def one_day_a_week_everything(fleet: Fleet) -> None:
    """Every Thursday the whole pool works on one report."""
    gpus = _two_hosts(fleet)
    thursdays = fleet.every(7 * 24, 24, offset_h=24 * 6)
    train(fleet, gpus[:4], "ann")
    train(fleet, gpus[4:], "bob", thursdays, job="1002")


@situation(days=19, interval_s=1800, may="never_used", look_alike_of="releasable_pool")
def demand_that_has_just_grown(fleet: Fleet) -> None:
    """Two weeks of three cards, and since five days all but two: the mean of a month says nothing."""
    gpus = _two_hosts(fleet)
    train(fleet, gpus[:3], "ann")
    train(fleet, gpus[3:14], "bob", fleet.between(-5), job="1002")


@situation(days=28, interval_s=3600, fires="hoarding", may=REST_BESIDE_HOARDING, owners=TEAMS.format(16, 4))
def quota_of_another_year(fleet: Fleet) -> None:
    """Sixteen GPUs were granted for a project that is long over; two are in use."""
    gpus = fleet.host("h1", H100, 8)
    train(fleet, gpus[:2], "ann")
    train(fleet, gpus[2:6], "bob", job="1002")


@situation(days=28, interval_s=3600, fires="hoarding", may=REST_BESIDE_HOARDING, owners=TEAMS.format(4, 4))
def team_that_never_came(fleet: Fleet) -> None:
    """A quota of four, and not one process in four weeks."""
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus[:3], "ann")


@situation(days=28, interval_s=3600, may=REST_BESIDE_HOARDING, look_alike_of="hoarding", owners=TEAMS.format(8, ""))
def full_on_two_days_a_week(fleet: Fleet) -> None:
    """The whole quota is needed on Mondays and Tuesdays only."""
    gpus = fleet.host("h1", H100, 8)
    train(fleet, gpus[:2], "ann")
    train(fleet, gpus[2:], "ann", fleet.weekdays & fleet.every(7 * 24, 48, offset_h=72), job="1002")


@situation(days=28, interval_s=3600, look_alike_of="hoarding", owners=TEAMS.format("", ""))
def no_quota_on_file(fleet: Fleet) -> None:
    """The owners file names the team, and no quota."""
    gpus = fleet.host("h1", H100, 8)
    train(fleet, gpus[0], "ann")
    train(fleet, gpus[1:], "bob", job="1002")


@situation(days=19, interval_s=1800, fires="slow_uptake", may="releasable_pool")
def host_without_a_queue(fleet: Fleet) -> None:
    """A new host stands there for nine days before its first job: its queue had been forgotten."""
    train(fleet, fleet.host("h1", H100, 4), "ann")
    gpus = fleet.host("h2", H100, 4)
    train(fleet, gpus, "bob", fleet.between(-1.5), job="1002")
    for gpu in gpus:
        gpu.absent(fleet.between(0, -10.5))


@situation(days=19, interval_s=1800, fires="slow_uptake never_used")
def cards_that_nobody_knows_of(fleet: Fleet) -> None:
    """Two cards were added to a busy host twelve days ago, and nobody has touched them."""
    gpus = fleet.host("h1", H100, 6)
    train(fleet, gpus[:4], "ann")
    for gpu in gpus[4:]:
        gpu.absent(fleet.between(0, -12))


@situation(days=19, interval_s=1800, look_alike_of="slow_uptake never_used")
def replaced_card(fleet: Fleet) -> None:
    """A broken card was replaced five days ago, and the new one has its work since."""
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus[:2], "ann")
    train(fleet, gpus[2], "ann", fleet.between(0, -5), job="1002")
    train(fleet, gpus[3], "ann", fleet.between(-4.95), job="1003")
    gpus[2].absent(fleet.between(-5))
    gpus[3].absent(fleet.between(0, -5))


@situation(days=19, interval_s=1800, look_alike_of="slow_uptake never_used")
def agent_that_came_later(fleet: Fleet) -> None:
    """An old host got its agent ten days ago, and is as busy as ever."""
    train(fleet, fleet.host("h1", H100, 2), "ann")
    gpus = fleet.host("h2", H100, 2)
    train(fleet, gpus, "bob", job="1002")
    gpus[0].host.outage(fleet.between(0, -10))


@situation(days=19, interval_s=1800, look_alike_of="slow_uptake never_used blind_spot")
def card_that_moved(fleet: Fleet) -> None:
    """A card that has long been used moved to another host, where it rests for nine days."""
    first, second = fleet.host("h1", H100, 2)
    train(fleet, first, "ann")
    train(fleet, second, "ann", fleet.between(0, 6), job="1002")
    (third,) = fleet.host("h2", H100, 1)
    train(fleet, third, "bob", job="1003")
    second.move(third.host, fleet.between(-9))


@situation(fires="blind_spot", look_alike_of="ending never_used")
def host_that_fell_silent(fleet: Fleet) -> None:
    """Its agent died three days ago, and nobody has noticed."""
    train(fleet, fleet.host("h1", H100, 2), "ann")
    gpus = fleet.host("h2", H100, 2)
    train(fleet, gpus, "bob", job="1002")
    gpus[0].host.outage(fleet.between(-3))


@situation(fires="blind_spot", look_alike_of="held ending")
def agent_that_is_down_every_night(fleet: Fleet) -> None:
    """A timer stops the agent from midnight to six: a quarter of the time is unknown."""
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus, "ann")
    gpus[0].host.outage(fleet.daily(0, 6))


@situation(look_alike_of="blind_spot slow_uptake")
def card_in_another_host(fleet: Fleet) -> None:
    """A host was emptied four days ago; its two cards report from another one."""
    gpus = fleet.host("h1", H100, 2)
    other = fleet.host("h2", H100, 2)
    train(fleet, [*gpus, *other], "ann")
    for gpu in gpus:
        gpu.move(other[0].host, fleet.between(-4))


@situation(may="co_location memory_oversized", look_alike_of="blind_spot")
def card_in_slices(fleet: Fleet) -> None:
    """A card that is split has no utilization of its own; its instances have."""
    (gpu,) = fleet.host("h1", H100, 1)
    instances = fleet.split(gpu, "4g.40gb", "3g.40gb")
    fleet.run(instances[0], "ann", util=80.0, mem_gb=30)
    fleet.run(instances[1], "bob", util=70.0, mem_gb=30)
