"""The follower's unit as systemd judges it, its manifests, and what they promise."""

from __future__ import annotations

import argparse
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from analytics.commands.follow import add_arguments
from analytics.scraped.server.limits import ServerLimits
from fallow import config
from fallow.errors import UsageError

SYSTEMD = Path(__file__).resolve().parents[2] / "deploy" / "systemd"
UNIT = "fallow-follow.service"
MANIFESTS = SYSTEMD.parent / "kubernetes" / "follow"
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


def test_the_command_is_one_and_its_state_is_where_the_unit_may_write(unit: dict[str, list[str]]) -> None:
    [command] = unit["ExecStart"]
    program, name, *flags = command.split()
    assert (program, name) == ("/opt/fallow/bin/fallow", "follow")
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    parser.parse_args(flags)
    assert f"XDG_STATE_HOME=/var/lib/{unit['StateDirectory'][0]}" in unit["Environment"]


def test_wrong_settings_are_not_tried_again(unit: dict[str, list[str]]) -> None:
    assert unit["Restart"] == ["on-failure"]
    assert unit["RestartPreventExitStatus"] == [str(UsageError.exit_code)]


def test_the_end_waits_for_an_answer_of_the_server(unit: dict[str, list[str]]) -> None:
    assert unit["TimeoutStopSec"] == [f"{ServerLimits.silence_s + 30:.0f}s"]


def test_the_pod_runs_the_command_and_listens_where_it_is_asked(tmp_path: Path) -> None:
    deployment, settings = (
        yaml.safe_load((MANIFESTS / name).read_text(encoding="utf-8")) for name in ("deployment.yaml", "config.yaml")
    )
    for version in ("1.29", kubernetes_validate.latest_version()):
        kubernetes_validate.validate(deployment, version, strict=True)
        kubernetes_validate.validate(settings, version, strict=True)
    pod = deployment["spec"]["template"]["spec"]
    [container] = pod["containers"]
    file = tmp_path / "fallow.toml"
    file.write_text(settings["data"]["fallow.toml"], encoding="utf-8")
    loaded = config.load({}, str(file), {})
    assert container["args"] == ["follow", "prometheus"]
    assert loaded.text("follow.listen") == f"0.0.0.0:{container['ports'][0]['containerPort']}"
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert {"name": "XDG_STATE_HOME", "value": mounts["state"]} in container["env"]
    assert pod["terminationGracePeriodSeconds"] == 90
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
