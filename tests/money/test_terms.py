"""GPUs whose pool or price changed: every segment is paid for under the terms of its time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from analytics.inventory import TERMS, Device, Inventory, load_inventory
from analytics.money.accounts import Accounts
from analytics.money.costs import Costs
from analytics.money.owners import Owners
from analytics.money.prices import PriceBook
from fallow.cli import main
from tests.lakes import made_lake
from tests.ledger.rows import T0, device, fill, load, ms, samples
from tests.money.fleet import ledger, segment

if TYPE_CHECKING:
    from pathlib import Path

    from analytics.ledger.build import Ledger
    from fallow.lake import Lake

PRICES = "model,pool,hourly,date\n,a,2,\n,b,4,\n"
HOUR = 3600
H100 = "NVIDIA H100 80GB HBM3"


def book(folder: Path, text: str) -> PriceBook:
    (folder / "prices.csv").write_text(text, encoding="utf-8")
    return PriceBook.load(str(folder / "prices.csv"), "USD")


def lake_of(folder: Path, *entries: dict[str, Any], hours: int = 4) -> Lake:
    """One busy GPU over hours of 2026-11-20, with these inventory entries."""
    rows = samples("GPU-a", 0, hours * HOUR, every_s=60, gpu_util_pct=90.0, process_count=1)
    return fill(made_lake(folder / "lake"), rows, devices=entries)


def entry(at_s: float, pool: str | None, **values: object) -> dict[str, Any]:
    return device("GPU-a", time=ms(at_s)) | {"pool": pool} | values


def accounts(lake: Lake, prices: PriceBook, built: Ledger | None = None) -> Accounts:
    known = load_inventory(lake)
    return Accounts(built or load(lake), Costs(prices, known), known, Owners.none())


def moved(pools: list[tuple[int, str]], *more: Device) -> Inventory:
    """GPU-a, which came into each of the pools at a second."""
    rows = [("GPU-a", ms(at), H100, pool) for at, pool in pools]
    devices = (Device("GPU-a", "h1", model=H100, pool=pools[-1][1] if pools else "a"), *more)
    return Inventory({each.gpu: each for each in devices}, terms=pl.DataFrame(rows, schema=TERMS, orient="row"))


def paid(found: Accounts, group: str = "pool") -> dict[str, int | None]:
    return {row.label: row.paid_cents for row in found.by(group)}


def test_a_gpu_that_moved_to_another_pool_is_billed_to_each_for_its_time(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, entry(0, "a"), entry(HOUR, "a"), entry(1.5 * HOUR, "b"))
    found = accounts(lake, book(tmp_path, PRICES))
    assert paid(found) == {"a": 300, "b": 1000}
    assert {row.label: row.total_ms / 3_600_000 for row in found.by("pool")} == {"a": 1.5, "b": 2.5}
    assert found.total.paid_cents == 1300
    assert [(row.label, row.gpus) for row in found.by("host")] == [("h1", 1)], "it is one GPU all along"
    rows, costs = load(lake).segments, Costs(book(tmp_path, PRICES), load_inventory(lake))
    assert costs.of(rows) == pytest.approx(13), "a finding costs what its time cost"
    assert costs.rate_of("GPU-a") == 4, "what it costs now"
    half = Costs(book(tmp_path, "model,pool,hourly\nFoo,b,4\n"), load_inventory(lake))
    assert half.of(rows) == pytest.approx(4 * 6.88), "the catalog, whichever pool"


def test_time_without_a_price_is_no_cost(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, entry(0, "a", model="Foo 1"), entry(1.5 * HOUR, "b", model="Foo 1"))
    prices = book(tmp_path, "model,pool,hourly\n,b,4\n")
    assert Costs(prices, load_inventory(lake)).of(load(lake).segments) is None
    found = accounts(lake, prices)
    assert (found.total.paid_cents, found.total.unpriced_ms) == (1000, 1.5 * HOUR * 1000)


@pytest.mark.parametrize(
    ("entries", "pools"),
    [
        ([entry(2 * HOUR, "a")], {"a"}),  # before anybody said anything it was the same
        ([entry(0, None), entry(2 * HOUR, "a")], {"a"}),
        ([entry(0, "a"), entry(2 * HOUR, None)], {"a", "(no pool)"}),
        ([entry(0, "a"), entry(HOUR, "b"), entry(2 * HOUR, "a")], {"a", "b"}),
        ([entry(0, "a"), entry(HOUR, "a", model=None), entry(2 * HOUR, "a")], {"a"}),
    ],
    ids=["later", "named later", "left", "there and back", "model missing once"],
)
def test_what_the_inventory_says_and_when(tmp_path: Path, entries: list[dict[str, Any]], pools: set[str]) -> None:
    found = accounts(lake_of(tmp_path, *entries), book(tmp_path, PRICES))
    assert set(paid(found)) == pools
    assert [row.label for row in found.by("model")] == [H100]


def test_a_mig_instance_moves_with_its_gpu(tmp_path: Path) -> None:
    part = Device("MIG-1", "h1", model=f"{H100} MIG 1g.10gb", parent_gpu="GPU-a", mig_gpu_slices=1)
    known = moved([(0, "a"), (HOUR, "b")], part)
    built = ledger([segment("MIG-1", 0, 2 * HOUR, "active", gpu_share=0.25, user="ann")])
    found = Accounts(built, Costs(book(tmp_path, PRICES), known), known, Owners.none())
    assert paid(found) == {"a": 50, "b": 100}
    assert paid(found, "model") == {H100: 150}


def test_a_price_holds_from_its_day_on_and_the_first_one_before(tmp_path: Path) -> None:
    prices = book(tmp_path, "pool,hourly,date\na,8,2026-11-21\na,2,2026-11-01\n")
    lake = lake_of(tmp_path, entry(0, "a"), hours=48)
    assert paid(accounts(lake, prices), "day") == {"2026-11-20": 4800, "2026-11-21": 19200}
    assert prices.hourly(None, "a", 0) == prices.hourly(None, "a", T0)
    costs = Costs(prices, load_inventory(lake))
    assert costs.rate_of("GPU-a") == 2, "the day of the newest inventory is the 20th"
    assert costs.of(load(lake).segments) == pytest.approx(240)


def test_lines_of_the_same_gpus_need_days(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("a,8,2026-11-21\na,2,\n", "a,8,\na,2,2026-11-21\n", "a,8,2026-11-21\na,2,2026-11-21\n"):
        (tmp_path / "prices.csv").write_text("pool,hourly,date\n" + text, encoding="utf-8")
        (tmp_path / "fallow.toml").write_text(f'[money]\nprices = "{tmp_path}/prices.csv"\n', encoding="utf-8")
        assert main(["prices", "--config", str(tmp_path / "fallow.toml")]) == 2
        said = capsys.readouterr()
        assert (said.out, "line 3: line 2 prices the same GPUs already" in said.err) == ("", True)
        assert "the date from which on it holds" in said.err


def test_the_commands_name_every_price_of_the_window(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = lake_of(tmp_path, entry(0, "a"), entry(1.5 * HOUR, "b"))
    book(tmp_path, PRICES)
    (tmp_path / "fallow.toml").write_text(f'[money]\nprices = "{tmp_path}/prices.csv"\n', encoding="utf-8")
    flags = ["--lake", lake.root, "--config", str(tmp_path / "fallow.toml"), "--json"]
    assert main(["ledger", *flags]) == 0
    said = json.loads(capsys.readouterr().out)
    basis = {(each["pool"], each["hourly"], each["gpus"]) for each in said["money"]["prices"]}
    assert basis == {("a", 2.0, 1), ("b", 4.0, 1)}
    assert main(["prices", *flags]) == 0
    newest = json.loads(capsys.readouterr().out)["tables"]["prices"]["rows"]
    assert {(each["pool"], each["gpus"]) for each in newest if each["pool"]} == {("a", 0), ("b", 1)}
