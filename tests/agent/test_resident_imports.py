"""What the agent's resident processes load: each of these modules is memory that every GPU host pays for all the time."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

HEAVY = {"pyarrow", "numpy", "pandas", "polars", "duckdb", "obstore", "rich", "asyncio"}
SPARED = {"difflib"}
"""The standard library's: wanted with an error alone."""


def loaded(code: str) -> set[str]:
    """The modules that a process has loaded after some code."""
    show = f"{code}\nimport json, sys; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", show], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("code", "needed", "unwanted"),
    [
        ("import fallow.cli, agent.command, agent.supervise.supervisor", "sqlite3", {"arro3.io", "pynvml"}),
        ("import fallow.cli, agent.supervise.supervisor, agent.spool.publisher", "arro3.io", {"pynvml"}),
        ("import agent.nvml.worker", "pynvml", {"arro3.io", "psutil", "sqlite3", "subprocess"}),
    ],
    ids=["supervisor", "supervisor that publishes", "worker"],
)
def test_no_process_loads_what_it_can_do_without(code: str, needed: str, unwanted: set[str]) -> None:
    modules = loaded(code)
    assert needed in modules
    assert not modules & (HEAVY | SPARED | unwanted)
