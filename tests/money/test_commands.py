"""`fallow ledger` with money and `fallow prices`, as a user runs them, over a real lake."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from analytics.money.accounts import GROUPS
from analytics.money.prices import PriceBook
from fallow.cli import main
from tests.lakes import made_lake
from tests.ledger.rows import allocation, device, fill, processes, samples

if TYPE_CHECKING:
    from pathlib import Path

    from fallow.lake import Lake

BUSY: dict[str, Any] = {"gpu_util_pct": 90.0, "process_count": 1}


class Run(Protocol):
    """Runs a command and returns its output, or what it says on standard error if it fails."""

    def __call__(self, *arguments: str, code: int = 0, **settings: str) -> str: ...


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Half an hour of three GPUs: one busy, one allocated and unused, and one of a model that has no price."""
    rows = samples("GPU-a", 0, 1800, power_w=500.0, **BUSY) + samples("GPU-b", 0, 1800) + samples("GPU-c", 0, 1800)
    devices = [device("GPU-a"), device("GPU-b"), device("GPU-c", model="NVIDIA Foo 9000", pool="lab")]
    lists = processes("GPU-a", *range(0, 1800, 30), user="ann")
    lake = made_lake(tmp_path_factory.mktemp("money"))
    return fill(lake, rows, lists, [allocation("GPU-b", 0, 1800, "bob")], devices=devices).root


