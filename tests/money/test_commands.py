"""`fallow ledger` with money and `fallow prices`, as a user runs them, over a real lake."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Protocol

import pytest

from analytics.money.accounts import GROUPS
from analytics.money.prices import PriceBook
from fallow.cli import main
from tests.lakes import made_lake
from tests.ledger.rows import claim, device, fill, processes, samples

if TYPE_CHECKING:
    from pathlib import Path


class Run(Protocol):
    """Runs a command and returns its output, or what it says on standard error if it fails."""

    def __call__(self, *arguments: str, code: int = 0, **settings: str) -> str: ...


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Half an hour of three GPUs: one busy, one claimed and unused, and one of a model that has no price."""
    lake = made_lake(tmp_path_factory.mktemp("money"))
    rows = samples("GPU-a", 0, 1800, gpu_util_pct=90.0, process_count=1, power_w=500.0)
    rows += samples("GPU-b", 0, 1800) + samples("GPU-c", 0, 1800)
    fill(
        lake,
        rows,
        processes("GPU-a", *range(0, 1800, 30), user="ann"),
        [claim("GPU-b", 0, 1800, "bob")],
        devices=[device("GPU-a"), device("GPU-b"), device("GPU-c", model="NVIDIA Foo 9000", pool="lab")],
    )
    return lake.root


