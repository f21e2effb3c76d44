"""Pools that are larger than what is ever needed at once, and pools that only look it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.findings.scenarios.builder import H100, L40S, Fleet
from tests.findings.scenarios.situations import serve, situation, train

if TYPE_CHECKING:
    from tests.findings.scenarios.builder import Gpu

HALF_HOUR = 1800.0


def _two_hosts(fleet: Fleet, pool: str = "train") -> list[Gpu]:
    return [*fleet.host("h1", H100, 8, pool=pool), *fleet.host("h2", H100, 8, pool=pool)]


def second_host_for_the_peak_that_never_came(fleet: Fleet) -> None:
    """Six jobs at most, on the first host; the second was bought for a peak."""
    gpus = _two_hosts(fleet)
    train(fleet, gpus[:4], "ann")
    for number, gpu in enumerate(gpus[4:6]):
        train(fleet, gpu, "bob", fleet.daily(8, 20), job=f"200{number}")
    train(fleet, gpus[8], "eve", fleet.between(1, 2), job="3001")


def work_that_spreads_itself(fleet: Fleet) -> None:
    """Every card works at some time of the week, and never more than four of them together."""
    for number, gpu in enumerate(_two_hosts(fleet)):
        train(fleet, gpu, "ann", fleet.every(48, 12, offset_h=3 * number), job=f"{800 + number}")


def serving_with_twice_its_reserve(fleet: Fleet) -> None:
    """Sixteen cards serve; at the busiest hour of every day six are enough."""
    gpus = _two_hosts(fleet, "prod-serving")
    serve(fleet, gpus[:3], util=60.0, mem_gb=60)
    serve(fleet, gpus[3:6], fleet.daily(9, 18), util=70.0, mem_gb=60, pod="llm-1")


def one_day_a_week_everything(fleet: Fleet) -> None:
    """Every Thursday the whole pool works on one report."""
    gpus = _two_hosts(fleet)
    thursdays = fleet.every(7 * 24, 24, offset_h=24 * 6)
    train(fleet, gpus[:4], "ann")
    train(fleet, gpus[4:], "bob", thursdays, job="1002")


def demand_that_has_just_grown(fleet: Fleet) -> None:
    """Two weeks of three cards, and since five days all but two: the mean of a month says nothing."""
    gpus = _two_hosts(fleet)
    train(fleet, gpus[:3], "ann")
    train(fleet, gpus[3:14], "bob", fleet.between(-5), job="1002")


def five_days_of_history(fleet: Fleet) -> None:
    """A new lake: what five days without a weekend show is no standing demand."""
    gpus = _two_hosts(fleet)
    train(fleet, gpus[:4], "ann")


def evaluation_hours_in_production(fleet: Fleet) -> None:
    """A production pool that needs all its cards for an hour and a half every second day."""
    gpus = _two_hosts(fleet, "prod-serving")
    serve(fleet, gpus[:6], util=60.0, mem_gb=60)
    serve(fleet, gpus[6:], fleet.every(48, 1.5, offset_h=5), util=80.0, mem_gb=60, pod="llm-1")


def four_cards_of_a_desk(fleet: Fleet) -> None:
    """A small pool of which one card works: three cards are no reserve of a fleet."""
    gpus = fleet.host("ws1", L40S, 4, pool="desk")
    train(fleet, gpus[0], "ann")
    for gpu in gpus[1:]:
        train(fleet, gpu, "bob", fleet.between(1, 3), job="1002")


OTHERS = "never_used wind_down low_efficiency held"

SCENARIOS = (
    situation(
        second_host_for_the_peak_that_never_came,
        days=15,
        interval_s=HALF_HOUR,
        fires="standing_surplus",
        may=OTHERS,
    ),
    situation(work_that_spreads_itself, days=15, interval_s=HALF_HOUR, fires="standing_surplus", look_alike_of="never_used"),
    situation(
        serving_with_twice_its_reserve, days=15, interval_s=HALF_HOUR, fires="standing_surplus", may=f"{OTHERS} co_location"
    ),
    situation(one_day_a_week_everything, days=15, interval_s=HALF_HOUR, look_alike_of="standing_surplus never_used"),
    situation(demand_that_has_just_grown, days=19, interval_s=HALF_HOUR, may="never_used", look_alike_of="standing_surplus"),
    situation(five_days_of_history, days=5, interval_s=HALF_HOUR, look_alike_of="standing_surplus never_used"),
    situation(
        evaluation_hours_in_production,
        days=15,
        interval_s=HALF_HOUR,
        may="co_location",
        look_alike_of="standing_surplus never_used",
    ),
    situation(four_cards_of_a_desk, days=15, interval_s=HALF_HOUR, look_alike_of="standing_surplus never_used"),
)  # fmt: skip