@pytest.fixture
def fallow(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs a command with some settings and returns all that it prints; the machine's own settings are out of reach."""
    (tmp_path / "empty.toml").write_text("", encoding="utf-8")
    monkeypatch.setenv("FALLOW_CONFIG", str(tmp_path / "empty.toml"))

    def run(*arguments: str, code: int = 0, **settings: str) -> str:
        with monkeypatch.context() as patched:
            for name, value in settings.items():
                patched.setenv(f"FALLOW_MONEY_{name}".upper(), value)
            assert main([*arguments, *([] if code else ["--all"])]) == code
        captured = capsys.readouterr()
        if not {"--json", "--csv"} & set(arguments):
            assert max(map(len, captured.out.splitlines()), default=0) <= 100
        return captured.err if code else captured.out

    return run


def table(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def test_the_ledger_says_what_each_state_cost(place: str, fallow: Run) -> None:
    out = fallow("ledger", "--lake", place)
    shown = [re.split(r"\s{2,}", line.strip()) for line in out.partition("IDLE TIME BY")[0].splitlines()]
    lines = {line[0]: line[1:] for line in shown}
    assert lines["Busy"][:2] == ["0.5", "33.3 %"]
    assert lines["Busy"][-1] == lines["Allocated, unused"][-1] == "3.44"
    assert lines["paid"] == ["1.5", "6.88"]
    assert "USD per GPU-hour" in out
    assert "AWS p5.48xlarge / 8, us-east-1" in " ".join(out.split())
    assert next(line for line in out.splitlines() if "Foo 9000" in line).endswith("no price is known")
    assert "0.5 GPU-hours have no price, and no cost includes them." in out
    assert "energy: not known, it was read for 33.3 % of the time" in out


def test_the_json_keeps_its_keys_and_has_the_money_beside_them_and_the_csv_is_one_line(place: str, fallow: Run) -> None:
    found = json.loads(fallow("ledger", "--lake", place, "--json"))
    assert {"window", "gpus", "coverage", "gpu_hours", "idle"} < set(found)
    assert "groups" not in found
    money, energy = found["money"], found["energy"]
    spent = {"used": 3.44, "reserved": 3.44}
    assert (money["paid"], money["unpriced_gpu_hours"]) == (6.88, 0.5)
    assert money["cost"] == dict.fromkeys(("stalled", "held", "free", "unavailable", "unknown"), 0.0) | spent
    hourly = [(each["model"], each["hourly"]) for each in money["prices"]]
    assert hourly == [("NVIDIA H100 80GB HBM3", 6.88), ("NVIDIA Foo 9000", None)]
    assert (energy["kwh"], energy["known_share"]) == (None, pytest.approx(1 / 3))
    assert energy["kwh_by_state"]["active"] == pytest.approx(0.25)
    (line,) = csv.DictReader(io.StringIO(fallow("ledger", "--lake", place, "--csv")))
    assert (line["paid"], line["used_cost"], line["currency"], line["energy_kwh"]) == ("6.88", "3.44", "USD", "")


@pytest.mark.parametrize("group", GROUPS)
def test_every_table_has_the_same_total_in_every_form(place: str, fallow: Run, group: str) -> None:
    text, content, lines = (
        fallow("ledger", "--lake", place, "--by", group, *form) for form in ((), ("--json",), ("--csv",))
    )
    assert "1.5 GPU-hours cost 6.88 USD" in text
    rows, cells = json.loads(content)["groups"]["rows"], list(csv.DictReader(io.StringIO(lines)))
    assert sum(row["paid"] or 0 for row in rows) == pytest.approx(6.88)
    assert [(each["label"], float(each["paid"] or 0)) for each in cells] == [
        (row["label"], row["paid"] or 0) for row in rows
    ]
    assert sum(float(each["gpu_hours"]) for each in cells) == pytest.approx(1.5)


def test_teams_come_from_the_owners_file(place: str, fallow: Run, tmp_path: Path) -> None:
    owners = table(tmp_path, "owners.csv", "kind,name,team,organisation\nuser,ann,vision,research\n")
    rows = json.loads(fallow("ledger", "--lake", place, "--by", "team", "--json", owners=owners))["groups"]["rows"]
    found = {row["label"]: (row["name"], row["paid"]) for row in rows}
    assert found == {"vision": ("vision", 3.44), "(no team)": (None, 3.44), "(nobody)": (None, None)}


def test_mistakes_in_the_tables_are_wrong_use(place: str, fallow: Run, tmp_path: Path) -> None:
    owners = table(tmp_path, "owners.csv", "kind,name,team\nuser,ann\n")
    said = fallow("ledger", "--lake", place, code=2, owners=owners)
    assert said == f"fallow: {owners}, line 2: team is empty; every line names who it is about and a team\n"
    assert "No such file" in fallow("prices", code=2, prices=str(tmp_path / "none.csv"))
    assert "invalid choice: 'gpus'" in fallow("ledger", "--lake", place, "--by", "gpus", code=2)
    said = fallow("ledger", "--lake", place, code=2, currency="euro")
    assert said == "fallow: money.currency: 'EURO' is no currency code; did you mean EUR?\n"
    prices = table(tmp_path, "prices.csv", "model,hourly,currency\nL40S,1,$\n")
    assert "line 2: '$' is no currency code; did you mean USD?" in fallow("prices", code=2, prices=prices)
    with (tmp_path / "prices.csv").open("wb") as file:
        file.truncate(16 * 2**20 + 1)
    assert "is larger than 16.0 MiB" in fallow("prices", code=2, prices=prices)


def test_without_any_price_only_hours_are_shown(place: str, fallow: Run) -> None:
    out, groups, content = (
        fallow("ledger", "--lake", place, *more, currency="EUR") for more in ((), ("--by", "user"), ("--json",))
    )
    assert "No price is known, so no cost is shown." in out
    assert "the catalog is in USD: add an exchange line (docs/money.md)" in out
    assert "EUR" not in groups.partition("PRICES")[0]
    assert "1.5 GPU-hours; 50.0 % of the allocated time was effective. No price is known." in groups
    money = json.loads(content)["money"]
    assert (money["paid"], set(money["cost"].values())) == (None, {None})


def test_prices_say_which_gpus_have_them(place: str, fallow: Run) -> None:
    assert "no price: 1 GPU NVIDIA Foo 9000 (lab)" in fallow("prices", "--lake", place)
    found = json.loads(fallow("prices", "--lake", place, "--json"))["tables"]["prices"]
    assert found["headline"] == "1 group of GPUs has no price."
    assert [each["gpus"] for each in found["rows"] if each["model"] == "H100 SXM"] == [2]
    without = json.loads(fallow("prices", "--json"))["tables"]["prices"]
    assert {each["gpus"] for each in without["rows"]} == {None}, "no lake, no GPUs"


@pytest.mark.parametrize(("currency", "rate"), [("USD", ",,,EUR,,,,1.25"), ("EUR", ",,,USD,,,,0.8")])
def test_the_table_of_prices_can_be_given_back(
    place: str, fallow: Run, tmp_path: Path, currency: str, rate: str
) -> None:
    header = "model,pool,hourly,currency,source,purchase,amortisation_years,exchange"
    lines = (header, rate, 'L40S,,0.5,,"a, b",,,', ",train,,,,30000,4,", "H100 SXM5,train,2,USD,,,,")
    own = table(tmp_path, "own.csv", "\n".join((*lines, "")))
    printed = fallow("prices", "--lake", place, "--csv", prices=own, currency=currency)
    assert "# no price: 1 GPU of NVIDIA Foo 9000 in lab" in printed
    books = [PriceBook.load(path, currency) for path in (own, table(tmp_path, "again.csv", printed))]
    for model in ("NVIDIA H100 80GB HBM3", "NVIDIA L40S", "Tesla T4", "NVIDIA A40"):
        for pool in ("train", "lab", None):
            one, two = (found and (found.hourly, found.date) for found in (each.hourly(model, pool) for each in books))
            assert one == two is not None, (model, pool)


def test_a_price_of_a_name_made_to_hurt_comes_back_as_it_was(fallow: Run, tmp_path: Path) -> None:
    pool, source = "=HYPERLINK(1);=2\x1b", "-\x1b[2J\u202e\n@order"
    own = table(tmp_path, "own.csv", f'model,pool,hourly,source\nL40S,{pool[:-1]}\\u{{1b}},0.5,"{source}"\n')
    printed = fallow("prices", "--csv", prices=own)
    assert not {"\x1b", "\u202e"} & set(printed)
    paths = (own, table(tmp_path, "again.csv", printed))
    given, back = (PriceBook.load(path, "USD").hourly("NVIDIA L40S", pool) for path in paths)
    assert given is not None
    assert (given.pool, given.source) == (pool, source)
    assert back == given


def test_names_that_nobody_has_are_said(
    place: str, fallow: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    del fallow  # its settings file is what is wanted
    prices = table(tmp_path, "prices.csv", "model,pool,hourly\nH1OO SXM,,2\n,lap,1\nTesla T4,,1\n")
    owners = table(tmp_path, "owners.csv", "kind,name,team\nuser,Ann,a\nuser,bob,a\nuser,zoe,a\n")
    monkeypatch.setenv("FALLOW_MONEY_PRICES", prices)
    monkeypatch.setenv("FALLOW_MONEY_OWNERS", owners)
    assert main(["ledger", "--all", "--lake", place]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "owners.csv names nobody in this window: Ann (ann?), 1 more" in shown.out
    assert main(["ledger", "--lake", place, "--json"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert said == [
        (
            "fallow: prices.csv: 2 lines match no GPU in this lake: model 'H1OO SXM' (did you mean H100 SXM?), "
            "pool 'lap' (pools: lab, train)"
        ),
        "fallow: owners.csv names nobody in this window: Ann (ann?), 1 more",
    ]
    assert main(["prices", "--lake", place]) == 0
    assert capsys.readouterr().err.splitlines() == said[:1]


def test_a_copy_of_the_catalog_is_still_no_price_of_the_sites(place: str, fallow: Run, tmp_path: Path) -> None:
    copied = table(tmp_path, "prices.csv", fallow("prices", "--csv").replace("T4,0.526,", "T4,0.5,"))
    out = fallow("ledger", "--lake", place, prices=copied)
    assert "2 GPUs have public on-demand prices, which are not what you pay" in out
    listed = json.loads(fallow("prices", "--json", prices=copied))["tables"]["prices"]["rows"]
    assert len([each for each in listed if each["model"] == "H100 SXM"]) == 1


@pytest.mark.parametrize(
    ("counters", "share", "said"),
    [
        ((), 0.0, "kWh from readings of power (no energy counter was read)"),
        (("GPU-a",), 0.5, "kWh by the GPUs' own counters for 50.0 % of it, else from readings of power"),
        (("GPU-a", "GPU-b"), 1.0, "kWh by the GPUs' own counters, over"),
    ],
)
def test_where_the_energy_is_from_is_said_and_its_default_price_is_in_dollars(
    fallow: Run, lake: Lake, counters: tuple[str, ...], share: float, said: str
) -> None:
    rows = []
    for gpu in ("GPU-a", "GPU-b"):
        own = samples(gpu, 0, 7200, power_w=500.0, **BUSY)
        for number, row in enumerate(own if gpu in counters else ()):
            row |= {"energy_mj": 5_000_000 * number, "counters_since": own[0]["time"]}
        rows += own
    fill(lake, rows, devices=[device("GPU-a"), device("GPU-b")])
    assert said in fallow("ledger", "--lake", lake.root)
    for settings, price in (
        ({}, 0.12),
        ({"currency": "EUR"}, None),
        ({"currency": "EUR", "energy_price_per_kwh": "0.3"}, 0.3),
    ):
        found = json.loads(fallow("ledger", "--lake", lake.root, "--json", **settings))["energy"]
        assert found["counter_share"] == pytest.approx(share, abs=0.001)
        assert found["kwh"] == pytest.approx(2, rel=0.01)
        assert found["cost"] == (price and pytest.approx(2 * 1.54 * price, rel=0.01))
