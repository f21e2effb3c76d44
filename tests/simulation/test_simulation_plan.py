"""The plan of a simulated fleet: any size, its pools, who works when, and what cannot be simulated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from analytics.simulation import SimulatedFleet, plan_fleet, write_fleet
from analytics.simulation.catalog import POOLS, split_gpus
from fallow.clock import DAY_MS
from fallow.errors import UsageError
from tests.lakes import made_lake

if TYPE_CHECKING:
    from pathlib import Path

UNTIL_MS = 20_777 * DAY_MS  # 2026-11-20


def test_people_work_by_day_and_rest_at_the_weekend() -> None:
    plan = plan_fleet(SimulatedFleet(gpus=512, days=14, until_ms=UNTIL_MS))
    starts = np.array([
        stay.start_ms for host in plan.hosts for stay in host.stays if stay.work in ("training", "notebook")
    ])  # fmt: skip
    hour, weekday = starts % DAY_MS // 3_600_000, (starts // DAY_MS + 3) % 7
    working = (weekday < 5) & (hour >= 8) & (hour < 20)
    assert len(starts) > 1000
    assert working.mean() > 1.3 * (5 * 12) / (7 * 24)


@pytest.mark.parametrize("gpus", [1, 2, 3, 4, 5, 8, 13, 24])
def test_a_fleet_of_any_size_is_written(tmp_path: Path, gpus: int) -> None:
    shares: list[float] = []
    fleet = SimulatedFleet(gpus=gpus, days=1, seed=gpus, interval_ms=300_000, until_ms=UNTIL_MS)
    summary = write_fleet(made_lake(tmp_path), fleet, shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    lost_to_outage = sum(
        len(each.gpus) * (each.end_ms - each.start_ms) // fleet.interval_ms
        for each in summary.planted
        if each.kind == "agent_outage"
    )
    assert summary.rows["gpu"] == gpus * 288 - lost_to_outage
    assert all(each.start_ms < each.end_ms <= UNTIL_MS for each in summary.planted)


def test_a_large_fleet_holds_every_situation_more_than_once() -> None:
    plan = plan_fleet(SimulatedFleet(gpus=600, days=7, until_ms=UNTIL_MS))
    kinds = [each.kind for each in plan.planted]
    assert {kind: kinds.count(kind) for kind in kinds} == dict.fromkeys(
        ("held_notebook", "never_used", "lost_gpu", "reserved_block", "agent_outage"), 3
    )
    planted_gpus = [gpu for each in plan.planted if each.kind != "agent_outage" for gpu in each.gpus]
    assert len(set(planted_gpus)) == len(planted_gpus)


@pytest.mark.parametrize("gpus", [1, 2, 7, 64, 1000, 4001])
def test_the_pools_add_up(gpus: int) -> None:
    counts = split_gpus(gpus, POOLS)
    assert sum(counts) == gpus
    assert all(abs(count - gpus * pool.share) < 1 for count, pool in zip(counts, POOLS, strict=True))


@pytest.mark.parametrize(
    "wrong",
    [
        {"gpus": 0},
        {"days": 0},
        {"seed": -1},
        {"interval_ms": 7_000},
        {"interval_ms": 0},
        {"until_ms": 5},
        {"until_ms": 0},
    ],
)
def test_what_cannot_be_simulated_is_an_error(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        SimulatedFleet(**({"until_ms": UNTIL_MS} | wrong))
