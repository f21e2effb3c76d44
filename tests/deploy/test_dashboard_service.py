"""The dashboard's unit as systemd judges it, and what it promises that it cannot judge."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import pytest

from dashboard.access.hosts import is_loopback
from dashboard.command import add_arguments
from fallow.errors import UsageError
from tests.deploy.unit_file import JudgedUnit, needs_systemd, settings_of

if TYPE_CHECKING:
    from pathlib import Path

UNIT = "fallow-dashboard.service"


@pytest.fixture
def unit() -> dict[str, list[str]]:
    return settings_of(UNIT)


@needs_systemd
def test_systemd_finds_nothing_wrong_and_would_have(tmp_path: Path) -> None:
    JudgedUnit.installed(UNIT, tmp_path).assert_sound()


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
