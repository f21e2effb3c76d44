"""The follower's unit as systemd judges it, and what it promises."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import pytest

from analytics.commands.follow import add_arguments
from analytics.scraped.server.connection import ServerLimits
from fallow.errors import UsageError
from tests.deploy.unit_file import JudgedUnit, needs_systemd, settings_of

if TYPE_CHECKING:
    from pathlib import Path

UNIT = "fallow-follow.service"


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
