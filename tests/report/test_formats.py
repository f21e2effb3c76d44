"""The whole report in every format against golden files, and its numbers against `fallow ledger --json`.

`UPDATE_GOLDEN=1 pytest tests/report` writes the files again: read the diff.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from analytics.render.report import FORMATS
from fallow import __version__
from tests.ledger.rows import device, fill, samples
from tests.report.conftest import BUSY, HOUR
from tests.shared_results import forget_results

if TYPE_CHECKING:
    from collections.abc import Callable

    from fallow.lake import Lake
    from tests.report.conftest import Outcome

GOLDEN = Path(__file__).parent / "golden"
SUFFIX = {"text": "txt", "md": "md", "json": "json", "csv": "csv"}


@pytest.mark.parametrize("name", SUFFIX)
def test_golden(full: Lake, report: Callable[..., Outcome], name: str) -> None:
    done = report(full, "--format", name)
    assert (done.code, done.err) == (0, "")
    shown = done.out.replace(full.root, "LAKE").replace(f"fallow {__version__}", "fallow VERSION")
    shown = shown.replace(f'"fallow_version": "{__version__}"', '"fallow_version": "VERSION"')
    file = GOLDEN / f"report.{SUFFIX[name]}"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(shown, encoding="utf-8")
    assert shown == file.read_text(encoding="utf-8")


def test_the_same_lake_gives_the_same_bytes(full: Lake, report: Callable[..., Outcome]) -> None:
    names = [each.name for each in FORMATS if each.name != "pdf"]
    first = {name: report(full, "--format", name).out for name in names}
    forget_results()
    assert {name: report(full, "--format", name).out for name in names} == first


@pytest.mark.parametrize("window", [(), ("--since", "2026-09-28T05:17Z"), ("--until", "2026-09-25")])
def test_the_numbers_are_those_of_the_ledger_and_the_findings_to_the_digit(
    full: Lake, report: Callable[..., Outcome], window: tuple[str, ...]
) -> None:
    content = json.loads(report(full, "--format", "json", *window).out)
    assert content["ledger"] == json.loads(report(full, "--json", *window, command="ledger").out)
    assert content["findings"] == json.loads(report(full, "--json", *window, command="findings").out)["findings"]
    total = content["ledger"]["gpu_hours"]
    for section in ("pool", "model", "day"):
        for state in total:
            groups = content["by"][section].values()
            assert sum(each["gpu_hours"][state] for each in groups) == pytest.approx(total[state], abs=1e-9)


def test_text_and_markdown_show_the_ledgers_numbers(full: Lake, report: Callable[..., Outcome]) -> None:
    ledger = json.loads(report(full, "--json", command="ledger").out)
    text, markdown = report(full).out, report(full, "--format", "md").out
    for state, hours in ledger["gpu_hours"].items():
        name, shown = "paid" if state == "total" else state, f"{hours:,.1f}"
        assert any(line.split()[:2] == [name, shown] for line in text.splitlines())
        assert f"| {name} | {shown} |" in markdown


def test_text_is_100_columns_wide_but_for_the_commands(full: Lake, report: Callable[..., Outcome]) -> None:
    lines = report(full).out.splitlines()
    assert [line for line in lines if len(line) > 100 and not line.startswith("    next ")] == []
    assert [line for line in lines if line != line.rstrip()] == []


def test_a_single_busy_gpu_has_no_findings(lake: Lake, report: Callable[..., Outcome]) -> None:
    fill(lake, samples("GPU-0", 0, HOUR, **BUSY))
    text = report(lake).out
    assert "1 GPU on 1 host" in text
    assert "100.0 % of the time" in text
    assert "No GPU is idle now. No decision is known to save something in this window." in " ".join(text.split())
    assert "No decision is known to save something" in report(lake, "--format", "md").out
    assert json.loads(report(lake, "--format", "json").out)["findings"] == []


def test_nothing_observed_is_said_not_divided(lake: Lake, report: Callable[..., Outcome]) -> None:
    fill(lake, samples("GPU-0", 0, HOUR, gpu_util_pct=None, process_count=None))
    for name in SUFFIX:
        assert report(lake, "--format", name).code == 0
    assert "Nothing was observed in this window." in report(lake).out
    assert json.loads(report(lake, "--format", "json").out)["ledger"]["idle"]["share"] is None
    assert "1 GPU never gave a utilization: its use is unknown, not zero" in report(lake).out


def test_a_window_that_ends_in_the_future_calls_nobody_silent(lake: Lake, report: Callable[..., Outcome]) -> None:
    now_s = time.time() - 1_795_132_800
    fill(lake, samples("GPU-0", now_s - 600, now_s, **BUSY | {"every_s": 10}))
    assert "  silent      none" in report(lake, "--until", "2199-01-01").out.splitlines()


def test_simulated_fleets_say_so_first(lake: Lake, report: Callable[..., Outcome]) -> None:
    fill(lake, samples("a", 0, HOUR, **BUSY) + samples("b", 0, HOUR, **BUSY), devices=[device("a", source="simulated")])
    for name in ("text", "md"):
        assert "1 of 2 GPUs is SIMULATED: its figures are no measurements." in report(lake, "--format", name).out
    fill(lake, [], devices=[device("b", source="simulated")])
    assert "SIMULATED FLEET: none of these GPUs exists" in report(lake).out
