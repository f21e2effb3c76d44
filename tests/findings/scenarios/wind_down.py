"""Work that winds down while GPUs are still somebody's, and work that only rests."""

from __future__ import annotations

import numpy as np

from tests.findings.scenarios.builder import H100, Fleet
from tests.findings.scenarios.situations import situation, train

OWNERS = "kind,name,team,quota_gpus,project_end\n"
HALF_HOUR = 1800.0


def away_for_longer_than_ever(fleet: Fleet) -> None:
    """Work every day, at most a night between; nothing since five days, and the shell still holds the cards."""
    gpus = fleet.host("h1", H100, 4)
    work = fleet.daily(8, 18) & fleet.between(0, -5)
    fleet.run(gpus[:2], "bob", util=np.where(work, 90, 0), mem_gb=70)
    train(fleet, gpus[2:], "ann")


def one_tenth_is_left(fleet: Fleet) -> None:
    """Four cards trained for two weeks; since four days a check an hour on one of them, and nothing has been started."""
    gpus = fleet.host("h1", H100, 6)
    full = fleet.between(0, -4)
    train(fleet, gpus[0], "bob", util=np.where(full, 95, fleet.wave(95, period_h=6, on_h=0.5)), job="1002")
    train(fleet, gpus[1:4], "bob", util=np.where(full, 95, 0), job="1002")
    train(fleet, gpus[4:], "ann")


def project_that_ended_last_week(fleet: Fleet) -> None:
    """The owners file says that it is over; two cards still work for it."""
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus[:2], "bob", job="1002")
    train(fleet, gpus[2:], "ann")


def weekend(fleet: Fleet) -> None:
    """Monday to Friday, with the cards kept; it was a long weekend's end."""
    gpus = fleet.host("h1", H100, 4)
    fleet.run(
        gpus[:2], "bob", util=np.where(fleet.weekdays & fleet.daily(7, 19) & ~fleet.between(-1), 90, 0), mem_gb=70
    )
    train(fleet, gpus[2:], "ann")


def holidays_for_everybody(fleet: Fleet) -> None:
    """Five people work every day, and all of them are away for the last four."""
    gpus = fleet.host("h1", H100, 5)
    for gpu, user in zip(gpus, ("ann", "bob", "eve", "joe", "sue"), strict=True):
        fleet.run(gpu, user, util=np.where(fleet.daily(6, 20) & fleet.between(0, -4), 90, 0), mem_gb=70)


def next_experiment_has_begun(fleet: Fleet) -> None:
    """The long training is over, and small trials of the next one begin every day."""
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus[:3], "bob", fleet.between(0, -4), job="1002")
    train(fleet, gpus[3], "bob", fleet.between(-4) & fleet.every(24, 2, offset_h=9), job="1003")
    fleet.run(gpus[3], "bob", fleet.every(24, 20, offset_h=2) & fleet.between(-4), mem_gb=5)


def everything_was_given_back(fleet: Fleet) -> None:
    """The work is over, and so are the processes: nobody holds anything."""
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus[:2], "bob", fleet.between(0, -6), job="1002")
    train(fleet, gpus[2:], "ann")


def project_that_ends_next_year(fleet: Fleet) -> None:
    """A project end on file, and far away."""
    train(fleet, fleet.host("h1", H100, 2), "bob", job="1002")


IDLE = "held standing_surplus low_efficiency partial_use imbalance"

SCENARIOS = (
    situation(away_for_longer_than_ever, days=19, interval_s=HALF_HOUR, fires="wind_down held", may=IDLE.replace("held ", "")),
    situation(one_tenth_is_left, days=19, interval_s=HALF_HOUR, fires="wind_down held", may=IDLE.replace("held ", "")),
    situation(
        project_that_ended_last_week,
        fires="wind_down",
        lists={"money.owners": f"{OWNERS}user,ann,vision,,\nuser,bob,language,,2026-11-12\n"},
        look_alike_of="held",
    ),
    situation(weekend, days=22, interval_s=HALF_HOUR, may=IDLE, look_alike_of="wind_down"),
    situation(holidays_for_everybody, days=22, interval_s=HALF_HOUR, may=IDLE, look_alike_of="wind_down"),
    situation(next_experiment_has_begun, days=19, interval_s=HALF_HOUR, may=IDLE, look_alike_of="wind_down"),
    situation(everything_was_given_back, days=19, interval_s=HALF_HOUR, may="standing_surplus", look_alike_of="wind_down held"),
    situation(
        project_that_ends_next_year,
        lists={"money.owners": f"{OWNERS}user,bob,language,,2027-11-30\n"},
        look_alike_of="wind_down",
    ),
)  # fmt: skip
