"""An agent over the test driver in a bare Debian: started, asked and ended, and what it has left in the lake."""

from __future__ import annotations

import json
import os
import subprocess
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from fallow.lake import Lake
from tests.agent.conftest import wait_until
from tests.agent.spooled import rows_of
from tests.deploy.chroot import Chroot
from tests.fakes.nvml import Gpu, Process, Scenario, constant, ms_ago

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

INTERVAL_S = 4
FALLOW = "/opt/fallow/bin/fallow"
LAKE = "/srv/fallow/lake"
# What a service manager does, for a Debian in which none runs: ends the agent, waits for it and starts another one.
RESTART = """#!/bin/sh
pid=$(cat /run/agent.pid)
kill $pid && while kill -0 $pid 2>/dev/null; do sleep 0.05; done
setpriv --reuid fallow --regid fallow --clear-groups /opt/fallow/bin/fallow agent run </dev/null >/run/agent.log 2>&1 &
echo $! >/run/agent.pid
"""


@pytest.fixture
def debian(tmp_path: Path) -> Iterator[Chroot]:
    gpus = tuple(Gpu(f"GPU-{n}", util=constant(80), processes=(Process(os.getpid()),)) for n in range(8))
    root = tmp_path / "root"
    root.mkdir()
    made = Chroot.unpacked(root, Scenario(gpus, ms_ago(60)))
    yield made
    if (pid := made.at("/run/agent.pid")).exists():
        made.run("sh", "-c", f"kill {pid.read_text().strip()}; true")
        wait_until(lambda: status(made) is None)


def status(debian: Chroot) -> dict[str, Any] | None:
    """What the agent inside says of itself; None where none runs."""
    command = debian.command(FALLOW, "agent", "status", "--json")
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=debian.environment())
    found: dict[str, Any] | None = json.loads(done.stdout) if done.returncode == 0 else None
    return found


def closes_intervals(debian: Chroot, version: str) -> None:
    def does() -> bool:
        now = status(debian)
        return now is not None and now["version"] == version and now["time_ms"] is not None

    wait_until(does, 60)


def write_restart(debian: Chroot) -> None:
    """Puts in what stands for a service manager."""
    script = debian.at("/usr/local/bin/restart-agent")
    script.write_text(RESTART, encoding="utf-8")
    script.chmod(0o755)
    debian.at("/run/agent.pid").write_text("4000000\n", encoding="utf-8")  # nobody's


def make_lake(debian: Chroot) -> None:
    debian.run("install", "-d", "-o", "fallow", "-g", "fallow", LAKE)
    debian.run(FALLOW, "lake", "init", "--lake", LAKE, user="fallow")


def restart(debian: Chroot) -> None:
    debian.run("restart-agent")


def gaps(debian: Chroot) -> list[tuple[int, int]]:
    """Stretches without a row of GPU-0, in the lake once the agent has ended, as start and number of intervals."""
    rows = [row for row in rows_of(Lake.at(str(debian.at(LAKE))), "gpu") if row["gpu"] == "GPU-0"]
    times = [row["time"] for row in rows]
    assert len(times) == len(set(times)) > 0
    step_ms = INTERVAL_S * 1000
    return [(early, (late - early) // step_ms - 1) for early, late in pairwise(times) if late - early > step_ms]


def stop(debian: Chroot) -> None:
    debian.run("sh", "-c", "kill $(cat /run/agent.pid)")
    wait_until(lambda: status(debian) is None)
    debian.at("/run/agent.pid").unlink()
