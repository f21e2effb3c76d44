"""Jobs whose GPUs do different amounts of work: by design, now and then, or for hours."""

from __future__ import annotations

import numpy as np

from tests.findings.scenarios.builder import A100_80, H100, L40S, Fleet
from tests.findings.scenarios.situations import serve, situation, train

DAYS = 4
SMALL = "compute_oversized memory_oversized co_location mig_fit standing_surplus"


def one_slow_input(fleet: Fleet) -> None:
    """Without a scheduler: one process on four cards, two of which wait for a slow branch."""
    gpus = fleet.host("h1", A100_80, 4)
    fleet.run(gpus, "ann", util=(95.0, 93.0, 28.0, 26.0), mem_gb=70, one_process=True)


def old_and_new_hosts_in_one_job(fleet: Fleet) -> None:
    """A step takes as long as the older cards need; the new ones work a third of it."""
    old, new = fleet.host("h1", L40S, 2), fleet.host("h2", H100, 2)
    train(fleet, old, "ann", util=97.0, job="61")
    train(fleet, new, "ann", util=32.0, sm=26.0, job="61", mem_gb=68)


def skewed_experts(fleet: Fleet) -> None:
    """A mixture of experts routes most tokens to two of four cards; all of them spin, the SMs tell."""
    gpus = fleet.host("h1", H100, 4)
    for gpu, sm in zip(gpus, (82.0, 78.0, 30.0, 24.0), strict=True):
        train(fleet, gpu, "ann", util=97.0, sm=sm, job="62")


def rank_zero_evaluates(fleet: Fleet) -> None:
    """Twice a day rank 0 evaluates for two hours; the others do next to nothing meanwhile."""
    gpus = fleet.host("h1", H100, 4)
    evaluates = fleet.every(12, 2)
    others = np.where(evaluates, 4.0, 95.0)
    train(fleet, gpus, "ann", util=(95.0, others, others, others))


def trials_take_turns(fleet: Fleet) -> None:
    """A search in one job: every six hours the heavy trial is on another card."""
    gpus = fleet.host("h1", H100, 4)
    heavy = [fleet.wave(95, period_h=24, on_h=6, low=40, offset_h=6 * number) for number in range(4)]
    train(fleet, gpus, "ann", util=heavy)


def two_runs_of_one_person(fleet: Fleet) -> None:
    """A large and a small run, started one after the other from the same shell."""
    first, second = fleet.host("h1", H100, 2)
    fleet.run(first, "ann", util=95.0, mem_gb=70, parent_pid=55)
    fleet.run(second, "ann", fleet.between(0.1), util=30.0, mem_gb=70, parent_pid=55)


def draft_and_target_model(fleet: Fleet) -> None:
    """Speculative decoding: the draft model has a card of its own and little to do."""
    gpus = fleet.host("h1", H100, 2, pool="serving")
    serve(fleet, gpus, util=(88.0, 25.0), mem_gb=68)


def uneven_pipeline(fleet: Fleet) -> None:
    """The first and last stage have the embeddings: a little more work than those between."""
    train(fleet, fleet.host("h1", H100, 4), "ann", util=(92.0, 60.0, 58.0, 90.0), zero=0.1)


def warm_up_of_one_day(fleet: Fleet) -> None:
    """For the first four hours of four days the data of two cards is still being copied."""
    gpus = fleet.host("h1", H100, 2)
    train(fleet, gpus, "ann", util=(95.0, np.where(fleet.between(0, 4 / 24), 30.0, 94.0)))


SCENARIOS = (
    situation(one_slow_input, days=DAYS, fires="imbalance", may=SMALL),
    situation(old_and_new_hosts_in_one_job, days=DAYS, fires="imbalance", may=SMALL),
    situation(skewed_experts, days=DAYS, fires="imbalance", may=f"{SMALL} inefficient"),
    situation(rank_zero_evaluates, days=DAYS, look_alike_of="imbalance partial_use stalls low_efficiency"),
    situation(trials_take_turns, days=DAYS, may=SMALL, look_alike_of="imbalance partial_use"),
    situation(two_runs_of_one_person, days=DAYS, may=SMALL, look_alike_of="imbalance partial_use"),
    situation(draft_and_target_model, days=DAYS, may=f"{SMALL} preallocated", look_alike_of="imbalance low_efficiency"),
    situation(uneven_pipeline, days=DAYS, may=SMALL, look_alike_of="imbalance partial_use"),
    situation(warm_up_of_one_day, days=DAYS, look_alike_of="imbalance partial_use"),
)
