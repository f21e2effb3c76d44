"""`fallow plan allocation`: levels that add up, what a team may see, what is missing, who starves and who hoards."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from analytics.money.priced_segments import NOT_KNOWN
from analytics.plan.allocation import FleetAllocation, arrivals, poolless_ms
from analytics.plan.endings import Endings
from analytics.plan.starving import StarvingPair, starving_pairs
from analytics.tables.plan_allocation import starving_table
from fallow.clock import DAY_MS, HOUR_MS
from tests.findings.conftest import context_of
from tests.findings.scenarios.builder import H100, T_END, Fleet
from tests.findings.scenarios.situations import train
from tests.lakes import made_lake
from tests.plan.asked import answer, refusal, run, text
from tests.shared_results import share_results

if TYPE_CHECKING:
    from pathlib import Path

    from fallow.lake import Lake

OWNERS = """kind,name,team,organisation,quota_gpus,project,project_end
account,maps,vision,research,4,atlas,2026-11-23
user,bob,speech,research,2,,
user,eve,sales,products,3,,
"""
REQUESTS = """team,gpus,card,memory_gib,from,until,priority,name
sales,2,H100,,2026-11-20,2026-12-10,1,demo
vision,2,,80,2026-11-26,2026-12-10,2,
sales,9,H100,,2026-11-20,2026-12-10,3,all
"""
PRICES = "model,pool,hourly,currency,date,source\nNVIDIA H100 80GB HBM3,,1.37,USD,2026-01-01,test\n"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Ann works for maps, in a project; Bob in jobs that name theirs, and waited; Mia is in no table; Eve is absent."""
    fleet = Fleet(8, interval_s=1800)
    gpus = fleet.host("h1", H100, 6)
    train(fleet, gpus[:2], "ann", job="1", slurm_account="maps")
    train(fleet, gpus[2:4], "bob", fleet.between(-4), job="2", slurm_account=None)
    columns = {"project": "dubbing", "submitted": fleet.moment(-5), "planned_end": T_END + 2 * DAY_MS}
    fleet.allocation(gpus[2:4], "bob", -4, allocation_id="2", **columns)
    train(fleet, gpus[4:5], "mia", job="3", slurm_account=None)
    fleet.allocation(
        gpus[5:], "ann", -6, allocation_id="4", account="maps"
    )  # reserved, in the pool for which Bob waits
    return fleet.write(made_lake(tmp_path_factory.mktemp("allocation") / "lake"))


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with the site's owners and prices."""
    for name, content in (("owners", OWNERS), ("prices", PRICES)):
        (tmp_path / f"{name}.csv").write_text(content, encoding="utf-8")
        monkeypatch.setenv(f"FALLOW_MONEY_{name.upper()}", str(tmp_path / f"{name}.csv"))
    return tmp_path


@pytest.fixture(autouse=True)
def _one_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    share_results(monkeypatch)


SUMS = ("gpu_hours", "used_gpu_hours", "held_gpu_hours", "reserved_gpu_hours", "cost", "jobs", "waited_gpu_hours")


def paths(rows: list[dict[str, Any]]) -> dict[tuple[str, ...], dict[str, Any]]:
    """The rows of the tree by the names above each and its own."""
    return {(*row["parents"], row["name"]): row for row in rows}


