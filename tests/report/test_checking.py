"""Whoever checks the report as its page says gets its numbers."""

from __future__ import annotations

import json
import re
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from analytics.report.weeks import parse_week
from fallow.clock import parse_window

if TYPE_CHECKING:
    from collections.abc import Callable

    from fallow.lake import Lake
    from tests.report.conftest import Outcome

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "report.md").read_text(encoding="utf-8")
SPAN = re.compile(r"--since (\S+) --until (\S+)")


def test_the_windows_of_the_page_are_what_they_say() -> None:
    checking = PAGE.split("## Checking it")[1]
    commands = SPAN.findall(checking.split("```")[1])
    assert len(commands) == 2
    assert {parse_window(*each) for each in commands} == {parse_week("2026-W46", UTC, 0).window}
    [elsewhere] = SPAN.findall(checking.split("```")[2].replace("`", " "))
    assert parse_window(*elsewhere) == parse_week("2026-W46", ZoneInfo("Europe/Paris"), 0).window
    [november] = [SPAN.findall(line)[0] for line in PAGE.splitlines() if "november.csv" in line]
    assert parse_window(*november) == parse_window("2026-11-01T00:00Z", "2026-12-01T00:00Z")


def test_ledger_and_findings_of_the_week_are_the_reports(full: Lake, report: Callable[..., Outcome]) -> None:
    content = json.loads(report(full, "--week", "2026-W40", "--format", "json").out)
    window = ("--since", "2026-09-28", "--until", "2026-10-04", "--json")
    assert json.loads(report(full, *window, command="ledger").out) == content["ledger"]
    found = json.loads(report(full, *window, command="findings").out)["findings"]
    assert [each["finding_id"] for each in found] == [each["finding_id"] for each in content["findings"]]
    assert found == content["findings"]
