"""What deploy/ holds can be used as it is."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from fallow import config

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


def test_the_example_configuration_loads() -> None:
    loaded = config.load({}, str(DEPLOY / "fallow.toml"), {})
    assert loaded.text("lake.path") == "/srv/fallow/lake"
    assert loaded.integer("agent.interval") == 10_000


def test_the_unit_starts_the_agent_and_may_write_where_the_configuration_says() -> None:
    unit = (DEPLOY / "systemd" / "fallow-agent.service").read_text(encoding="utf-8")
    loaded = config.load({}, str(DEPLOY / "fallow.toml"), {})
    assert "ExecStart=/opt/fallow/bin/fallow agent run\n" in unit
    assert loaded.text("lake.path") in unit
    assert f"StateDirectory={Path(loaded.text('agent.spool')).name}\n" in unit


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    # the command has to exist for systemd to be content; everything else is the unit as it is
    unit = (DEPLOY / "systemd" / "fallow-agent.service").read_text(encoding="utf-8")
    copy = tmp_path / "fallow-agent.service"
    copy.write_text(unit.replace("/opt/fallow/bin/fallow agent run", "/bin/true"), encoding="utf-8")
    found = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
