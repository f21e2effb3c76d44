"""New GPUs that nobody takes up, and GPUs that are only new to the lake."""

from __future__ import annotations

from tests.findings.scenarios.builder import H100, Fleet
from tests.findings.scenarios.situations import situation, train

HALF_HOUR = 1800.0


def host_without_a_queue(fleet: Fleet) -> None:
    """A new host stands there for nine days before its first job: its queue had been forgotten."""
    train(fleet, fleet.host("h1", H100, 4), "ann")
    gpus = fleet.host("h2", H100, 4)
    train(fleet, gpus, "bob", fleet.between(-1.5), job="1002")
    for gpu in gpus:
        gpu.absent(fleet.between(0, -10.5))


def cards_that_nobody_knows_of(fleet: Fleet) -> None:
    """Two cards were added to a busy host twelve days ago, and nobody has touched them."""
    gpus = fleet.host("h1", H100, 6)
    train(fleet, gpus[:4], "ann")
    for gpu in gpus[4:]:
        gpu.absent(fleet.between(0, -12))


def two_hours_a_day_for_three_weeks(fleet: Fleet) -> None:
    """New cards are tried at once, and after three weeks still work for two hours a day beside a full fleet."""
    train(fleet, fleet.host("h1", H100, 4), "ann")
    gpus = fleet.host("h2", H100, 4)
    train(fleet, gpus, "bob", fleet.daily(10, 12), job="1002")
    for gpu in gpus:
        gpu.absent(fleet.between(0, -21))


def replaced_card(fleet: Fleet) -> None:
    """A broken card was replaced five days ago, and the new one has its work since."""
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus[:2], "ann")
    train(fleet, gpus[2], "ann", fleet.between(0, -5), job="1002")
    train(fleet, gpus[3], "ann", fleet.between(-4.95), job="1003")
    gpus[2].absent(fleet.between(-5))
    gpus[3].absent(fleet.between(0, -5))


def agent_that_came_later(fleet: Fleet) -> None:
    """An old host got its agent ten days ago, and is as busy as ever."""
    train(fleet, fleet.host("h1", H100, 2), "ann")
    gpus = fleet.host("h2", H100, 2)
    train(fleet, gpus, "bob", job="1002")
    gpus[0].host.outage(fleet.between(0, -10))


def card_that_moved(fleet: Fleet) -> None:
    """A card that has long been used moved to another host, where it rests for nine days."""
    first, second = fleet.host("h1", H100, 2)
    train(fleet, first, "ann")
    train(fleet, second, "ann", fleet.between(0, 6), job="1002")
    (third,) = fleet.host("h2", H100, 1)
    train(fleet, third, "bob", job="1003")
    second.move(third.host, fleet.between(-9))


def added_the_day_before_yesterday(fleet: Fleet) -> None:
    """Cards that came two days ago are being set up."""
    train(fleet, fleet.host("h1", H100, 4), "ann")
    for gpu in fleet.host("h2", H100, 4):
        gpu.absent(fleet.between(0, -2))


def ramp_of_a_week(fleet: Fleet) -> None:
    """The first jobs after two days, all cards in use after eight."""
    train(fleet, fleet.host("h1", H100, 4), "ann")
    gpus = fleet.host("h2", H100, 4)
    train(fleet, gpus, "bob", fleet.between(-15, -9) & fleet.daily(9, 15), job="1002")
    train(fleet, gpus, "bob", fleet.between(-9), job="1003")
    for gpu in gpus:
        gpu.absent(fleet.between(0, -17))


REST = "never_used standing_surplus wind_down"

SCENARIOS = (
    situation(host_without_a_queue, days=19, interval_s=HALF_HOUR, fires="slow_uptake", may="standing_surplus"),
    situation(cards_that_nobody_knows_of, days=19, interval_s=HALF_HOUR, fires="slow_uptake never_used"),
    situation(two_hours_a_day_for_three_weeks, days=24, interval_s=HALF_HOUR, fires="slow_uptake", may="standing_surplus"),
    situation(replaced_card, days=19, interval_s=HALF_HOUR, look_alike_of="slow_uptake never_used"),
    situation(agent_that_came_later, days=19, interval_s=HALF_HOUR, look_alike_of="slow_uptake never_used"),
    situation(card_that_moved, days=19, interval_s=HALF_HOUR, look_alike_of="slow_uptake never_used blind_spot"),
    situation(added_the_day_before_yesterday, days=10, may=REST.split()[1], look_alike_of="slow_uptake never_used"),
    situation(ramp_of_a_week, days=24, interval_s=HALF_HOUR, may=REST, look_alike_of="slow_uptake"),
)  # fmt: skip