@pytest.mark.usefixtures("tables")
def test_every_level_adds_up_and_says_who_is_who(lake: Lake) -> None:
    found = answer(lake, "allocation")
    tree = paths(found["allocation"])
    organisations = [path for path, row in tree.items() if row["level"] == "organisation"]
    assert organisations == [("research",), ("(no organisation)",), ("products",)]
    for path, row in tree.items():
        below = [each for other, each in tree.items() if other[:-1] == path]
        for figure in SUMS if below else ():
            assert sum(each[figure] for each in below) == pytest.approx(row[figure], abs=2e-7), (path, figure)
    assert [" ".join(path[1:]) for path in tree if path[0] == "research"] == [
        "",
        "vision",
        "vision atlas",
        "speech",
        "speech dubbing",
        "speech (no project)",
    ]
    research, products, speech = tree["research",], tree["products",], tree["research", "speech"]
    assert (research["quota_gpus"], products["quota_gpus"], products["gpu_hours"]) == (6, 3, 0)
    assert (speech["gpu_hours"], speech["waited_gpu_hours"]) == (192, 48)
    assert "(no project)" not in text(lake, "allocation", "--lang", "fr"), "every level's words are translated"
    assert (speech["gpus_most"], speech["gpus_mean"]) == (2, 1)
    assert tree["research", "vision"]["reserved_gpu_hours"] == 144
    # a window without a whole hour has no highest one
    (research, *_) = answer(lake, "allocation", "--since", "30m")["allocation"]
    assert (research["gpus_mean"], research["gpus_most"]) == (5, None)
    (pair,) = [each for each in found["starving"] if each["kind"] == "idle"]
    assert (pair["waited"], pair["did_not_use"], pair["gpu_hours"]) == ("speech", "vision", 24)
    assert [(each["name"], each["gpu_count"]) for each in found["endings"]] == [("slurm:2", 2), ("atlas", 3)]


def test_without_owners_accounts_and_users_stand_in_and_use_is_the_same_beside_goodput(lake: Lake) -> None:
    found = answer(lake, "allocation")
    assert "There is no owners table" in text(lake, "allocation")
    (pair,) = found["starving"]
    assert (pair["waited"], pair["did_not_use"]) == ("bob", "maps")
    roots = [each for each in found["allocation"] if each["level"] == "organisation"]
    used, given = (sum(root[name] for root in roots) for name in ("used_gpu_hours", "gpu_hours"))
    [counted] = answer(lake, "queue")["queue_counted"]
    assert counted["used_share"] == pytest.approx(used / given)
    assert f"{100 * used / given:.1f} % of the allocated GPU time was effective." in text(lake, "queue")


@pytest.mark.usefixtures("tables")
def test_a_team_sees_nobody_else_whether_it_has_gpus_or_none(lake: Lake) -> None:
    found = answer(lake, "allocation", "--team", "speech")
    assert not [name for name in ("vision", "atlas", "ann", "mia", "sales", "products") if name in json.dumps(found)]
    assert found.keys().isdisjoint({"starving", "uptake", "endings_check"})
    assert [each["name"] for each in found["endings"]] == ["slurm:2"]
    assert paths(found["allocation"])["research",]["quota_gpus"] == 2
    tree = paths(answer(lake, "allocation", "--team", "sales")["allocation"])
    assert list(tree)[:2] == [("products",), ("products", "sales")]
    assert (tree["products",]["gpu_hours"], tree["products", "sales"]["quota_gpus"]) == (0, 3)


def test_one_table_alone(lake: Lake) -> None:
    shown = text(lake, "allocation", "--table", "endings")
    assert "GPUS THAT BECOME FREE" in shown
    assert "WHO HAS THE GPUS" not in shown
    assert answer(lake, "allocation", "--table", "endings").keys() == {"endings"}


def test_a_file_that_is_only_set_does_not_keep_the_rest_from_being_said(lake: Lake, tmp_path: Path) -> None:
    config = tmp_path / "fallow.toml"
    config.write_text(f"plan.requests = {json.dumps(str(tmp_path / 'requests.csv'))}\n", encoding="utf-8")
    done = run(lake, "allocation", "--config", str(config))
    assert done.returncode == 0
    assert "WHO HAS THE GPUS" in done.stdout
    assert "requests.csv" in done.stderr


def test_without_allocations_projects_are_answered_and_a_week_before_is_checked(tables: Path) -> None:
    fleet = Fleet(16, interval_s=1800)
    train(fleet, fleet.host("h1", H100, 2), "ann", slurm_account="maps")
    lake = fleet.write(made_lake(tables / "lake"))
    said = text(lake, "allocation")
    assert "No job with a known submission time" in said
    assert "wasted the most" not in said
    assert "1 ending frees 2 GPUs by 2026-11-27: 2 (project end)." in said
    check = answer(lake, "allocation")["endings_check"]
    assert [(each["gpus_named"], each["gpus_came_free"]) for each in check] == [(0, 0)] * 3