@pytest.fixture
def fallow(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs a command with some settings and returns what it prints; the machine's own settings are out of reach."""
    (tmp_path / "empty.toml").write_text("", encoding="utf-8")
    monkeypatch.setenv("FALLOW_CONFIG", str(tmp_path / "empty.toml"))

    def run(*arguments: str, code: int = 0, **settings: str) -> str:
        with monkeypatch.context() as patched:
            for name, value in settings.items():
                patched.setenv(f"FALLOW_MONEY_{name}".upper(), value)
            assert main(list(arguments)) == code
        captured = capsys.readouterr()
        return captured.err if code else captured.out

    return run


def test_the_ledger_says_what_each_state_cost(place: str, fallow: Run) -> None:
    out = fallow("ledger", "--lake", place)
    assert all(len(line) <= 100 for line in out.splitlines())
    lines = {line.split()[0]: line.split() for line in out.partition("WHAT")[0].splitlines() if line.startswith("  ")}
    assert lines["active"][1:4] == ["0.5", "33.3", "%"]
    assert lines["active"][-1] == lines["reserved"][-1] == "3.44"
    assert lines["paid"] == ["paid", "1.5", "6.88"]
    assert "USD per GPU-hour" in out
    assert "AWS p5.48xlarge / 8, us-east-1" in " ".join(out.split())
    assert next(line for line in out.splitlines() if "Foo 9000" in line).endswith("no price is known")
    assert "0.5 GPU-hours have no price and are in no sum of money." in out
    assert "energy: not known, it was read for 33.3 % of the time" in out


def test_the_json_keeps_its_keys_and_has_the_money_beside_them(place: str, fallow: Run) -> None:
    found = json.loads(fallow("ledger", "--lake", place, "--json"))
    assert {"window", "gpus", "coverage", "gpu_hours", "idle"} < set(found)
    money = found["money"]
    assert money["paid"] == 6.88
    assert money["cost"] == {
        "used": 3.44, "held": 0.0, "reserved": 3.44, "free": 0.0, "unavailable": 0.0, "unknown": 0.0,
    }  # fmt: skip
    assert money["unpriced_gpu_hours"] == 0.5
    assert [(each["model"], each["hourly"]) for each in money["prices"]] == [
        ("NVIDIA H100 80GB HBM3", 6.88),
        ("NVIDIA Foo 9000", None),
    ]
    assert found["energy"]["kwh"] is None
    assert found["energy"]["known_share"] == pytest.approx(1 / 3)
    assert found["energy"]["kwh_by_state"]["active"] == pytest.approx(0.25)
    assert "groups" not in found


@pytest.mark.parametrize("group", GROUPS)
def test_every_table_has_the_same_total_in_every_form(place: str, fallow: Run, group: str) -> None:
    text = fallow("ledger", "--lake", place, "--by", group)
    assert all(len(line) <= 100 for line in text.splitlines())
    assert "1.5 GPU-hours in all, for 6.88 USD" in text
    rows = json.loads(fallow("ledger", "--lake", place, "--by", group, "--json"))["groups"]["rows"]
    assert sum(row["paid"] or 0 for row in rows) == pytest.approx(6.88)
    lines = list(csv.DictReader(io.StringIO(fallow("ledger", "--lake", place, "--by", group, "--csv"))))
    assert [line["label"] for line in lines] == [row["label"] for row in rows]
    assert [float(line["paid"] or 0) for line in lines] == [row["paid"] or 0 for row in rows]
    assert sum(float(line["gpu_hours"]) for line in lines) == pytest.approx(1.5)


def test_the_csv_of_the_whole_is_one_line(place: str, fallow: Run) -> None:
    (line,) = csv.DictReader(io.StringIO(fallow("ledger", "--lake", place, "--csv")))
    assert (line["paid"], line["used_cost"], line["currency"], line["energy_kwh"]) == ("6.88", "3.44", "USD", "")


def test_teams_come_from_the_owners_file(place: str, fallow: Run, tmp_path: Path) -> None:
    file = tmp_path / "owners.csv"
    file.write_text("kind,name,team,organisation\nuser,ann,vision,research\n", encoding="utf-8")
    rows = json.loads(fallow("ledger", "--lake", place, "--by", "team", "--json", owners=str(file)))["groups"]["rows"]
    assert {row["label"]: (row["name"], row["paid"]) for row in rows} == {
        "vision": ("vision", 3.44), "(no team)": (None, 3.44), "(nobody)": (None, None),
    }  # fmt: skip


def test_mistakes_in_the_tables_are_wrong_use(place: str, fallow: Run, tmp_path: Path) -> None:
    file = tmp_path / "owners.csv"
    file.write_text("kind,name,team\nuser,ann\n", encoding="utf-8")
    said = fallow("ledger", "--lake", place, code=2, owners=str(file))
    assert said == f"fallow: {file}, line 2: team is empty; every line names who it is about and a team\n"
    assert "No such file" in fallow("prices", code=2, prices=str(tmp_path / "none.csv"))
    assert "invalid choice: 'gpus'" in fallow("ledger", "--lake", place, "--by", "gpus", code=2)


def test_without_any_price_only_hours_are_shown(place: str, fallow: Run) -> None:
    out = fallow("ledger", "--lake", place, currency="EUR")
    assert "No price is known: nothing is said of money." in out
    table = fallow("ledger", "--lake", place, "--by", "holder", currency="EUR")
    assert "EUR" not in table.partition("PRICES")[0]
    assert "1.5 GPU-hours in all; 50.0 % of the allocated ones were effective. No price is known." in table
    assert "the catalog is in USD: add an exchange line (docs/money.md)" in out
    found = json.loads(fallow("ledger", "--lake", place, "--json", currency="EUR"))["money"]
    assert found["paid"] is None
    assert set(found["cost"].values()) == {None}


def test_prices_say_which_gpus_have_them(place: str, fallow: Run) -> None:
    out = fallow("prices", "--lake", place)
    assert all(len(line) <= 100 for line in out.splitlines())
    assert "no price: 1 GPU NVIDIA Foo 9000 (lab)" in out
    found = json.loads(fallow("prices", "--lake", place, "--json"))["tables"]["prices"]
    assert found["headline"] == "1 group of GPUs has no price."
    assert [each["gpus"] for each in found["rows"] if each["model"] == "H100 SXM"] == [2]
    without = json.loads(fallow("prices", "--json"))["tables"]["prices"]
    assert {each["gpus"] for each in without["rows"]} == {None}, "no lake, no GPUs"


@pytest.mark.parametrize("currency", ["USD", "EUR"])
def test_the_table_of_prices_can_be_given_back(place: str, fallow: Run, tmp_path: Path, currency: str) -> None:
    rate = {"USD": ",,,EUR,,,,1.25", "EUR": ",,,USD,,,,0.8"}[currency]
    own = tmp_path / "own.csv"
    own.write_text(
        f"model,pool,hourly,currency,source,purchase,amortisation_years,exchange\n{rate}\n"
        'L40S,,0.5,,"a, b",,,\n,train,,,,30000,4,\nH100 SXM5,train,2,USD,,,,\n',
        encoding="utf-8",
    )
    again = tmp_path / "again.csv"
    again.write_text(fallow("prices", "--lake", place, "--csv", prices=str(own), currency=currency), encoding="utf-8")
    assert "# no price: 1 GPUs NVIDIA Foo 9000 in lab" in again.read_text(encoding="utf-8")
    first, second = (PriceBook.load(str(file), currency) for file in (own, again))
    for model in ("NVIDIA H100 80GB HBM3", "NVIDIA L40S", "Tesla T4", "NVIDIA A40"):
        for pool in ("train", "lab", None):
            one, two = first.hourly(model, pool), second.hourly(model, pool)
            assert one is not None
            assert two is not None
            assert (one.hourly, one.date) == (two.hourly, two.date), (model, pool)


def test_a_price_of_a_name_made_to_hurt_comes_back_as_it_was(fallow: Run, tmp_path: Path) -> None:
    pool, source = "=HYPERLINK(1);=2\\u{1b}", "-\x1b[2J\u202e\n@order"
    own, again = tmp_path / "own.csv", tmp_path / "again.csv"
    own.write_text(f'model,pool,hourly,source\nL40S,{pool},0.5,"{source}"\n', encoding="utf-8")
    printed = fallow("prices", "--csv", prices=str(own))
    assert "\x1b" not in printed
    assert "\u202e" not in printed
    again.write_text(printed, encoding="utf-8")
    given, back = (
        PriceBook.load(str(file), "USD").hourly("NVIDIA L40S", "=HYPERLINK(1);=2\x1b") for file in (own, again)
    )
    assert given is not None
    assert (given.pool, given.source) == ("=HYPERLINK(1);=2\x1b", source)
    assert back == given


def test_a_table_too_large_to_be_kept_by_hand_is_not_read(fallow: Run, tmp_path: Path) -> None:
    with (tmp_path / "prices.csv").open("wb") as file:
        file.truncate(16 * 2**20 + 1)
    assert "is larger than 16.0 MiB" in fallow("prices", code=2, prices=str(tmp_path / "prices.csv"))


def test_names_that_nobody_has_are_said(
    place: str, fallow: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    del fallow  # its settings file is what is wanted
    prices, owners = tmp_path / "prices.csv", tmp_path / "owners.csv"
    prices.write_text("model,pool,hourly\nH1OO SXM,,2\n,lap,1\nTesla T4,,1\n", encoding="utf-8")
    owners.write_text("kind,name,team\nuser,Ann,a\nuser,bob,a\nuser,zoe,a\n", encoding="utf-8")
    monkeypatch.setenv("FALLOW_MONEY_PRICES", str(prices))
    monkeypatch.setenv("FALLOW_MONEY_OWNERS", str(owners))
    assert main(["ledger", "--lake", place]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "owners.csv names nobody in this window: Ann (ann?), 1 more" in shown.out
    assert main(["ledger", "--lake", place, "--json"]) == 0
    said = capsys.readouterr().err
    assert said == (
        "fallow: prices.csv: 2 lines price no GPU of this lake: 'H1OO SXM' (did you mean H100 SXM?), "
        "pool 'lap' (pools: lab, train)\n"
        "fallow: owners.csv names nobody in this window: Ann (ann?), 1 more\n"
    )
    assert main(["prices", "--lake", place]) == 0
    assert capsys.readouterr().err == said.splitlines(keepends=True)[0]


def test_a_copy_of_the_catalog_is_still_no_price_of_the_sites(place: str, fallow: Run, tmp_path: Path) -> None:
    copied = tmp_path / "prices.csv"
    copied.write_text(fallow("prices", "--csv").replace("T4,0.526,", "T4,0.5,"), encoding="utf-8")
    out = fallow("ledger", "--lake", place, prices=str(copied))
    assert "2 GPUs are at public on-demand prices, which are not what you pay" in out
    listed = json.loads(fallow("prices", "--json", prices=str(copied)))["tables"]["prices"]["rows"]
    assert len([each for each in listed if each["model"] == "H100 SXM"]) == 1


@pytest.mark.parametrize(
    ("settings", "cost"),
    [({}, 0.12 * 1.54), ({"currency": "EUR"}, None), ({"currency": "EUR", "energy_price_per_kwh": "0.3"}, 0.3 * 1.54)],
)
def test_the_default_price_of_energy_is_in_dollars(
    fallow: Run, tmp_path: Path, settings: dict[str, str], cost: float | None
) -> None:
    lake = made_lake(tmp_path / "lake")
    fill(lake, samples("GPU-a", 0, 7200, gpu_util_pct=90.0, process_count=1, power_w=1000.0), devices=[device("GPU-a")])
    found = json.loads(fallow("ledger", "--lake", lake.root, "--json", **settings))["energy"]
    assert found["kwh"] == pytest.approx(2, rel=0.01)
    assert found["cost"] == (None if cost is None else pytest.approx(2 * cost, rel=0.01))


@pytest.mark.parametrize(
    ("counters", "share", "said"),
    [
        ((), 0.0, "kWh from readings of power (no energy counter was read)"),
        (("GPU-a",), 0.5, "kWh by the GPUs' own counters for 49.9 % of it, else from readings of power"),
        (("GPU-a", "GPU-b"), 1.0, "kWh by the GPUs' own counters, over"),
    ],
)
def test_where_the_energy_is_from_is_said(
    fallow: Run, tmp_path: Path, counters: tuple[str, ...], share: float, said: str
) -> None:
    lake, rows = made_lake(tmp_path / "lake"), []
    for gpu in ("GPU-a", "GPU-b"):
        own = samples(gpu, 0, 7200, gpu_util_pct=90.0, process_count=1, power_w=500.0)
        for number, row in enumerate(own if gpu in counters else ()):
            row |= {"energy_mj": 5_000_000 * number, "counters_since": own[0]["time"]}
        rows += own
    fill(lake, rows, devices=[device("GPU-a"), device("GPU-b")])
    assert said in fallow("ledger", "--lake", lake.root)
    found = json.loads(fallow("ledger", "--lake", lake.root, "--json"))["energy"]
    assert found["counter_share"] == pytest.approx(share, abs=0.001)


def test_what_is_no_currency_is_refused(place: str, fallow: Run, tmp_path: Path) -> None:
    said = fallow("ledger", "--lake", place, code=2, currency="euro")
    assert said == "fallow: money.currency: 'EURO' is no currency code; did you mean EUR?\n"
    table = tmp_path / "prices.csv"
    table.write_text("model,hourly,currency\nL40S,1,$\n", encoding="utf-8")
    assert "line 2: '$' is no currency code; did you mean USD?" in fallow("prices", code=2, prices=str(table))


def test_groups_of_next_to_nothing_are_counted_only(fallow: Run, tmp_path: Path) -> None:
    lake = made_lake(tmp_path / "lake")
    rows = samples("GPU-a", 0, 7200, gpu_util_pct=90.0, process_count=1)
    users = processes("GPU-a", *range(0, 60, 30), user="eve") + processes("GPU-a", *range(60, 7200, 30), user="ann")
    fill(lake, rows, users, devices=[device("GPU-a")])
    out = fallow("ledger", "--lake", lake.root, "--by", "holder")
    assert "and 1 more with 0.0 GPU-hours" in out
    assert not [line for line in out.splitlines() if line.startswith("  eve")]
    assert "\neve," in fallow("ledger", "--lake", lake.root, "--by", "holder", "--csv")
