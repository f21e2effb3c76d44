"""What can be given: each GPU once, from the day on which it is free, with who gives it."""

from __future__ import annotations

from datetime import UTC, date
from typing import TYPE_CHECKING

import pytest

from analytics.plan.endings import find_endings
from analytics.plan.jobs import load_jobs
from analytics.plan.supply import find_supply
from analytics.workloads.reclaimable import reclaimable
from tests.findings.conftest import context_of
from tests.findings.scenarios.builder import H100, Fleet
from tests.findings.scenarios.situations import train
from tests.lakes import made_lake
from tests.plan.test_endings import owners

if TYPE_CHECKING:
    from pathlib import Path

TODAY, AFTER = date(2026, 11, 20), date(2026, 11, 26)


def test_each_gpu_is_there_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ann's project ends on the 25th; two of her GPUs are idle, one of them safe to give back before. Nobody ever had four; two users share one."""
    owners(tmp_path, monkeypatch, "user,ann,maps,atlas,2026-11-25", "user,bob,speech,,")
    fleet = Fleet(19, interval_s=1800)
    gpus = [*fleet.host("h1", H100, 4, nvlink_island="i1"), *fleet.host("h2", H100, 4)]
    for number, gpu in enumerate(gpus[:4]):
        gpu.device["nvlink_island"] = f"i{number // 2}"
    train(fleet, gpus[:2], "ann", job="7")
    fleet.run(gpus[2:4], "ann", mem_gb=40)
    shared, parts = fleet.host("h3", H100, 2)
    for user in ("ann", "bob"):
        train(fleet, [shared], user)
    train(fleet, fleet.split(parts, "3g.40gb", "3g.40gb"), "ann")
    lake = made_lake(tmp_path / "lake")
    fleet.write(lake)
    context = context_of(lake)
    safe = reclaimable(context)
    found = find_supply(context, safe, find_endings(context, load_jobs(lake), 14, UTC))
    said = [
        (each.host, each.island, each.source, each.name, each.team, each.free_from, each.leaves, len(each.gpus))
        for each in found.supplies
    ]
    assert said == [
        ("h1", "i1", "idle", "", "maps", TODAY, AFTER, 1),  # of six idle ones the reserve keeps one
        ("h1", "i0", "project_end", "atlas", "maps", AFTER, AFTER, 2),
        ("h1", "i1", "project_end", "atlas", "maps", AFTER, AFTER, 1),
        ("h2", None, "idle", "", None, TODAY, None, 4),
    ]
    named = [gpu for each in found.supplies for gpu in each.gpus]
    assert len(named) == len(set(named))
    assert [(each.name, each.width, each.islands) for each in found.hosts] == [
        ("h1", 4, {"i0": 2, "i1": 2}), ("h2", 4, {}), ("h3", 1, {}),
    ]  # fmt: skip
    assert found.allocated == {"maps": pytest.approx(4 + 0.5 + 6 / 7), "speech": 0.5}
    assert found.models == {H100.model: 80}
