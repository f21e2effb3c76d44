"""The contract of every verb that shows tables: the same flags, and each table whole in each format."""

from __future__ import annotations

import argparse
import csv
import html
import io
import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from jsonschema import Draft202012Validator

from analytics import glossary
from analytics.commands import findings, ledger, recommendations, table_verb
from analytics.commands.plan import VERBS
from analytics.language.sentences import ENGLISH, Language
from analytics.render.json_schema import object_schema
from analytics.render.one_screen import SCREEN_LINES
from analytics.render.tables import FORMATS, VerbAnswer, document
from analytics.rules import RULES
from analytics.simulation import SimulatedFleet
from analytics.simulation.tables import write_fleet
from analytics.tables.ledger_columns import LEDGER_COLUMNS
from fallow.cli import COMMANDS, load, main
from fallow.clock import DAY_MS, HOUR_MS
from fallow.config import SETTINGS
from fallow.lake_verbs import VERBS as LAKE_VERBS
from fallow.outside_text import markdown_text
from tests.lakes import made_lake
from tests.made_once import made_once

if TYPE_CHECKING:
    from analytics.tables.table import Column, Table

FLEET = SimulatedFleet(gpus=4, days=3, seed=3, interval_ms=HOUR_MS, until_ms=20_777 * DAY_MS)
PLANS = {command.name: load(command) for command in VERBS}
MAIN = {
    command.name: load(command)
    for command in COMMANDS
    if command.name in ("ledger", "findings", "recommendations", "evaluate", "sql", "prices", "report")
}
BELOW = {
    **{("plan", name): verb for name, verb in PLANS.items()},
    **{("lake", each.name): load(each) for each in LAKE_VERBS if each.name in ("check", "size")},
}
"""Verbs below a command."""
LISTS = [("annotations", "list"), ("allocations", "list")]
"""Verbs beside others of their command that show no tables."""
AS_TABLES = [
    *BELOW,
    ("plan", "fit", "--params", "8B"),
    ("sql",),
    ("sql", "from ledger"),
    ("prices",),
    *LISTS,
    ("lake", "size", "--by", "day"),
    ("allocations", "list", "--check"),
]
"""Verbs whose JSON has their tables by name, with the flags that make other tables of theirs."""
WITHOUT_TABLES = {
    ("ledger",): LEDGER_COLUMNS,
    ("ledger", "--by", "pool"): ledger.GROUPED_COLUMNS,
    ("findings",): findings.COLUMNS,
    ("recommendations",): recommendations.COLUMNS,
}
"""Verbs whose JSON is a record, with its columns."""
CASES = [*AS_TABLES, *WITHOUT_TABLES]

FLAGS = {
    "--lake": "lake",
    "--config": "file",
    "--since": "7d",
    "--until": "1d",
    "--week": "last",
    "--pool": "p",
    "--model": "m",
    "--team": "t",
    "--user": "h",
    "--lang": "fr",
    "--table": "name",
    "--out": "file",
}
TERM_NAMES = {each.name for each in glossary.TERMS}
KEY = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")

Case = tuple[str, ...]
Run = Callable[..., str]
Answered = tuple[VerbAnswer, Language]


