"""Work that needs half of its card's memory or less, and what only looks like it."""

from __future__ import annotations

import numpy as np

from tests.findings.scenarios.builder import A100_40, A100_80, GB, H100, L40S, Fleet
from tests.findings.scenarios.situations import serve, situation, train

OTHERS = "mig_fit co_location standing_surplus inefficient never_used"


def small_model_on_the_larger_a100(fleet: Fleet) -> None:
    """Both kinds of A100 are as fast; the job needs 14 GB of 80."""
    first, second = fleet.host("h1", A100_80, 2)
    train(fleet, first, "ann", util=92.0, mem_gb=14)
    train(fleet, second, "bob", job="1002")
    train(fleet, fleet.host("h2", A100_40, 2), "cem", job="1003")


def few_sms_at_work(fleet: Fleet) -> None:
    """A kernel runs for 70 % of the time and fills a quarter of the SMs; a card with a third of the speed has room for it."""
    first, second = fleet.host("h1", H100, 2)
    serve(fleet, first, util=fleet.noise(70, 3), sm=fleet.noise(24, 2), mem_gb=15, command="tritonserver", pod="rank-0")
    train(fleet, second, "ann")
    train(fleet, fleet.host("h2", L40S, 2), "bob", job="1002")


def nothing_smaller_in_the_fleet(fleet: Fleet) -> None:
    """Every card of the fleet has 80 GB; the catalog knows the same one with 40."""
    gpus = fleet.host("h1", A100_80, 2)
    for number, gpu in enumerate(gpus):
        train(fleet, gpu, "ann", util=88.0, mem_gb=22, job=f"200{number}")


def whole_job_is_small(fleet: Fleet) -> None:
    """Four GPUs of one job, none of which needs more than 11 GB."""
    train(fleet, fleet.host("h1", A100_80, 4), "ann", util=90.0, mem_gb=11)
    train(fleet, fleet.host("h2", A100_40, 4), "bob", job="1002")


def evaluates_once_a_day(fleet: Fleet) -> None:
    """14 GB for 23 hours, 66 GB for the hour of the evaluation: on a smaller card it would fail every night."""
    gpus = fleet.host("h1", A100_80, 2)
    memory = np.where(fleet.daily(2, 3), 66.0, 14.0)
    train(fleet, gpus, "ann", util=92.0, mem_gb=memory)
    train(fleet, fleet.host("h2", A100_40, 2), "bob", job="1002")


def one_rank_is_large(fleet: Fleet) -> None:
    """Three GPUs of a job take 14 GB each, the fourth 62: they move together or not at all."""
    gpus = fleet.host("h1", A100_80, 4)
    for gpu, memory in zip(gpus, (62, 14, 14, 14), strict=True):
        train(fleet, gpu, "ann", util=92.0, mem_gb=memory)
    train(fleet, fleet.host("h2", A100_40, 4), "bob", job="1002")


def fast_and_small(fleet: Fleet) -> None:
    """15 GB, and the SMs of an H100 are full: no card with less memory is as fast."""
    gpus = fleet.host("h1", H100, 2)
    train(fleet, gpus, "ann", util=97.0, sm=93.0, mem_gb=15)
    train(fleet, fleet.host("h2", L40S, 2), "bob", job="1002")


def server_with_a_small_cache_by_choice(fleet: Fleet) -> None:
    """VLLM was given 40 % of the card, which it reserved: what it needs of that nobody knows."""
    gpus = fleet.host("h1", A100_80, 2)
    for number, gpu in enumerate(gpus):
        serve(fleet, gpu, util=70.0, mem_gb=0.4 * A100_80.mem_total_bytes / GB, pod=f"llm-{number}")
    train(fleet, fleet.host("h2", A100_40, 2), "bob")


def tried_for_some_hours(fleet: Fleet) -> None:
    """Ten hours of a test on two cards, less than a GPU-day."""
    gpus = fleet.host("h1", A100_80, 2)
    train(fleet, gpus, "ann", fleet.between(-3, -3 + 10 / 24), util=92.0, mem_gb=14)
    train(fleet, gpus, "bob", fleet.between(0, -3) | fleet.between(-2.5), job="1002")
    train(fleet, fleet.host("h2", A100_40, 2), "cem", job="1003")


def fills_the_smaller_card(fleet: Fleet) -> None:
    """19 GB of a 40 GB card, and 19 GB with the margin are more than half of it."""
    train(fleet, fleet.host("h1", A100_40, 2), "ann", util=92.0, mem_gb=19)


SCENARIOS = (
    situation(small_model_on_the_larger_a100, fires="memory_oversized", may=OTHERS),
    situation(few_sms_at_work, fires="memory_oversized", may=OTHERS),
    situation(nothing_smaller_in_the_fleet, fires="memory_oversized", may=OTHERS),
    situation(whole_job_is_small, fires="memory_oversized", may=OTHERS),
    situation(evaluates_once_a_day, look_alike_of="memory_oversized mig_fit co_location"),
    situation(one_rank_is_large, look_alike_of="memory_oversized mig_fit"),
    situation(fast_and_small, look_alike_of="memory_oversized compute_oversized mig_fit"),
    situation(server_with_a_small_cache_by_choice, look_alike_of="memory_oversized mig_fit co_location"),
    situation(tried_for_some_hours, look_alike_of="memory_oversized"),
    situation(fills_the_smaller_card, look_alike_of="memory_oversized"),
)
