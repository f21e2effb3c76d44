"""What comes free: each source, the surest one for a GPU, its chance, and the check against a week before."""

from __future__ import annotations

from datetime import UTC, date
from typing import TYPE_CHECKING

import numpy as np
import pytest

from analytics.plan.endings import Endings, find_endings
from analytics.plan.jobs import load_jobs
from analytics.scope import Scope
from analytics.tables.names import has_several_models
from tests.findings.conftest import context_of
from tests.findings.scenarios.builder import H100, T_END, Fleet
from tests.findings.scenarios.situations import train
from tests.lakes import made_lake

if TYPE_CHECKING:
    from pathlib import Path

    from fallow.lake import Lake

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
TODAY = date(2026, 11, 20)


def fleet_of(days: float = 19) -> Fleet:
    return Fleet(days, interval_s=1800)


def endings(fleet: Fleet, lake: Lake, days: int = 14) -> Endings:
    fleet.write(lake)
    return find_endings(context_of(lake), load_jobs(lake), days, UTC)


def owners(folder: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    file = folder / "owners.csv"
    file.write_text("\n".join(("kind,name,team,project,project_end", *lines)), encoding="utf-8")
    monkeypatch.setenv("FALLOW_MONEY_OWNERS", str(file))


def past(fleet: Fleet, number: int, hours: float) -> None:
    """Jobs with a limit of ten hours that ran for so many."""
    host = fleet.host(f"past-{hours}", H100, 1)
    for place in range(number):
        begin = -18 + place
        fleet.claim(
            host, "old", begin, begin + hours / 24, claim_id=f"{hours}-{place}",
            planned_end=fleet.moment(begin) + 10 * HOUR_MS,
        )  # fmt: skip


def test_a_limit_ends_as_often_as_those_that_had_run_as_long(tmp_path: Path) -> None:
    """Eight that had run for half of their limit ended by it, two ran on; what ended sooner says nothing of them."""
    fleet = fleet_of()
    for number, hours in ((8, 9), (2, 12), (5, 2)):
        past(fleet, number, hours)
    gpus = fleet.host("h1", H100, 3, nvlink_island="i1")
    train(fleet, gpus[:2], "ann", fleet.between(-2), job="7")
    fleet.claim(gpus[:2], "ann", -2, claim_id="7", planned_end=T_END + 2 * DAY_MS)
    train(fleet, gpus[2:], "bob", fleet.between(-2), job="8")
    fleet.claim(gpus[2:], "bob", -2, claim_id="8", planned_end=T_END + 20 * DAY_MS)
    found = endings(fleet, made_lake(tmp_path / "lake"))
    (each,) = found.rows
    assert (each.name, each.source, each.day, each.holder) == ("slurm:7", "time_limit", date(2026, 11, 22), "ann")
    assert (each.pool, each.hosts, each.islands) == ("train", ("h1",), ("i1",))
    assert each.gpus == tuple(sorted(gpu.uuid for gpu in gpus[:2]))
    assert each.chance is not None
    assert each.chance.point == pytest.approx(0.8)
    assert each.chance.low == pytest.approx(0.5412, abs=1e-3)  # Wilson, 8 of 10 at 90 %
    assert (found.running, found.with_limit) == (2, 2)
    assert found.within(1) == ()
    assert found.of_scope(Scope(holder="bob")) == ()


def test_a_gpu_is_in_one_ending_that_of_the_surest_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owners(tmp_path, monkeypatch, "user,ann,maps,atlas,2026-11-25", "user,bob,maps,survey,2026-11-01")
    fleet = fleet_of()
    past(fleet, 4, 9)
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus[:2], "ann", job="7")
    fleet.claim(gpus[:1], "ann", -18, claim_id="7", planned_end=T_END + 19 * DAY_MS)
    train(fleet, gpus[2:3], "bob", job="8", util=90.0)
    fleet.claim(gpus[2:3], "bob", -2, claim_id="8", planned_end=T_END + DAY_MS)
    # two users share the last one: nothing is said of it
    train(fleet, gpus[3:], "ann", job="9")
    train(fleet, gpus[3:], "eve", job="10")
    found = endings(fleet, made_lake(tmp_path / "lake"))
    said = [(each.name, each.source, each.day, len(each.gpus), each.team) for each in found.rows]
    assert ("slurm:8", "time_limit", date(2026, 11, 21), 1, "maps") in said
    assert ("atlas", "project_end", date(2026, 11, 25), 2, "maps") in said
    assert [name for name, *_ in said] == ["slurm:8", "atlas"]
    assert len({gpu for each in found.rows for gpu in each.gpus}) == 3


def test_faded_work_is_there_and_the_check_tells_who_came_back(tmp_path: Path) -> None:
    """Both had faded a week before the end; Bob computes again since."""
    fleet = fleet_of(30)
    names = ("ann", "bob")
    gpus = fleet.host("h1", H100, 2)
    work = fleet.daily(8, 16) & fleet.between(0, -12)
    for name, gpu in zip(names, gpus, strict=True):
        back = fleet.between(-3) if name == "bob" else fleet.between(0, 0)
        fleet.run([gpu], name, util=np.where(work | back, 90.0, 0.0), mem_gb=60)
    train(fleet, fleet.host("h2", H100, 1), "eve")
    found = endings(fleet, made_lake(tmp_path / "lake"))
    assert [(each.name, each.source, each.day, each.gpus) for each in found.rows] == [
        ("ann", "fading", TODAY, (gpus[0].uuid,))
    ]
    assert found.check is not None
    assert (found.check.said, found.check.came_free) == ({"fading": 2}, {"fading": 1})


def test_a_project_that_goes_on_after_its_end_has_not_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two users of one project: Bob has left his GPU since its end, Ann is still there."""
    owners(tmp_path, monkeypatch, "user,ann,maps,atlas,2026-11-12", "user,bob,maps,atlas,2026-11-12")
    fleet = fleet_of()
    gpus = fleet.host("h1", H100, 2)
    train(fleet, gpus[:1], "ann")
    train(fleet, gpus[1:], "bob", fleet.between(-18, -3))
    found = endings(fleet, made_lake(tmp_path / "lake"))
    assert found.check is not None
    assert (found.check.said, found.check.came_free) == ({"project_end": 2}, {"project_end": 1})


def test_a_model_is_named_where_a_pool_has_several() -> None:
    assert has_several_models([("train", "H100"), ("train", "A100"), ("serving", "L40S")])
    assert not has_several_models([("train", "H100"), ("train", "H100"), ("serving", "L40S")])
