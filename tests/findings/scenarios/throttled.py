"""Clocks that are held down: by heat and other faults, or as they should be."""

from __future__ import annotations

import numpy as np

from tests.findings.scenarios.builder import A100_80, H100, Fleet
from tests.findings.scenarios.situations import situation, train

DAYS = 4


def fan_failure(fleet: Fleet) -> None:
    """Two of four cards of a host reach their limit for a third of the time."""
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus, "ann")
    for gpu in gpus[:2]:
        gpu.throttle(fleet.every(3, 1), sw_thermal=0.9)


def emergency_slowdown(fleet: Fleet) -> None:
    """The hardware itself slows a card down in the afternoons."""
    gpus = fleet.host("h1", A100_80, 2)
    train(fleet, gpus, "ann", job=None)
    gpus[1].throttle(fleet.daily(12, 17), hw_thermal=0.6)


def rack_power_brake(fleet: Fleet) -> None:
    """The power supply asks for less: clocks fall while the cards draw half of what they may."""
    gpus = fleet.host("h1", H100, 2)
    brake = fleet.daily(8, 18)
    train(fleet, gpus, "ann", power_w=np.where(brake, 380.0, 640.0))
    for gpu in gpus:
        gpu.throttle(brake, power_brake=0.7)


def slow_card_in_a_boost_group(fleet: Fleet) -> None:
    """One card sets the clock of its group half of the time."""
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus, "ann")
    for gpu in gpus[1:]:
        gpu.throttle(fleet.always, sync_boost=0.5)


def cap_set_far_too_low(fleet: Fleet) -> None:
    """One host is capped so low that its cards lose a third of their clock all the time."""
    capped, whole = fleet.host("h1", H100, 2, power_limit_w=350.0), fleet.host("h2", H100, 2)
    train(fleet, whole, "bob", job="5")
    train(fleet, capped, "ann", power_w=345.0)
    for gpu in capped:
        gpu.throttle(fleet.always, power_cap=0.9)


def at_the_power_cap_as_usual(fleet: Fleet) -> None:
    """Full load against the cap all the time: clocks a seventh lower than under light load, as on every such card."""
    gpus, light = fleet.host("h1", H100, 4), fleet.host("h2", H100, 1)
    train(fleet, gpus, "ann", power_w=690.0)
    train(fleet, light, "bob", util=60.0, job="2")
    for gpu in gpus:
        gpu.throttle(fleet.always, power_cap=0.97)
        gpu.override(fleet.always, sm_clock_mhz=1700)


def one_hot_hour(fleet: Fleet) -> None:
    """The air conditioning was serviced for an hour."""
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus, "ann")
    for gpu in gpus:
        gpu.throttle(fleet.between(-1, -23 / 24), sw_thermal=1.0)


def hot_but_idle(fleet: Fleet) -> None:
    """A free card sits in the hot air of its neighbours and is slowed down without any work."""
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus[:3], "ann")
    gpus[3].throttle(fleet.always, sw_thermal=0.8)


def short_burn_in(fleet: Fleet) -> None:
    """Three hours of a stress test on a card that otherwise rests."""
    gpus = fleet.host("h1", H100, 2)
    train(fleet, gpus[0], "ann")
    test = fleet.between(-1, -21 / 24)
    fleet.run(gpus[1], "ops", test, util=100.0, mem_gb=70)
    gpus[1].throttle(test, hw_thermal=0.5)


def counters_began_again(fleet: Fleet) -> None:
    """The driver is reloaded every day: counters fall to zero, and nothing was slowed down."""
    gpus = fleet.host("h1", H100, 2)
    train(fleet, gpus, "ann")
    for gpu in gpus:
        gpu.throttle(fleet.between(0, 0.2), sw_thermal=1.0)
        for day in (1, 2, 3):
            gpu.restart(fleet.between(day))


SURPLUS = "standing_surplus never_used wind_down"

SCENARIOS = (
    situation(fan_failure, days=DAYS, fires="throttled"),
    situation(emergency_slowdown, days=DAYS, fires="throttled"),
    situation(rack_power_brake, days=DAYS, fires="throttled"),
    situation(slow_card_in_a_boost_group, days=DAYS, fires="throttled"),
    situation(cap_set_far_too_low, days=DAYS, fires="throttled"),
    situation(at_the_power_cap_as_usual, days=DAYS, may="co_location", look_alike_of="throttled inefficient"),
    situation(one_hot_hour, days=DAYS, look_alike_of="throttled"),
    situation(hot_but_idle, days=DAYS, may=SURPLUS, look_alike_of="throttled"),
    situation(short_burn_in, days=DAYS, may=SURPLUS, look_alike_of="throttled"),
    situation(counters_began_again, days=DAYS, look_alike_of="throttled"),
)
