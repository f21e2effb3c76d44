"""What comes free: each source, a GPU's surest one, its chance, the check against a week before, what can be given."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

from analytics.capacity.jobs import jobs_of
from analytics.decide.review import findings_and_demand
from analytics.frames import empty, milliseconds
from analytics.plan.endings import Endings, find_endings
from analytics.plan.supply import FleetSupply, find_supply
from analytics.scope import Scope
from analytics.tables.names import model_if_several
from analytics.tables.plan_endings import endings_sentence
from fallow.clock import DAY_MS, HOUR_MS
from fallow.schema import ALLOCATION, REQUEST
from tests.findings.conftest import context_of
from tests.findings.scenarios.builder import H100, T_END, Fleet
from tests.findings.scenarios.situations import train

if TYPE_CHECKING:
    from pathlib import Path

TODAY, AFTER = date(2026, 11, 20), date(2026, 11, 26)


def fleet_of(days: float = 19) -> Fleet:
    return Fleet(days, interval_s=1800)


def found_in(fleet: Fleet) -> tuple[Endings, FleetSupply]:
    """Endings within two weeks, and what can be given."""
    site = fleet.recording()
    context = context_of(site)
    allocations = [
        milliseconds(rows).with_columns(host=pl.lit(host)) for table, host, rows in site.tables() if table == ALLOCATION
    ]
    none = [empty(table).with_columns(host=pl.lit("")) for table in (ALLOCATION, REQUEST)]
    endings = find_endings(context, jobs_of(pl.concat(allocations or none[:1]), none[1]), 14, UTC)
    return endings, find_supply(context, findings_and_demand(context)[1], endings)


def endings(fleet: Fleet) -> Endings:
    return found_in(fleet)[0]


def owners(folder: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    file = folder / "owners.csv"
    file.write_text("\n".join(("kind,name,team,project,project_end", *lines)), encoding="utf-8")
    monkeypatch.setenv("FALLOW_MONEY_OWNERS", str(file))


def past(fleet: Fleet, number: int, hours: float) -> None:
    """Jobs with a limit of ten hours that ran for so many."""
    host = fleet.host(f"past-{hours}", H100, 1)
    for place in range(number):
        begin, limit = -18 + place, fleet.moment(-18 + place) + 10 * HOUR_MS
        fleet.allocation(host, "old", begin, begin + hours / 24, allocation_id=f"{hours}-{place}", planned_end=limit)


def test_a_limit_ends_as_often_as_those_that_had_run_as_long() -> None:
    """Eight that had run for half of their limit ended by it, two ran on; what ended sooner says nothing of them."""
    fleet = fleet_of()
    for number, hours in ((8, 9), (2, 12), (5, 2)):
        past(fleet, number, hours)
    gpus = fleet.host("h1", H100, 3, nvlink_island="i1")
    for own, user, job, days in ((gpus[:2], "ann", "7", 2), (gpus[2:], "bob", "8", 20)):
        train(fleet, own, user, fleet.between(-2), job=job)
        fleet.allocation(own, user, -2, allocation_id=job, planned_end=T_END + days * DAY_MS)
    found = endings(fleet)
    (each,) = found.rows
    assert (each.name, each.source, each.day, each.user) == ("slurm:7", "time_limit", date(2026, 11, 22), "ann")
    assert (each.pool, each.hosts, each.islands) == ("train", ("h1",), ("i1",))
    assert each.gpus == tuple(sorted(gpu.uuid for gpu in gpus[:2]))
    assert each.chance is not None
    assert each.chance.point == pytest.approx(0.8)
    assert each.chance.low == pytest.approx(0.5412, abs=1e-3)  # Wilson, 8 of 10 at 90 %
    assert (found.running, found.with_limit) == (2, 2)
    assert found.within(1) == found.of_scope(Scope(user="bob")) == ()


def test_a_job_that_ended_after_the_newest_row_frees_nothing_any_more() -> None:
    fleet = fleet_of()
    past(fleet, 4, 9)
    gpus = fleet.host("h1", H100, 2)
    for gpu, job, end in ((gpus[:1], "7", None), (gpus[1:], "8", T_END + HOUR_MS)):
        train(fleet, gpu, "ann", fleet.between(-2), job=job)
        fleet.allocation(
            gpu,
            "ann",
            -2,
            allocation_id=job,
            planned_end=T_END + 2 * DAY_MS,
            end=end,
            state="COMPLETED" if end else "RUNNING",
        )
    found = endings(fleet)
    assert [each.name for each in found.rows] == ["slurm:7"]
    assert (found.running, found.with_limit) == (1, 1)


def test_a_gpu_is_in_one_ending_that_of_the_surest_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owners(tmp_path, monkeypatch, "user,ann,maps,atlas,2026-11-25", "user,bob,maps,survey,2026-11-01")
    fleet = fleet_of()
    past(fleet, 4, 9)
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus[:2], "ann", job="7")
    fleet.allocation(gpus[:1], "ann", -18, allocation_id="7", planned_end=T_END + 19 * DAY_MS)
    train(fleet, gpus[2:3], "bob", job="8", util=90.0)
    fleet.allocation(gpus[2:3], "bob", -2, allocation_id="8", planned_end=T_END + DAY_MS)
    # two users share the last one: nothing is said of it
    train(fleet, gpus[3:], "ann", job="9")
    train(fleet, gpus[3:], "eve", job="10")
    found = endings(fleet)
    assert [(each.name, each.source, each.day, len(each.gpus), each.team) for each in found.rows] == [
        ("slurm:8", "time_limit", date(2026, 11, 21), 1, "maps"),
        ("atlas", "project_end", date(2026, 11, 25), 2, "maps"),
    ]
    assert len({gpu for each in found.rows for gpu in each.gpus}) == 3
    job, project = found.rows
    later = (job, replace(project, day=date(2026, 12, 2)))
    week, all_days = "1 ending frees 1 GPU by 27 Nov 2026: 1 (time limit).", "By 4 Dec 2026: 3 GPUs."
    assert str(endings_sentence(later, found)) == f"{week} {all_days}", "the headline covers every row"
    assert all_days not in str(endings_sentence(found.rows, found))
    assert str(endings_sentence(later[1:], found)) == "No ending is known by 27 Nov 2026. By 4 Dec 2026: 2 GPUs."


def test_faded_work_is_there_and_the_check_tells_who_came_back() -> None:
    """Both had faded a week before the end; Bob computes again since."""
    fleet = fleet_of(30)
    gpus = fleet.host("h1", H100, 2)
    work = fleet.daily(8, 16) & fleet.between(0, -12)
    for gpu, name, back in zip(gpus, ("ann", "bob"), (fleet.between(0, 0), fleet.between(-3)), strict=True):
        fleet.run([gpu], name, util=np.where(work | back, 90.0, 0.0), mem_gb=60)
    train(fleet, fleet.host("h2", H100, 1), "eve")
    found = endings(fleet)
    (ann,) = found.rows
    assert (ann.name, ann.source, ann.day, ann.gpus) == ("ann", "fading", TODAY, (gpus[0].uuid,))
    assert found.check is not None
    assert (found.check.named, found.check.came_free) == ({"fading": 2}, {"fading": 1})


def test_a_project_that_goes_on_after_its_end_has_not_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two users of one project: Bob has left his GPU since its end, Ann is still there."""
    owners(tmp_path, monkeypatch, "user,ann,maps,atlas,2026-11-12", "user,bob,maps,atlas,2026-11-12")
    fleet = fleet_of()
    gpus = fleet.host("h1", H100, 2)
    train(fleet, gpus[:1], "ann")
    train(fleet, gpus[1:], "bob", fleet.between(-18, -3))
    check = endings(fleet).check
    assert check is not None
    assert (check.named, check.came_free) == ({"project_end": 2}, {"project_end": 1})


