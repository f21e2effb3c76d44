"""The showcase: every rule has something to say of it, most GPUs are nobody's trouble, and a site's tables fit it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from analytics.money.owners import Owners
from analytics.money.prices import PriceBook
from analytics.rules import RULES
from analytics.simulation import SimulatedFleet, owners_csv, plan_fleet, prices_csv, write_fleet
from analytics.simulation.catalog import POOLS, TEAMS
from fallow.clock import DAY_MS
from fallow.lake import Lake
from fallow.parquet import read
from fallow.schema import DEVICE, GPU, SERVING
from tests.in_process import run_in_process
from tests.lakes import made_lake

if TYPE_CHECKING:
    from pathlib import Path

    from fallow.schema import LakeTable

UNTIL_MS = 20_777 * DAY_MS  # 2026-11-20
FLEET = SimulatedFleet(gpus=64, days=14, until_ms=UNTIL_MS, showcase=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the lake, the tables that a site keeps, and the settings that name them."""
    folder = tmp_path_factory.mktemp("showcase")
    write_fleet(made_lake(folder / "lake"), FLEET)
    (folder / "owners.csv").write_text(owners_csv(FLEET))
    (folder / "prices.csv").write_text(prices_csv(FLEET))
    (folder / "fallow.toml").write_text(
        f'[lake]\npath = "{folder}/lake"\n[money]\nowners = "{folder}/owners.csv"\nprices = "{folder}/prices.csv"\n'
    )
    return folder


def said(site: Path, *arguments: str) -> Any:
    done = run_in_process(*arguments, "--config", str(site / "fallow.toml"), "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def found(site: Path) -> list[dict[str, Any]]:
    findings: list[dict[str, Any]] = said(site, "findings")["findings"]
    return findings


def rows(site: Path, table: LakeTable) -> pl.DataFrame:
    frame = pl.from_arrow(read(Lake.at(str(site / "lake")).files(table.name), table))
    assert isinstance(frame, pl.DataFrame)
    return frame


@pytest.mark.long
def test_every_rule_has_something_to_say(found: list[dict[str, Any]]) -> None:
    assert {each["rule"] for each in found} == {rule.name for rule in RULES}


@pytest.mark.long
def test_most_gpus_are_nobodys_trouble(found: list[dict[str, Any]]) -> None:
    to_take = {gpu for each in found for gpu in each["reclaimable_gpus"]}
    assert 8 <= len(to_take) <= FLEET.gpus // 3
    holders = {each["holder"] for each in found if each["category"] in ("efficiency", "right_size")}
    people = {user for team in TEAMS.values() for user in team}
    assert len(people & holders) <= len(people) // 2


@pytest.mark.long
def test_teams_and_prices_are_those_of_the_fleet(site: Path) -> None:
    groups = {row["label"] for row in said(site, "ledger", "--by", "team")["groups"]["rows"]}
    assert groups == {*TEAMS, "(nobody)"}
    report = said(site, "ledger")
    assert {(price["pool"], price["origin"]) for price in report["money"]["prices"]} == {
        (pool.name, "site") for pool in POOLS
    }


@pytest.mark.parametrize("gpus", [1, 5, 64])
def test_the_tables_can_be_read_and_are_the_same_again(tmp_path: Path, gpus: int) -> None:
    fleet = SimulatedFleet(gpus=gpus, days=2, until_ms=UNTIL_MS, showcase=True)
    assert (owners_csv(fleet), prices_csv(fleet)) == (owners_csv(fleet), prices_csv(fleet))
    (tmp_path / "owners.csv").write_text(owners_csv(fleet))
    (tmp_path / "prices.csv").write_text(prices_csv(fleet))
    owners = Owners.load(str(tmp_path / "owners.csv"))
    assert all(team.quota_gpus for team in owners.teams().values())
    book = PriceBook.load(str(tmp_path / "prices.csv"), "USD")
    there = {host.host.pool for host in plan_fleet(fleet).hosts}
    assert {pool for _, pool in book.site} == {pool.name for pool in there}
    assert all(book.hourly(pool.card.model, pool.name) is not None for pool in there)


def test_ordinary_work_goes_around_the_scenes() -> None:
    for host in plan_fleet(FLEET).hosts:
        for nth, one in enumerate(host.stays):
            assert one.start_ms < one.end_ms
            for other in host.stays[nth + 1 :]:
                apart = one.end_ms <= other.start_ms or other.end_ms <= one.start_ms
                assert apart or set(one.gpus).isdisjoint(other.gpus)


def test_a_short_fleet_has_no_scenes() -> None:
    fleet = SimulatedFleet(gpus=64, days=3, until_ms=UNTIL_MS, showcase=True)
    names = {stay.name for host in plan_fleet(fleet).hosts for stay in host.stays}
    assert "nav-planner" not in names
    assert "nav-planner" in {stay.name for host in plan_fleet(FLEET).hosts for stay in host.stays}


@pytest.mark.long
def test_servers_answer_in_step_with_their_gpus(site: Path) -> None:
    served = rows(site, SERVING)
    assert served.filter(pl.col("requests_per_s") < 0).is_empty()
    silent = served.filter(pl.col("model").str.contains("Mistral")).sort("time")
    assert silent["requests_per_s"][:1000].max() > 0  # type: ignore[operator]
    assert silent["requests_per_s"][-900:].max() == 0
    cache = served.filter(pl.col("model").str.contains("Llama"))["kv_cache_used_ratio"]
    assert 0 < cache.max() <= 0.25  # type: ignore[operator]


@pytest.mark.long
def test_hot_cards_are_held_down_and_the_late_host_comes_late(site: Path) -> None:
    gpu = rows(site, GPU).with_columns(pl.col("time").dt.epoch("ms"))
    heat = gpu.group_by("gpu").agg(pl.col("throttled_sw_thermal_ms").max(), pl.col("temperature_c").max())
    hot = heat.filter(pl.col("throttled_sw_thermal_ms") > 0)
    assert 1 <= hot.height <= 2
    assert hot["temperature_c"].min() >= 83  # type: ignore[operator]
    assert heat["temperature_c"].max() == hot["temperature_c"].max() <= 87  # type: ignore[operator]
    first = gpu.group_by("host").agg(pl.col("time").min())
    late = first.filter(pl.col("time") > FLEET.since_ms)
    assert late["host"].to_list() == ["sim-h100-03"]
    assert (
        rows(site, DEVICE).filter(pl.col("host") == "sim-h100-03")["time"].dt.epoch("ms").min() == late["time"].item()
    )
