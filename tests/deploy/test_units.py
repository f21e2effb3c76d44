"""The units as Debian's own systemd judges them, and what they promise that systemd cannot judge."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from analytics.commands import follow
from analytics.commands.report_send import add_send_arguments
from analytics.delivery.editions import CLOSES_AFTER_MS
from analytics.scraped.server.connection import ServerLimits
from dashboard import command as dashboard
from dashboard.access.hosts import is_loopback
from fallow import config
from fallow.clock import HOUR_MS, SECOND_MS, parse_duration_ms
from fallow.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

SYSTEMD = Path(__file__).resolve().parents[2] / "deploy" / "systemd"
_SYSTEM_UNITS = Path("/usr/lib/systemd/system")

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None or not (_SYSTEM_UNITS / "sysinit.target").exists(),
    reason="no systemd here to judge the unit (Debian: apt-get install systemd)",
)


def units_root(root: Path, *names: str) -> Path:
    """A root with systemd's units, those of ours that are named, and stand-ins for the two programs that they start."""
    shutil.copytree(_SYSTEM_UNITS, root / "usr/lib/systemd/system", symlinks=True)
    (root / "lib").symlink_to("usr/lib")
    for program in ("opt/fallow/bin/fallow", "bin/kill"):
        path = root / program
        path.parent.mkdir(parents=True)
        path.touch(mode=0o755)
    (root / "etc/systemd/system").mkdir(parents=True)
    for name in names:
        shutil.copy(SYSTEMD / name, root / "etc/systemd/system")
    return root


def analyze(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", "--no-pager", f"--root={root}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def settings_of(name: str) -> dict[str, list[str]]:
    """The unit's keys with their values, whatever their sections."""
    found = defaultdict(list)
    for line in (SYSTEMD / name).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith(("#", "[")):
            key, _, value = line.partition("=")
            found[key].append(value)
    return dict(found)


UNIT = "fallow-agent.service"


@pytest.fixture
def host(tmp_path: Path) -> Path:
    return units_root(tmp_path, UNIT)


def change(host: Path, old: str, new: str) -> None:
    unit = host / "etc/systemd/system" / UNIT
    text = unit.read_text(encoding="utf-8")
    assert old in text
    unit.write_text(text.replace(old, new), encoding="utf-8")


def add_drop_in(host: Path, name: str) -> None:
    folder = host / "etc/systemd/system" / f"{UNIT}.d"
    folder.mkdir()
    shutil.copy(SYSTEMD / "drop-ins" / name, folder)


@needs_systemd
@pytest.mark.parametrize("drop_in", [None, "attribution.conf"])
def test_systemd_finds_nothing_wrong_and_an_exposure_below_three(host: Path, drop_in: str | None) -> None:
    if drop_in is not None:
        add_drop_in(host, drop_in)
    found = analyze(host, "verify", UNIT)
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")
    found = analyze(host, "security", "--offline=true", "--threshold=30", UNIT)
    assert found.returncode == 0, found.stdout
    assert "Overall exposure level" in found.stdout


@needs_systemd
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [("RestartSec=", "RestartSecs=", "RestartSecs"), ("/opt/fallow/bin/fallow", "/opt/fallow/fallow", "executable")],
)
def test_systemd_would_have_said_what_is_wrong(host: Path, old: str, new: str, said: str) -> None:
    change(host, old, new)
    assert said in analyze(host, "verify", UNIT).stderr


@needs_systemd
def test_a_loosened_unit_is_above_three(host: Path) -> None:
    change(
        host, "\nCapabilityBoundingSet=\n", "\nCapabilityBoundingSet=CAP_SYS_ADMIN CAP_SYS_PTRACE CAP_DAC_OVERRIDE\n"
    )
    change(host, "\nSystemCallFilter=@system-service\nSystemCallFilter=~@privileged\n", "\n")
    assert analyze(host, "security", "--offline=true", "--threshold=30", UNIT).returncode == 1


@needs_systemd
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make users, also in a folder of its own")
def test_the_user_that_the_unit_names_is_made(host: Path, settings: dict[str, list[str]]) -> None:
    (host / "usr/lib/sysusers.d").mkdir()
    shutil.copy(SYSTEMD / "fallow.sysusers.conf", host / "usr/lib/sysusers.d/fallow.conf")
    subprocess.run(["systemd-sysusers", f"--root={host}"], check=True, capture_output=True)
    users = (host / "etc/passwd").read_text(encoding="utf-8")
    groups = (host / "etc/group").read_text(encoding="utf-8")
    assert users.startswith(f"{settings['User'][0]}:")
    assert groups.startswith(f"{settings['Group'][0]}:")


@pytest.fixture
def settings() -> dict[str, list[str]]:
    """What the unit says, by key."""
    return settings_of(UNIT)


def test_the_unit_fits_the_example_configuration(settings: dict[str, list[str]]) -> None:
    example = SYSTEMD.parent / "fallow.toml"
    loaded = config.load({}, str(example), {})
    [proposed] = re.findall(r'^# path = "(/.*)"$', example.read_text(encoding="utf-8"), re.MULTILINE)
    assert settings["ReadWritePaths"] == [f"-{proposed}"]
    assert [f"/var/lib/{name}" for name in settings["StateDirectory"]] == [loaded.text("agent.spool")]


