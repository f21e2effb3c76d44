"""What the agent's resident processes load: each of these modules is memory that every GPU host pays for all the time."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

HEAVY = {"pyarrow", "numpy", "pandas", "polars", "duckdb", "obstore", "rich", "asyncio"}
SPARED = {"inspect", "ast", "dis", "difflib"}
"""The standard library's: 2 MiB together."""


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


DATACLASSES = """
import sys
import fallow
from dataclasses import asdict, dataclass, field, fields, replace

@dataclass(frozen=True, slots=True)
class Row:
    gpu: str
    values: list = field(default_factory=list)

@dataclass(frozen=True)
class Wide(Row):
    more: "int" = 3

assert "inspect" not in sys.modules
assert [each.name for each in fields(Wide)] == ["gpu", "values", "more"]
assert asdict(replace(Wide("a"), more=4)) == {"gpu": "a", "values": [], "more": 4}
import inspect
assert str(inspect.signature(Row)).startswith("(gpu: ")
assert inspect.isclass(Row)
"""


def test_dataclasses_are_the_same_without_inspect_which_is_there_for_whoever_imports_it() -> None:
    loaded(DATACLASSES)
