"""Work on one GPU that a part of the card would hold, and what only looks like it."""

from __future__ import annotations

from tests.findings.scenarios.builder import A30, A100_80, GB, H100, L40S, Fleet
from tests.findings.scenarios.situations import serve, situation, train

OTHERS = "compute_oversized memory_oversized co_location standing_surplus low_efficiency inefficient never_used"


def seventh_of_an_h100(fleet: Fleet) -> None:
    """7 GB and a tenth of the SMs."""
    first, second = fleet.host("h1", H100, 2)
    serve(
        fleet,
        first,
        util=fleet.noise(30, 2),
        sm=fleet.noise(9, 1, 0, 12),
        mem_gb=7,
        command="tritonserver",
        pod="embed-0",
    )
    train(fleet, second, "ann")


def busy_time_is_all_that_is_known(fleet: Fleet) -> None:
    """No SM counters on an A100: a fifth of the time and 14 GB."""
    first, second = fleet.host("h1", A100_80, 2)
    fleet.run(first, "ann", util=fleet.noise(20, 2), mem_gb=14)
    train(fleet, second, "bob")


def half_of_an_h100(fleet: Fleet) -> None:
    """A fine-tuning run with 31 GB and half of the SMs."""
    first, second = fleet.host("h1", H100, 2)
    train(fleet, first, "ann", util=95.0, sm=fleet.noise(50, 1.5, 40, 55), mem_gb=31, job="77")
    train(fleet, second, "bob")


def quarter_of_an_a30(fleet: Fleet) -> None:
    """A30 are cut in four."""
    first, second = fleet.host("h1", A30, 2)
    serve(fleet, first, util=fleet.noise(20, 1, 10, 23), mem_gb=4, command="tritonserver", pod="embed-0")
    train(fleet, second, "ann")


def two_gpus_that_talk(fleet: Fleet) -> None:
    """A small job on two GPUs: instances cannot reach one another."""
    train(fleet, fleet.host("h1", H100, 2), "ann", util=30.0, sm=9.0, mem_gb=7)


def processes_without_a_job_that_talk(fleet: Fleet) -> None:
    """A launcher started a process on each of two GPUs, within seconds and without a scheduler."""
    gpus = fleet.host("h1", A100_80, 2)
    fleet.run(gpus, "ann", util=22.0, mem_gb=12, parent_pid=4000)


def traffic_over_nvlink(fleet: Fleet) -> None:
    """Each GPU looks like a job of its own, and NVLink carries gigabytes between them."""
    for number, gpu in enumerate(fleet.host("h1", H100, 2)):
        serve(fleet, gpu, util=30.0, sm=9.0, mem_gb=7, command="tritonserver", pod=f"half-{number}")
        gpu.override(fleet.always, nvlink_tx_bytes_per_s=2e9, nvlink_rx_bytes_per_s=2e9)


def card_that_cannot_be_split(fleet: Fleet) -> None:
    """An L40S has no MIG."""
    first, second = fleet.host("h1", L40S, 2)
    serve(fleet, first, util=18.0, mem_gb=5, command="tritonserver", pod="embed-0")
    train(fleet, second, "ann")


def split_already(fleet: Fleet) -> None:
    """The instances are in use, one of them hardly."""
    (gpu,) = fleet.host("h1", H100, 1)
    for number, instance in enumerate(fleet.split(gpu, "4g.40gb", "3g.40gb")):
        serve(
            fleet,
            instance,
            util=(85.0, 12.0)[number],
            mem_gb=(30, 5)[number],
            command="tritonserver",
            pod=f"part-{number}",
        )


def most_of_the_sms(fleet: Fleet) -> None:
    """9 GB, and 80 % of the SMs."""
    first, second = fleet.host("h1", H100, 2)
    train(fleet, first, "ann", util=97.0, sm=80.0, mem_gb=9, job="77")
    train(fleet, second, "bob")


def reserved_in_advance(fleet: Fleet) -> None:
    """JAX holds three quarters of the card: what it needs is not known."""
    first, second = fleet.host("h1", H100, 2)
    train(
        fleet, first, "ann", fleet.between(0.1), util=40.0, sm=12.0, mem_gb=0.75 * H100.mem_total_bytes / GB, job="77"
    )
    train(fleet, second, "bob")


SCENARIOS = (
    situation(seventh_of_an_h100, fires="mig_fit", may=OTHERS),
    situation(busy_time_is_all_that_is_known, fires="mig_fit", may=OTHERS),
    situation(half_of_an_h100, fires="mig_fit", may=OTHERS),
    situation(quarter_of_an_a30, fires="mig_fit", may=OTHERS),
    situation(two_gpus_that_talk, may=OTHERS, look_alike_of="mig_fit"),
    situation(
        processes_without_a_job_that_talk, may=OTHERS.replace("co_location ", ""), look_alike_of="mig_fit co_location"
    ),
    situation(traffic_over_nvlink, may=OTHERS.replace("co_location ", ""), look_alike_of="mig_fit co_location"),
    situation(card_that_cannot_be_split, may=OTHERS, look_alike_of="mig_fit"),
    situation(
        split_already, may="low_efficiency standing_surplus", look_alike_of="mig_fit memory_oversized compute_oversized"
    ),
    situation(most_of_the_sms, may="memory_oversized", look_alike_of="mig_fit compute_oversized"),
    situation(
        reserved_in_advance,
        fires="preallocated",
        may="low_efficiency inefficient standing_surplus",
        look_alike_of="mig_fit memory_oversized",
    ),
)
