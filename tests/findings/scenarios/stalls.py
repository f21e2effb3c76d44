"""Jobs that stop again and again: together and by the clock, or in another way."""

from __future__ import annotations

import numpy as np

from tests.findings.scenarios.builder import A100_80, H100, Fleet
from tests.findings.scenarios.situations import serve, situation, train

DAYS = 2.5
FINE_S = 60.0
SMALL = "compute_oversized memory_oversized co_location mig_fit standing_surplus"


def checkpoint_every_twenty_minutes(fleet: Fleet) -> None:
    """Four minutes of standing still on all cards, three times an hour."""
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus, "ann", util=np.where(fleet.every(1 / 3, 4 / 60), 0, 96))
    gpus[0].host.load(fleet.always, disk_write_bytes_per_s=5e8)


def two_nodes_wait_for_a_merge(fleet: Fleet) -> None:
    """Every half hour the parameters of two nodes are averaged over a slow network for five minutes."""
    first, second = fleet.host("h1", A100_80, 2), fleet.host("h2", A100_80, 2)
    train(fleet, first + second, "ann", util=np.where(fleet.every(0.5, 5 / 60), 0, 93), job="81")


def one_card_saves_too_often(fleet: Fleet) -> None:
    """A single card without a scheduler: two minutes of saving after each ten of work."""
    (gpu,) = fleet.host("h1", H100, 1)
    fleet.run(gpu, "ann", util=np.where(fleet.every(0.2, 2 / 60), 0, 92), mem_gb=70)


def checkpoint_of_normal_length(fleet: Fleet) -> None:
    """One minute an hour."""
    train(fleet, fleet.host("h1", H100, 4), "ann", util=np.where(fleet.every(1, 1 / 60), 0, 95))


def requests_at_random(fleet: Fleet) -> None:
    """Batches come as customers send them: gaps of minutes without any rhythm."""
    gpus = fleet.host("h1", H100, 2)
    rng = np.random.default_rng(7)
    gaps = rng.exponential(5, 500).astype(int) + 1
    ends = np.cumsum(gaps + rng.exponential(25, 500).astype(int))
    minutes = np.arange(fleet.rows)
    still = np.any([(minutes >= end - gap) & (minutes < end) for end, gap in zip(ends, gaps, strict=True)], axis=0)
    train(fleet, gpus, "ann", util=np.where(still, 0, 90))


def cards_stop_one_by_one(fleet: Fleet) -> None:
    """Each card pauses for its own validation, at another time than the others."""
    gpus = fleet.host("h1", H100, 4)
    util = [np.where(fleet.every(0.5, 4 / 60, offset_h=number / 8), 0.0, 95.0) for number in range(4)]
    train(fleet, gpus, "ann", util=util)


def a_server_that_is_polled(fleet: Fleet) -> None:
    """A forecast every ten minutes: three minutes of work, seven of waiting for the next."""
    gpus = fleet.host("h1", H100, 2, pool="serving")
    serve(fleet, gpus, util=np.where(fleet.every(1 / 6, 3 / 60), 85, 0), command="forecast")


def a_server_with_a_batch_every_ten_minutes(fleet: Fleet) -> None:
    """The same with heavier batches: eight minutes of work and two until the next is due."""
    gpus = fleet.host("h1", H100, 2, pool="serving")
    serve(fleet, gpus, util=np.where(fleet.every(1 / 6, 8 / 60), 95, 0), mem_gb=70)


def evaluation_of_a_quarter_hour(fleet: Fleet) -> None:
    """After each hour of training the CPUs score the model for 15 minutes."""
    train(fleet, fleet.host("h1", H100, 4), "ann", util=fleet.wave(95, period_h=1.25, on_h=1.0))


def light_work_by_the_clock(fleet: Fleet) -> None:
    """Small batches with regular pauses at a fifth of the card: no training that is held up."""
    gpus = fleet.host("h1", H100, 2)
    train(fleet, gpus, "ann", util=np.where(fleet.every(0.25, 3 / 60), 0, 20))


REST = f"held low_efficiency {SMALL} preallocated loaded_no_traffic"

SCENARIOS = (
    situation(checkpoint_every_twenty_minutes, days=DAYS, interval_s=FINE_S, fires="stalls"),
    situation(two_nodes_wait_for_a_merge, days=DAYS, interval_s=FINE_S, fires="stalls"),
    situation(one_card_saves_too_often, days=DAYS, interval_s=FINE_S, fires="stalls"),
    situation(checkpoint_of_normal_length, days=DAYS, interval_s=FINE_S, look_alike_of="stalls held"),
    situation(requests_at_random, days=DAYS, interval_s=FINE_S, may=REST, look_alike_of="stalls"),
    situation(cards_stop_one_by_one, days=DAYS, interval_s=FINE_S, look_alike_of="stalls imbalance"),
    situation(a_server_that_is_polled, days=DAYS, interval_s=FINE_S, may=REST, look_alike_of="stalls"),
    situation(a_server_with_a_batch_every_ten_minutes, days=DAYS, interval_s=FINE_S, may=REST, look_alike_of="stalls"),
    situation(
        evaluation_of_a_quarter_hour, days=DAYS, interval_s=FINE_S, may="held", look_alike_of="stalls partial_use"
    ),
    situation(light_work_by_the_clock, days=DAYS, interval_s=FINE_S, may=REST, look_alike_of="stalls"),
)
