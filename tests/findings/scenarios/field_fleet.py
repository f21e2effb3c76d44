"""Situations from the field: cards, hosts and agents; heat and power; what was bought, moved and lost."""

from __future__ import annotations

import numpy as np

from tests.findings.scenarios.builder import A100_80, GB, H100, V100, Fleet
from tests.findings.scenarios.situations import situation, train

RUNNING = "held ending never_used"


@situation(fires="blind_spot", look_alike_of=f"{RUNNING} slow_uptake")
def agent_outage(fleet: Fleet) -> None:
    """The agent of one of two hosts was down for two days of eight; the work went on."""
    for name in ("h1", "h2"):
        train(fleet, fleet.host(name, H100, 2), "ann")
    fleet.hosts[1].outage(fleet.between(4, 6))
    fleet.event(fleet.hosts[1], 4, "agent_killed")
    fleet.event(fleet.hosts[1], 6, "agent_start")


@situation(look_alike_of=f"{RUNNING} blind_spot")
def agent_update(fleet: Fleet) -> None:
    """The agent was down for a quarter of an hour."""
    gpus = fleet.host("h1", H100, 2)
    train(fleet, gpus, "ann")
    gpus[0].host.outage(fleet.between(5, 5 + 1 / 96))
    fleet.event(gpus[0].host, 5, "agent_stop")


@situation(look_alike_of=f"{RUNNING} blind_spot throttled")
def driver_reload(fleet: Fleet) -> None:
    """The driver was reloaded: half an hour without GPUs, and every counter begins at zero again."""
    gpus = fleet.host("h1", H100, 2)
    down = fleet.between(4, 4 + 1 / 48)
    train(fleet, gpus, "ann", ~down)
    for gpu in gpus:
        gpu.throttle(fleet.always, power_cap=0.02)
        gpu.is_in(down, "driver_down")
        gpu.restart(fleet.between(4 + 1 / 48))
    fleet.event(gpus[0].host, 4, "driver_down")
    fleet.event(gpus[0].host, 4 + 1 / 48, "driver_up")


@situation(look_alike_of=f"{RUNNING} blind_spot")
def asleep(fleet: Fleet) -> None:
    """A workstation powers its card down from evening to morning."""
    (gpu,) = fleet.host("ws1", V100, 1, pool="desk")
    night = fleet.daily(19, 8)
    train(fleet, gpu, "ann", ~night)
    gpu.is_in(night, "asleep")


@situation(may="ending releasable_pool", look_alike_of="held reserved_unused never_used blind_spot partial_use")
def lost_card(fleet: Fleet) -> None:
    """A card fell off the bus five days ago; its allocation still stands."""
    first, second = fleet.host("h1", H100, 2)
    lost = fleet.between(-5)
    train(fleet, first, "ann", ~lost)
    train(fleet, second, "bob")
    first.is_in(lost, "lost")
    fleet.allocation([first], "ann", 0, allocation_id="77", account="ann-lab")
    fleet.event(first.host, -5, "gpu_lost", gpu=first.uuid)


@situation(days=15, fires="never_used", may="releasable_pool", look_alike_of="held slow_uptake partial_use")
def bought_and_never_used(fleet: Fleet) -> None:
    """Two of eight cards have been in the fleet since its beginning, and nobody has been on them."""
    gpus = fleet.host("h1", H100, 8)
    train(fleet, gpus[:6], "ann")


@situation(
    days=15,
    fires="never_used reserved_unused",
    may="releasable_pool slow_uptake",
    look_alike_of="held blind_spot partial_use",
)
def reserved_since_it_came(fleet: Fleet) -> None:
    """A host was bought for a project and reserved for it; in two weeks the project has not started one process."""
    train(fleet, fleet.host("h1", H100, 4), "ann")
    gpus = fleet.host("h2", H100, 2)
    fleet.allocation(gpus, "bob", 0, allocation_id="resv-2", account="bob-lab")


@situation(days=18, interval_s=600, fires="left_free", may="releasable_pool ending", look_alike_of="never_used held")
def left_after_the_deadline(fleet: Fleet) -> None:
    """Two of four cards worked until the paper was sent; in the sixteen days since then they were free."""
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus[:2], "ann")
    train(fleet, gpus[2:], "bob", fleet.between(0, -16), job="1002")


@situation(days=25, interval_s=600, fires="left_free", may="releasable_pool", look_alike_of="never_used slow_uptake")
def tried_on_the_first_day(fleet: Fleet) -> None:
    """A new host was tested for an hour, and has been free for three weeks."""
    train(fleet, fleet.host("h1", H100, 2), "ann")
    train(fleet, fleet.host("h2", H100, 2), "admin", fleet.between(0, 1 / 24), job="1002")


