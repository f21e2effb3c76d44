"""The follower's unit as systemd judges it, its manifests, and what they promise."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import kubernetes_validate
import pytest
import yaml

from analytics.commands.follow import add_arguments
from analytics.scraped.server.limits import ServerLimits
from fallow import config
from fallow.errors import UsageError
from tests.deploy.unit_file import SYSTEMD, JudgedUnit, needs_systemd, settings_of

if TYPE_CHECKING:
    from pathlib import Path

UNIT = "fallow-follow.service"
MANIFESTS = SYSTEMD.parent / "kubernetes" / "follow"


@pytest.fixture
def unit() -> dict[str, list[str]]:
    return settings_of(UNIT)


@needs_systemd
def test_systemd_finds_nothing_wrong_and_would_have(tmp_path: Path) -> None:
    JudgedUnit.installed(UNIT, tmp_path).assert_sound()


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