def test_a_model_is_named_where_a_pool_has_several() -> None:
    def audience(*places: tuple[str, str]) -> str:
        return model_if_several([SimpleNamespace(pool=pool, model=model) for pool, model in places]).audience

    assert audience(("train", "H100"), ("train", "A100"), ("serving", "L40S")) == "all"
    assert audience(("train", "H100"), ("train", "H100"), ("serving", "L40S")) == "programs"


def test_each_gpu_can_be_given_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ann's project ends on the 25th; one of her two idle GPUs can go before. Four are unused; two users share one."""
    owners(tmp_path, monkeypatch, "user,ann,maps,atlas,2026-11-25", "user,bob,speech,,")
    fleet = fleet_of()
    gpus = [*fleet.host("h1", H100, 4, nvlink_island="i1"), *fleet.host("h2", H100, 4)]
    for number, gpu in enumerate(gpus[:4]):
        gpu.device["nvlink_island"] = f"i{number // 2}"
    train(fleet, gpus[:2], "ann", job="7")
    fleet.run(gpus[2:4], "ann", mem_gb=40)
    shared, parts = fleet.host("h3", H100, 2)
    for user in ("ann", "bob"):
        train(fleet, [shared], user)
    train(fleet, fleet.split(parts, "3g.40gb", "3g.40gb"), "ann")
    _, found = found_in(fleet)
    names = ("host", "island", "source", "name", "team", "free_from", "leaves")
    assert [(*(getattr(each, name) for name in names), len(each.gpus)) for each in found.supplies] == [
        ("h1", "i1", "idle", "", "maps", TODAY, AFTER, 1),  # of six idle ones the reserve keeps one
        ("h1", "i0", "project_end", "atlas", "maps", AFTER, AFTER, 2),
        ("h1", "i1", "project_end", "atlas", "maps", AFTER, AFTER, 1),
        ("h2", None, "idle", "", None, TODAY, None, 4),
    ]
    named = [gpu for each in found.supplies for gpu in each.gpus]
    assert len(named) == len(set(named))
    widths = {each.name: (each.width, each.islands) for each in found.hosts}
    assert widths == {"h1": (4, {"i0": 2, "i1": 2}), "h2": (4, {}), "h3": (1, {})}
    assert found.allocated == {"maps": pytest.approx(4 + 0.5 + 6 / 7), "speech": 0.5}
    assert found.models == {H100.model: 80}