@pytest.mark.usefixtures("tables")
def test_new_cards_are_beside_those_that_came_before() -> None:
    fleet = Fleet(24, interval_s=1800)
    train(fleet, fleet.host("h1", H100, 2), "ann")
    for name, came, used in (("h2", 15, 12), ("h3", 10, 0), ("h4", 5, 0)):
        gpus = fleet.host(name, H100, 2)
        if used:
            train(fleet, gpus, "bob", fleet.between(-used), job=name)
        for gpu in gpus:
            gpu.absent(fleet.between(0, -came))
    last, newest, earlier = arrivals(context_of(fleet.recording()))
    assert (earlier.host, earlier.unused, earlier.first_use_days, earlier.ramp_days) == ("h2", 0, 3, 3)
    assert (earlier.earlier_days, earlier.earlier) == (None, 0)
    assert (newest.host, newest.unused, newest.first_use_days, newest.ramp_days) == ("h3", 2, None, None)
    assert (newest.earlier_days, newest.earlier, newest.idle_days) == (3, 2, 20)
    assert (last.host, last.earlier_days, last.earlier) == ("h4", 6.5, 4)  # 3 d to first use, and 10 d without any
    assert (newest.day_cost, newest.idle_cost) == pytest.approx((2 * 24 * 1.37, 20 * 24 * 1.37))


