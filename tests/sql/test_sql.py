"""`fallow sql`: its sums are those of the ledger, it reads and never writes, and it keeps to the scope."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pytest

from analytics.simulation import SimulatedFleet, owners_csv, prices_csv, write_fleet
from benchmarks.physical_week import VIEWS, look, record
from fallow.cli import main
from fallow.clock import HOUR_MS
from tests.answers import rows_of
from tests.lakes import made_lake

if TYPE_CHECKING:
    from collections.abc import Callable

UNTIL_MS = 1_763_596_800_000
"""2025-11-20T00:00Z."""
PAGE = Path(__file__).parents[2] / "docs" / "sql.md"
QUESTIONS = re.findall(r"\*\*(.+?)\*\*\n\n```sql\n(.+?)\n```", PAGE.read_text(encoding="utf-8"), re.DOTALL)

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The config file of ten simulated GPUs over two days, with owners and prices."""
    folder = tmp_path_factory.mktemp("sql")
    fleet = SimulatedFleet(until_ms=UNTIL_MS, gpus=10, days=2, seed=3)
    lake = made_lake(folder / "lake")
    write_fleet(lake, fleet)
    (folder / "owners.csv").write_text(owners_csv(fleet))
    (folder / "prices.csv").write_text(prices_csv(fleet))
    settings = {"lake.path": lake.root, "money.owners": folder / "owners.csv", "money.prices": folder / "prices.csv"}
    config = folder / "fallow.toml"
    config.write_text("".join(f"{name} = {json.dumps(str(value))}\n" for name, value in settings.items()))
    return config


