"""The report's unit and timer as systemd judges them, and what they promise that it cannot judge."""

from __future__ import annotations

import argparse
import subprocess
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from analytics.commands.report_send import add_send_arguments
from analytics.delivery.editions import CLOSES_AFTER_MS
from fallow.clock import HOUR_MS
from fallow.errors import UsageError
from tests.deploy.unit_file import analyze, needs_systemd, settings_of, units_root

if TYPE_CHECKING:
    from pathlib import Path

SERVICE, TIMER = "fallow-report.service", "fallow-report.timer"


@pytest.fixture
def host(tmp_path: Path) -> Path:
    return units_root(tmp_path, SERVICE, TIMER)


@needs_systemd
@pytest.mark.parametrize("name", [SERVICE, TIMER])
def test_systemd_finds_nothing_wrong(host: Path, name: str) -> None:
    found = analyze(host, "verify", name)
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


@needs_systemd
def test_systemd_would_have_said_what_is_wrong(host: Path) -> None:
    timer = host / "etc/systemd/system" / TIMER
    timer.write_text(timer.read_text(encoding="utf-8").replace("Persistent=", "Persistant="), encoding="utf-8")
    assert "Persistant" in analyze(host, "verify", TIMER).stderr


@needs_systemd
def test_the_exposure_is_below_two(host: Path) -> None:
    found = analyze(host, "security", "--offline=true", "--threshold=20", SERVICE)
    assert found.returncode == 0, found.stdout


@needs_systemd
def test_it_runs_on_mondays_at_six() -> None:
    [when] = settings_of(TIMER)["OnCalendar"]
    done = subprocess.run(
        ["systemd-analyze", "calendar", "--iterations=3", "--base-time=2026-11-18 00:00:00 UTC", when],
        capture_output=True, text=True, check=True, timeout=60, env={"TZ": "UTC"},
    )  # fmt: skip
    times = [line.split(": ", 1)[1] for line in done.stdout.splitlines() if "elapse" in line or "Iter. #" in line]
    found = [datetime.strptime(each.strip(), "%a %Y-%m-%d %H:%M:%S UTC").replace(tzinfo=UTC) for each in times]
    assert [each.strftime("%F %R") for each in found] == ["2026-11-23 06:00", "2026-11-30 06:00", "2026-12-07 06:00"]
    assert CLOSES_AFTER_MS == 6 * HOUR_MS


def test_a_host_that_was_down_catches_up() -> None:
    assert settings_of(TIMER)["Persistent"] == ["true"]
    assert settings_of(TIMER)["Unit"] == [SERVICE]


def test_the_command_is_one_and_holds_no_secret() -> None:
    [command] = settings_of(SERVICE)["ExecStart"]
    program, report, send, *flags = command.split()
    assert (program, report, send) == ("/opt/fallow/bin/fallow", "report", "send")
    parser = argparse.ArgumentParser()
    add_send_arguments(parser)
    args = parser.parse_args(flags)
    assert (args.week, args.catch_up, args.to) == ("last", True, None)


def test_a_failed_run_is_tried_again_and_wrong_settings_are_not() -> None:
    unit = settings_of(SERVICE)
    assert unit["Type"] == ["oneshot"]
    assert unit["Restart"] == ["on-failure"]
    assert unit["RestartPreventExitStatus"] == [str(UsageError.exit_code)]
    assert {"StartLimitBurst", "TimeoutStartSec", "MemoryMax"} <= unit.keys()
