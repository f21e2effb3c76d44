"""Works of one host that might share a card, and what only looks like it."""

from __future__ import annotations

from tests.findings.scenarios.builder import A100_80, GB, L4, L40S, Fleet
from tests.findings.scenarios.situations import serve, situation, train

OTHERS = "compute_oversized memory_oversized mig_fit standing_surplus low_efficiency inefficient imbalance never_used"
OWNERS = "kind,name,team,organisation,quota_gpus,priority_class\nnamespace,batch,search,,,best-effort\n"


def two_small_runs_of_one_person(fleet: Fleet) -> None:
    """Started by hand, an hour apart, each with a third of the time and a quarter of the memory."""
    first, second = fleet.host("h1", A100_80, 2)
    fleet.run(first, "ann", util=fleet.noise(32, 3), mem_gb=20)
    fleet.run(second, "ann", fleet.between(1 / 24), util=fleet.noise(30, 3), mem_gb=22)


def service_beside_a_batch(fleet: Fleet) -> None:
    """A service with a quarter of the time and a batch that nobody waits for."""
    first, second = fleet.host("h1", L40S, 2)
    serve(fleet, first, util=fleet.noise(26, 3), mem_gb=12, command="tritonserver", pod="rank-0")
    fleet.run(
        second, "batch", util=fleet.noise(35, 4), mem_gb=14, pod="embed-all", namespace="batch", container_id="c-embed"
    )


def three_small_services(fleet: Fleet) -> None:
    """Three of them fit on one L4."""
    for number, gpu in enumerate(fleet.host("h1", L4, 3)):
        serve(fleet, gpu, util=fleet.noise(15, 2), mem_gb=5, command="tritonserver", pod=f"small-{number}")


def together_too_busy(fleet: Fleet) -> None:
    """45 and 42 % of the time leave no room for bursts."""
    for number, (gpu, pct) in enumerate(zip(fleet.host("h1", A100_80, 2), (45.0, 42.0), strict=True)):
        train(fleet, gpu, "ann", util=pct, mem_gb=20, job=f"6{number}")


def together_too_large(fleet: Fleet) -> None:
    """47 and 35 GB are more than nine tenths of an 80 GB card."""
    for number, (gpu, memory) in enumerate(zip(fleet.host("h1", A100_80, 2), (47, 35), strict=True)):
        train(fleet, gpu, "ann", util=20.0, mem_gb=memory, job=f"6{number}")


def on_two_hosts(fleet: Fleet) -> None:
    """Each would share, and there is nobody to share with on its host."""
    for number in range(2):
        (gpu,) = fleet.host(f"h{number}", A100_80, 1)
        train(fleet, gpu, "ann", util=25.0, mem_gb=20, job=f"6{number}")


def two_ranks_of_one_job(fleet: Fleet) -> None:
    """Two GPUs of one job, lightly used: they compute at the same moments."""
    train(fleet, fleet.host("h1", A100_80, 2), "ann", util=25.0, mem_gb=20, job="61")


def by_day_and_by_night(fleet: Fleet) -> None:
    """They never run at the same time: nothing is known of the two together."""
    first, second = fleet.host("h1", A100_80, 2)
    train(fleet, first, "ann", fleet.daily(8, 20), util=30.0, mem_gb=20, job="61")
    train(fleet, second, "bob", fleet.daily(20, 8), util=30.0, mem_gb=20, job="62")


def bursts_at_the_same_hours(fleet: Fleet) -> None:
    """Low means, and both work at full load in the same hours."""
    burst = fleet.wave(70, period_h=6, on_h=1, low=8)
    for number, gpu in enumerate(fleet.host("h1", A100_80, 2)):
        train(fleet, gpu, "ann", util=burst, mem_gb=20, job=f"6{number}")


def reserved_in_advance_side_by_side(fleet: Fleet) -> None:
    """Two servers that reserved 40 % of their cards: the sum of what they reserved is not the sum of what they need."""
    for number, gpu in enumerate(fleet.host("h1", A100_80, 2)):
        serve(fleet, gpu, util=20.0, mem_gb=0.4 * A100_80.mem_total_bytes / GB, pod=f"llm-{number}")


SCENARIOS = (
    situation(two_small_runs_of_one_person, fires="co_location", may=OTHERS),
    situation(service_beside_a_batch, fires="co_location", may=OTHERS, lists={"money.owners": OWNERS}),
    situation(three_small_services, fires="co_location", may=OTHERS),
    situation(together_too_busy, may=OTHERS, look_alike_of="co_location"),
    situation(together_too_large, may=OTHERS, look_alike_of="co_location"),
    situation(on_two_hosts, may=OTHERS, look_alike_of="co_location"),
    situation(two_ranks_of_one_job, may=OTHERS, look_alike_of="co_location"),
    situation(by_day_and_by_night, may=OTHERS, look_alike_of="co_location"),
    situation(bursts_at_the_same_hours, may=OTHERS, look_alike_of="co_location"),
    situation(
        reserved_in_advance_side_by_side,
        may="low_efficiency standing_surplus",
        look_alike_of="co_location mig_fit memory_oversized",
    ),
)
