"""Two real agents with one host name and one lake, in either order, with kill -9: no row twice or lost; both warn."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from agent.spool.spool import Spool
from tests.agent.conftest import wait_until
from tests.agent.spooled import rows_of
from tests.conftest import REPOSITORY, clean_environment
from tests.fakes.nvml import Gpu, Scenario, constant, library_folder, ms_ago
from tests.lakes import made_lake

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fallow.lake import Lake

pytestmark = pytest.mark.long


@dataclass(frozen=True)
class NamedHost:
    """A machine that was given the name gn001, with a driver, a spool and a lake."""

    folder: Path
    lake: Lake
    environment: dict[str, str]

    @classmethod
    def make(cls, folder: Path, number: int, lake: Lake) -> NamedHost:
        folder.mkdir()
        (folder / "machine-id").write_text(f"{number}" * 32)
        gpus = tuple(Gpu(f"GPU-{number}{index}", util=constant(60)) for index in (0, 1))
        scenario = Scenario(gpus, ms_ago(20))
        settings = {"INTERVAL": "1s", "PUBLISH_EVERY": "2s", "SPOOL": str(folder / "spool"), "HOST": "gn001"}
        settings |= {"MACHINE_ID": str(folder / "machine-id")}
        given = {f"FALLOW_AGENT_{name}": value for name, value in settings.items()}
        given |= {"FALLOW_LAKE_PATH": lake.root, "FALLOW_KUBERNETES_POD_RESOURCES": ""}
        played = scenario.environment(library_folder(), scenario.write(folder / "scenario"))
        return cls(folder, lake, clean_environment(played | given))

    @property
    def spool(self) -> Path:
        return self.folder / "spool"

    def fallow(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "fallow", *arguments]
        where = {"cwd": REPOSITORY, "env": self.environment, "timeout": 120}
        return subprocess.run(  # type: ignore[call-overload, no-any-return]
            command, capture_output=True, text=True, check=False, **where
        )

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        with (self.folder / "log").open("ab") as log:
            command = [sys.executable, "-m", "fallow", "agent", "run"]
            agent = subprocess.Popen(command, stdout=log, stderr=log, cwd=REPOSITORY, env=self.environment)
        try:
            yield agent
        finally:
            agent.terminate()
            agent.wait(60)

    def rows(self, table: str) -> list[dict[str, Any]]:
        return rows_of(self.lake, table)


@pytest.fixture
def hosts(tmp_path: Path) -> list[NamedHost]:
    lake = made_lake(tmp_path / "lake")
    return [NamedHost.make(tmp_path / name, number, lake) for number, name in enumerate(("one", "two"), 1)]


def said(host: NamedHost) -> str:
    answer = host.fallow("agent", "status", "--json").stdout
    state = json.loads(answer)["publishing"] if answer.startswith("{") else {}
    return f"{state.get('last_error')} {state.get('name_conflict')}"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_first_keeps_the_name_and_the_second_takes_over_when_it_is_killed(
    hosts: list[NamedHost], order: tuple[int, int]
) -> None:
    first, second = (hosts[number] for number in order)
    with first.running() as killed:
        wait_until(lambda: first.rows("gpu"))
        with second.running():
            wait_until(lambda: "another agent publishes under the name gn001" in said(second))
            wait_until(lambda: "another agent also has the name gn001" in said(first))
            killed.kill()
            wait_until(lambda: list(second.spool.glob("other-name-*")))
            before = len(first.rows("host"))
            wait_until(lambda: len(first.rows("host")) > before)
    times = Counter(row["time"] for row in first.rows("host"))
    assert set(times.values()) == {1}, "each interval has the row of one of the two"
    [aside] = second.spool.glob("other-name-*")
    with closing(Spool(str(aside))) as spool:
        kept = {
            row.time_ms for each in spool.segments_until(2**62) for row in spool.rows_of(each) if row.table == "host"
        }
    assert kept
    done = second.fallow("agent", "publish", "--spool", str(aside), "--host", "gn002")
    assert done.returncode == 0, done
    assert {row["time"] for row in first.rows("host") if row["host"] == "gn002"} == kept
    check = first.fallow("lake", "check")
    assert check.returncode == 0, check
