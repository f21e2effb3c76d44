"""Pseudonyms over a whole run: no name in spool, lake, scrape or snapshot; imports give a person the same pseudonym."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from agent.metrics.collector import collect
from analytics.frames import read_frame
from fallow import schema
from fallow.cli import main
from fallow.errors import ConfigError
from fallow.exposition import TEXT
from fallow.pseudonyms import Pseudonyms
from tests.agent.conftest import login_name
from tests.agent.simulation import START_MS, SimulatedHost
from tests.fakes.nvml import Gpu, Process, Scenario

if TYPE_CHECKING:
    from pathlib import Path

    from agent.snapshot import Snapshot
    from fallow.lake import Lake

UUID = "GPU-aaaaaaaa-0000-4000-8000-000000000001"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "pseudonym.key"
    path.write_text("7" * 64)
    path.chmod(0o640)
    return path


@pytest.fixture
def host(tmp_path: Path, library: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch, key_file: Path) -> SimulatedHost:
    scenario = Scenario((Gpu(UUID, processes=(Process(os.getpid()),)),), start_ms=START_MS - 60_000)
    on = {"agent.pseudonymise_users": "on", "agent.pseudonym_key_file": str(key_file), "agent.process_interval": "1s"}
    return SimulatedHost(tmp_path, library, lake, scenario, monkeypatch, on)


def users(host: SimulatedHost) -> set[str]:
    return {row["user"] for row in host.rows("process") if row["user"] is not None}


def texts(value: Any) -> set[str]:
    """Every text in a value, however deep."""
    if isinstance(value, dict):
        return {text for each in value.values() for text in texts(each)}
    if isinstance(value, list | tuple):
        return {text for each in value for text in texts(each)}
    return {value} if isinstance(value, str) else set()


def test_no_name_is_written_or_shown_and_an_import_finds_the_person(
    host: SimulatedHost, key_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[tuple[Snapshot, float]] = []
    host.at(
        3.5,
        lambda supervisor: seen.append(supervisor._board.latest_with_age()),  # type: ignore[arg-type] # noqa: SLF001
    )
    host.run(5)
    pseudonym = Pseudonyms.load(str(key_file)).of(login_name())
    assert users(host) == {pseudonym}
    written = texts([host.rows(table.name) for table in schema.TABLES if not table.derived])
    assert pseudonym in written
    assert login_name() not in written
    [(snapshot, _)] = seen
    shown = json.dumps(snapshot.as_json())  # what the control socket hands out
    scraped = collect((snapshot, 0.1)).render(TEXT).decode()
    assert f'user="{pseudonym}"' in scraped
    assert f'user="{login_name()}"' not in scraped
    assert f'"user": "{login_name()}"' not in shown

    table = tmp_path / "allocations.csv"
    table.write_text(f"start,end,gpu,user\n2026-11-20T10:00Z,2026-11-20T11:00Z,{UUID},{login_name()}\n")
    arguments = ["allocations", "import", "csv", str(table), "--lake", host.lake.root, "--pseudonym-key", str(key_file)]
    for _ in range(2):  # a second import of the same changes nothing
        assert main(arguments) == 0, capsys.readouterr().err
    allocations = read_frame(host.lake.files("allocation"), schema.ALLOCATION)
    assert allocations["user"].to_list() == [pseudonym]


def test_a_key_that_is_lost_ends_no_run_and_shows_nobody(host: SimulatedHost, key_file: Path) -> None:
    def lose(supervisor: Any) -> None:
        key_file.unlink()
        supervisor.reload()

    host.at(2.5, lose)
    host.run(5)
    kinds = [row["kind"] for row in host.rows("event")]
    assert "config_rejected" in kinds
    assert users(host) == {Pseudonyms(b"7" * 64).of(login_name())}


def test_an_agent_without_its_key_does_not_start(host: SimulatedHost, key_file: Path) -> None:
    key_file.chmod(0o644)
    with pytest.raises(ConfigError, match="others can read"):
        host.run(2)
    key_file.unlink()
    with pytest.raises(ConfigError, match="cannot read"):
        host.run(2)
    assert not host.lake.files("process")
