"""`fallow plan allocation` as a whole: levels that add up, what a team may see, and what is missing."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from analytics.plan.allocation import FleetAllocation, poolless_ms
from analytics.plan.endings import Endings
from analytics.plan.uptake import arrivals
from analytics.tables.plan_allocation import starving_table
from fallow.cli import main
from tests.findings.conftest import context_of
from tests.findings.scenarios.builder import H100, T_END, Fleet
from tests.findings.scenarios.situations import train
from tests.lakes import made_lake

if TYPE_CHECKING:
    from pathlib import Path

    from fallow.lake import Lake

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
OWNERS = """kind,name,team,organisation,quota_gpus,project,project_end
account,maps,vision,research,4,atlas,2026-11-23
user,bob,speech,research,2,,
user,eve,sales,products,3,,
"""
PRICES = "model,pool,hourly,currency,date,source\nNVIDIA H100 80GB HBM3,,1.37,USD,2026-01-01,test\n"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Ann works for maps, in a project; Bob in jobs that name their own, and waited; Mia is in no table; Eve has nothing."""
    fleet = Fleet(8, interval_s=1800)
    gpus = fleet.host("h1", H100, 6)
    train(fleet, gpus[:2], "ann", job="1", slurm_account="maps")
    train(fleet, gpus[2:4], "bob", fleet.between(-4), job="2", slurm_account=None)
    columns = {"project": "dubbing", "submitted": fleet.moment(-5), "planned_end": T_END + 2 * DAY_MS}
    fleet.claim(gpus[2:4], "bob", -4, claim_id="2", **columns)
    train(fleet, gpus[4:5], "mia", job="3", slurm_account=None)
    fleet.claim(gpus[5:], "ann", -6, claim_id="4", account="maps")  # reserved, in the pool for which Bob waits
    return fleet.write(made_lake(tmp_path / "lake"))


