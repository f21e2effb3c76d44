"""The table of offers, and catalogs in SkyPilot's form that are put into it."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from analytics.money.offers import OLD_AFTER, GpuOffer, import_catalog, is_of, is_old, load_offers, useful_hourly
from analytics.money.prices import PriceBook
from fallow import config
from fallow.errors import ConfigError
from tests.in_process import run_in_process

if TYPE_CHECKING:
    from pathlib import Path

DAY = date(2026, 11, 20)
HEADER = "kind,provider,model,hourly,currency,date,source,years,purchase,yearly_cost,interruptions_per_day"
MEMORY = (
    '"{""Gpus"": [{""Name"": ""x"", ""Count"": 1, ""MemoryInfo"": {""SizeInMiB"": %d}}], ""TotalGpuMemoryInMiB"": 0}"'
)
PYTHON_MEMORY = (
    "\"{'Gpus': [{'Name': 'x', 'Manufacturer': 'NVIDIA', 'Count': 8.0, 'MemoryInfo': {'SizeInMiB': %d}}],"
    " 'TotalGpuMemoryInMiB': 0}\""
)
HEAD = (
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone,Arch"
)
LINES = (
    f"big,H100,8.0,192.0,2048.0,{PYTHON_MEMORY % 81920},24.0,8.0,us-east-1,use1-az1,x86_64",
    f"big,H100,8.0,192.0,2048.0,{PYTHON_MEMORY % 81920},20.0,,eu-north-1,eun1-az1,x86_64",
    f"one,H100,1.0,26.0,234.0,{MEMORY % 81920},2.75,1.5,us-west-2,usw2-az1,x86_64",
    f"old,V100,1.0,8.0,61.0,{MEMORY % 16384},3.06,0.9,us-east-1,use1-az1,x86_64",
    f"1x_SECURE,A100-80GB,2.0,16.0,234.0,{PYTHON_MEMORY % 80},2.78,2.78,US,US-CA-1,",  # RunPod: GiB
    f"tiny,A10,0.167,6.0,55.0,{MEMORY % 24576},0.1,0.01,us-east-1,use1-az1,x86_64",  # a share of a GPU
    ",L4,1,,,,0.56,0.22,us-central1,us-central1-a,",  # GCP: the accelerator, without its host
    "cpu,,,4.0,16.0,,0.2,0.1,us-east-1,use1-az1,x86_64",
    "amd,MI300X,8.0,192.0,1536.0,,40.0,,us-east-1,use1-az1,x86_64",
    "vague,A100,8.0,96.0,1152.0,,8.0,,us-east-1,use1-az1,x86_64",  # 40 or 80 GB: nobody says
    "gone,T4,1.0,4.0,16.0,,0,,us-east-1,use1-az1,x86_64",  # 0 is no price
)


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    path = tmp_path / "vms.csv"
    path.write_text("\n".join((HEAD, *LINES)), encoding="utf-8")
    return path


def loaded(folder: Path, *lines: str, currency: str = "USD") -> tuple[GpuOffer, ...]:
    path = folder / "offers.csv"
    path.write_text("\n".join((HEADER, *lines)), encoding="utf-8")
    return load_offers(config.load({"money.offers": str(path)}, None), PriceBook.load(None, currency))


def test_every_kind_of_offer(tmp_path: Path) -> None:
    bought, reserved, spot = loaded(
        tmp_path,
        "buy,a vendor,H100 SXM,,,2026-11-01,quote 12,4,35064,8766,",
        "reserved,cloud,NVIDIA H100 80GB HBM3,2.10,USD,2026-11-01,,1,,,",
        "spot,cloud,H100 SXM,1.20,USD,,,,,,6",
    )
    assert (bought.hourly, bought.years, bought.source) == (Decimal(2), Decimal(4), "quote 12")
    assert (reserved.hourly, reserved.source) == (Decimal("2.10"), "cloud")
    for each in (bought, reserved, spot):
        assert [is_of(each, model) for model in ("NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe")] == [True, False]
    # six interruptions a day lose an hour each: a quarter of what is paid
    assert useful_hourly(spot, 1.0) == pytest.approx(1.20 / 0.75)
    assert useful_hourly(spot, 4.0) is None  # no work would be finished
    assert useful_hourly(reserved, 1.0) is None


def test_older_than_ninety_days_is_old_and_what_has_no_date_too(tmp_path: Path) -> None:
    told = [(str(DAY), False), (str(DAY - OLD_AFTER), False), (str(DAY - OLD_AFTER - timedelta(1)), True), ("", True)]
    found = loaded(tmp_path, *(f"on_demand,cloud,L4,1,,{day},,,,," for day, _ in told))
    assert [is_old(each, DAY) for each in found] == [old for _, old in told]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("rent,cloud,L4,1,,,,,,,", "kind 'rent' is none of buy, reserved, spot, on_demand"),
        ("spot,,L4,1,,,,,,,", "an offer needs a provider and a model"),
        ("reserved,cloud,L4,1,,,,,,,", "reserved needs years"),
        ("buy,vendor,L4,1,,,,3,,,", "buy has a purchase"),
        ("on_demand,cloud,L4,,,,,,,,", "every other kind has an hourly price"),
        ("on_demand,cloud,L4,1,EUR,,,,,,", "it is in EUR, and sums are in USD"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"line 2: .*{said}"):
        loaded(tmp_path, line)


def test_a_catalog_gives_the_cheapest_whole_gpu_of_each_card(catalog: Path) -> None:
    found = import_catalog(str(catalog), "aws", DAY)
    cheapest = {(each["model"], each["kind"]): (str(each["hourly"]), each["source"]) for each in found.offers}
    expected: dict[tuple[str, str], tuple[str, str]] = {}
    for names, kind, hourly, source in (
        (("H100 SXM", "H100 PCIe"), "on_demand", "2.500000", "aws big / 8, eu-north-1"),
        (("H100 SXM", "H100 PCIe"), "spot", "1.000000", "aws big / 8, us-east-1"),
        (("A100 SXM 80GB", "A100 PCIe 80GB"), "on_demand", "1.390000", "aws 1x_SECURE / 2, US"),
        (("A100 SXM 80GB", "A100 PCIe 80GB"), "spot", "1.390000", "aws 1x_SECURE / 2, US"),
        (("V100 SXM2 16GB", "V100 PCIe 16GB"), "on_demand", "3.060000", "aws old, us-east-1"),
        (("V100 SXM2 16GB", "V100 PCIe 16GB"), "spot", "0.900000", "aws old, us-east-1"),
        (("Instinct MI300X",), "on_demand", "5.000000", "aws amd / 8, us-east-1"),
    ):
        expected |= {(name, kind): (hourly, source) for name in names}
    assert cheapest == expected
    assert found.unknown == ("A100",)
    west = import_catalog(str(catalog), "aws", DAY, "us-west")
    assert {each["source"] for each in west.offers} == {"aws one, us-west-2"}


def fallow(offers: Path, *arguments: str) -> Any:
    return run_in_process("prices", *arguments, FALLOW_MONEY_OFFERS=str(offers))


def test_an_import_replaces_its_providers_prices_and_keeps_what_was_added_by_hand(catalog: Path) -> None:
    offers = catalog.with_name("offers.csv")
    by_hand = (
        "reserved,aws,H100 SXM,2.2,USD,2026-01-05,our contract,1,,,",
        "spot,aws,H100 SXM,9.9,USD,2026-01-05,before,,,,4",
        "on_demand,lambda,H100 SXM,2.99,USD,2026-01-05,site,,,,",
    )
    offers.write_text("\n".join((HEADER, *by_hand)), encoding="utf-8")
    today = datetime.now(UTC).date().isoformat()
    done = fallow(offers, "--import", str(catalog), "--provider", "aws", "--date", today)
    assert (done.returncode, done.stdout) == (0, f"offers of aws now in {offers}: 13\n")
    assert "unknown or ambiguous: A100" in done.stderr
    told = json.loads(fallow(offers, "--json").stdout)["tables"]["offers"]["rows"]
    assert [each["source"] for each in told[:2]] == ["our contract", "site"]
    spot = {each["model"]: each["interruptions_per_day"] for each in told if each["kind"] == "spot"}
    assert (spot["H100 SXM"], spot["H100 PCIe"]) == (4, None)
    assert {each["source"] for each in told if each["is_old"]} == {"our contract", "site"}
    assert "our contract" in fallow(offers).stdout


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--date", "2026-11-20"),
         "2: the catalog names neither its provider nor its date; give --provider and --date"),
        (("--provider", "aws", "--date", "yesterday"), "2: --date 'yesterday' is not a day"),
        (("--provider", "aws", "--date", "2026-11-20", "--region", "moon"), "1: no price of a whole instance"),
        (("--provider", "gcp", "--date", "2026-11-20", "--region", "us-central1"),
         "1: prices its GPUs apart from the instances"),
    ],
)  # fmt: skip
def test_a_wrong_import_is_one_sentence_and_changes_nothing(catalog: Path, flags: tuple[str, ...], said: str) -> None:
    offers = catalog.with_name("offers.csv")
    done = fallow(offers, "--import", str(catalog), *flags)
    code, _, said = said.partition(": ")
    assert done.returncode == int(code)
    assert said in done.stderr
    assert not offers.exists()
