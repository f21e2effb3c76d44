"""The units of dashboard, follower and report as systemd judges them, and what they promise that it cannot judge."""

from __future__ import annotations

import argparse
import subprocess
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from analytics.commands import follow
from analytics.commands.report_send import add_send_arguments
from analytics.delivery.editions import CLOSES_AFTER_MS
from analytics.scraped.server.connection import ServerLimits
from dashboard import command as dashboard
from dashboard.access.hosts import is_loopback
from fallow.clock import HOUR_MS
from fallow.errors import UsageError
from tests.deploy.unit_file import analyze, needs_systemd, settings_of, units_root

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DASHBOARD, FOLLOW, REPORT = (f"fallow-{name}.service" for name in ("dashboard", "follow", "report"))
TIMER = "fallow-report.timer"
SERVICES = (DASHBOARD, FOLLOW, REPORT)


@needs_systemd
@pytest.mark.parametrize("name", [*SERVICES, TIMER])
def test_systemd_finds_nothing_wrong_and_would_have(tmp_path: Path, name: str) -> None:
    root = units_root(tmp_path, REPORT, TIMER) if name in (REPORT, TIMER) else units_root(tmp_path, name)
    found = analyze(root, "verify", name)
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")
    if name != TIMER:
        exposed = analyze(root, "security", "--offline=true", "--threshold=20", name)
        assert exposed.returncode == 0, exposed.stdout
    unit = root / "etc/systemd/system" / name
    text = unit.read_text(encoding="utf-8")
    right = next(key for key in ("Persistent=", "KillMode=", "Restart=") if key in text)
    unit.write_text(text.replace(right, f"x{right}"), encoding="utf-8")
    assert f"x{right[:-1]}" in analyze(root, "verify", name).stderr


def flags_of(name: str, words: str, add: Callable[[argparse.ArgumentParser], None]) -> argparse.Namespace:
    """The flags of the one command that the unit starts."""
    [command] = settings_of(name)["ExecStart"]
    start = f"/opt/fallow/bin/fallow {words}"
    assert command.startswith(start)
    parser = argparse.ArgumentParser()
    add(parser)
    return parser.parse_args(command.removeprefix(start).split())


def test_the_dashboard_serves_this_machine() -> None:
    args = flags_of(DASHBOARD, "dashboard", dashboard.add_arguments)
    assert is_loopback(args.host)
    assert args.insecure is False


def test_the_followers_state_is_where_the_unit_may_write() -> None:
    flags_of(FOLLOW, "follow", follow.add_arguments)
    unit = settings_of(FOLLOW)
    assert f"XDG_STATE_HOME=/var/lib/{unit['StateDirectory'][0]}" in unit["Environment"]


def test_the_report_is_last_weeks_and_its_command_holds_no_secret() -> None:
    args = flags_of(REPORT, "report send", add_send_arguments)
    assert (args.week, args.catch_up, args.to) == ("last", True, None)


@pytest.mark.parametrize("name", SERVICES)
def test_a_failed_run_is_tried_again_and_wrong_settings_are_not(name: str) -> None:
    unit = settings_of(name)
    assert unit["Restart"] == ["on-failure"]
    assert unit["RestartPreventExitStatus"] == [str(UsageError.exit_code)]


def test_the_end_waits_for_those_who_are_being_answered() -> None:
    unit = settings_of(DASHBOARD)
    assert unit["KillMode"] == ["mixed"]
    assert unit["TimeoutStopSec"] == ["40s"]  # gunicorn's 30 s and some
    assert unit["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
    assert settings_of(FOLLOW)["TimeoutStopSec"] == [f"{ServerLimits.silence_s + 30:.0f}s"]


@needs_systemd
def test_the_report_runs_on_mondays_at_six() -> None:
    [when] = settings_of(TIMER)["OnCalendar"]
    done = subprocess.run(
        ["systemd-analyze", "calendar", "--iterations=3", "--base-time=2026-11-18 00:00:00 UTC", when],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={"TZ": "UTC"},
    )
    times = [line.split(": ", 1)[1] for line in done.stdout.splitlines() if "elapse" in line or "Iter. #" in line]
    found = [datetime.strptime(each.strip(), "%a %Y-%m-%d %H:%M:%S UTC").replace(tzinfo=UTC) for each in times]
    assert [each.strftime("%F %R") for each in found] == ["2026-11-23 06:00", "2026-11-30 06:00", "2026-12-07 06:00"]
    assert CLOSES_AFTER_MS == 6 * HOUR_MS


def test_the_report_of_a_host_that_was_down_catches_up_within_bounds() -> None:
    assert settings_of(TIMER)["Persistent"] == ["true"]
    assert settings_of(TIMER)["Unit"] == [REPORT]
    unit = settings_of(REPORT)
    assert unit["Type"] == ["oneshot"]
    assert {"StartLimitBurst", "TimeoutStartSec", "MemoryMax"} <= unit.keys()