@pytest.fixture
def asked(site: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What a command prints over the site."""

    def ask(*arguments: str) -> str:
        assert main([*arguments, "--config", str(site)]) == 0
        return capsys.readouterr().out

    return ask


@pytest.fixture
def query(asked: Callable[..., str]) -> Callable[..., Rows]:
    return lambda statement, *flags: rows_of(asked("sql", statement, "--json", *flags))["result"]


def cents(amount: float) -> float:
    return round(amount + 1e-9, 2)


def test_the_cost_of_each_state_is_the_ledgers_to_the_cent(
    asked: Callable[..., str], query: Callable[..., Rows]
) -> None:
    money = json.loads(asked("ledger", "--json"))["money"]
    rows = query(dict(QUESTIONS)["What does each state cost?"])
    cost = {row["state"]: row["cost"] for row in rows}
    assert cents(sum(cost.values())) == money["paid"]
    cost["used"] = cost.pop("low", 0) + cost.pop("active")
    # the ledger shares out what rounding leaves, so that its cents add up
    assert {state: amount for state, amount in cost.items() if amount} == pytest.approx(
        {state: amount for state, amount in money["cost"].items() if amount}, abs=0.01
    )


def test_what_teams_pay_is_what_accounts_say(asked: Callable[..., str], query: Callable[..., Rows]) -> None:
    accounts = json.loads(asked("ledger", "--by", "team", "--json"))["groups"]["rows"]
    rows = query(dict(QUESTIONS)["What does each team pay, and how much of it is waste?"])
    assert {row["team"]: row["paid"] for row in rows} == pytest.approx(
        {each["name"]: each["paid"] for each in accounts if each["name"] is not None}, abs=0.02
    )


def test_held_hours_and_observed_time_are_the_ledgers(asked: Callable[..., str], query: Callable[..., Rows]) -> None:
    ledger = json.loads(asked("ledger", "--json"))
    sums = (
        "sum(gpu_hours) filter (state = 'held') as held, sum(gpu_hours) filter (state != 'unknown') / sum(gpu_hours) as"
        " share"
    )
    [row] = query(f"select {sums} from ledger")  # noqa: S608
    assert (row["held"], row["share"]) == (
        pytest.approx(ledger["gpu_hours"]["held"]),
        pytest.approx(ledger["coverage"]),
    )


def test_recommendations_and_findings_are_those_of_the_commands(
    asked: Callable[..., str], query: Callable[..., Rows]
) -> None:
    found = json.loads(asked("recommendations", "--json"))["recommendations"]
    rows = query("select id, cost, gpus, freed_low, freed, cash from recommendations")
    told = [(each["id"], each["cost"], each["gpus"], *_value_of(each)) for each in found]
    assert [tuple(row.values()) for row in rows] == told
    for select, flags in (
        ("select id, gpu_hours from findings", ()),
        ("select id, gpu_hours from all_findings", ("--all",)),
    ):
        findings = json.loads(asked("findings", "--json", *flags))["findings"]
        known = {row["id"]: row["gpu_hours"] for row in query(select)}
        assert known == {each["finding_id"]: each["gpu_hours"] for each in findings}
    low = query("select id from all_findings where confidence = 'low'")
    assert low
    assert not {row["id"] for row in low} & {row["id"] for row in query("select id from findings")}


@pytest.mark.parametrize(("question", "statement"), QUESTIONS, ids=[question for question, _ in QUESTIONS])
def test_every_question_of_the_page_has_an_answer(query: Callable[..., Rows], question: str, statement: str) -> None:
    assert len(QUESTIONS) == 10
    assert query(statement) or "errors" in question


REFUSED = """copy ledger to 'out.csv'; create table mine as select 1; attach 'other.duckdb'; set memory_limit = '1GB'
insert into ledger select * from ledger; selec 1; install httpfs; select * from nothing; select * from glob('/*')
select * from read_csv('/etc/passwd'); select cast(state as int) from ledger; select gpu, gpu from ledger
select 1 // nothing from ledger"""
STATEMENTS = [*(each.strip() for each in re.split("[;\n]", REFUSED)), "select 1; select 2"]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_nothing_but_a_select_of_the_tables_is_run_and_what_fails_is_one_sentence(
    site: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, statement: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["sql", statement, "--config", str(site)]) == 2
    printed = capsys.readouterr()
    assert (printed.out, len(printed.err.splitlines())) == ("", 1)
    assert list(tmp_path.iterdir()) == []


def test_every_type_can_be_written(query: Callable[..., Rows], asked: Callable[..., str], tmp_path: Path) -> None:
    statement = (
        "select 'nan'::double n, sum(1::hugeint) * 1e30::hugeint h, timestamp '2026-01-02 03:04' t, date '2026-01-02'"
        " d, [1, 2] l, {'a': [1]} s, 'ab'::blob b, true f, null u, 0.1::decimal(9, 3) m from ledger"
    )
    (row,) = query(statement)
    assert (row["n"], row["h"] > 1e30, row["t"], row["d"]) == (None, True, "2026-01-02T03:04:00Z", "2026-01-02")
    assert (row["l"], row["s"], row["f"], row["u"], row["m"]) == ([1, 2], {"a": [1]}, True, None, 0.1)
    asked("sql", statement, "--format", "parquet", "--out", str(tmp_path / "rows.parquet"))
    frame = pl.read_parquet(tmp_path / "rows.parquet")
    assert frame.columns == list(row)
    assert frame["l"].to_list() == ["[1, 2]"]
    assert asked("sql", statement, "--csv").splitlines()[0] == ",".join(row)


def test_waste_and_what_nothing_confirms_of_it_are_those_of_the_commands(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (view,) = (each for each in VIEWS if each.name == "60 s scrapes")
    look(record(3 * HOUR_MS), view, tmp_path / "lake")

    def printed(*arguments: str) -> str:
        assert main([*arguments, "--json", "--lake", str(tmp_path / "lake")]) == 0
        return capsys.readouterr().out

    capsys.readouterr()
    sums = "select sum(wasted_cost) as wasted, sum(unconfirmed_cost) as unconfirmed from ledger"
    (row,) = rows_of(printed("sql", sums))["result"]
    waste = json.loads(printed("recommendations"))["waste"]
    assert row["wasted"] == pytest.approx(waste["cost"], abs=0.03)
    assert row["unconfirmed"] == pytest.approx(waste["unconfirmed"]["cost"], abs=0.03)
    assert row["unconfirmed"] > 1


def test_a_scope_narrows_every_table(query: Callable[..., Rows]) -> None:
    pools = [row["pool"] for row in query("select distinct pool from ledger order by pool")]
    assert len(pools) > 1
    for statement in ("select distinct pool from ledger", "select distinct pool from recommendations"):
        assert {row["pool"] for row in query(statement, "--pool", pools[0])} <= {pools[0]}
    whole = query("select count(distinct gpu) as gpus from gpu")[0]["gpus"]
    part = sum(query("select count(distinct gpu) as gpus from gpu", "--pool", pool)[0]["gpus"] for pool in pools)
    assert part == whole == 10


def test_a_team_gets_no_table_whose_rows_cannot_be_told_apart(
    site: Path, query: Callable[..., Rows], capsys: pytest.CaptureFixture[str]
) -> None:
    team = query("select team from ledger where team is not null limit 1")[0]["team"]
    assert {row["team"] for row in query("select distinct team from ledger", "--team", team)} == {team}
    for table in ("gpu", "process", "hourly", "allocations"):
        assert main(["sql", f"select * from {table}", "--team", team, "--config", str(site)]) == 2  # noqa: S608
        assert "the tables are ledger" in capsys.readouterr().err


def test_an_attached_file_has_the_tables_with_their_comments(
    site: Path, query: Callable[..., Rows], asked: Callable[..., str], tmp_path: Path
) -> None:
    file = tmp_path / "fallow.duckdb"
    asked("sql", "--attach", str(file))
    statement = "select state, sum(cost) as cost from ledger group by state order by state"
    with duckdb.connect(str(file), read_only=True) as connection:
        own = [(state, float(cost)) for state, cost in connection.execute(statement).fetchall()]
        assert [(row["state"], row["cost"]) for row in query(statement)] == own
        assert connection.execute("select count(*) from gpu").fetchall()[0][0] > 1000
        bare = "select table_name from duckdb_columns() where comment is null and not internal"
        assert [name for (name,) in connection.execute(bare).fetchall() if not name.endswith(" rows")] == []
    assert main(["sql", "--attach", str(file), "--config", str(site)]) == 1


def _value_of(told: dict[str, Any]) -> tuple[float | None, ...]:
    """Least and expected freed GPU time and expected cash, as JSON has them."""
    value = told["value_per_year"]
    freed, cash = (None, None) if value is None else (value["freed"], value["cash"])
    return (freed and freed["low"], freed and freed["point"], cash and cash["point"])
