"""Hundreds of ticks of the real agent: it stays as small as it began. `make bench` runs ten thousand."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.conftest import REPOSITORY
from tests.fakes.nvml import ms_ago, standard_fleet

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tests.agent.conftest import FakeHost
    from tests.fakes.nvml import Scenario

pytestmark = pytest.mark.long

INTERVAL_MS = 25
TICKS = 600
WARM = 150
GROWTH_BYTES = 1_000_000
"""Over the ticks after the first 150: one row of one GPU that is kept by mistake in every tick takes more."""


@pytest.fixture
def seen(
    fake_host: Callable[[Scenario], FakeHost], sleeper: subprocess.Popen[bytes]
) -> tuple[list[dict[str, Any]], list[int]]:
    """The agent's own rows after a run, and the descriptors of supervisor and worker while it ran."""
    host = fake_host(standard_fleet(ms_ago(60), [sleeper.pid]))
    fast_agent = ["-m", "tests.agent.fast_agent", host.lake.root, str(host.spool), str(INTERVAL_MS), str(TICKS)]
    agent = subprocess.Popen([sys.executable, "-W", "error", *fast_agent], cwd=REPOSITORY, env=host.environment)
    try:
        descriptors = _watch(agent)
        assert agent.wait(timeout=240) == 0
    finally:
        agent.kill()
        agent.wait()
    return host.rows("agent"), descriptors


def test_memory_and_descriptors_stay_flat(seen: tuple[list[dict[str, Any]], list[int]]) -> None:
    rows, descriptors = seen
    assert len(rows) >= TICKS * 2 // 3, "it missed too many intervals to tell"
    for process in ("supervisor", "worker"):
        resident = [row[f"{process}_rss_bytes"] for row in rows[WARM:]]
        tenth = len(resident) // 10
        growth = statistics.median(resident[-tenth:]) - statistics.median(resident[:tenth])
        assert growth < GROWTH_BYTES, f"the {process} grew by {growth:,.0f} bytes in {len(resident)} ticks"
    # a publisher or a look at /proc holds some for a moment: a leak raises the least of them
    quarter = len(descriptors) // 4  # the first one sees the agent start
    assert min(descriptors[-quarter:]) <= min(descriptors[quarter : 2 * quarter]), f"descriptors leak: {descriptors}"


def _watch(agent: subprocess.Popen[bytes]) -> list[int]:
    """Descriptors of both processes, several times a second, while both are there."""
    counts = []
    while agent.poll() is None:
        time.sleep(0.2)
        try:
            both = [psutil.Process(agent.pid), *_workers(agent.pid)]
            if len(both) == 2:
                counts.append(sum(process.num_fds() for process in both))
        except psutil.Error:  # it has just ended
            continue
    return counts


def _workers(pid: int) -> list[psutil.Process]:
    return [child for child in psutil.Process(pid).children() if "agent.nvml.worker" in child.cmdline()]