def test_requests_are_served_by_what_comes_free(lake: Lake, tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bob's job ends on the 22nd, the project of Ann on the 23rd; whoever asks for all of it is too late for both."""
    file = tables / "requests.csv"
    file.write_text(REQUESTS, encoding="utf-8")
    asked = ("--requests", str(file))
    found = answer(lake, "allocation", *asked)
    names = ("name", "start", "gpu_count", "from_team", "ends")
    assert [tuple(each[name] for name in names) for each in found["reallocation"]] == [
        ("demo", "2026-11-23", 2, "speech", "slurm:2"),
        (None, "2026-11-26", 2, "vision", "atlas"),
    ]
    [unserved] = found["unserved"]
    assert (unserved["name"], unserved["reason"], unserved["gpus_free_in_time"]) == ("all", "too_few", 5)
    assert sum(each["gpu_count"] for each in found["left_over"]) == 1
    assert found["reallocation_facts"][0]["proven_best"] is True
    assert run(lake, "allocation", *asked, "--csv", "--table", "reallocation").stdout.count("\n") == 3
    said = text(lake, "allocation", *asked)
    assert "2 of 3 requests can be served, with 4 of 13 requested GPUs. 1 starts later than requested." in said
    assert "Only 5 matching GPUs are available by 2026-12-05." in said
    assert refusal(lake, "allocation", *asked, "--user", "bob")
    monkeypatch.setenv("FALLOW_PLAN_REQUESTS", str(file))
    own = answer(lake, "allocation", "--team", "vision")
    assert [each["team"] for each in own["reallocation"]] == ["vision"]
    assert "from_team" not in own["reallocation"][0]
    assert own.keys().isdisjoint({"unserved", "balance", "left_over"})
    assert "reallocation" not in answer(lake, "allocation", "--user", "bob")


def test_waits_in_a_pool_that_nobody_knows_are_not_denied() -> None:
    calendar = Endings(date(2026, 11, 20), 14, (), None, 0, 0, 0)
    found = FleetAllocation((), (), (), calendar, (), 1, 0.0, has_owners=True, currency="USD", seen=1.0, open_ms=0.0)
    spans = pl.DataFrame({"begin": [0, 0], "until": [2 * HOUR_MS, HOUR_MS], "gpus": [3, 1], "pool": [None, "train"]})
    for each, said in (
        (found, "No team waited while"),
        (replace(found, poolless_ms=poolless_ms(spans)), "Jobs waited for 6.0 GPU-hours in an unknown pool"),
    ):
        section = starving_table(each)
        assert section is not None
        assert said in str(section.headline)


WINDOW = (0, 24 * HOUR_MS)


def in_hours(rows: tuple[tuple[Any, ...], ...], names: tuple[str, ...], **more: pl.Expr) -> pl.DataFrame:
    frame = pl.DataFrame(rows, schema=dict.fromkeys(names), schema_overrides={"pool": pl.String}, orient="row")
    return frame.with_columns((pl.col(names[-3:-1]) * HOUR_MS).cast(pl.Int64), **more)


def waits(*rows: tuple[str, str | None, float, float, int]) -> pl.DataFrame:
    """Team, pool, from, until, GPUs."""
    names = ("team", "pool", "begin", "until", "gpus")
    return in_hours(rows, names, user=pl.lit("u"), account=pl.lit(None, pl.String))


def given(*rows: tuple[str, str, str, float, float, float]) -> pl.DataFrame:
    """Team, pool, state, from, until, GPUs."""
    names = ("team", "pool", "state", "time", "end", "gpu_share")
    frame = in_hours(rows, names, user=pl.lit("u"), account=pl.lit("(no account)"))
    return frame.with_columns(segment_ms=pl.col("end") - pl.col("time"))


def hours(found: tuple[StarvingPair, ...], kind: str = "idle") -> dict[tuple[str, str], float]:
    return {(each.starves, each.hoards): round(each.gpu_ms / HOUR_MS, 6) for each in found if each.kind == kind}


def test_only_the_same_moments_of_the_same_pool_count_and_no_gpu_twice() -> None:
    wanted = waits(("a", "p", 0, 4, 2), ("b", "p", 2, 6, 2), ("c", "q", 0, 6, 9), ("d", None, 0, 6, 9))
    had = given(("x", "p", "held", 1, 6, 1), ("y", "p", "reserved", 3, 4, 3), ("x", "p", "active", 6, 9, 9))
    found = starving_pairs(wanted, had, {}, WINDOW, HOUR_MS)
    # 1-2 h: a alone beside x; 2-3 h: x's GPU for both; 3-4 h: 4 wanted, 4 there; 4-6 h: b alone
    assert hours(found) == {("a", "x"): 2.0, ("b", "x"): 3.0, ("a", "y"): 1.5, ("b", "y"): 1.5}
    assert sum(hours(found).values()) == pytest.approx(5 + 3)
    first = found[0]
    assert (first.waited_ms, first.unused_ms) == (8 * HOUR_MS, 5 * HOUR_MS)


def test_nobody_starves_above_its_quota_nor_beside_its_own() -> None:
    wanted = waits(("a", "p", 0, 6, 1))
    had = given(("x", "p", "held", 0, 6, 1), ("a", "p", "held", 0, 6, 1), ("a", "q", "active", 2, 4, 3))
    # its own idle GPU counts as there, but is no other's: half of what was waited for is beside x
    assert hours(starving_pairs(wanted, had, {"a": 2.0}, WINDOW, HOUR_MS)) == {("a", "x"): 2.0}
    assert hours(starving_pairs(wanted, had, {}, WINDOW, HOUR_MS)) == {("a", "x"): 3.0}
    assert hours(starving_pairs(wanted, had, {"a": 4.0}, WINDOW, 7 * HOUR_MS)) == {}


def test_a_quota_of_which_less_than_half_is_needed_is_hoarded() -> None:
    wanted = waits(("a", "p", 0.5, 2, 4))
    had = given(("x", "p", "active", 0, 24, 4), ("y", "p", "active", 0, 24, 6))
    found = starving_pairs(wanted, had, {"x": 10.0, "y": 10.0}, WINDOW, HOUR_MS)
    assert hours(found) == {}
    assert hours(found, "quota") == {("a", "x"): 6.0}
    assert found[0].needed_share == pytest.approx(0.4)


def test_who_waits_unknown_is_said_to_be() -> None:
    waiting = waits(("(no team)", "A", 2, 5, 1)).with_columns(user=pl.lit(None, pl.String))
    found = starving_pairs(waiting, given(("vision", "A", "reserved", 0, 24, 2)), {}, WINDOW, HOUR_MS)
    assert hours(found) == {(NOT_KNOWN, "vision"): 3}