def test_the_packages_make_what_the_unit_names(settings: dict[str, list[str]]) -> None:
    """Place, user and spool are the same in the unit, the sysusers file and the packages' setup."""
    setup = (SYSTEMD.parent / "packages/setup").read_text(encoding="utf-8")
    [start], [user] = settings["ExecStart"], settings["User"]
    [place] = re.findall(r"^place=(.*)$", setup, re.MULTILINE)
    assert start == f"{place}/bin/fallow agent run"
    assert f"\nu     {user} " in (SYSTEMD / "fallow.sysusers.conf").read_text(encoding="utf-8")
    assert f"install -d -o {user} -g {user} -m 750 /var/lib/{settings['StateDirectory'][0]}\n" in setup


def test_the_watchdog_outlasts_driver_calls_that_never_return(settings: dict[str, list[str]]) -> None:
    loaded = config.load({}, None, {"FALLOW_CONFIG": str(SYSTEMD.parent / "fallow.toml")})
    [watchdog] = settings["WatchdogSec"]
    assert settings["Type"] == ["notify"]
    assert parse_duration_ms(watchdog) >= 6 * loaded.integer("agent.call_timeout") >= 6 * SECOND_MS


def test_what_the_unit_ends_tries_again_and_bounds(settings: dict[str, list[str]]) -> None:
    # no driver call is ever killed, and a stuck one keeps no agent from starting: signals go to the main process alone;
    # with `mixed` or `control-group` systemd would kill the worker or (SendSIGKILL=no) refuse a start while it lives
    assert settings["KillMode"] == ["process"]
    assert "SendSIGKILL" not in settings
    assert settings["OOMPolicy"] == ["continue"]
    assert settings["RestartPreventExitStatus"] == [str(UsageError.exit_code)], "wrong settings are not tried again"
    assert {"MemoryHigh", "MemoryMax", "CPUQuota", "TasksMax"} <= settings.keys()
    assert settings["DevicePolicy"] == ["closed"]
    assert settings["DeviceAllow"] == ["char-195 rw", "char-nvidia-caps r"], "only the GPUs"


LOOSE = """\
CapabilityBoundingSet=CAP AmbientCapabilities=CAP DeviceAllow PrivateDevices=no PrivateNetwork=no PrivateUsers=no
ProcSubset=all ProtectProc=default ReadWritePaths RestrictAddressFamilies SystemCallFilter UMask"""


def test_every_loosening_says_why() -> None:
    seen = set()
    for path in (SYSTEMD / UNIT, *(SYSTEMD / "drop-ins").glob("*.conf")):
        explained = False
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("# ---") or not line:
                explained = False
            elif line.startswith("#"):
                explained = True
            for setting in LOOSE.split():
                if line.startswith(setting):
                    seen.add(setting)
                    assert explained, f"{path.name}: {line}"
    assert seen == set(LOOSE.split())


DASHBOARD, FOLLOW, REPORT = (f"fallow-{name}.service" for name in ("dashboard", "follow", "report"))
TIMER = "fallow-report.timer"
SERVICES = (DASHBOARD, FOLLOW, REPORT)


@needs_systemd
@pytest.mark.parametrize("name", [*SERVICES, TIMER])
def test_systemd_finds_nothing_wrong_with_a_service_and_would_have(tmp_path: Path, name: str) -> None:
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


def test_the_dashboard_serves_this_machine_and_the_follower_keeps_its_state_where_it_may_write() -> None:
    args = flags_of(DASHBOARD, "dashboard", dashboard.add_arguments)
    assert (is_loopback(args.host), args.insecure) == (True, False)
    flags_of(FOLLOW, "follow", follow.VERB.add_arguments)
    unit = settings_of(FOLLOW)
    assert f"XDG_STATE_HOME=/var/lib/{unit['StateDirectory'][0]}" in unit["Environment"]


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
    command = ["systemd-analyze", "calendar", "--iterations=3", "--base-time=2026-11-18 00:00:00 UTC", when]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={"TZ": "UTC"})
    times = [line.split(": ", 1)[1] for line in done.stdout.splitlines() if "elapse" in line or "Iter. #" in line]
    found = [datetime.strptime(each.strip(), "%a %Y-%m-%d %H:%M:%S UTC").replace(tzinfo=UTC) for each in times]
    assert [each.strftime("%F %R") for each in found] == ["2026-11-23 06:00", "2026-11-30 06:00", "2026-12-07 06:00"]
    assert CLOSES_AFTER_MS == 6 * HOUR_MS


def test_the_report_is_last_weeks_and_catches_up_within_bounds() -> None:
    args = flags_of(REPORT, "report send", add_send_arguments)
    assert (args.week, args.catch_up, args.to) == ("last", True, None), "its command holds no secret"
    assert (settings_of(TIMER)["Persistent"], settings_of(TIMER)["Unit"]) == (["true"], [REPORT])
    unit = settings_of(REPORT)
    assert unit["Type"] == ["oneshot"]
    assert {"StartLimitBurst", "TimeoutStartSec", "MemoryMax"} <= unit.keys()
