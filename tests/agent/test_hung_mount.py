"""A lake on a mount that hangs in the middle of a system call, under a real agent: sampling goes on, the end comes, no row is lost."""

from __future__ import annotations

from contextlib import closing
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from agent.spool.spool import Spool
from tests.agent.conftest import wait_until
from tests.fakes.files import FaultyFiles
from tests.fakes.nvml import Gpu, Scenario, constant, library_folder, ms_ago

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.agent.conftest import FakeHost


def waiting(host: FakeHost) -> int:
    with closing(Spool(str(host.spool))) as spool:
        return spool.count()


@pytest.mark.long
def test_an_agent_whose_lake_hangs_samples_on_and_ends_when_it_is_told_to(
    fake_host: Callable[[Scenario], FakeHost],
) -> None:
    host = fake_host(Scenario((Gpu("GPU-a", util=constant(60)),), ms_ago(20)))
    host.environment.update(FaultyFiles.environment_of(host.folder / "page", library_folder()))
    host.environment["FALLOW_AGENT_PUBLISH_EVERY"] = "1s"
    mount = FaultyFiles(host.folder / "page")
    agent = host.start("--interval", "1s")
    try:
        wait_until(lambda: len(host.rows("gpu")) >= 2)
        with mount.below(host.folder / "lake", "hang"):
            wait_until(lambda: mount.count > 0)
            before = waiting(host)
            wait_until(lambda: waiting(host) >= before + 6)
            agent.terminate()
            assert agent.wait(60) == 0, "it waits for no thread that hangs"
            assert waiting(host) > before
            times = [row["time"] for row in host.rows("gpu")]
    finally:
        agent.kill()
        agent.wait()
    assert host.run("--interval", "1s", "--for", "1s").returncode == 0
    rows = host.rows("gpu")
    found = [row["time"] for row in rows]
    assert len(set(found)) == len(found) > len(times) + 3
    assert min(after - earlier for earlier, after in pairwise(found)) == 1000
    kinds = [row["kind"] for row in host.rows("event")]
    assert "agent_killed" not in kinds
    assert kinds.count("agent_stop") == 2
