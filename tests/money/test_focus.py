"""`fallow ledger --focus`: held against the columns that FOCUS publishes, and against the ledger's own sums."""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from analytics.money.focus import SCHEMA
from analytics.states import IN_USE
from fallow.cli import main
from fallow.outside_text import from_csv_cell
from fallow.schema import STATES
from tests.lakes import LAKE_ID, made_lake
from tests.ledger.rows import allocation, device, fill, processes, samples

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DAY = 86_400
REQUIRED = {
    row["column"]: row
    for row in csv.DictReader(Path(__file__).with_name("focus_1_2.csv").read_text(encoding="utf-8").splitlines())
}
KINDS = {"Decimal": pl.Decimal, "Date/Time": pl.Datetime, "String": pl.String, "JSON": pl.String}

Told = tuple[pl.DataFrame, dict[str, Any]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two hours around midnight: a shared GPU, an allocated unused one, a card with little work, an unpriced one."""
    lake = made_lake(tmp_path_factory.mktemp("focus"))
    first, last = DAY - 3600, DAY + 3601
    rows = samples("GPU-a", first, last, gpu_util_pct=90.0, process_count=2)
    rows += samples("GPU-b", first, last, process_count=0) + samples("GPU-c", first, last)
    rows += samples("GPU-d", first, last, gpu_util_pct=3.0, process_count=1) + samples("GPU-d", last + 600, last + 700)
    lists = [
        row
        for gpu, user, pid in (("GPU-a", "ann", 1), ("GPU-a", "=cmd|x", 9), ("GPU-d", "eve", 1))
        for row in processes(gpu, *range(first, last, 30), user=user, pid=pid)
    ]
    devices = [device(f"GPU-{name}", gpu_index=number) for number, name in enumerate("abd")]
    devices[-1]["source"] = "simulated"
    devices.append(device("GPU-c", model="NVIDIA Foo 9000"))
    return fill(lake, rows, lists, [allocation("GPU-b", first, last, "bob")], devices=devices).root


@pytest.fixture
def export(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Told]:
    """What was written, and what `fallow ledger --json` says of the same."""
    owners = tmp_path / "owners.csv"
    owners.write_text("kind,name,team,organisation\nuser,ann,vision,research\n", encoding="utf-8")
    monkeypatch.setenv("FALLOW_CONFIG", "/dev/null")
    monkeypatch.setenv("FALLOW_MONEY_OWNERS", str(owners))

    def run(*flags: str) -> Told:
        target = tmp_path / "cost.parquet"
        assert main(["ledger", "--lake", place, "--focus", str(target), *flags]) == 0
        capsys.readouterr()
        assert main(["ledger", "--lake", place, "--json", *flags]) == 0
        return pl.read_parquet(target), json.loads(capsys.readouterr().out)

    return run


def test_every_column_is_as_the_specification_has_it(export: Callable[..., Told]) -> None:
    rows, _ = export()
    mandatory = {name for name, asked in REQUIRED.items() if asked["level"] == "Mandatory"}
    assert mandatory <= set(rows.columns)
    assert [name for name in rows.columns if not name.startswith("x_")] == sorted(set(rows.columns) & set(REQUIRED))
    priced = rows.filter(pl.col("ResourceId") != "GPU-c")
    for name, asked in ((name, asked) for name, asked in REQUIRED.items() if name in rows.columns):
        assert rows[name].dtype.base_type() is KINDS[asked["type"]], name
        assert asked["nulls"] == "True" or not priced[name].null_count(), name
        assert set(rows[name].drop_nulls()) <= set(asked["allowed"].split("; ")) or not asked["allowed"], name
    for name in ("ListUnitPrice", "ContractedUnitPrice", "SkuId", "SkuPriceId", "PricingQuantity", "ConsumedQuantity"):
        assert not priced[name].null_count(), name
    assert rows["InvoiceId"].null_count() == rows.height, "nobody sends an invoice"
    for name, of in (("SkuMeter", "SkuId"), ("SkuPriceDetails", "SkuPriceId")):
        assert rows.filter(pl.col(name).is_null() != pl.col(of).is_null()).is_empty()


def test_the_costs_add_up_to_the_ledger_to_the_cent(export: Callable[..., Told]) -> None:
    for flags in ((), ("--pool", "train"), ("--until", "2026-11-20"), ("--team", "vision")):
        rows, ledger = export(*flags)
        money = ledger["money"]
        for name in ("BilledCost", "EffectiveCost", "ListCost", "ContractedCost"):
            assert round(rows[name].sum(), 2) == Decimal(str(money["paid"]))
        state = pl.col("x_State")
        used = pl.when(state.is_in(IN_USE)).then(pl.lit("used")).otherwise(state)
        by_state: dict[str, Any] = dict(rows.group_by(used).agg(pl.col("BilledCost").sum()).iter_rows())
        assert all(
            abs((by_state.get(name) or 0) - Decimal(str(cost))) < Decimal("0.01")
            for name, cost in money["cost"].items()
        )
        hours = {state: float(rows.filter(x_State=state)["ConsumedQuantity"].sum()) for state in STATES}
        assert hours == {state: pytest.approx(ledger["gpu_hours"][state], abs=1e-8) for state in STATES}
        products = rows.filter(pl.col("ListCost").is_not_null()).select(
            pl.col("ListUnitPrice", "PricingQuantity", "ListCost").cast(pl.Float64)
        )
        assert (  # type: ignore[operator]
            products["ListUnitPrice"] * products["PricingQuantity"] - products["ListCost"]
        ).abs().max() < 1e-7


def test_what_has_no_price_has_no_cost_and_is_named(
    place: str, tmp_path: Path, export: Callable[..., Told], capsys: pytest.CaptureFixture[str]
) -> None:
    rows, ledger = export()
    unpriced = rows.filter(ResourceId="GPU-c")
    assert unpriced["BilledCost"].null_count() == unpriced["x_UnusedCost"].null_count() == unpriced.height == 2
    assert float(unpriced["PricingQuantity"].sum()) == pytest.approx(ledger["money"]["unpriced_gpu_hours"])
    main(["ledger", "--lake", place, "--focus", str(tmp_path / "again.csv")])
    assert "2.0 GPU-hours have no price: their costs are empty" in capsys.readouterr().err


def test_a_row_is_a_gpu_a_day_a_state_and_a_user(export: Callable[..., Told]) -> None:
    rows, _ = export("--until", "2026-11-21T00:30Z")
    assert rows.select("ResourceId", "ChargePeriodStart", "x_State", "Tags").is_unique().all()
    shared = rows.filter(ResourceId="GPU-a")
    periods = shared["ChargePeriodStart", "ChargePeriodEnd", "BillingPeriodStart", "BillingPeriodEnd"].unique()
    periods = periods.sort("ChargePeriodStart")
    assert [[f"{moment:%m-%dT%H:%M}" for moment in row] for row in periods.iter_rows()] == [
        ["11-20T00:00", "11-21T00:00", "11-01T00:00", "12-01T00:00"],
        ["11-21T00:00", "11-21T00:30", "11-01T00:00", "12-01T00:00"],
    ]
    tags = [json.loads(text) for text in shared["Tags"]]
    told = {(each["fallow/state"], each["fallow/user"], each.get("fallow/team")) for each in tags}
    assert told == {("active", "ann", "vision"), ("active", "=cmd|x", None)}
    assert set(shared["SubAccountId"]) == {"team/vision", None}
    assert set(shared["ResourceName"]) == {"h1/0"}
    assert set(rows["BillingAccountId"]) == {LAKE_ID}
    reserved = rows.filter(x_State="reserved")
    assert reserved["x_UnusedCost"].to_list() == reserved["BilledCost"].to_list()
    low = rows.filter(ResourceId="GPU-d", x_State="low")
    assert {json.loads(text)["fallow/simulated"] for text in low["Tags"]} == {True}
    assert not any("fallow/simulated" in each for each in tags)
    assert float(low["x_UnusedCost"].sum()) == pytest.approx(0.97 * float(low["BilledCost"].sum()), rel=1e-6)


def test_time_that_nobody_saw_is_paid_for_and_its_use_not_known(export: Callable[..., Told]) -> None:
    rows, _ = export()
    unknown = rows.filter(x_State="unknown")
    assert (unknown["BilledCost"] > 0).all()
    assert unknown["x_UnusedCost"].null_count() == unknown.height > 0
    day = pl.col("ChargePeriodStart").dt.day() == 21
    (coverage,) = rows.filter(pl.col("ResourceId") == "GPU-d", day)["x_CoverageRatio"].unique()
    assert 0.5 < coverage < 1
    assert set(rows.filter(ResourceId="GPU-a")["x_CoverageRatio"]) == {1.0}


def test_csv_has_the_same_rows_and_runs_nowhere(place: str, tmp_path: Path, export: Callable[..., Told]) -> None:
    rows, _ = export()
    target = tmp_path / "cost.csv"
    assert main(["ledger", "--lake", place, "--focus", str(target)]) == 0
    found = list(csv.DictReader(io.StringIO(target.read_text(encoding="utf-8"))))
    assert list(found[0]) == list(SCHEMA)
    written: list[Mapping[str, str]] = sorted(found, key=lambda row: row["Tags"])
    expected = rows.sort("Tags")
    costs = ["" if cost is None else f"{cost:f}" for cost in expected["BilledCost"]]
    assert [row["BilledCost"] for row in written] == costs
    assert [json.loads(from_csv_cell(row["Tags"])) for row in written] == list(map(json.loads, expected["Tags"]))
    assert {row["ChargePeriodStart"] for row in found} == {"2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z"}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--focus", "cost.xlsx"), "'cost.xlsx' does not end in .csv or .parquet"),
        (("--by", "team", "--focus", "cost.csv"), "leave out --by, --format and --out"),
    ],
)
def test_another_kind_of_file_and_groups_are_refused(
    place: str, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], said: str
) -> None:
    assert main(["ledger", "--lake", place, *flags]) == 2
    assert said in capsys.readouterr().err
    assert not Path(flags[-1]).exists()
