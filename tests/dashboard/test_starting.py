"""`fallow dashboard` starts and answers: whatever else is tested in process, this is what people type."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.dashboard.servers import answer, children, serving, threads

if TYPE_CHECKING:
    from fallow.lake import Lake


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_the_process_that_starts_the_others_has_no_threads_that_a_fork_would_lose(fleet_lake: Lake) -> None:
    with serving("dashboard", "--lake", fleet_lake.root, "--port", "0") as (server, address):
        names = threads(server.pid)
        [worker] = children(server.pid)
        assert "fallow" in answer(address)
        assert "polars-0" in threads(worker)
    assert not {each for each in names if each.startswith(("polars-0", "tokio", "async-executor"))}
