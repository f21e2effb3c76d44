"""Two real agents with one host name and one lake, in either order and with kill -9: no row twice, none lost, and both say so."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from agent.spool.spool import Spool
from tests.attacks.agents import AttackedHost, until
from tests.attacks.on_agents import two_gpus
from tests.lakes import made_lake

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.long


@pytest.fixture
def hosts(tmp_path: Path) -> list[AttackedHost]:
    """Two machines that were both given the name gn001."""
    lake = made_lake(tmp_path / "lake")
    found = []
    for number, name in enumerate(("one", "two"), 1):
        (tmp_path / name).mkdir()
        machine = tmp_path / name / "machine-id"
        machine.write_text(f"{number}" * 32)
        found.append(
            AttackedHost.make(
                tmp_path / name,
                two_gpus(name),
                lake,
                name="gn001",
                agent_machine_id=str(machine),
                kubernetes_pod_resources="",
            )
        )
    return found


def said(host: AttackedHost) -> str:
    state = host.status().get("publishing", {})
    return f"{state.get('last_error')} {state.get('name_conflict')}"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_first_keeps_the_name_and_the_second_takes_over_when_it_is_killed(
    hosts: list[AttackedHost], order: tuple[int, int]
) -> None:
    first, second = (hosts[number] for number in order)
    with first.running() as killed:
        until(first.published, "a first publishing")
        with second.running():
            until(lambda: "another agent publishes as gn001" in said(second), "the second agent's warning")
            until(lambda: "another agent calls itself gn001 too" in said(first), "the first agent's warning")
            killed.kill()
            until(lambda: list(second.spool.glob("other-name-*")), "the second agent's taking over")
            before = len(first.rows("host"))
            until(lambda: len(first.rows("host")) > before, "rows of the second agent")
    times = Counter(row["time"] for row in first.rows("host"))
    assert set(times.values()) == {1}, "each interval has the row of one of the two"
    [aside] = second.spool.glob("other-name-*")
    with closing(Spool(str(aside))) as spool:
        kept = {
            row.time_ms for each in spool.stretches_until(2**62) for row in spool.rows_of(each) if row.table == "host"
        }
    assert kept
    done = second.fallow("agent", "publish", "--spool", str(aside), "--host", "gn002", "--lake", first.lake.root)
    assert done.returncode == 0, done
    assert {row["time"] for row in first.rows("host") if row["host"] == "gn002"} == kept
    check = first.fallow("lake", "check", "--lake", first.lake.root)
    assert check.returncode == 0, check