@situation(days=18, interval_s=600, may="releasable_pool ending", look_alike_of="left_free never_used")
def two_weeks_of_leave(fleet: Fleet) -> None:
    """The cards of a team that is away for two weeks have been free for thirteen days."""
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus[:2], "ann")
    train(fleet, gpus[2:], "bob", fleet.between(0, -13), job="1002")


@situation(days=25, interval_s=600, may="releasable_pool ending", look_alike_of="left_free never_used held")
def a_job_a_week(fleet: Fleet) -> None:
    """A card trains a model every Friday night, and is free on the other days."""
    first, second = fleet.host("h1", H100, 2)
    train(fleet, first, "ann")
    train(fleet, second, "bob", fleet.every(7 * 24, 10), job="1002")


@situation(look_alike_of="never_used slow_uptake blind_spot held reserved_unused")
def moved_to_another_host(fleet: Fleet) -> None:
    """A card was used in one host until four days ago, and has been idle in another for two hours."""
    (gpu,) = fleet.host("h1", H100, 1)
    (there,) = fleet.host("h2", H100, 1)
    later = fleet.between(-4)
    train(fleet, gpu, "ann", fleet.between(0, -1 / 12))
    gpu.move(there.host, later)
    train(fleet, there, "bob")


@situation(days=15, fires="slow_uptake", may="never_used releasable_pool", look_alike_of="held ending")
def new_cards_not_taken_up(fleet: Fleet) -> None:
    """Four cards came ten days ago, and nobody has used them yet."""
    train(fleet, fleet.host("h1", H100, 8), "ann")
    for gpu in fleet.host("h2", H100, 4):
        gpu.absent(fleet.between(0, -10))


@situation(days=15, look_alike_of="slow_uptake never_used releasable_pool")
def new_cards_taken_up_at_once(fleet: Fleet) -> None:
    """Four cards came ten days ago; two hours later they worked like the others."""
    train(fleet, fleet.host("h1", H100, 8), "ann")
    gpus = fleet.host("h2", H100, 4)
    train(fleet, gpus, "bob", fleet.between(-10 + 1 / 12), job="1003")
    for gpu in gpus:
        gpu.absent(fleet.between(0, -10))


@situation(fires="throttled", look_alike_of="inefficient imbalance held")
def too_hot(fleet: Fleet) -> None:
    """One card of four slows down because of heat for most of the time."""
    gpus = fleet.host("h1", A100_80, 4)
    train(fleet, gpus, "ann")
    gpus[2].throttle(fleet.always, sw_thermal=0.6)


@situation(fires="throttled", look_alike_of="inefficient imbalance stalls")
def held_back_by_its_group(fleet: Fleet) -> None:
    """One card is hot, and sync boost slows the three others down with it."""
    gpus = fleet.host("h1", V100, 4)
    train(fleet, gpus, "ann")
    gpus[0].throttle(fleet.always, hw_thermal=0.5)
    for gpu in gpus[1:]:
        gpu.throttle(fleet.always, sync_boost=0.5)


@situation(look_alike_of="throttled inefficient memory_oversized")
def capped_at_full_load(fleet: Fleet) -> None:
    """Full load at the card's own limit: the cap cuts the peaks for a few percent of the time."""
    gpus = fleet.host("h1", H100, 2)
    train(fleet, gpus, "ann", util=99.0, sm=92.0)
    for gpu in gpus:
        gpu.throttle(fleet.always, power_cap=0.05)


@situation(look_alike_of=f"throttled inefficient {RUNNING}")
def idle_clocks(fleet: Fleet) -> None:
    """Counters of causes stand still, clocks are low, for nobody uses the card at night."""
    gpus = fleet.host("h1", H100, 2)
    train(fleet, gpus, "ann", fleet.daily(4, 22))


@situation(may="blind_spot", look_alike_of="held never_used ending")
def imported_points(fleet: Fleet) -> None:
    """History from another tool: one reading every five minutes, and neither maxima nor processes."""
    gpus = fleet.host("h1", A100_80, 2)
    train(fleet, gpus, "ann", util=fleet.noise(90, 4))
    nothing = ("gpu_util_max_pct", "gpu_util_zero_ratio", "gpu_util_coverage_ratio", "process_count", "counters_since")
    for gpu in gpus:
        gpu.override(fleet.always, **dict.fromkeys(nothing))
        gpu.stays.clear()


@situation(look_alike_of="blind_spot inefficient imbalance")
def absurd_readings(fleet: Fleet) -> None:
    """A broken sensor: 300 % and negative memory in one row of a hundred."""
    gpus = fleet.host("h1", H100, 2)
    train(fleet, gpus, "ann", util=fleet.noise(92, 3))
    broken = np.arange(fleet.rows) % 100 == 50
    gpus[0].override(broken, gpu_util_pct=300.0)
    gpus[1].override(broken, mem_used_bytes=-5 * GB)
