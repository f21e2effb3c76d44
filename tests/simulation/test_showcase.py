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
NOT_SHOWN = {"hung_job", "keep_alive", "light_traffic", "orphaned_kernel", "straggler"}
"""Rules on hung work (which `python -m benchmarks busy` simulates) and on replicas: the showcase has neither."""
TAKE_WEEKS = {"left_free", "releasable_pool"}
"""Rules that no two weeks can satisfy: more than 14 days free, and a back-test of whole weeks."""
FLEET = SimulatedFleet(gpus=64, days=14, until_ms=UNTIL_MS, showcase=True)


def with_tables(folder: Path, fleet: SimulatedFleet) -> Path:
    """The folder, with the tables that a site keeps and the settings that name them and the lake."""
    (folder / "owners.csv").write_text(owners_csv(fleet))
    (folder / "prices.csv").write_text(prices_csv(fleet))
    names = {"lake.path": "lake", "money.owners": "owners.csv", "money.prices": "prices.csv"}
    (folder / "fallow.toml").write_text("".join(f'{key} = "{folder}/{name}"\n' for key, name in names.items()))
    return folder


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = with_tables(tmp_path_factory.mktemp("showcase"), FLEET)
    write_fleet(made_lake(folder / "lake"), FLEET)
    return folder


def said(site: Path, *arguments: str) -> Any:
    done = run_in_process(*arguments, "--config", str(site / "fallow.toml"), "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def rows(site: Path, table: LakeTable) -> pl.DataFrame:
    frame = pl.DataFrame(read(Lake.at(str(site / "lake")).files(table.name), table))
    return frame.with_columns(pl.col("time").dt.epoch("ms"))


@pytest.mark.long
def test_every_rule_has_something_to_say_and_most_gpus_are_nobodys_trouble(site: Path) -> None:
    found = said(site, "findings", "--all")["findings"]
    assert {each["rule"] for each in found} - NOT_SHOWN == {rule.name for rule in RULES} - TAKE_WEEKS - NOT_SHOWN
    assert 8 <= len({gpu for each in found for gpu in each["reclaimable_gpus"]}) <= FLEET.gpus // 3
    users = {each["user"] for each in found if each["category"] in ("efficiency", "right_size")}
    people = {user for team in TEAMS.values() for user in team}
    assert len(people & users) <= len(people) // 2


@pytest.mark.long
def test_teams_and_prices_are_those_of_the_fleet(site: Path) -> None:
    report = said(site, "ledger", "--by", "team")
    assert {row["label"] for row in report["groups"]["rows"]} == {*TEAMS, "(nobody)"}
    prices = {(price["pool"], price["origin"]) for price in report["money"]["prices"]}
    assert prices == {(pool.name, "site") for pool in POOLS}


@pytest.mark.parametrize("gpus", [1, 5, 64])
def test_the_tables_can_be_read_and_are_the_same_again(tmp_path: Path, gpus: int) -> None:
    fleet = SimulatedFleet(gpus=gpus, days=2, until_ms=UNTIL_MS, showcase=True)
    assert (owners_csv(fleet), prices_csv(fleet)) == (owners_csv(fleet), prices_csv(fleet))
    with_tables(tmp_path, fleet)
    assert all(team.quota_gpus for team in Owners.load(str(tmp_path / "owners.csv")).teams().values())
    book = PriceBook.load(str(tmp_path / "prices.csv"), "USD")
    there = {host.host.pool for host in plan_fleet(fleet).hosts}
    assert {pool for _, pool in book.site} == {pool.name for pool in there}
    assert all(book.hourly(pool.card.model, pool.name) is not None for pool in there)


def test_ordinary_work_goes_around_the_scenes_of_which_a_short_fleet_has_none() -> None:
    short = SimulatedFleet(gpus=64, days=3, until_ms=UNTIL_MS, showcase=True)
    names = [{stay.name for host in plan_fleet(fleet).hosts for stay in host.stays} for fleet in (short, FLEET)]
    assert ["nav-planner" in each for each in names] == [False, True]
    for host in plan_fleet(FLEET).hosts:
        for nth, one in enumerate(host.stays):
            assert one.start_ms < one.end_ms
            for other in host.stays[nth + 1 :]:
                apart = one.end_ms <= other.start_ms or other.end_ms <= one.start_ms
                assert apart or set(one.gpus).isdisjoint(other.gpus)


@pytest.mark.long
def test_servers_answer_in_step_with_their_gpus(site: Path) -> None:
    served = rows(site, SERVING)
    assert (served["requests_per_s"] >= 0).all()
    silent = served.filter(pl.col("model").str.contains("Mistral")).sort("time")["requests_per_s"]
    assert (silent[:1000] > 0).any()
    assert silent[-900:].max() == 0
    cache = served.filter(pl.col("model").str.contains("Llama"))["kv_cache_used_ratio"].drop_nulls()
    assert cache.is_between(0, 0.25).all()
    assert (cache > 0).any()


@pytest.mark.long
def test_hot_cards_are_held_down_and_the_late_host_comes_late(site: Path) -> None:
    gpu = rows(site, GPU)
    heat = gpu.group_by("gpu").agg(pl.col("throttled_sw_thermal_ms").max(), pl.col("temperature_c").max())
    hot = heat.filter(pl.col("throttled_sw_thermal_ms") > 0)
    assert 1 <= hot.height <= 2
    assert hot["temperature_c"].is_between(83, 87).all()
    assert heat["temperature_c"].max() == hot["temperature_c"].max()
    first = gpu.group_by("host").agg(pl.col("time").min()).filter(pl.col("time") > FLEET.since_ms)
    assert first["host"].to_list() == ["sim-h100-03"]
    inventory = rows(site, DEVICE).filter(pl.col("host") == "sim-h100-03")
    assert inventory["time"].min() == first["time"].item()
