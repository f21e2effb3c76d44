"""What fallow promises of the report: its numbers are the ledger's, and a week is one of its reader's time zone."""

from __future__ import annotations

import json
from datetime import UTC
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest

from analytics.report.weeks import parse_week, week_of
from dashboard.query import Query
from fallow.clock import DAY_MS, HOUR_MS, format_ms, parse_window
from fallow.schema import STATES
from tests.in_process import run_in_process
from tests.lakes import made_lake
from tests.ledger.rows import T0, allocation, device, fill, processes, samples

if TYPE_CHECKING:
    from pathlib import Path


BUSY = {"gpu_util_pct": 71.3, "process_count": 2, "power_w": 303.0}
IDLE = {"gpu_util_pct": 0.0, "process_count": 1, "power_w": 61.7}
HOUR_S = 3600
PARIS = ZoneInfo("Europe/Paris")


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three GPUs in two pools over two weeks: shared, idle, reserved and free time, with prices and owners."""
    tmp_path = tmp_path_factory.mktemp("numbers")
    lake = made_lake(tmp_path / "lake")
    monday = 3 * 24 * HOUR_S  # T0 is a Friday
    rows = [
        *samples("a", monday - HOUR_S, monday + 2 * HOUR_S, **BUSY),
        *samples("b", monday - HOUR_S, monday + HOUR_S, **IDLE),
        *samples("b", monday + HOUR_S, monday + 2 * HOUR_S),
        *samples("c", monday - HOUR_S, monday + HOUR_S + 730),
    ]
    lists = [
        *processes("a", *range(monday - HOUR_S, monday + 2 * HOUR_S, 30), user="ann", pid=1),
        *processes("a", *range(monday - HOUR_S, monday + HOUR_S, 60), user="bob", pid=2),
        *processes("b", *range(monday - HOUR_S, monday + HOUR_S, 30), user="bob"),
    ]
    allocations = [allocation("c", monday - 500, monday + 1700, "ann")]
    devices = [device("a", pool="train"), device("b", pool="dev", model="NVIDIA L40S"), device("c", pool="train")]
    fill(lake, rows, lists, allocations, devices=devices)
    (tmp_path / "owners.csv").write_text("kind,name,team\nuser,ann,vision\nuser,bob,speech\n")
    (tmp_path / "prices.csv").write_text("model,pool,hourly,currency\n,train,3.33,EUR\n,dev,0.77,EUR\n")
    config = tmp_path / "fallow.toml"
    config.write_text(
        f'[lake]\npath = "{lake.root}"\n[money]\ncurrency = "EUR"\nowners = "{tmp_path}/owners.csv"\n'
        f'prices = "{tmp_path}/prices.csv"\n'
    )
    return config


SCOPES = [(), ("--pool", "train"), ("--team", "speech"), ("--user", "ann"), ("--pool", "train", "--team", "vision")]
WEEK = (("--since", "2026-W48", "--until", "2026-W48"), ("--week", "2026-W48"))
CASES = [*((scope, ((), ())) for scope in SCOPES), *((scope, WEEK) for scope in SCOPES[:3:2])]


@pytest.mark.parametrize(("scope", "window"), CASES)
def test_the_reports_numbers_are_those_of_fallow_ledger_to_the_digit_and_its_states_cents_add_up_to_what_was_paid(
    config: Path, scope: tuple[str, ...], window: tuple[tuple[str, ...], tuple[str, ...]]
) -> None:
    """docs/report.md: "Its numbers are those of `fallow ledger --json`, to the digit"; Check a figure."""
    ledger = run_in_process("ledger", "--config", str(config), *window[0], *scope, "--json")
    report = run_in_process("report", "--config", str(config), *window[1], *scope, "--format", "json")
    assert (ledger.returncode, report.returncode) == (0, 0), ledger.stderr + report.stderr
    printed = json.loads(report.stdout)
    told = json.loads(ledger.stdout)
    # of a week that is not over, the observed share is up to now
    for name in ("coverage", "outside_gpu_hours"):
        assert told.pop(name) == pytest.approx(printed["ledger"].pop(name), rel=1e-3)
    assert printed["ledger"] == told
    hours = printed["ledger"]["gpu_hours"]
    steps = printed["tables"]["waterfall"]["rows"][1:]
    # a report for people leaves out states that they have no time in
    left_out = dict.fromkeys(STATES, 0.0) if {"--user", "--team"} & set(scope) else {}
    assert left_out | {step["state"]: step["gpu_hours"] for step in steps} == {
        state: value for state, value in hours.items() if state != "total"
    }
    assert round(sum(step["cost"] for step in steps), 2) == printed["ledger"]["money"]["paid"] > 0


@pytest.mark.parametrize(
    ("zone", "label", "since", "hours"),
    [
        (UTC, "2026-W46", "2026-11-09T00:00:00Z", 168),
        (PARIS, "2026-W46", "2026-11-08T23:00:00Z", 168),
        (PARIS, "2026-W13", "2026-03-22T23:00:00Z", 167),
        (PARIS, "2026-W43", "2026-10-18T22:00:00Z", 169),
    ],
)
def test_a_week_is_monday_00_00_to_monday_00_00_in_the_reports_time_zone(
    zone: ZoneInfo, label: str, since: str, hours: int
) -> None:
    """docs/report.md, Editions: "that ISO week, Monday 00:00 to Monday 00:00 in the report's time zone"."""
    week = parse_week(label, zone, T0)
    assert (week.label, format_ms(week.since_ms), week.until_ms - week.since_ms) == (label, since, hours * HOUR_MS)
    assert week.before().until_ms == week.since_ms


def test_the_last_week_is_the_newest_that_is_over() -> None:
    """docs/report.md, Editions: "`last` is the newest that is over", from the very moment of its end on."""
    monday_ms = week_of(T0, UTC).since_ms
    assert parse_week("last", UTC, T0).label == parse_week("last", UTC, monday_ms).label == "2026-W46"
    assert parse_week("last", UTC, monday_ms - 1).label == "2026-W45"
    assert parse_week("last", PARIS, monday_ms - 1).label == "2026-W46", "in Paris, Monday has begun"


WAYS = (
    ("--week", "2026-W48"),
    ("--since", "2026-W48", "--until", "2026-W48"),
    ("--since", "2026-11-23", "--until", "2026-11-29"),
    ("--since", "2026-11-23T00:00+01:00", "--until", "2026-11-30T00:00+01:00"),
)


def test_a_week_is_one_window_however_it_is_asked_for(config: Path) -> None:
    """docs/report.md, Check a figure.

    "Days and weeks are those of `report.timezone`, for `--week` as for `--since` and `--until`".
    """
    paris = {"FALLOW_REPORT_TIMEZONE": "Europe/Paris"}
    asked = [run_in_process("ledger", "--config", str(config), *way, "--json", **paris) for way in WAYS]
    found = [json.loads(each.stdout) for each in asked]
    assert found[0]["gpu_hours"]["total"] == pytest.approx(
        3 + 3 + 2.2028, abs=0.001
    )  # an hour of it is Sunday's in UTC
    for each in found[1:]:
        assert each["gpu_hours"] == found[0]["gpu_hours"]
        assert (each["window"], each["coverage"]) == (found[0]["window"], pytest.approx(found[0]["coverage"], rel=1e-3))
    week = parse_week("2026-W48", PARIS, 0).window
    pages = (Query(since="2026-W48", until="2026-W48"), Query(first="2026-11-23", last="2026-11-29"))
    assert {each.window(0, PARIS) for each in pages} == {week}


def test_a_day_that_ends_a_window_is_in_it_to_its_midnight_and_7d_are_seven_days_of_the_time_zone() -> None:
    """docs/report.md, Check a figure; docs/how-a-number-is-made.md, The window: between changes of the clock 168 h."""
    window = parse_window("2026-11-20", "2026-11-20", zone=PARIS)
    assert (window.since_ms, window.until_ms) == (T0 - HOUR_MS, T0 + DAY_MS - HOUR_MS)
    for end, hours in (("2026-10-28T12:00:00Z", 169), ("2026-11-20T12:00:00Z", 168)):
        until_ms = parse_window(None, end).until_ms
        assert until_ms is not None
        assert until_ms - (parse_window("7d", None, until_ms, PARIS).since_ms or 0) == hours * HOUR_MS
        assert until_ms - (parse_window("168h", None, until_ms, PARIS).since_ms or 0) == 168 * HOUR_MS