def answer(lake: Lake, capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["plan", "allocation", "--lake", lake.root, "--json", *flags]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def tables(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("owners", OWNERS), ("prices", PRICES)):
        (folder / f"{name}.csv").write_text(text, encoding="utf-8")
        monkeypatch.setenv(f"FALLOW_MONEY_{name.upper()}", str(folder / f"{name}.csv"))


def by_name(nodes: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {node["name"]: node for node in nodes}


SUMS = ("gpu_hours", "used_gpu_hours", "held_gpu_hours", "reserved_gpu_hours", "cost", "jobs", "waited_gpu_hours")


def adds_up(node: dict[str, Any]) -> None:
    if not node["children"]:
        return
    for figure in SUMS:
        below = sum(each[figure] for each in node["children"])
        assert round(below * 3_600_000) == round(node[figure] * 3_600_000), (node["name"], figure)
    for each in node["children"]:
        adds_up(each)


def test_every_level_adds_up_and_says_who_is_who(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tables(tmp_path, monkeypatch)
    found = answer(lake, capsys)
    tree = by_name(found["tree"])
    assert list(tree) == ["research", "(no organisation)", "products"]
    for node in found["tree"]:
        adds_up(node)
    teams = by_name(tree["research"]["children"])
    assert {name: list(by_name(team["children"])) for name, team in teams.items()} == {
        "vision": ["atlas"],
        "speech": ["dubbing", "(no project)"],
    }
    assert (tree["research"]["quota_gpus"], tree["products"]["quota_gpus"], tree["products"]["gpu_hours"]) == (6, 3, 0)
    assert (teams["speech"]["gpu_hours"], teams["speech"]["waited_gpu_hours"]) == (192, 48)
    assert (teams["speech"]["gpus_most"], teams["speech"]["gpus_mean"]) == (2, 1)
    assert teams["vision"]["reserved_gpu_hours"] == 144
    # a window without a whole hour has no highest one
    (research, *_) = answer(lake, capsys, "--since", "30m")["tree"]
    assert (research["gpus_mean"], research["gpus_most"]) == (5, None)
    (pair,) = [each for each in found["starving"] if each["kind"] == "idle"]
    assert (pair["waited"], pair["did_not_use"], pair["gpu_hours"]) == ("speech", "vision", 24)
    assert [(each["name"], each["gpu_count"]) for each in found["endings"]] == [("slurm:2", 2), ("atlas", 3)]


def test_what_was_used_is_the_same_beside_goodput(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    tree = answer(lake, capsys)["tree"]
    used, given = (sum(node[name] for node in tree) for name in ("used_gpu_hours", "gpu_hours"))
    assert main(["plan", "waits", "--lake", lake.root, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["used_share"] == pytest.approx(used / given)


def test_waits_in_a_pool_that_nobody_knows_are_not_denied() -> None:
    calendar = Endings(date(2026, 11, 20), 14, (), None, 0, 0, 0)
    found = FleetAllocation((), (), (), calendar, (), 1, 0.0, has_owners=True, currency="USD", seen=1.0, open_ms=0.0)
    spans = {"begin": [0, 0], "until": [2 * HOUR_MS, HOUR_MS], "gpus": [3, 1], "pool": [None, "train"]}
    hours = poolless_ms(pl.DataFrame(spans))
    assert "Nobody waited while" in _starving(found)
    assert "6.0 GPU-hours were waited for in a pool that nobody knows" in _starving(replace(found, poolless_ms=hours))


def _starving(found: FleetAllocation) -> str:
    section = starving_table(found)
    assert section is not None
    return str(section.headline)


def test_a_team_sees_nobody_else(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tables(tmp_path, monkeypatch)
    found = answer(lake, capsys, "--team", "speech")
    text = json.dumps(found)
    assert not any(name in text for name in ("vision", "atlas", "ann", "mia", "sales", "products"))
    assert (found["starving"], found["new_cards"], found["back_test"]) == (None, None, None)
    assert [each["name"] for each in found["endings"]] == ["slurm:2"]
    assert by_name(found["tree"])["research"]["quota_gpus"] == 2


def test_a_team_that_has_nothing_is_answered_and_nobody_else(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tables(tmp_path, monkeypatch)
    (root,) = answer(lake, capsys, "--team", "sales")["tree"]
    assert (root["name"], root["gpu_hours"], root["children"][0]["quota_gpus"]) == ("products", 0, 3)
    assert main(["plan", "allocation", "--lake", lake.root, "--team", "nobody"]) == 1


def test_one_part_alone(lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["plan", "allocation", "--lake", lake.root]
    assert main([*asked, "--only", "endings"]) == 0
    shown = capsys.readouterr().out
    assert "WHICH GPUS COME FREE" in shown
    assert "WHO HAS THE GPUS" not in shown
    for wrong in (["endings", "--json"], ["owners", "--csv"], ["requests"], ["requests", "--holder", "ann"]):
        assert main([*asked, "--only", *wrong]) == 2
    # a file that is only set does not keep the rest from being said
    config, table = tmp_path / "fallow.toml", tmp_path / "requests.csv"
    config.write_text(f"[plan]\nrequests = {json.dumps(str(table))}\n", encoding="utf-8")
    capsys.readouterr()
    assert main([*asked, "--config", str(config)]) == 0
    found = capsys.readouterr()
    assert "WHO HAS THE GPUS" in found.out
    assert "requests.csv" in found.err
    assert main([*asked, "--config", str(config), "--only", "requests"]) == 2


def test_without_owners_accounts_and_users_stand_in(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "allocation", "--lake", lake.root]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "There is no owners table" in text
    (pair,) = answer(lake, capsys)["starving"]
    assert (pair["waited"], pair["did_not_use"]) == ("bob", "maps")


def test_without_allocations_projects_are_answered_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tables(tmp_path, monkeypatch)
    fleet = Fleet(8, interval_s=1800)
    train(fleet, fleet.host("h1", H100, 2), "ann", slurm_account="maps")
    lake = fleet.write(made_lake(tmp_path / "lake"))
    assert main(["plan", "allocation", "--lake", lake.root]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "No job of this window is known with the time at which it asked for GPUs" in text
    assert "1 ending frees 2 GPUs by 2026-11-27: 2 by project end." in text
    assert main(["plan", "allocation", "--lake", lake.root, "--days", "0"]) == 2


def test_the_check_of_a_week_before_is_in_the_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tables(tmp_path, monkeypatch)
    fleet = Fleet(16, interval_s=1800)
    train(fleet, fleet.host("h1", H100, 2), "ann", slurm_account="maps")
    lake = fleet.write(made_lake(tmp_path / "lake"))
    assert answer(lake, capsys)["back_test"] == {"said": {}, "came_free": {}}


def test_new_cards_are_beside_those_that_came_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables(tmp_path, monkeypatch)
    fleet = Fleet(24, interval_s=1800)
    train(fleet, fleet.host("h1", H100, 2), "ann")
    for name, came, used in (("h2", 15, 12), ("h3", 10, 0), ("h4", 5, 0)):
        gpus = fleet.host(name, H100, 2)
        if used:
            train(fleet, gpus, "bob", fleet.between(-used), job=name)
        for gpu in gpus:
            gpu.absent(fleet.between(0, -came))
    last, newest, earlier = arrivals(context_of(fleet.write(made_lake(tmp_path / "lake"))))
    assert (earlier.host, earlier.unused, earlier.first_use_days, earlier.ramp_days) == ("h2", 0, 3, 3)
    assert (earlier.earlier_days, earlier.earlier) == (None, 0)
    assert (newest.host, newest.unused, newest.first_use_days, newest.ramp_days) == ("h3", 2, None, None)
    assert (newest.earlier_days, newest.earlier, newest.idle_days) == (3, 2, 20)
    assert (last.host, last.earlier_days, last.earlier) == ("h4", 6.5, 4)  # 3 d to first use, and 10 d without any
    assert newest.day_cost == pytest.approx(2 * 24 * 1.37)
    assert newest.idle_cost == pytest.approx(20 * 24 * 1.37)


def asked(folder: Path, *lines: str) -> str:
    file = folder / "requests.csv"
    file.write_text("\n".join(("team,gpus,card,memory_gib,from,until,priority,name", *lines)), encoding="utf-8")
    return str(file)


def test_requests_are_served_by_what_comes_free(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bob's job ends on the 22nd, the project of Ann on the 23rd; whoever asks for all of it is too late for both."""
    tables(tmp_path, monkeypatch)
    file = asked(
        tmp_path,
        "sales,2,H100,,2026-11-20,2026-12-10,1,demo",
        "vision,2,,80,2026-11-26,2026-12-10,2,",
        "sales,9,H100,,2026-11-20,2026-12-10,3,all",
    )
    found = answer(lake, capsys, "--requests", file)["proposal"]
    said = [(each["name"], each["start"], [(own["gpu_count"], own["from_team"], own["ends"]) for own in each["grants"]]) for each in found["served"]]  # fmt: skip
    assert said == [("demo", "2026-11-23", [(2, "speech", "slurm:2")]), (None, "2026-11-26", [(2, "vision", "atlas")])]
    assert [(each["name"], each["reason"], each["gpus_free_in_time"]) for each in found["unserved"]] == [("all", "too_few", 5)]  # fmt: skip
    assert (sum(each["gpu_count"] for each in found["left"]), found["proven_best"]) == (1, True)
    assert main(["plan", "allocation", "--lake", lake.root, "--requests", file, "--csv"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert main(["plan", "allocation", "--lake", lake.root, "--requests", file]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "2 of 3 requests can be served, with 4 of the 13 GPUs asked for. 1 begins later than asked for." in text
    assert "Only 5 GPUs of that kind can be given by 2026-12-05." in text
    assert main(["plan", "allocation", "--lake", lake.root, "--requests", file, "--holder", "bob"]) == 2
    capsys.readouterr()
    monkeypatch.setenv("FALLOW_PLAN_REQUESTS", file)
    own = answer(lake, capsys, "--team", "vision")["proposal"]
    assert [each["team"] for each in (*own["served"], *own["unserved"])] == ["vision"]
    assert (own["teams"], own["left"], "proposal" in answer(lake, capsys, "--holder", "bob")) == (None, None, False)
