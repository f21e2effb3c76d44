"""What every test may use: a lake in a temporary folder, and the command as a user runs it."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from hypothesis import settings

from tests.lakes import made_lake

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fallow.lake import Lake

# how long an example takes says more about the machine than about the code; the same examples in every run, so that a
# change is judged by what it changed: `make test-all` tries more of them, `make fuzz` looks for new ones
settings.register_profile("fallow", deadline=None, derandomize=True, max_examples=8)
settings.register_profile("more", deadline=None, derandomize=True, max_examples=40)
settings.register_profile("random", deadline=None, derandomize=False, print_blob=True)
settings.load_profile("fallow")


def pytest_configure() -> None:
    """Thousands of collected cases stay to the end; without this, garbage collection takes a tenth of the run."""
    gc.set_threshold(100_000, 20, 50)


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Lets the interpreter collect what was set aside: DuckDB's module reports all that is left of it as leaked."""
    gc.unfreeze()


REPOSITORY = Path(__file__).resolve().parent.parent

SHARING = {
    "tests/promises/": "",
    "tests/report/": "",
    "tests/dashboard/test_": (
        "capacity_page charts metrics_route overview plan_pages recommendations_page right_size_page tables "
        "users_page what_if_page"
    ),
    "tests/dashboard/test_numbers": "",
}
"""Prefix -> continuations of names of files that ask one lake many things: one worker shares a report among them."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Gives files that share results to one worker. Long tests take too long for that."""
    from xdist.scheduler.loadfile import LoadFileScheduling

    class Sharing(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            for begins, goes_on in SHARING.items():
                rest = file.removeprefix(begins).removesuffix(".py")
                if file.startswith(begins) and (not goes_on or rest in goes_on.split()):
                    return begins
            return file

    is_quick = config.getoption("dist") == "loadfile" and "not long" in config.getoption("markexpr")
    return Sharing(config, log) if is_quick else None


class RunFallow(Protocol):
    """Runs `fallow` with these arguments and returns what it printed and its exit code."""

    def __call__(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]: ...


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment without any setting of fallow's and the terminal's size, so that no test sees the machine's."""
    others = ("FALLOW_", "PYTHON", "COLUMNS", "LINES")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    return kept | {"PYTHONPATH": str(REPOSITORY)} | dict(extra or {})


def run_python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs this Python with warnings as errors, from the checkout, in a clean environment."""
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=REPOSITORY,
        env=clean_environment(environment),
    )


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """An empty lake."""
    return made_lake(tmp_path / "lake")


@pytest.fixture
def run_fallow() -> RunFallow:
    """The command in a process of its own: keyword arguments become environment variables."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return run_python("-m", "fallow", *arguments, **environment)

    return run


@pytest.fixture
def low_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Findings of low confidence are listed and counted like others: a lake of days has few of the others."""
    from analytics.workloads.model import Confidence  # the agent's tests need no analytics

    monkeypatch.setattr(Confidence, "is_low", False)
