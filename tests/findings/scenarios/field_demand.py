"""Situations from the field: how GPUs are asked for, by allocations, quotas and projects."""

from __future__ import annotations

import numpy as np

from tests.findings.scenarios.builder import H100, Fleet
from tests.findings.scenarios.situations import situation, train

OWNERS = "kind,name,team,quota_gpus,project_end\n"


@situation(fires="reserved_unused", may="releasable_pool ending", look_alike_of="held never_used")
def defensive_reservation(fleet: Fleet) -> None:
    """Four GPUs have been reserved for six days just in case; before that they worked."""
    gpus = fleet.host("h1", H100, 8)
    train(fleet, gpus[:4], "ann")
    train(fleet, gpus[4:], "bob", fleet.between(0, 2), job="1002")
    fleet.allocation(gpus[4:], "bob", 2.01, allocation_id="resv-1", account="bob-lab", name="just-in-case")


@situation(look_alike_of="reserved_unused held ending partial_use")
def job_that_is_starting(fleet: Fleet) -> None:
    """Allocations begin 20 minutes before the first process: images are pulled, data are staged."""
    gpus = fleet.host("h1", H100, 4)
    for number in range(8):
        first = number + 0.02
        fleet.allocation(gpus, "ann", first, number + 0.99, allocation_id=f"{500 + number}", account="ann-lab")
        train(fleet, gpus, "ann", fleet.between(first + 20 / 1440, number + 0.99), job=f"{500 + number}")


@situation(look_alike_of="reserved_unused held partial_use")
def allocated_and_used(fleet: Fleet) -> None:
    """One long job uses all that it was given."""
    gpus = fleet.host("h1", H100, 4)
    fleet.allocation(gpus, "ann", 0, allocation_id="600", account="ann-lab")
    train(fleet, gpus, "ann", job="600")


@situation(fires="partial_use", may="reserved_unused never_used releasable_pool imbalance", look_alike_of="held")
def allocated_four_used_one(fleet: Fleet) -> None:
    """A job has been given four GPUs and runs on one; there is no process on the others."""
    gpus = fleet.host("h1", H100, 4)
    fleet.allocation(gpus, "ann", 0, allocation_id="700", account="ann-lab")
    train(fleet, gpus[0], "ann", job="700")


@situation(days=29, interval_s=600, fires="releasable_pool", look_alike_of="never_used held reserved_unused")
def larger_than_its_peak(fleet: Fleet) -> None:
    """Sixteen GPUs, of which never more than five work at a time, for four weeks."""
    gpus = [*fleet.host("h1", H100, 8), *fleet.host("h2", H100, 8)]
    for number, gpu in enumerate(gpus):
        train(fleet, gpu, "ann", fleet.every(96, 28, offset_h=6 * number), job=f"{800 + number}")


@situation(days=15, look_alike_of="releasable_pool never_used reserved_unused held")
def full_at_its_peak(fleet: Fleet) -> None:
    """Eight GPUs: half of them rest at night, and every afternoon all of them work."""
    gpus = fleet.host("h1", H100, 8)
    train(fleet, gpus[:4], "ann")
    train(fleet, gpus[4:], "bob", fleet.daily(12, 20), job="1002")


@situation(
    days=21,
    fires="ending held",
    may="releasable_pool partial_use imbalance low_efficiency stalls",
    look_alike_of="never_used",
)
def project_that_has_faded(fleet: Fleet) -> None:
    """After two weeks of work on four GPUs, a project runs an hour a day on one of them; nothing new starts."""
    gpus = fleet.host("h1", H100, 8)
    train(fleet, gpus[:4], "ann")
    full, faded = fleet.between(0, -4), fleet.between(-4)
    train(fleet, gpus[4], "bob", util=np.where(full, 95, fleet.wave(95, period_h=6, on_h=1 / 4)), job="1002")
    train(fleet, gpus[5:], "bob", util=np.where(faded, 0, 95), job="1002")


@situation(
    days=29,
    interval_s=600,
    fires="hoarding",
    look_alike_of="held ending releasable_pool",
    owners=f"{OWNERS}user,ann,vision,8,\nuser,bob,language,6,\n",
)
def team_far_under_its_quota(fleet: Fleet) -> None:
    """A team has a quota of eight GPUs and has never had more than two of them at once in four weeks."""
    gpus = fleet.host("h1", H100, 8)
    train(fleet, gpus[:2], "ann")
    train(fleet, gpus[2:], "bob", job="1002")


@situation(
    days=29,
    interval_s=600,
    look_alike_of="hoarding ending releasable_pool held",
    owners=f"{OWNERS}user,ann,vision,8,\nuser,bob,language,6,\n",
)
def team_with_a_weekly_peak(fleet: Fleet) -> None:
    """A team has a quota of eight GPUs, two on most days, and needs all of them for two days a week."""
    gpus = fleet.host("h1", H100, 8)
    train(fleet, gpus[:2], "ann")
    train(fleet, gpus[2:], "ann", fleet.every(7 * 24, 48), job="1002")
    train(fleet, gpus[2:], "bob", ~fleet.every(7 * 24, 48), job="1003")


@situation(
    fires="ending",
    look_alike_of="held releasable_pool",
    owners=f"{OWNERS}user,ann,vision,,\nuser,bob,language,,2026-11-10\n",
)
def project_that_has_ended(fleet: Fleet) -> None:
    """The project ended ten days ago, says the file of owners, and its work goes on."""
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus[:2], "ann")
    train(fleet, gpus[2:], "bob", job="1002")


@situation(look_alike_of="ending hoarding held", owners=f"{OWNERS}user,ann,vision,,\nuser,bob,language,2,2027-05-31\n")
def project_with_half_a_year_left(fleet: Fleet) -> None:
    """The file of owners knows an end, which is far away."""
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus[:2], "ann")
    train(fleet, gpus[2:], "bob", job="1002")
