"""`fallow plan allocation` as a whole: levels that add up, what a team may see, and what is missing."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from analytics.plan.allocation import FleetAllocation, arrivals, poolless_ms
from analytics.plan.endings import Endings
from analytics.tables.plan_allocation import starving_table
from fallow.cli import main
from tests.answers import rows_of
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


def answer(lake: Lake, capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, list[dict[str, Any]]]:
    capsys.readouterr()
    assert main(["plan", "allocation", "--lake", lake.root, "--json", *flags]) == 0
    return rows_of(capsys.readouterr().out)


def tables(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("owners", OWNERS), ("prices", PRICES)):
        (folder / f"{name}.csv").write_text(text, encoding="utf-8")
        monkeypatch.setenv(f"FALLOW_MONEY_{name.upper()}", str(folder / f"{name}.csv"))


SUMS = ("gpu_hours", "used_gpu_hours", "held_gpu_hours", "reserved_gpu_hours", "cost", "jobs", "waited_gpu_hours")


def paths(rows: list[dict[str, Any]]) -> dict[tuple[str, ...], dict[str, Any]]:
    """The rows of the tree by the names above each and its own."""
    return {(*row["parents"], row["name"]): row for row in rows}


def test_every_level_adds_up_and_says_who_is_who(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tables(tmp_path, monkeypatch)
    found = answer(lake, capsys)
    tree = paths(found["allocation"])
    assert [path for path, row in tree.items() if row["level"] == "organisation"] == [
        ("research",),
        ("(no organisation)",),
        ("products",),
    ]
    for path, row in tree.items():
        below = [each for other, each in tree.items() if other[:-1] == path]
        for figure in SUMS if below else ():
            together = sum(each[figure] for each in below)
            assert round(together * 3_600_000) == round(row[figure] * 3_600_000), (path, figure)
    assert [path[1:] for path in tree if path[0] == "research" and len(path) > 1] == [
        ("vision",),
        ("vision", "atlas"),
        ("speech",),
        ("speech", "dubbing"),
        ("speech", "(no project)"),
    ]
    research, products, speech = tree["research",], tree["products",], tree["research", "speech"]
    assert (research["quota_gpus"], products["quota_gpus"], products["gpu_hours"]) == (6, 3, 0)
    assert (speech["gpu_hours"], speech["waited_gpu_hours"]) == (192, 48)
    assert (speech["gpus_most"], speech["gpus_mean"]) == (2, 1)
    assert tree["research", "vision"]["reserved_gpu_hours"] == 144
    # a window without a whole hour has no highest one
    (research, *_) = answer(lake, capsys, "--since", "30m")["allocation"]
    assert (research["gpus_mean"], research["gpus_most"]) == (5, None)
    (pair,) = [each for each in found["starving"] if each["kind"] == "idle"]
    assert (pair["waited"], pair["did_not_use"], pair["gpu_hours"]) == ("speech", "vision", 24)
    assert [(each["name"], each["gpu_count"]) for each in found["endings"]] == [("slurm:2", 2), ("atlas", 3)]


def test_what_was_used_is_the_same_beside_goodput(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    roots = [each for each in answer(lake, capsys)["allocation"] if each["level"] == "organisation"]
    used, given = (sum(root[name] for root in roots) for name in ("used_gpu_hours", "gpu_hours"))
    assert main(["plan", "queue", "--lake", lake.root, "--json"]) == 0
    [counted] = rows_of(capsys.readouterr().out)["queue-counted"]
    assert counted["used_share"] == pytest.approx(used / given)


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
    assert found.keys().isdisjoint({"starving", "uptake", "endings-check"})
    assert [each["name"] for each in found["endings"]] == ["slurm:2"]
    assert paths(found["allocation"])["research",]["quota_gpus"] == 2


def test_a_team_that_has_nothing_is_answered_and_nobody_else(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tables(tmp_path, monkeypatch)
    tree = paths(answer(lake, capsys, "--team", "sales")["allocation"])
    assert list(tree)[:2] == [("products",), ("products", "sales")]
    assert (tree["products",]["gpu_hours"], tree["products", "sales"]["quota_gpus"]) == (0, 3)
    assert main(["plan", "allocation", "--lake", lake.root, "--team", "nobody"]) == 1


def test_one_table_alone(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["plan", "allocation", "--lake", lake.root, "--table"]
    assert main([*asked, "endings"]) == 0
    shown = capsys.readouterr().out
    assert "WHICH GPUS COME FREE" in shown
    assert "WHO HAS THE GPUS" not in shown
    assert answer(lake, capsys, "--table", "endings").keys() == {"endings"}
    assert main([*asked, "unserved"]) == 2
    assert "there is no table 'unserved' in this answer" in capsys.readouterr().err


def test_a_file_that_is_only_set_does_not_keep_the_rest_from_being_said(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, table = tmp_path / "fallow.toml", tmp_path / "requests.csv"
    config.write_text(f"[plan]\nrequests = {json.dumps(str(table))}\n", encoding="utf-8")
    assert main(["plan", "allocation", "--lake", lake.root, "--config", str(config)]) == 0
    found = capsys.readouterr()
    assert "WHO HAS THE GPUS" in found.out
    assert "requests.csv" in found.err


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
    check = answer(lake, capsys)["endings-check"]
    assert [(each["gpus_named"], each["gpus_came_free"]) for each in check] == [(0, 0)] * 3


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
    found = answer(lake, capsys, "--requests", file)
    assert [
        (each["name"], each["start"], each["gpu_count"], each["from_team"], each["ends"])
        for each in found["reallocation"]
    ] == [("demo", "2026-11-23", 2, "speech", "slurm:2"), (None, "2026-11-26", 2, "vision", "atlas")]
    [unserved] = found["unserved"]
    assert (unserved["name"], unserved["reason"], unserved["gpus_free_in_time"]) == ("all", "too_few", 5)
    assert sum(each["gpu_count"] for each in found["left_over"]) == 1
    assert found["reallocation-facts"][0]["proven_best"] is True
    csv = ["--requests", file, "--csv", "--table", "reallocation"]
    assert main(["plan", "allocation", "--lake", lake.root, *csv]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert main(["plan", "allocation", "--lake", lake.root, "--requests", file]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "2 of 3 requests can be served, with 4 of the 13 GPUs asked for. 1 begins later than asked for." in text
    assert "Only 5 GPUs of that kind can be given by 2026-12-05." in text
    assert main(["plan", "allocation", "--lake", lake.root, "--requests", file, "--user", "bob"]) == 2
    capsys.readouterr()
    monkeypatch.setenv("FALLOW_PLAN_REQUESTS", file)
    own = answer(lake, capsys, "--team", "vision")
    assert [each["team"] for each in own["reallocation"]] == ["vision"]
    assert "from_team" not in own["reallocation"][0]
    assert own.keys().isdisjoint({"unserved", "balance", "left_over"})
    assert "reallocation" not in answer(lake, capsys, "--user", "bob")
