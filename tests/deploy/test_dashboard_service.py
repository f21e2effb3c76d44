"""The dashboard's unit as systemd judges it, and what it promises that it cannot judge."""

from __future__ import annotations

import argparse
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from dashboard.access.hosts import is_loopback
from dashboard.command import add_arguments
from fallow.errors import UsageError

SYSTEMD = Path(__file__).resolve().parents[2] / "deploy" / "systemd"
UNIT = "fallow-dashboard.service"
SYSTEM_UNITS = Path("/usr/lib/systemd/system")

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None or not (SYSTEM_UNITS / "sysinit.target").exists(),
    reason="no systemd here to judge the unit (Debian: apt-get install systemd)",
)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A root of its own with systemd's units, the unit as it is, and stand-ins for the two programs that it starts."""
    shutil.copytree(SYSTEM_UNITS, tmp_path / "usr/lib/systemd/system", symlinks=True)
    (tmp_path / "lib").symlink_to("usr/lib")
    for program in ("opt/fallow/bin/fallow", "bin/kill"):
        path = tmp_path / program
        path.parent.mkdir(parents=True)
        path.touch(mode=0o755)
    (tmp_path / "etc/systemd/system").mkdir(parents=True)
    shutil.copy(SYSTEMD / UNIT, tmp_path / "etc/systemd/system")
    return tmp_path


def analyze(host: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", "--no-pager", f"--root={host}", *arguments, UNIT]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def unit() -> dict[str, list[str]]:
    found = defaultdict(list)
    for line in (SYSTEMD / UNIT).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith(("#", "[")):
            key, _, value = line.partition("=")
            found[key].append(value)
    return dict(found)


@needs_systemd
def test_systemd_finds_nothing_wrong(host: Path) -> None:
    found = analyze(host, "verify")
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


@needs_systemd
def test_systemd_would_have_said_what_is_wrong(host: Path) -> None:
    unit = host / "etc/systemd/system" / UNIT
    unit.write_text(unit.read_text(encoding="utf-8").replace("KillMode=", "KilMode="), encoding="utf-8")
    assert "KilMode" in analyze(host, "verify").stderr


@needs_systemd
def test_the_exposure_is_below_two(host: Path) -> None:
    found = analyze(host, "security", "--offline=true", "--threshold=20")
    assert found.returncode == 0, found.stdout


def test_the_command_is_one_and_serves_this_machine(unit: dict[str, list[str]]) -> None:
    [command] = unit["ExecStart"]
    program, name, *flags = command.split()
    assert (program, name) == ("/opt/fallow/bin/fallow", "dashboard")
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    args = parser.parse_args(flags)
    assert is_loopback(args.host)
    assert args.insecure is False


def test_wrong_settings_are_not_tried_again(unit: dict[str, list[str]]) -> None:
    assert unit["Restart"] == ["on-failure"]
    assert unit["RestartPreventExitStatus"] == [str(UsageError.exit_code)]


def test_the_end_waits_for_those_who_are_being_answered(unit: dict[str, list[str]]) -> None:
    assert unit["KillMode"] == ["mixed"]
    assert unit["TimeoutStopSec"] == ["40s"]  # gunicorn's 30 s and some
    assert unit["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
