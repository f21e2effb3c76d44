"""The schema of the report's columns describes every report, and nothing that no report has."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from analytics.decide.actions import record
from analytics.render.report.json_format import report_schema
from fallow.actors import Actor
from tests.lakes import made_lake
from tests.ledger.rows import T0, fill, samples
from tests.report.conftest import BACK_S, BUSY, DAY, FREE, HOUR, everything

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fallow.lake import Lake
    from tests.report.conftest import Outcome

SCHEMA = report_schema()
VALIDATOR = Draft202012Validator(SCHEMA, format_checker=Draft202012Validator.FORMAT_CHECKER)


def told(done: Outcome) -> Any:
    assert (done.code, done.err) == (0, "")
    return json.loads(done.out)


def faults(content: object) -> list[str]:
    return [f"{each.json_path}: {each.message}" for each in VALIDATOR.iter_errors(content)]


def test_the_schema_is_one_and_is_printed(report: Callable[..., Outcome]) -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert told(report("nowhere", "--schema")) == json.loads(json.dumps(SCHEMA))


@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("--week", "2026-W40"),
        ("--week", "2026-W40", "--timezone", "Europe/Paris"),
        ("--week", "2026-W42"),
        ("--week", "2020-W10", "--user", "ann"),
        ("--pool", "train"),
        ("--user", "ann"),
        ("--week", "2026-W40", "--user", "greta", "--lang", "fr"),
    ],
    ids=lambda flags: " ".join(flags) or "all",
)
def test_reports_are_as_the_schema_says(full: Lake, report: Callable[..., Outcome], flags: tuple[str, ...]) -> None:
    assert faults(told(report(full, "--format", "json", *flags))) == []


def test_the_edition_of_a_team_is_as_the_schema_says(
    full: Lake, report: Callable[..., Outcome], tmp_path: Path
) -> None:
    owners = tmp_path / "owners.csv"
    owners.write_text("kind,name,team\nuser,ann,vision\nuser,greta,speech\n", encoding="utf-8")
    config = tmp_path / "fallow.toml"
    config.write_text(f'[money]\nowners = "{owners}"\n', encoding="utf-8")
    content = told(report(full, "--format", "json", "--team", "vision", "--config", str(config)))
    assert [each["name"] for each in content["teams"]] == ["vision"]
    assert content["scope"]["team"] == "vision"
    assert faults(content) == []


def test_suppressed_and_gone_findings_are_as_the_schema_says(tmp_path: Path, report: Callable[..., Outcome]) -> None:
    lake = everything(made_lake(tmp_path / "lake"))
    later = {"first_s": 14 * DAY - BACK_S, "last_s": 21 * DAY - BACK_S}
    fill(lake, samples("GPU-0", **later, **BUSY) + samples("GPU-1", **later, **FREE), host="train-01")
    week = ("--format", "json", "--week", "2026-W41")
    found = told(report(lake, *week))["findings"]
    record(
        lake, "suppress", [each["finding_id"] for each in found], Actor("ops"), now_ms=T0 - BACK_S, reason="a reserve"
    )
    content = told(report(lake, *week))
    assert content["suppressed"]
    assert content["ended"]
    assert faults(content) == []


def test_nothing_observed_is_as_the_schema_says(lake: Lake, report: Callable[..., Outcome]) -> None:
    fill(lake, samples("GPU-0", 0, HOUR, gpu_util_pct=None, process_count=None))
    assert faults(told(report(lake, "--format", "json"))) == []


@pytest.mark.parametrize("path", ["", "ledger", "scope", "settings", "by"])
def test_what_no_report_has_is_refused(full: Lake, report: Callable[..., Outcome], path: str) -> None:
    content = told(report(full, "--format", "json"))
    (content[path] if path else content)["another"] = 1
    assert faults(content) != []