@pytest.fixture(scope="session")
def lake_root(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A lake of four simulated GPUs over three days."""
    folder = made_once(
        tmp_path_factory.getbasetemp(), "table-verbs", lambda each: write_fleet(made_lake(each / "lake"), FLEET)
    )
    return str(folder / "lake")


@pytest.fixture(scope="session")
def opened() -> dict[Any, Any]:
    """The lake's windows, each read once for all verbs and formats."""
    return {}


@pytest.fixture(scope="session")
def answers() -> dict[Case, Answered]:
    """What each verb has answered, once for all formats."""
    return {}


@pytest.fixture
def run(
    lake_root: str,
    opened: dict[Any, Any],
    answers: dict[Case, Answered],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Runs a verb; returns what it has printed."""
    open_lake = table_verb.open_verb
    written: list[Answered] = []

    def opened_once(args: argparse.Namespace, **window: Any) -> Any:
        key = tuple(sorted(window.items()))
        if key not in opened:
            opened[key] = open_lake(args, **window)
        return opened[key]

    def kept(answer: VerbAnswer, form: str, speaks: Language, *rest: Any, **limits: Any) -> bytes:
        written.append((answer, speaks))
        return document(answer, form, speaks, *rest, **limits)

    def verb(case: Case, *flags: str) -> str:
        assert main([*case, "--lake", lake_root, *flags]) == 0
        if written:
            answers[case] = written[-1]
        return capsys.readouterr().out

    monkeypatch.setattr(table_verb, "open_verb", opened_once)
    monkeypatch.setattr(table_verb, "document", kept)
    return verb


@pytest.fixture
def answered(run: Run, answers: dict[Case, Answered]) -> Callable[[Case], Answered]:
    """What a verb answers, and in which language."""

    def verb(case: Case) -> Answered:
        if case not in answers:
            run(case)
        return answers[case]

    return verb


def keys_of(table: Table) -> list[str]:
    return [each.key for each in table.columns if each.audience != "people"]


def heads_of(columns: Sequence[Column], before: str = "") -> list[str]:
    """The columns of a file: those of a record have its name before theirs."""
    heads = []
    for each in columns:
        if each.value_type == "object" and each.columns and each.columns[0].key:
            heads += heads_of(each.columns, f"{before}{each.key}_")
        elif each.audience != "people":
            heads.append(before + each.key)
    return heads


CURRENCY = re.compile(r"\b(?:USD|EUR)\b")


def without_currency(table: Table) -> list[str]:
    """The money columns for people that name no currency: neither the table nor their head nor each figure does."""
    if CURRENCY.search(ENGLISH.translate(table.title)):
        return []
    return [
        each.key
        for each in table.columns
        if each.kind == "money" and each.audience != "programs" and not CURRENCY.search(ENGLISH.translate(each.title))
        if any(
            re.search(r"\d", shown) and not CURRENCY.search(shown)
            for shown in (ENGLISH.shown(each.cell(row)) for row in table.rows)
        )
    ]


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len({key for key, _ in pairs}) == len(pairs), f"a key comes twice: {pairs}"
    return dict(pairs)


@pytest.mark.parametrize("case", [*BELOW, *((name,) for name in MAIN), *LISTS], ids=" ".join)
def test_every_verb_has_the_shared_flags(case: tuple[str, ...]) -> None:
    parser = argparse.ArgumentParser()
    load(next(each for each in COMMANDS if each.name == case[0])).add_arguments(parser)
    given = [word for flag in FLAGS.items() for word in flag]
    own = ["--labels", "file"] if case == ("evaluate",) else []
    for flags, form in ((["--json"], "json"), (["--csv"], "csv"), *((["--format", each], each) for each in FORMATS)):
        assert parser.parse_args([*case[1:], *own, *given, *flags]).format == form


@pytest.mark.parametrize(
    ("case", "flag"),
    [
        (("prices",), "--pool"),
        (("lake", "size"), "--since"),
        (("lake", "check"), "--team"),
        (("annotations", "list"), "--user"),
        (("allocations", "list"), "--model"),
        (("plan", "purchase"), "--team"),
    ],
    ids=str,
)
def test_a_flag_that_narrows_nothing_is_refused(
    case: tuple[str, ...], flag: str, lake_root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*case, "--lake", lake_root, flag, "2026-11-20"]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.endswith(f"; leave out {flag}\n")) == ("", True)
    assert main([*case, "--help"]) == 0
    assert f"{flag} " not in capsys.readouterr().out


@pytest.mark.parametrize("case", AS_TABLES, ids=" ".join)
def test_json_has_each_table_by_keys_with_units_as_the_schema_of_its_columns_says(
    case: Case, run: Run, answered: Callable[[Case], Answered]
) -> None:
    found = json.loads(run(case, "--json"), object_pairs_hook=unique)["tables"]
    answer, _ = answered(case)
    assert list(found) == [table.name for table in answer.tables]
    assert [name for name in found if not KEY.fullmatch(name)] == []
    for table in answer.tables:
        keys = keys_of(table)
        assert len(set(keys)) == len(keys)
        assert [key for key in keys if not KEY.fullmatch(key)] == []
        durations = [each.key for each in table.columns if each.kind == "duration" and each.audience != "people"]
        assert [key for key in durations if not key.endswith("_s")] == []
        assert len(found[table.name]["rows"]) == len(table.rows)
        assert all(list(row) == keys for row in found[table.name]["rows"])
    schema = tables_schema(answer.tables)
    Draft202012Validator.check_schema(schema)
    assert faults(schema, found) == []


@pytest.mark.parametrize("case", WITHOUT_TABLES, ids=" ".join)
def test_json_that_is_no_list_of_tables_is_as_its_columns_say(case: Case, run: Run) -> None:
    assert faults(object_schema(WITHOUT_TABLES[case]), json.loads(run(case, "--json"))) == []


def faults(schema: dict[str, Any], content: object) -> list[str]:
    return [f"{each.json_path}: {each.message}" for each in Draft202012Validator(schema).iter_errors(content)]


@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_every_format_has_each_table_whole(case: Case, answered: Callable[[Case], Answered]) -> None:
    """CSV and Parquet have the rows of JSON under the same heads; pages have the tables that are for people."""
    answer, speaks = answered(case)
    for table in answer.tables:
        if not table.columns:
            continue
        frame = pl.read_parquet(io.BytesIO(document(answer, "parquet", speaks, table.name)))
        written = document(answer, "csv", speaks, table.name).decode()
        head, *rows = csv.reader(io.StringIO(written, newline=""))
        assert frame.columns == head == heads_of(table.columns)
        assert frame.height == len(rows) == len(table.rows)
    assert [key for table in answer.for_people for key in without_currency(table)] == []
    for form, as_title in {"text": str.upper, "md": markdown_text, "html": str}.items():
        shown = html.unescape(document(answer, form, speaks).decode())
        titles = [str(table.title) for table in answer.for_people if form != "text" or table.cells or table.lines]
        assert [title for title in titles if as_title(title) not in shown] == []


@pytest.mark.parametrize("case", [*CASES, ("report",)], ids=" ".join)
def test_text_on_standard_output_is_one_screen_that_begins_with_the_answer(
    case: Case, run: Run, answers: dict[Case, Answered]
) -> None:
    lines = run(case).splitlines()
    assert len(lines) <= SCREEN_LINES
    assert max(map(len, lines)) <= 120
    if case in answers:
        answer, speaks = answers[case]
        whole = document(answer, "text", speaks).decode().splitlines()
    else:
        whole = run(case, "--all").splitlines()
    assert (lines == whole) == (lines[-1] != "--all shows all rows, tables and notes.")
    if case != ("report",):  # whole it begins with its title
        assert lines[0] == whole[0]


def test_a_screen_counts_the_rows_that_it_leaves_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings"]) == 0
    screen = capsys.readouterr().out
    shown = len(re.findall(r"^  - ", screen, re.MULTILINE))
    assert f"  {len(SETTINGS) - shown} more: --all\n" in screen
    assert len(screen.splitlines()) <= SCREEN_LINES
    assert main(["settings", "--all"]) == 0
    assert len(re.findall(r"^  - ", capsys.readouterr().out, re.MULTILINE)) == len(SETTINGS)


def test_the_reference_has_every_rule_setting_and_word(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = {
        "rules": ("rule", {each.name for each in RULES}),
        "settings": ("setting", {each.name for each in SETTINGS}),
        "glossary": ("word", {*glossary.STATES, *glossary.CONFIDENCE, *glossary.STATUSES, *TERM_NAMES}),
    }
    for verb, (key, names) in wanted.items():
        assert main([verb, "--json"]) == 0
        tables = json.loads(capsys.readouterr().out)["tables"]
        assert {row[key] for row in tables[verb]["rows"]} == names
        assert main([verb, "hxld"]) == 2
        assert f"there is no {key} 'hxld'" in capsys.readouterr().err
    assert main(["rules", "held", "--json"]) == 0
    tables = json.loads(capsys.readouterr().out)["tables"]
    thresholds = {row["threshold"]: row["value"] for row in tables["thresholds"]["rows"]}
    assert thresholds == next(each.thresholds for each in RULES if each.name == "held")


def tables_schema(tables: Iterable[Table]) -> dict[str, Any]:
    """The schema of tables by name, each with its headline and rows."""
    found = {}
    for table in tables:
        rows = {"type": "array", "items": object_schema(table.columns, str(table.question))}
        headline = {"headline": {"type": "string"}} if table.headline else {}
        properties = headline | {"rows": rows}
        found[table.name] = {
            "type": "object",
            "required": list(properties),
            "properties": properties,
            "additionalProperties": False,
        }
    return {"type": "object", "required": list(found), "properties": found, "additionalProperties": False}
