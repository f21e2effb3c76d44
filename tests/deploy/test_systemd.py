"""The unit as Debian's own systemd judges it, and what it promises that systemd cannot judge."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from fallow import config
from fallow.clock import SECOND_MS, parse_duration_ms
from fallow.errors import UsageError
from tests.deploy.unit_file import SYSTEMD, analyze, needs_systemd, settings_of, units_root

if TYPE_CHECKING:
    from pathlib import Path

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
    # no driver call is ever killed, and a stuck one keeps no agent from starting: signals go to the main process alone; with
    # `mixed` or `control-group` systemd would kill the worker, or, with SendSIGKILL=no, refuse the next start while it lives
    assert settings["KillMode"] == ["process"]
    assert "SendSIGKILL" not in settings
    assert settings["OOMPolicy"] == ["continue"]
    assert settings["RestartPreventExitStatus"] == [str(UsageError.exit_code)], "wrong settings are not tried again"
    assert {"MemoryHigh", "MemoryMax", "CPUQuota", "TasksMax"} <= settings.keys()
    assert settings["DevicePolicy"] == ["closed"]
    assert settings["DeviceAllow"] == ["char-195 rw", "char-nvidia-caps r"], "only the GPUs"


LOOSE = """CapabilityBoundingSet=CAP AmbientCapabilities=CAP DeviceAllow PrivateDevices=no PrivateNetwork=no PrivateUsers=no
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
